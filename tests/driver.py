"""A driver program of its own, which can be killed: ``python -m tests.driver`` with a shop as JSON on its first line.

It starts the shop's job and then answers lines: "status", "again" (a new life, in the same Spark session if that still
runs), "stop". It says {"ready": ...} for every life that has begun and {"ended": ...} for every one that has ended.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.shop import Shop
from tests.waiting import HANGS_S

from lowtide.driver.job import Job
from lowtide.driver.session import start_session
from lowtide.errors import LowtideError
from lowtide_snapshots.job.control_address import ask

ROOT = Path(__file__).parent.parent
ANSWER_WITHIN_S = HANGS_S
LOG = logging.getLogger(__name__)


class Driver:
    """The program below, running. Its complaints lie in `folder`."""

    def __init__(self, shop: Shop, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / f"driver-{len(list(folder.glob('driver-*')))}"
        # Not all of this process's path: what other tests have put there may hide the standard library.
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.driver"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder, env=environment,
            )  # fmt: skip
        self._rest = b""
        self._say(shop.to_json())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> dict[str, Any]:
        """Wait until a life has begun, all its workers attached."""
        said = self._hear()
        assert "ready" in said, f"{said}\n{self.log()}"
        return said

    def ended(self) -> str:
        """Wait until the life has ended by itself; why."""
        said = self._hear()
        assert "ended" in said, f"{said}\n{self.log()}"
        return str(said["ended"])

    def again(self) -> dict[str, Any]:
        """Begin another life in this program."""
        self._say("again")
        return self.ready()

    def status(self) -> dict[str, Any]:
        """The control API's view of the job."""
        self._say("status")
        status = self._hear()
        assert "job" in status, f"{status}\n{self.log()}"
        return status

    def moved(self, records: int = 200, within_s: float = HANGS_S) -> dict[str, Any]:
        """Wait until the job has delivered so many more; what it says of itself then."""
        before, deadline = self.status()["totals"]["delivered"], time.monotonic() + within_s
        while (status := self.status())["totals"]["delivered"] < before + records:
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        return status

    def stop(self) -> None:
        """Stop the job and the program."""
        self._say("stop")
        assert self._process.wait(HANGS_S) == 0, self.log()

    def kill(self) -> None:
        """SIGKILL; Spark's JVM and what it has started go by themselves."""
        self._process.kill()
        self._process.wait(HANGS_S)

    def children(self, what: str) -> list[int]:
        """The processes below this one whose command has `what` in it."""
        return below_with(self.pid, what)

    def close(self) -> None:
        """Leave nothing behind."""
        left = below(self.pid) if self._process.poll() is None else []
        self._process.kill()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.communicate()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self, within_s: float = ANSWER_WITHIN_S) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([descriptor], [], [], within_s)
            some = os.read(descriptor, 1 << 16) if ready else b""
            assert some, f"nothing was said within {within_s:g} s, or the program has ended\n{self.log()}"
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said


def runs(pid: int) -> bool:
    """True unless a process has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def below(pid: int) -> list[int]:
    """All processes that a process has started, and those that they have started."""
    parents: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                stat = Path(entry, "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def below_with(pid: int, what: str) -> list[int]:
    """The processes below another whose command has `what` in it."""
    found = []
    for each in below(pid):
        try:
            command = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if what in command:
            found.append(each)
    return found


def view(job: Job) -> dict[str, Any]:
    """What the job's control API answers; in a life's first second it asks to be asked again."""
    deadline = time.monotonic() + HANGS_S
    assert job.control is not None
    while True:
        code, answer = ask(job.control, job.token, "GET", "/status", limit_s=10)
        if code == HTTPStatus.OK:
            status: dict[str, Any] = json.loads(answer)
            return status
        assert code == HTTPStatus.SERVICE_UNAVAILABLE, answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)


def tell(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def live(shop: Shop) -> bool:
    """One life; returns whether another one is wanted."""
    job = None
    try:
        job = Job.start(shop.flow(), shop.conf, lambda step: LOG.warning("%s", step))
        job.wait_for_workers(HANGS_S)
        tell({"ready": job.incarnation, "pid": os.getpid()})
        while True:
            job.wait(lambda: not select.select([sys.stdin], [], [], 0)[0])
            if sys.stdin.readline().strip() != "status":
                return False
            tell(view(job))
    except LowtideError as error:
        tell({"ended": str(error)})
    finally:
        if job is not None:
            job.stop()
    return sys.stdin.readline().strip() == "again"


def main() -> None:
    """Live, one life after the other."""
    shop = Shop.from_json(sys.stdin.readline())
    start_session(shop.conf, shop.name)
    while live(shop):
        pass


if __name__ == "__main__":
    main()
