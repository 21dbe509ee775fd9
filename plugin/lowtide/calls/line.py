"""A host's line to its caller process, which asks outside services; it never waits, and is made for an event loop.

::

    watch(callers.fileno())                 # until it can be read
    callers.ask(0, [Question(7, key, row)])
    callers.send()
    for answered in callers.answers():      # with every turn of the loop, a few times a second at least
        ...

A question is answered once. A caller process that ends, however, is made again, and asks the open questions again by
the same call keys; so a service is asked at least once.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.calls.messages import Ask, End, Kind, Start, framed, read_answers, read_beat, read_end
from lowtide.calls.outcome import Answered, Question
from lowtide.calls.setting import CallSetting, dump_settings
from lowtide.errors import LifeEnded
from lowtide.flow.schema.fields import encode_rows
from lowtide.histogram import Histogram
from lowtide.process.speech import STDERR
from lowtide.process.wire import SOCKET_BUFFER_BYTES, MessageReader

LOG = logging.getLogger(__name__)
AGAIN = 256
"""So many open questions are asked again in one message."""
READ_BYTES = 1 << 18
"""Read at most in one go, so that a flood of answers leaves the loop its turns."""
DEATHS, WITHIN_S = 3, 60.0
START_LIMIT_S = 120.0
"""The longest time in which a process may load the calls' functions and what they import."""
SILENCE_LIMIT_S = 20.0
"""The longest time without a sign of life."""
DUMP_S = 0.5
"""The time that a silent process has to write where it stands, before it is killed."""
EXIT_LIMIT_S = 10.0
"""The time to exit resources that a process has which ends itself."""


class CallerDied(LifeEnded):
    """Correct what ends the caller process of a host again and again: a function of a call, or the memory it takes."""


@dataclass(slots=True)
class CallGauges:
    """Figures of one call in one host.

    Attributes:
        name: The step's name.
        open: Questions without an answer.
        oldest_s: The age of the oldest of them in s; 0 if there are none.
        open_bytes: Their records' bytes.
        seconds: From the question to the answer, with all tries; since the host's start.
        retries: Tries that were not a question's first, since the host's start.
        failures: Questions that have failed for good, since the host's start.
    """

    name: str
    open: int = 0
    oldest_s: float = 0.0
    open_bytes: int = 0
    seconds: Histogram = field(default_factory=Histogram)
    retries: int = 0
    failures: int = 0


class _Asked:
    """An open question.

    Attributes:
        call: Its call's place among the settings.
        question: The question.
        at: The time it was asked, in s.
        size: Its record's bytes, as a share of those it was asked with.
        tries: The tries that processes before this one have made.
    """

    __slots__ = ("at", "call", "question", "size", "tries")

    def __init__(self, call: int, question: Question, at: float, size: int) -> None:
        self.call = call
        self.question = question
        self.at = at
        self.size = size
        self.tries = 0


