"""Jobs in every state that the page shows, in a real ZooKeeper and store; the one that lives has a real control API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kept_snapshots as kept
from controlled import TOKEN
from tests.page.scenes import healthy

from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import StoreSetting, open_store

CAUSE = Cause(
    "flow",
    'step "count": raised ValueError: no such word',
    "documents-0, offset 17",
    "correct the function, or give the flow dead_letters",
)
MINUTE_S = 60


@dataclass(frozen=True)
class Jobs:
    """Their names.

    Attributes:
        living: runs, and its control API answers.
        dead: said why it ended.
        gone: ended without a word.
        mute: runs, and its control API does not answer.
        damaged: the name in the store of the manifest of a commit of `dead` that is not there any more.
    """

    living: str
    dead: str
    gone: str
    mute: str
    damaged: str


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def iso(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def ticks(at: datetime) -> int:
    """A time as `kept_snapshots` counts it."""
    return round(at.timestamp() * 1000) // kept.SLACK_MS


def said(phase: str, at: datetime, *, cause: Any = "", **more: Any) -> dict[str, Any]:
    """A life's own record."""
    note = {"phase": phase, "cause": cause, "control": "127.0.0.1:1", "driver": "process 7 on here", "at": iso(at)}
    return note | {"commit": None, "submission": None} | more


def begun(store: JobStore, life: dict[str, Any]) -> int:
    """Begin a life that says this of itself; the store holds its lease."""
    store.freeze(kept.record(store.job))
    store.take_lease("process 7 on here", 0, lambda _: None)
    incarnation = store.raise_incarnation()
    store.set_life(incarnation, {**life, "incarnation": incarnation})
    return incarnation


@contextmanager
def jobs(zookeeper: str, folder: Path, unique: Any) -> Iterator[Jobs]:
    """Make all of them; those that run do so until the block ends."""
    living, dead, gone, mute = (unique(name) for name in ("orders", "clicks", "views", "parcels"))
    with ExitStack() as stack:
        place = _Place(zookeeper, str(folder), stack)
        control = stack.enter_context(healthy(living)).at
        place.lives(living, control, lives=control.incarnation)
        damaged = place.dies(dead)
        place.vanishes(gone)
        store = place.store(mute)
        nowhere = ControlAddress.proved(TOKEN, job=mute, incarnation=1, address="127.0.0.1:1", certificate="0" * 64)
        begun(store, said("running", ago(5 * MINUTE_S), **nowhere.fields()))
        yield Jobs(living, dead, gone, mute, damaged)


class _Place:
    def __init__(self, zookeeper: str, url: str, stack: ExitStack) -> None:
        self._zookeeper = zookeeper
        self._stack = stack
        self._files = open_store(StoreSetting(url))

    def store(self, job: str) -> JobStore:
        return self._stack.enter_context(JobStore(self._zookeeper, job))

    def lives(self, job: str, control: ControlAddress, lives: int) -> None:
        """Several lives, some of which ended; each has taken and committed snapshots. The last one has the address."""
        for number in range(1, lives + 1):
            store = self.store(job)
            since = ago((lives - number + 1) * 20 * MINUTE_S)
            before = f"{number - 1:06d}-0003" if number > 1 else None
            life = begun(store, said("running", since, commit=before, **control.fields()))
            for taken in range(1, 4):
                self._commit(
                    store,
                    life,
                    taken,
                    since + timedelta(minutes=5 * taken),
                    "before the update" if taken == 2 else None,
                )
            store.publish(life, ticks(datetime.now(UTC)))
            if number < lives:
                cause = "worker 1/0 died: killed by SIGKILL" if number == 1 else ""
                ended = since + timedelta(minutes=18)
                store.set_life(
                    life, {**said("failed" if cause else "running", ended, cause=cause), "incarnation": life}
                )
                store.close()

    def dies(self, job: str) -> str:
        """One that ended by its user's code; one of its commits is damaged. Returns that one's manifest."""
        store = self.store(job)
        life = begun(store, said("running", ago(40 * MINUTE_S)))
        paths = [self._commit(store, life, taken, ago((35 - 5 * taken) * MINUTE_S)) for taken in range(1, 4)]
        self._files.delete([paths[0]])
        store.publish(life, ticks(ago(12 * MINUTE_S)))
        store.set_life(life, {**said("failed", ago(12 * MINUTE_S), cause=asdict(CAUSE)), "incarnation": life})
        store.close()
        return paths[0]

    def vanishes(self, job: str) -> None:
        """One that was killed before its first commit."""
        store = self.store(job)
        life = begun(store, said("running", ago(9 * MINUTE_S)))
        store.publish(life, ticks(ago(3 * MINUTE_S)))
        store.close()

    def _commit(self, store: JobStore, life: int, number: int, at: datetime, name: str | None = None) -> str:
        created = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        manifest = kept.seal(
            self._files, store.job, number, ticks(at) - 100, incarnation=life, name=name, created=created
        )
        log = ZooKeeperCommitLog(store)
        log._now = lambda: at  # It was then.
        kept.commit(log, manifest)
        return manifest.path
