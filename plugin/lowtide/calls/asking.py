"""The engine of one call: asks a service about records, at most so many at once, again where a try failed.

A try ends by its answer, an exception or its time-out, whichever comes first; that one takes the try, and the others
find it taken. A function cannot be made to end: one that goes on after its time-out keeps its place among the
`concurrency` until it returns, and where all places are kept so, the process has to be made again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lowtide.calls.failures import FailedTry, checked, raised
from lowtide.calls.inside import Calling, calling
from lowtide.calls.outcome import Answered, CallFailed, Question
from lowtide.calls.resource import Resource
from lowtide.calls.setting import CallSetting
from lowtide.calls.threads import Threads

LOG = logging.getLogger(__name__)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
GRACE_S = 1.0
"""A function that has been cancelled, or goes on in its thread, hangs if it takes this much longer."""
CLOSE_LIMIT_S = 2.0


def pause_s(key: str, tries: int) -> float:
    """Return the pause after so many tries, in seconds: it doubles, and its jitter is a function of the call key.

    It lies between a half of and all of 0.1 s, 0.2 s, and so on up to 10 s.
    """
    longest = min(FIRST_PAUSE_S * 2.0 ** min(tries - 1, 10), LONGEST_PAUSE_S)
    drawn = int.from_bytes(hashlib.blake2b(f"{key}/{tries}".encode(), digest_size=4).digest(), "big")
    return longest * (0.5 + 0.5 * drawn / (1 << 32))


class _Open:
    """A question without its answer.

    Attributes:
        question: The question.
        tries: The tries that have failed.
        since: The loop's time since which it has waited for a try.
    """

    __slots__ = ("question", "since", "tries")

    def __init__(self, question: Question, tries: int, since: float) -> None:
        self.question = question
        self.tries = tries
        self.since = since


class _Try:
    """One call of the function.

    Attributes:
        portion: The questions that it asks.
        timer: Its time-out.
        task: What runs an async function.
        taken: True once its answer, exception or time-out has come.
        hangs: True if it goes on long after its time-out.
        ended: True once the function has returned.
    """

    __slots__ = ("ended", "hangs", "portion", "taken", "task", "timer")

    def __init__(self, portion: list[_Open]) -> None:
        self.portion = portion
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.taken = self.hangs = self.ended = False


class Asking:
    """Asks the questions of one call; lives in an event loop that runs, and every call of it comes from there.

    Attributes:
        retries: The number of tries so far that were not a question's first.

    Args:
        setting: The call.
        answered: Takes each question's answer, once.
        stuck: Called once all of the call's places hang.
        pause: The pause in s after a call key's so many tries.
    """

    def __init__(
        self,
        setting: CallSetting,
        answered: Callable[[Answered], None],
        *,
        stuck: Callable[[], None] = lambda: None,
        pause: Callable[[str, int], float] = pause_s,
    ) -> None:
        self.retries = 0
        self._setting = setting
        self._answered = answered
        self._stuck = stuck
        self._pause = pause
        self._loop = asyncio.get_running_loop()
        self._threads = None if setting.is_async else Threads(f"call-{setting.name}", self._loop)
        self._resource = Resource(setting.resource, self._threads)
        self._portion_size = setting.batch or 1
        self._open: dict[int, _Open] = {}
        self._ready: deque[_Open] = deque()
        """Those that wait for a try, by when they began to."""
        self._batch_timer: asyncio.TimerHandle | None = None
        self._running = 0
        self._hanging = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._closed = False
        self._begin()

    def ask(self, questions: Iterable[Question], tries: Mapping[int, int] | None = None) -> None:
        """Ask questions.

        Args:
            questions: The questions, none of which is open.
            tries: By id the tries that have failed in another process; none where an id is not there.
        """
        now = self._loop.time()
        for question in questions:
            one = _Open(question, tries.get(question.id, 0) if tries else 0, now)
            self._open[question.id] = one
            self._ready.append(one)
        self._begin()

    def tries(self) -> dict[int, int]:
        """Return by id the tries that have failed, of the open questions that have such."""
        return {id_: one.tries for id_, one in self._open.items() if one.tries}

    async def close(self) -> None:
        """End what is under way without an answer, and exit the resource; an error of it is logged."""
        self._closed = True
        tasks = [*self._tasks, *([self._opening] if self._opening else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_LIMIT_S)
        try:
            await self._resource.close()
        except Exception:
            LOG.exception('the resource of step "%s" could not be closed', self._setting.name)
        if self._threads is not None:
            self._threads.close()

    # -- tries -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin as many tries as there are places for."""
        if self._closed:
            return
        if not self._resource.opened:
            if self._opening is None:
                self._opening = self._loop.create_task(self._open_resource())
            return
        while self._running < self._setting.concurrency and (portion := self._portion()):
            self._try(portion)

    async def _open_resource(self) -> None:
        failed: FailedTry | None = None
        try:
            await self._resource.open()
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises
            if self._closed:
                return
            failed = raised(error, "its resource ")
        self._opening = None
        if failed is None:
            self._begin()
            return
        LOG.warning('step "%s": %s', self._setting.name, failed.what)
        waiting = list(self._ready)
        self._ready.clear()
        for one in waiting:
            self._failed(one, failed)

    def _portion(self) -> list[_Open]:
        """Take the questions of the next try; none if there are none, or they still wait for others."""
        ready, size = self._ready, self._portion_size
        if not ready:
            return []
        if len(ready) < size:
            left = ready[0].since + self._setting.within_s - self._loop.time()
            if left > 0:
                if self._batch_timer is None:
                    self._batch_timer = self._loop.call_later(left, self._waited)
                return []
            size = len(ready)
        return [ready.popleft() for _ in range(size)]

    def _waited(self) -> None:
        self._batch_timer = None
        self._begin()

    def _try(self, portion: list[_Open]) -> None:
        setting, loop = self._setting, self._loop
        keys = tuple([one.question.key for one in portion])
        arguments: list[Any]
        if setting.batch is None:
            arguments = [portion[0].question.row, *self._resource.arguments]
        else:
            arguments = [[one.question.row for one in portion], *self._resource.arguments]
        if setting.pass_keys:
            arguments.append(keys[0] if setting.batch is None else list(keys))
        self._running += 1
        this = _Try(portion)
        now = Calling(setting.name, keys)
        if self._threads is None:
            this.task = loop.create_task(self._call(this, now, arguments))
            self._tasks.add(this.task)
            this.task.add_done_callback(self._tasks.discard)
        else:
            self._threads.run(
                lambda: _called(setting.function, now, arguments), lambda value, error: self._ended(this, value, error)
            )
        this.timer = loop.call_later(setting.timeout_s, self._late, this)

    async def _call(self, this: _Try, now: Calling, arguments: list[Any]) -> None:
        calling.set(now)
        try:
            value = await self._setting.function(*arguments)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the user's function raises
            self._ended(this, None, error)
        else:
            self._ended(this, value, None)

    def _late(self, this: _Try) -> None:
        this.taken = True
        if this.task is not None:
            this.task.cancel()
        self._loop.call_later(GRACE_S, self._hangs, this)
        failed = FailedTry(f"gave no answer within {self._setting.timeout_s:g} s")
        for one in this.portion:
            self._failed(one, failed)

    def _hangs(self, this: _Try) -> None:
        if this.ended or self._closed:
            return
        this.hangs = True
        self._hanging += 1
        if self._hanging == self._setting.concurrency:
            self._stuck()

    def _ended(self, this: _Try, value: Any, error: BaseException | None) -> None:
        this.ended = True
        self._running -= 1
        self._hanging -= this.hangs
        if self._closed:
            return
        if not this.taken:
            this.taken = True
            assert this.timer is not None, "no function returns before it has begun"
            this.timer.cancel()
            if error is None:
                self._came(this.portion, value)
            else:
                failed = raised(error)
                for one in this.portion:
                    self._failed(one, failed)
        self._begin()

    # -- answers ---------------------------------------------------------------------------------------------------

    def _came(self, portion: Sequence[_Open], value: Any) -> None:
        """Take the function's result, which may be wrong."""
        results = [value]
        if self._setting.batch is not None:
            count = len(portion)
            if type(value) is not list or len(value) != count:
                found = f"{len(value)} results" if type(value) is list else type(value).__qualname__
                failed = FailedTry(f"returned {found} for a batch of {count}, expected a list of {count}")
                for one in portion:
                    self._failed(one, failed)
                return
            results = value
        for one, result in zip(portion, results, strict=True):
            answer = checked(result, self._setting.gives)
            if isinstance(answer, bytes):
                self._answer(one, answer, None)
            else:
                self._failed(one, answer)

    def _failed(self, one: _Open, failed: FailedTry) -> None:
        """Count a failed try of a question: another one after a pause, or its final failure."""
        one.tries += 1
        if failed.final or one.tries > self._setting.retries:
            self._answer(one, None, CallFailed(failed.what, one.tries, failed.traceback_text))
        else:
            self._loop.call_later(self._pause(one.question.key, one.tries), self._again, one)

    def _again(self, one: _Open) -> None:
        self.retries += 1
        one.since = self._loop.time()
        self._ready.append(one)
        self._begin()

    def _answer(self, one: _Open, value: bytes | None, failure: CallFailed | None) -> None:
        del self._open[one.question.id]
        self._answered(Answered(one.question.id, value, failure))


def _called(function: Callable[..., Any], now: Calling, arguments: list[Any]) -> Any:
    """Call a plain function in a thread, in which no other one runs."""
    calling.set(now)
    return function(*arguments)
