"""A real ZooKeeper, a folder as the store, and jobs in them that no program runs: what the provider sees of a job."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hanging import HANGS_S
from kept_snapshots import commit, record, seal

from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.services import Services
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.log import Commit, ZooKeeperCommitLog
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import Store

TOKEN = "a token of a test"
LONG_S = 30.0


class Job:
    """A job's place, as its driver would write it; `services` is what others know of it."""

    def __init__(self, zookeeper: str, folder: Path, opened: contextlib.ExitStack) -> None:
        self.name = f"job {uuid.uuid4().hex[:8]}"
        self.services = Services(zookeeper, snapshots_url=str(folder / "snapshots"), token=TOKEN, limit_s=HANGS_S)
        (folder / "snapshots").mkdir(exist_ok=True)
        self._opened = opened
        self._number = 0
        self.driver: JobStore | None = None

    def client(self) -> JobClient:
        """Connected, until the test ends."""
        return self._opened.enter_context(JobClient(self.services, self.name))

    def files(self) -> Store:
        """The store."""
        files = self.services.open_files()
        self._opened.callback(files.close)
        return files

    def start(self, submission: str | None = None) -> int:
        """Begins a life, in a driver of its own; it has said nothing yet."""
        driver = JobStore(self.services.zookeeper, self.name, session_timeout_s=LONG_S)
        self._opened.enter_context(driver)
        driver.freeze(record(self.name))
        driver.take_lease("process 1 on a test", 10.0, lambda _: None)
        self.driver = driver
        return driver.raise_incarnation(submission)

    def say(self, phase: str, cause: Cause | str = "", control: str = "127.0.0.1:1", **more: Any) -> None:
        """The life's own record."""
        assert self.driver is not None
        life = self.driver.incarnation()
        proved = ControlAddress.proved(TOKEN, job=self.name, incarnation=life, address=control, certificate="0" * 64)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        said = {
            "incarnation": life,
            "phase": phase,
            "cause": asdict(cause) if isinstance(cause, Cause) else cause,
            **proved.fields(),
            "driver": "process 1",
            "at": at,
        }
        self.driver.set_life(life, said | more)

    def leave(self) -> None:
        """Its driver lets go of the lease."""
        assert self.driver is not None
        self.driver.close()

    def runs(self, submission: str | None = None, control: str = "127.0.0.1:1", **more: Any) -> int:
        """Begins a life that runs."""
        life = self.start(submission)
        self.say("running", control=control, submission=submission, **more)
        return life

    def ends(self, phase: str = "failed", cause: Cause | str = "worker 1/0 died", **more: Any) -> None:
        """Ends the life."""
        self.say(phase, cause, **more)
        self.leave()

    def publish(self, tick: int) -> None:
        """Tells a delivered time, in ticks of 10 ms."""
        assert self.driver is not None
        self.driver.publish(self.driver.incarnation(), tick)

    def seal(self, tick: int, base: Manifest | None = None, **said: Any) -> Manifest:
        """Seals a snapshot of the life."""
        self._number += 1
        assert self.driver is not None
        said = {"incarnation": self.driver.incarnation()} | said
        return seal(self.files(), self.name, self._number, tick, base=base, **said)

    def commit(self, manifest: Manifest) -> Commit:
        """Commits it."""
        assert self.driver is not None
        return commit(ZooKeeperCommitLog(self.driver), manifest)

    def damage(self, manifest: Manifest, part: int = 0) -> None:
        """Spoils a part's bytes in the folder."""
        name = manifest.parts[part].name(self.name, manifest.record.slack_ms)
        file = Path(self.services.snapshots_url) / name
        file.chmod(0o644)
        file.write_bytes(b"x" * file.stat().st_size)
