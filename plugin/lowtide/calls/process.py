"""A caller process: asks the questions of one host, in an event loop; `python -m lowtide.calls.process FD PARENT_PID`.

It ends when the line closes, by order or as the host has gone, and exits the calls' resources first. A loop that does
not turn, as an `async def` function that never awaits holds it, is seen by the host: no beat comes.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import cloudpickle

from lowtide.calls.asking import Asking
from lowtide.calls.failures import named
from lowtide.calls.inside import calling
from lowtide.calls.messages import Beat, End, Kind, framed, read_ask, read_start
from lowtide.calls.outcome import Answered, CallFailed, Question
from lowtide.calls.setting import CallSetting
from lowtide.flow.schema.fields import decoder_of
from lowtide.process.parent import die_with
from lowtide.process.speech import STDERR, log_as
from lowtide.process.wire import MessageReader

LOG = logging.getLogger(__name__)
BEAT_S = 1.0
MESSAGE_BYTES = 1 << 16
"""So large a message is sent, and another one begun: the host takes them one by one."""
NO_STEP = "-"
"""The step's name in what is said outside all calls."""
FIRST_TO_BE_KILLED = "1000"
"""To the kernel, where memory runs out: a host is dearer than its caller."""


class Caller(asyncio.Protocol):
    """Serves one host until its line closes, or all places of a call hang.

    Args:
        ended: Called at the end.
    """

    def __init__(self, ended: Callable[[], None]) -> None:
        self.askings: list[Asking] = []
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._reader = MessageReader()
        self._line: asyncio.WriteTransport | None = None
        self._settings: tuple[CallSetting, ...] = ()
        self._max_answer_bytes = 0
        self._answers: list[Answered] = []
        """Those that this turn of the loop has brought."""
        self._retries: list[int] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the line."""
        assert isinstance(transport, asyncio.WriteTransport), "a socket is written to"
        self._line = transport

    def data_received(self, data: bytes) -> None:
        """Begin with what has come."""
        for kind, message in self._reader.feed(data):
            if self._line is None:
                return  # It ends itself; what comes now is asked by the next one.
            if kind == Kind.ASK:
                self._ask(message)
            elif kind == Kind.START:
                self._start(message)

    def connection_lost(self, error: Exception | None) -> None:
        """End: the host has closed the line."""
        self._line = None
        self._ended()

    def _start(self, message: bytes) -> None:
        start = read_start(message)
        sys.path[:] = start.path
        self._max_answer_bytes = start.max_answer_bytes
        try:
            self._settings = cloudpickle.loads(start.settings)
        except (Exception, SystemExit) as error:
            LOG.exception("the calls' functions cannot be loaded")
            self._end(End(f"cannot load the calls' functions: {named(error)}"))
            return
        self.askings = [
            Asking(setting, self._answered, stuck=partial(self._stuck, setting)) for setting in self._settings
        ]
        self._retries = [0] * len(self.askings)
        self._beat()

    def _ask(self, message: bytes) -> None:
        ask = read_ask(message)
        rows = decoder_of(self._settings[ask.call].takes)(ask.rows)
        self.askings[ask.call].ask(map(Question, ask.ids, ask.keys, rows), ask.tries)

    def _answered(self, answered: Answered) -> None:
        """Keep an answer until the end of this turn of the loop; all go together."""
        if answered.value is not None and len(answered.value) > self._max_answer_bytes:
            size, limit = len(answered.value), self._max_answer_bytes
            answered = Answered(answered.id, None, CallFailed(f"returned {size} bytes, at most {limit} may be", 1))
        if not self._answers:
            self._loop.call_soon(self._send)
        self._answers.append(answered)

    def _send(self) -> None:
        answers, self._answers = self._answers, []
        if self._line is None:
            return
        begun, size = 0, 0
        for end, answered in enumerate(answers, 1):
            size += len(answered.value or b"")
            if size >= MESSAGE_BYTES or end == len(answers):
                self._line.write(framed(Kind.ANSWERS, answers[begun:end]))
                begun, size = end, 0

    def _beat(self) -> None:
        if self._line is None:
            return
        counts = [asking.retries for asking in self.askings]
        self._line.write(framed(Kind.BEAT, Beat([now - then for now, then in zip(counts, self._retries, strict=True)])))
        self._retries = counts
        self._loop.call_later(BEAT_S, self._beat)

    def _stuck(self, setting: CallSetting) -> None:
        tries: dict[int, int] = {}
        for asking in self.askings:
            tries |= asking.tries()
        why = f'ends itself: all {setting.concurrency} calls of step "{setting.name}" hang'
        LOG.warning("the caller process %s; give what they wait for a time-out", why)
        self._end(End(why, tries, stuck=True))

    def _end(self, last: End) -> None:
        self._send()
        line, self._line = self._line, None
        if line is not None:
            line.write(framed(Kind.END, last))
            line.close()  # Once all is written.


async def _serve(line: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    _, caller = await loop.create_unix_connection(lambda: Caller(ended.set), sock=line)
    await ended.wait()
    await asyncio.gather(*[asking.close() for asking in caller.askings])


def _speaker() -> str:
    under_way = calling.get()
    return under_way.step if under_way else NO_STEP


def main(descriptor: int, parent: int) -> None:
    """Serve the host at the other end of a socket.

    Args:
        descriptor: The socket's.
        parent: The host's process id.
    """
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's Ctrl-C reaches all processes; the host ends this one.
    faulthandler.register(signal.SIGUSR1, STDERR)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_BE_KILLED)
    end_lines = log_as("call", _speaker)
    logging.root.setLevel(logging.INFO)
    os.set_inheritable(descriptor, False)
    status = 1
    try:
        asyncio.run(_serve(socket.socket(fileno=descriptor)))
        status = 0
    except BaseException:
        LOG.exception("the caller process failed")
    finally:
        end_lines()
        os._exit(status)  # The interpreter's own end would wait for the user's threads.


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
