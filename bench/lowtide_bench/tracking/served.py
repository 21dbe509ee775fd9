"""A life's tracker as the service starts it, in a process of its own, with its reports."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from lowtide.assignment.messages import line
from lowtide.service.tracker.messages import Fault, Report, TrackerSetting, TrackerStart, read_from_tracker
from lowtide.status.tracker_report import TrackerReport
from lowtide_bench.child import ERROR_CHARACTERS, ChildFailed
from lowtide_bench.tracking.script import START, chain
from lowtide_tracker.strangers import BACKLOG

INCARNATION = 1
CAPACITY_TICKS = 1 << 20
START_LIMIT_S = 60.0
REPORT_LIMIT_S = 30.0
END_LIMIT_S = 10.0


class Served:
    """A tracker's process for a flow with these segments and fronts; ends with the `with` block."""

    def __init__(self, depth: int, fronts: Mapping[int, int]) -> None:
        self.secret = secrets.token_bytes(32)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._changed = threading.Condition()
        self._reports = 0
        self._report: TrackerReport | None = None
        self._ended = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        descriptor = self._listener.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lowtide.service.tracker.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            pass_fds=(descriptor,),
            start_new_session=True,
        )
        self.pid = self._process.pid
        setting = TrackerSetting(
            incarnation=INCARNATION,
            graph=chain(depth),
            fronts=dict(fronts),
            start=START,
            capacity_ticks=CAPACITY_TICKS,
        )
        first = TrackerStart(secret=self.secret.hex(), listener=descriptor, setting=setting, era=1, workers=None)
        assert self._process.stdin is not None
        self._process.stdin.write(line(first))
        self._process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()
        self.report(START_LIMIT_S)

    def __enter__(self) -> Served:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._listener.close()
        self._errors.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def cpu_s(self) -> float:
        """CPU time of the process's one thread so far; 0 if it has gone."""
        return cpu_s_of(self.pid)

    def report(self, limit_s: float = REPORT_LIMIT_S) -> TrackerReport:
        """Return the next report; there are two per second.

        Raises:
            ChildFailed: the life or the process has ended, or nothing came in time.
        """
        deadline = time.monotonic() + limit_s
        with self._changed:
            before = self._reports
            while self._reports == before and not self._ended:
                if not self._changed.wait(deadline - time.monotonic()):
                    raise ChildFailed(f"the tracker's process has reported nothing for {limit_s:g} s")
            if self._ended:
                self._errors.seek(0)
                said = self._errors.read().decode(errors="replace")[-ERROR_CHARACTERS:]
                raise ChildFailed(f"{self._ended}: {said.strip()}")
            assert self._report is not None
            return self._report

    def _listen(self) -> None:
        assert self._process.stdout is not None
        fault = "the tracker's process has ended"
        for each in self._process.stdout:
            message = read_from_tracker(each)
            with self._changed:
                if isinstance(message, Report):
                    self._report, self._reports = message.report, self._reports + 1
                elif isinstance(message, Fault):
                    fault = str(message.cause)
                self._changed.notify_all()
        with self._changed:
            self._ended = fault
            self._changed.notify_all()


def cpu_s_of(pid: int) -> float:
    """Return the CPU time of a process's main thread so far, to the ns; 0 if it has gone."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except OSError:
        return 0.0
