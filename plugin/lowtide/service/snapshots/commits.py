"""The commits of a job, as one life sees and makes them (R16, R17); threads ask ZooKeeper and the store."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from lowtide_snapshots.commits.choice import manifest_of
from lowtide_snapshots.commits.log import Commit, CommitLog
from lowtide_snapshots.commits.retention import Rule, Swept, bases, plan, sweep
from lowtide_snapshots.errors import CommitUnknown
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.stores import Store

LOG = logging.getLogger(__name__)
AGAIN_S = 0.5
KNOWN = 32
"""The number of manifests kept for snapshots that rest on them: workers learn of a commit long before."""
UNKNOWN_LIMIT_S = 60.0
"""The time for which a commit with an unknown outcome is retried."""

Ask = Callable[..., Awaitable[Any]]


class Commits:
    """The commits of a life; belongs to the service's event loop.

    Args:
        log: The job's commits.
        store: The store of snapshots.
        ask: Calls the log in a thread, one call at a time.
        base: The manifest of the commit that the life began from; None if there is none.
        start: The tick that the life began at.
    """

    def __init__(self, log: CommitLog, store: Store, ask: Ask, *, base: Manifest | None, start: int) -> None:
        self.last = base
        """The newest commit's manifest, of those that this life has begun from or made."""
        self.newest = start if base is None else base.tick
        """The T of the last commit of any life; the start while there is none."""
        self._log = log
        self._store = store
        self._ask = ask
        self._known: dict[int, Manifest] = {} if base is None else {base.tick: base}

    async def watch(self, on_commit: Callable[[Commit], object], last: Callable[[Commit], object]) -> None:
        """Report every commit once, in the event loop; those not above the last one reported are left out.

        Args:
            on_commit: Called with each.
            last: Called with the last commit whenever there is news: with the one that the life began from, and again
                when another one is made below it.
        """
        loop = asyncio.get_running_loop()

        def heard(commit: Commit) -> None:
            last(commit)
            if commit.tick > self.newest:
                self.newest = commit.tick
                on_commit(commit)

        def in_loop(commit: Commit) -> None:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(heard, commit)

        await self._ask(self._log.watch, in_loop)

    def add(self, manifest: Manifest) -> None:
        """Add a committed snapshot of this life."""
        if self.last is None or manifest.tick > self.last.tick:
            self.last = manifest
        self.newest = max(self.newest, manifest.tick)
        self._known[manifest.tick] = manifest
        while len(self._known) > KNOWN:
            del self._known[min(self._known)]

    def at(self, tick: int | None) -> Manifest | None:
        """Return the manifest of exactly this T, which this life knows; None for none."""
        return None if tick is None else self._known[tick]

    def known(self, tick: int) -> Manifest | None:
        """Return the manifest of exactly this T; None if this life does not know it."""
        return self._known.get(tick)

    async def reserve(self, incarnation: int, snapshot: str, bases: Iterable[str]) -> None:
        """Reserve a place for a snapshot, so that it can be committed after a newer one (errors: SnapshotsError)."""
        await self._ask(self._log.reserve, incarnation, snapshot, list(bases))

    async def release(self, incarnation: int, snapshot: str) -> None:
        """Release what is reserved for a snapshot (errors: SnapshotsError)."""
        await self._ask(self._log.release, incarnation, snapshot)

    @property
    def bases(self) -> list[str]:
        """Return the ids of the commits that a snapshot may rest on."""
        return [manifest.id for manifest in self._known.values()]

    async def commit(self, manifest: Manifest) -> Commit:
        """Commit a snapshot and return its commit; retry while the outcome is unknown (R16).

        Raises:
            SnapshotsError: it is not committed; `CommitUnknown`: the outcome is unknown.
        """
        data = sha256(manifest.to_json().encode())
        deadline = time.monotonic() + UNKNOWN_LIMIT_S
        while True:
            try:
                made: Commit = await self._ask(self._log.commit, manifest, data)
                return made
            except CommitUnknown as error:
                if time.monotonic() > deadline:
                    raise
                LOG.warning("retrying the commit: %s", error)
                await asyncio.sleep(AGAIN_S)

    async def manifest(self, commit: Commit) -> Manifest:
        """Return the manifest of a commit (errors: SnapshotsError)."""
        found: Manifest = await self._ask(manifest_of, self._log, self._store, commit)
        return found

    async def oldest(self) -> int | None:
        """Return the smallest T of all commits; None if there are none (errors: SnapshotsError)."""
        return min([commit.tick for commit in await self._ask(self._log.commits)], default=None)

    async def let_base_go(self, incarnation: int) -> None:
        """Allow the commit that the life began from to be dropped (errors: SnapshotsError).

        To be called once the life has a commit of its own: then all workers have loaded what it began from.
        """
        await self._ask(self._log.set_restored, incarnation, None)

    async def ids(self) -> set[str]:
        """Return the ids of all commits (errors: SnapshotsError)."""
        return {commit.id for commit in await self._ask(self._log.commits)}

    async def prune(self, rule: Rule) -> Swept:
        """Drop what a rule does not keep (errors: SnapshotsError)."""
        swept: Swept = await self._ask(self._prune, rule)
        return swept

    def _prune(self, rule: Rule) -> Swept:
        log = self._log
        kept = bases(log, self._store)
        _, dropped = plan(log.commits(), log.last(), log.restored(), rule, datetime.now(UTC), based_on=kept)
        return sweep(log, self._store, dropped)
