"""A job as `lowtide run` runs it, in a program of its own: ``python -m tests.job_program`` with a file of a shop.

A commit's id may follow: then it begins from that one, as `lowtide recover --commit` does. With the word `--standby` it
waits first until no other program runs the job. With `--dies FOLDER` it gets a signal as it begins a step for which
that folder has a file.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.shop import Shop
from tests.waiting import HANGS_S, Asked

from lowtide.driver.recovery import StartFrom
from lowtide.errors import LowtideError
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.runner import Runner
from lowtide.jobs.state import JobState, Phase
from lowtide.process.mark import end_marked, marked, new_life
from lowtide.status.control_client import ControlClient
from tests.driver import ROOT, below, below_with

POLL_S = 0.1


class Deaths:
    """The steps at which programs of a job get a signal: each takes the first program that comes to it.

    Args:
        folder: Has a file for each that nobody has come to yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def await_at(self, *steps: str, by: signal.Signals = signal.SIGKILL) -> None:
        """Have a program die at each step whose text begins so, or end by another signal."""
        for step in steps:
            (self.folder / f".{step}").write_text(str(int(by)))
            (self.folder / f".{step}").rename(self.folder / step)

    def left(self) -> set[str]:
        """The steps that nobody has come to."""
        return {file.name for file in self.folder.iterdir()}

    def come(self, step: str) -> None:
        """Signal this process, if it is the first to come to this step."""
        for file in self.folder.iterdir():
            if step.startswith(file.name):
                try:
                    number = int(file.read_text())
                    file.unlink()
                except FileNotFoundError:  # Another program was before this one.
                    continue
                os.kill(os.getpid(), number)


class Mortal(Runner):
    """A runner that dies at steps; `deaths` says at which."""

    deaths: Deaths

    def _step(self, what: str) -> None:
        super()._step(what)
        self.deaths.come(what)


class Seen:
    """A program of a job, as its folder and its control API show it.

    Attributes:
        jobs: The folder.
    """

    jobs: JobFolder

    @property
    def client(self) -> ControlClient:
        """The control API of the present life."""
        state, token = self.jobs.state(), self.jobs.token()
        control = None if state is None else state.control_address()
        assert control is not None
        assert token is not None
        return ControlClient(control, token)

    def moved(self, records: int = 200, within_s: float = HANGS_S) -> Any:
        """Wait until the present life has delivered so many more; what it says of itself then."""
        before, deadline = self.client.status().totals.delivered, time.monotonic() + within_s
        asked = Asked()
        while (view := self.client.status()).totals.delivered < before + records:
            assert time.monotonic() < deadline, view
            asked.pause()
        return view


class Detached(Seen):
    """A job's program under a supervisor, as `lowtide run --detach` leaves it; `[job].folder` lies in its own.

    Args:
        shop: Its job.
        folder: Its own.
        more: Options of the command.

    Attributes:
        conf: The options that name its conf, for other commands.
    """

    def __init__(self, shop: Shop, folder: Path, *more: str) -> None:
        folder.mkdir(parents=True)
        text = f"from tests.shop import Shop\n\nflow = Shop.from_json({shop.to_json()!r}).flow()\n"
        (folder / "flow.py").write_text(text)
        self.jobs = JobFolder(folder / ".lowtide/jobs", shop.name)
        settings = {**shop.settings, "job.folder": self.jobs.path.parent}
        self.conf = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "lowtide.cli", "run", "flow.py", "--detach", *more, *self.conf]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS_S
        )
        assert ran.returncode == 0, ran.stderr

    @property
    def state(self) -> JobState:
        """Its state, as its folder has it now."""
        state = self.jobs.state()
        assert state is not None
        return state

    def gone(self) -> bool:
        """True once no process of it is left."""
        state = self.state
        alive = [each for each in (state.supervisor, state.runner) if each is not None and each.alive()]
        return not [*alive, *marked(state.life)]

    def close(self) -> None:
        """Leave nothing behind."""
        state = self.jobs.state()
        for process in () if state is None else (state.supervisor, state.runner):
            if process is not None:
                process.send(signal.SIGKILL)
        if state is not None:
            end_marked(state.life, 0.0)


