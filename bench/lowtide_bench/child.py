"""Child process of the benchmark: gets one line of JSON as its task, sends lines of JSON back, ends with its parent.

Parent and child talk over the child's standard input and output. The input stays open for as long as the child may
live: when it closes, because the parent closed it or has died, the child ends at once.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from lowtide.errors import LowtideError

END_LIMIT_S = 5.0
ERROR_CHARACTERS = 2_000


class ChildFailed(LowtideError):
    """A process of the benchmark ended, or did not answer in time; look at its own output."""


class Child:
    """A running child, made by the parent.

    Args:
        module: Its module, for `python -m module`.
        task: Its first line.
    """

    def __init__(self, module: str, task: Mapping[str, Any]) -> None:
        self.module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the parent, which ends its children itself.
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._errors = ""
        for target in (self._listen, self._keep_errors):
            threading.Thread(target=target, daemon=True).start()
        self.send(task)

    def send(self, line: Mapping[str, Any]) -> None:
        """Send one line; if the child has gone, `hear` raises."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return

    def hear(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next line, None if none came in time.

        Raises:
            ChildFailed: the child has ended.
        """
        try:
            line = self._said.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if line is None:
            code = self._process.wait(END_LIMIT_S)
            raise ChildFailed(f"{self.module} ended with {code}: {self._errors.strip()[-ERROR_CHARACTERS:]}")
        return line

    def expect(
        self, key: str, limit_s: float, look: Callable[[dict[str, Any]], None] = lambda _: None, way_out: str = ""
    ) -> dict[str, Any]:
        """Return the next line that has this key.

        Args:
            key: The key to wait for.
            limit_s: Longest wait.
            look: Called with each other line that comes before.
            way_out: Advice for the error if it does not come in time.

        Raises:
            ChildFailed: it did not come in time, or the child has ended.
        """
        deadline = time.monotonic() + limit_s
        while (left := deadline - time.monotonic()) > 0:
            line = self.hear(left)
            if line is not None and key in line:
                return line
            if line is not None:
                look(line)
        raise ChildFailed(f'{self.module} did not report "{key}" within {limit_s:g} s', way_out=way_out)

    def terminate(self, limit_s: float) -> None:
        """Send SIGTERM to the child, and wait for its end, no longer than the limit."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)

    def end(self) -> None:
        """End the child, at once, if it still runs."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(json.loads(line))
        self._said.put(None)

    def _keep_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = (self._errors + line)[-2 * ERROR_CHARACTERS :]


class Parent:
    """The parent as the child sees it: `task` is the first line, `orders` holds every later line."""

    def __init__(self) -> None:
        self.task: dict[str, Any] = json.loads(sys.stdin.readline())
        self.orders: dict[str, Any] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, **line: Any) -> None:
        """Send one line."""
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def wait(self) -> None:
        """Wait until the parent ends this child; only for a child that has nothing more to do."""
        threading.Event().wait()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.orders |= json.loads(line)
        # Whatever the main thread is doing, even inside a library that blocks it.
        os._exit(0)