class Callers:
    """Asks the questions of one host through a process of its own, for all calls.

    The thread that makes it has to be the host's main one: the kernel ends the process when that thread ends.

    Attributes:
        restarts: How many times the process has been made again.

    Args:
        settings: The host's calls.
        max_bytes: Open records' bytes from which on `full` says so.
        max_answer_bytes: The largest answer; `max_bytes` if None.
        pickled: The settings as `dump_settings` gives them, where another process has made them; else this one does.
        now: The monotonic time in s.
    """

    def __init__(
        self,
        settings: Sequence[CallSetting],
        *,
        max_bytes: int,
        max_answer_bytes: int | None = None,
        pickled: bytes | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.restarts = 0
        self._gauges = [CallGauges(setting.name) for setting in settings]
        self._settings = pickled or dump_settings(settings)
        self._max_bytes = max_bytes
        self._max_answer_bytes = max_bytes if max_answer_bytes is None else max_answer_bytes
        self._now = now
        self._open: dict[int, _Asked] = {}
        """By id, the oldest first."""
        self._open_bytes = 0
        self._deaths: list[float] = []
        self._came: list[Answered] = []
        self._epoll = select.epoll()
        self._start()

    # -- the host's turns ------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The caller's process id."""
        return self._process.pid

    @property
    def full(self) -> bool:
        """True if open records take `max_bytes` or more; what is asked is kept all the same."""
        return self._open_bytes >= self._max_bytes

    def ask(self, call: int, questions: Sequence[Question]) -> None:
        """Ask questions of one call; they leave with the next `send` or `answers`.

        Args:
            call: The call's place among the settings.
            questions: The questions, none of whose ids is open.
        """
        if not questions:
            return
        rows = encode_rows([question.row for question in questions])
        now, size = self._now(), len(rows) // len(questions)
        gauges, open_ = self._gauges[call], self._open
        for question in questions:
            assert question.id not in open_, "an id is of one open question"
            open_[question.id] = _Asked(call, question, now, size)
        gauges.open += len(questions)
        gauges.open_bytes += size * len(questions)
        self._open_bytes += size * len(questions)
        self._queue(call, questions, rows, {})

    def send(self) -> None:
        """Send what the socket takes; `answers` sends the rest once it can."""
        while self._unsent and self._line is not None:
            try:
                sent = self._line.send(self._unsent)
            except BlockingIOError:
                self._epoll.modify(self._line, select.EPOLLIN | select.EPOLLOUT)
                return
            except OSError:  # The process has ended, or closed the line: `answers` sees to it.
                self._unsent.clear()
                return
            del self._unsent[:sent]

    def fileno(self) -> int:
        """Return a descriptor that can be read when `answers` has something to do; it is the same at all times."""
        return self._epoll.fileno()

    def answers(self) -> list[Answered]:
        """Return the answers that have come, each once, and see to the process.

        Raises:
            CallerDied: the process has ended three times within a minute.
        """
        events = dict(self._epoll.poll(0))
        ended = self._pidfd in events
        line = self._line
        ready = 0 if line is None else events.get(line.fileno(), 0)
        if line is not None and ready & select.EPOLLOUT:
            self._epoll.modify(line, select.EPOLLIN)
        self.send()
        if ready & ~select.EPOLLOUT:
            while self._receive() and ended:  # All that it has sent, else one read.
                pass
        now = self._now()
        answers = self._came
        self._came = []
        for answered in answers:
            self._close_question(answered, now)
        if ended and not answers:  # An error must not take answers with it, so its end waits for the next call.
            self._begin_again(now)
        elif not ended:
            self._watch(now)
        return answers

    def gauges(self) -> list[CallGauges]:
        """Return the figures of each call, by their places; they are kept up to date, not copied."""
        now = self._now()
        for each in self._gauges:
            each.oldest_s = 0.0
        seen: set[int] = set()
        for asked in self._open.values():
            if asked.call not in seen:
                seen.add(asked.call)
                self._gauges[asked.call].oldest_s = now - asked.at
                if len(seen) == len(self._gauges):
                    break
        return self._gauges

    def close(self, timeout_s: float) -> None:
        """End the process: it drops what is under way, and exits the calls' resources; what takes too long is killed.

        Args:
            timeout_s: The time it has, for which this waits at most.
        """
        self._hang_up()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            LOG.warning("the caller process (pid %d) has not ended within %g s: it is killed", self.pid, timeout_s)
            self._process.kill()
        self._bury()
        self._epoll.close()

    # -- the process -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            for each in (ours, theirs):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lowtide.calls.process", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=STDERR,
                pass_fds=[theirs.fileno()],
            )
        self._line: socket.socket | None = ours
        self._pidfd = os.pidfd_open(self._process.pid)
        self._epoll.register(ours, select.EPOLLIN)
        self._epoll.register(self._pidfd, select.EPOLLIN)
        self._reader = MessageReader()
        self._came.clear()
        self._heard_at = self._now()
        self._ready = False
        self._silent = False
        """True if it has given no sign of life for too long."""
        self._last: End | None = None
        """Its own reason to end, once it has one."""
        self._kill_at: float | None = None
        self._unsent = bytearray(framed(Kind.START, Start(sys.path, self._settings, self._max_answer_bytes)))

    def _queue(self, call: int, questions: Sequence[Question], rows: bytes, tries: Mapping[int, int]) -> None:
        ids, keys = [question.id for question in questions], [question.key for question in questions]
        self._unsent += framed(Kind.ASK, Ask(call, ids, keys, rows, dict(tries)))

    def _receive(self) -> bool:
        """Take what has come, up to `READ_BYTES`; return False if nothing has."""
        if self._line is None:
            return False
        try:
            data = self._line.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._hang_up()
            return False
        self._heard_at, self._silent, self._kill_at = self._now(), False, None
        for kind, message in self._reader.feed(data):
            if kind == Kind.ANSWERS:
                self._came += read_answers(message)
            elif kind == Kind.BEAT:
                self._ready = True
                for gauges, retries in zip(self._gauges, read_beat(message).retries, strict=True):
                    gauges.retries += retries
            elif kind == Kind.END:
                self._last = read_end(message)
        return True

    def _close_question(self, answered: Answered, now: float) -> None:
        asked = self._open.pop(answered.id)
        gauges = self._gauges[asked.call]
        gauges.open -= 1
        gauges.open_bytes -= asked.size
        self._open_bytes -= asked.size
        gauges.seconds.add(int((now - asked.at) * 1e9))
        gauges.failures += answered.failure is not None

    def _hang_up(self) -> None:
        """Close the line; a process that does not end by that is killed later."""
        if self._line is not None:
            self._epoll.unregister(self._line)
            self._line.close()
            self._line = None
            self._kill_at = self._now() + EXIT_LIMIT_S

    def _bury(self) -> None:
        """Let the kernel forget the process, which has ended or been killed."""
        self._process.wait()
        if self._pidfd >= 0:
            self._epoll.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _watch(self, now: float) -> None:
        """Kill a process that is silent, once it has written where it stands, or that does not end."""
        if self._kill_at is not None:
            if now >= self._kill_at:
                self._process.kill()
        elif now - self._heard_at > (SILENCE_LIMIT_S if self._ready else START_LIMIT_S):
            LOG.error("the caller process (pid %d) gives no sign of life; its threads are at", self.pid)
            self._silent, self._kill_at = True, now + DUMP_S
            if self._ready:  # Earlier the signal would end it.
                self._process.send_signal(signal.SIGUSR1)

    def _begin_again(self, now: float) -> None:
        """Make the process again after its end, and ask the open questions again."""
        self._hang_up()
        self._bury()
        end = self._last or End(self._how())
        if not end.stuck:
            self._deaths = [at for at in self._deaths if now - at < WITHIN_S] + [now]
        if len(self._deaths) >= DEATHS:
            raise self._died(end)
        LOG.warning("the caller process (pid %d) %s; another one asks %d questions", self.pid, end.why, len(self._open))
        self.restarts += 1
        self._start()
        for id_, tries in end.tries.items():
            if id_ in self._open:  # It may have been answered after that was said.
                self._open[id_].tries = tries
        for call in range(len(self._gauges)):
            of_call = [asked for asked in self._open.values() if asked.call == call]
            for begin in range(0, len(of_call), AGAIN):
                again = of_call[begin : begin + AGAIN]
                questions = [asked.question for asked in again]
                self._queue(
                    call,
                    questions,
                    encode_rows([question.row for question in questions]),
                    {asked.question.id: asked.tries for asked in again if asked.tries},
                )

    def _how(self) -> str:
        """Say how the process has ended, of which it did not speak itself."""
        if self._silent:
            return f"gave no sign of life for {self._now() - self._heard_at:.0f} s and was killed"
        code = self._process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

    def _died(self, end: End) -> CallerDied:
        if self._silent:
            way_out = (
                "an async def function never returns to its event loop: let it await, or make it a plain def, which "
                "runs in a thread; the job's log shows where it is"
            )
        elif self._process.returncode == -signal.SIGKILL:
            way_out = (
                "if the machine ran out of memory (`dmesg` says so), lower the calls' concurrency or batch, or look "
                "for what their functions keep; then start the job again"
            )
        else:
            way_out = "see the job's log for what their functions, or a library that they use, wrote at last"
        steps = ", ".join(f'"{each.name}"' for each in self._gauges)
        return CallerDied(
            f"the process that asks services ended {DEATHS} times within {WITHIN_S:.0f} s: at last it {end.why}",
            where=f"calls {steps}",
            way_out=way_out,
        )