class Program(Seen):
    """The program below, running; `[job].folder` lies in its own.

    Args:
        shop: Its job.
        folder: Its own; made if it is missing.
        commit: The commit from which it begins, by id; empty for the newest that is whole.
        standby: Whether it waits until no other program runs the job.
        deaths: At which steps it dies, if it is the first to come so far; none by default.
    """

    def __init__(
        self, shop: Shop, folder: Path, commit: str = "", *, standby: bool = False, deaths: Deaths | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "shop.json").write_text(shop.to_json())
        self.jobs = JobFolder(folder / ".lowtide/jobs", shop.name)
        self._errors = folder / "program.log"
        more = [*([commit] if commit else []), *(["--standby"] if standby else [])]
        more += [] if deaths is None else ["--dies", str(deaths.folder)]
        with self._errors.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.job_program", "shop.json", *more],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        self._began = time.monotonic()

    def waiting(self) -> JobState:
        """Wait until it waits for the lease."""
        return self.running(phase="standby")

    def running(self, restarts: int = 0, *, phase: Phase = "running") -> JobState:
        """Wait until the job runs, after so many restarts of its own, or is in another phase."""
        deadline = time.monotonic() + HANGS_S
        while time.monotonic() < deadline and self.process.poll() is None:
            state = self.jobs.state()
            mine = state is not None and state.runner is not None and state.runner.pid == self.process.pid
            if state is not None and mine and state.phase == phase and state.restarts >= restarts:
                return state
            time.sleep(POLL_S)
        raise AssertionError(f"{self.jobs.state()}\n{self.log()}")

    def ended(self, within_s: float = HANGS_S) -> int:
        return self.process.wait(within_s)

    def first_worker(self) -> int:
        """Wait until a fork server has forked the first worker."""
        deadline = time.monotonic() + HANGS_S
        while time.monotonic() < deadline:
            for server in self.children("-m lowtide.worker.forkserver"):
                if workers := below(server):
                    return workers[0]
            time.sleep(0.005)
        raise AssertionError(f"no worker\n{self.log()}")

    def first(self, what: str, step: str) -> int:
        """Wait until the start is at a step and a process of it is there."""
        deadline = time.monotonic() + HANGS_S
        while time.monotonic() < deadline:
            state = self.jobs.state()
            if state is not None and state.step.startswith(step) and (found := self.children(what)):
                return found[0]
            time.sleep(0.005)
        raise AssertionError(f"no {what} at {step}\n{self.log()}")

    def children(self, what: str) -> list[int]:
        return below_with(self.process.pid, what)

    def stop(self) -> None:
        self.process.terminate()
        assert self.ended() == 0, self.log()

    def close(self) -> None:
        """Leave nothing behind."""
        left = below(self.process.pid) if self.process.poll() is None else []
        for pid in (self.process.pid, *left):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self.process.wait()

    def log(self) -> str:
        texts = [self._errors.read_text(errors="replace")[-3000:]]
        if self.jobs.log_file.exists():
            texts.append(self.jobs.log_file.read_text(errors="replace")[-6000:])
        return "\n".join(texts)


def main() -> int:
    """Run the shop's job until it is stopped."""
    shop = Shop.from_json(Path(sys.argv[1]).read_text())
    folder = JobFolder(Path(".lowtide/jobs"), shop.name)
    folder.lock()
    given, dies = sys.argv[2:], None
    if "--dies" in given:
        place = given.index("--dies")
        _, dies = given[place : place + 2]
        del given[place : place + 2]
    commit = next((word for word in given if word != "--standby"), None)
    start = StartFrom(commit=commit)
    try:
        kind = Runner if dies is None else Mortal
        runner = kind(shop.flow(), shop.conf, folder, new_life(), None, start=start, standby="--standby" in given)
        if isinstance(runner, Mortal):
            assert dies is not None, "that is why it is mortal"
            runner.deaths = Deaths(Path(dies))
        return runner.run().exit_code or 0
    except LowtideError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
