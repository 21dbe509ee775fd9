"""Questions asked one after the other, in this process: for `run_locally`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from lowtide.calls.asking import Asking, pause_s
from lowtide.calls.outcome import Answered, Question
from lowtide.calls.setting import CallSetting
from lowtide.flow.schema.fields import decoder_of, encode_rows


class Local:
    """Asks a call's questions in turn, as a caller process does; a context manager, which exits the resource.

    Its event loop has a thread of its own, so it can be used where one runs already, as in a notebook.

    Args:
        setting: The call; a batch is of one record.
        pauses: False to try again at once.
    """

    def __init__(self, setting: CallSetting, *, pauses: bool = True) -> None:
        self._setting = replace(setting, within_s=0.0)
        self._pauses = pauses
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"call-{setting.name}", daemon=True)
        self._asking: Asking | None = None
        self._answer: Future[Answered] = Future()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._asking is not None, "it is left after it was entered"
        asyncio.run_coroutine_threadsafe(self._asking.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask(self, row: Any, key: str) -> Any:
        """Return the result for a record, or a `CallFailed`; both the record and the result are copies, as in a job.

        Args:
            row: The record.
            key: Its call key.
        """
        assert self._asking is not None, "it is used as a context manager"
        copy = decoder_of(self._setting.takes)(encode_rows([row]))[0]
        self._answer = Future()
        self._loop.call_soon_threadsafe(self._asking.ask, [Question(0, key, copy)])
        answered = self._answer.result()
        if answered.value is None:
            assert answered.failure is not None, "an answer has a value or a failure"
            return answered.failure
        return decoder_of(self._setting.gives)(answered.value)[0]

    async def _start(self) -> None:
        pause = pause_s if self._pauses else _no_pause
        self._asking = Asking(self._setting, self._take, pause=pause)

    def _take(self, answered: Answered) -> None:
        self._answer.set_result(answered)


def _no_pause(_key: str, _tries: int) -> float:
    return 0.0


def ask_once(setting: CallSetting, row: Any, key: str) -> Any:
    """Return the result for one record, or a `CallFailed`; the resource is made and exited for it.

    Args:
        setting: The call.
        row: The record.
        key: Its call key.

    Returns:
        A `setting.gives`, or a `CallFailed`.
    """
    with Local(setting) as local:
        return local.ask(row, key)
