"""Takes the snapshots of one life: requests them, waits for all shares, seals and commits them (R14 to R16).

It belongs to the service's event loop; threads ask the store and ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from lowtide.assignment.messages import Cancel, Committed, ShareFailed, ShareNews
from lowtide.assignment.setting import SnapshotSetting
from lowtide.errors import LowtideError, SnapshotFailed
from lowtide.events import EventLog
from lowtide.service.snapshots.commit_age import CommitAge
from lowtide.service.snapshots.commits import Commits
from lowtide.service.snapshots.participants import Participants
from lowtide.service.snapshots.taking import Taking
from lowtide.service.snapshots.takings import Takings
from lowtide.service.snapshots.upkeep import Upkeep
from lowtide.status.job_view import SnapshotsView, SnapshotView
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.log import Commit, CommitLog
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.errors import CommitRefused, SnapshotsError, WriteUnknown, ZooKeeperUnavailable
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.stores import open_store
from lowtide_tracker import Floor

LOG = logging.getLogger(__name__)
HEARD_LIMIT_S = 30.0
"""The time for a request to reach workers; one that is busy with a large group of records gets it later."""
POLL_S = 0.01
AGAIN_AFTER_S = 10.0
"""The time after a failed snapshot until the job takes the next one by itself."""


class Coordinator:
    """The snapshots of one life.

    Args:
        setting: The driver program's setting.
        incarnation: The life.
        start: The tick that it began at.
        log: The job's commits.
        ask: Calls the log in a thread, one call at a time.
        participants: The workers, the fronts and the tracker.
        events: Receives events.
        since: The time at which the job's first life began, ISO; None if unknown.
        on_commit: Called when there are new commits of any life.
    """

    def __init__(
        self,
        setting: SnapshotSetting,
        *,
        incarnation: int,
        start: int,
        log: CommitLog,
        ask: Callable[..., Awaitable[Any]],
        participants: Participants,
        events: EventLog,
        since: str | None = None,
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_commit = on_commit
        self._setting = setting
        self._incarnation = incarnation
        self._participants = participants
        self._events = events
        self._record = JobRecord.from_json(setting.record)
        self._store = open_store(setting.store)
        self._loop = asyncio.get_running_loop()
        base = Manifest.from_json(setting.base, "the manifest that the life began from") if setting.base else None
        self.base = None if base is None else base.id
        """The commit that the life began from; None for none."""
        self.commits = Commits(log, self._store, ask, base=base, start=start)
        rule = Rule(setting.keep, setting.max_age_s)
        self._upkeep = Upkeep(self.commits, rule, participants, events)
        self._takings = Takings(setting, incarnation, self._record)
        self._pinning = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._own: asyncio.Task[Any] | None = None
        self._closing = False
        self._age = CommitAge(since, datetime.now(UTC), time.monotonic())
        self._failed_s = float("-inf")
        self._goes = False
        """True once the life has something to take."""
        self.trouble = ""
        """The fault that keeps snapshots from being taken or committed, and since when; empty if there is none."""

    async def start(self) -> None:
        """Watch for commits of any life."""
        self._spawn(self._look_at_store())
        await self.commits.watch(lambda commit: self._spawn(self._committed(commit)), self._made)

    async def close(self) -> None:
        """Cancel what is being taken."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.to_thread(self._store.close)

    def hear(self, worker: str, news: ShareNews) -> None:
        """Take what a worker reports of a snapshot."""
        taking = self._takings.of_number(news.number)
        if taking is None or taking.phase != "taking":
            return
        if isinstance(news, ShareFailed):
            self._fail(taking, news.cause.prefixed(f"worker {worker}: "))
        else:
            taking.hear(worker, news)

    def views(self) -> list[SnapshotView]:
        """Return all that is known of the life's snapshots, oldest first."""
        return self._takings.views(time.monotonic())

    def summary(self, now_s: float) -> SnapshotsView:
        """Return their summary for the job's status."""
        return self._takings.summary(self.commits.last, self._age.seconds(now_s))

    def begin(self, name: str | None, *, commit: bool, key: str | None = None) -> SnapshotView:
        """Begin to take a snapshot; `views` shows its progress.

        Args:
            name: Its name.
            commit: True to commit it as soon as it is sealed.
            key: The request's key: a repeated request gets the snapshot that it began, unless that failed.

        Raises:
            SnapshotFailed: too many are being taken.
        """
        taking = self._takings.of_key(key)
        if taking is None:
            taking = self._takings.add(name, key, time.monotonic())
            self._spawn(self._take(taking, commit=commit))
            self._release_forgotten()
        return taking.view(time.monotonic())

    def look(self, now_s: float, min_time: int) -> None:
        """Take and commit a snapshot if the last one, of any life, is too old; call it each second.

        Args:
            now_s: The monotonic time.
            min_time: The tracker's, a tick; a snapshot that is due at a life's start waits until it has moved.
        """
        age = self._setting.max_commit_age_s
        due = age and self._age.seconds(now_s) >= age and now_s - self._failed_s >= min(age, AGAIN_AFTER_S)
        self._goes = self._goes or (min_time > self.commits.newest and not self._missing)
        if due and self._goes and (self._own is None or self._own.done()):
            with suppress(SnapshotFailed):
                self._own = self._spawn(self._prune_after(self.begin(None, commit=True).id))

    # -- one snapshot ----------------------------------------------------------------------------------------------

    async def _take(self, taking: Taking, *, commit: bool) -> None:
        try:
            async with asyncio.timeout(self._setting.taking_limit_s):
                await self._collect(taking)
            taking.skip(self._participants.skipped)
            handed_on = [Floor(each.front, each.offset, each.tick, each.cap) for each in taking.handed_on]
            floors = (*self._participants.floors(taking.starts), *handed_on)
            manifest = taking.seal(self.commits.at(taking.since), floors)
            await asyncio.to_thread(self._store.put, manifest.path, manifest.to_json().encode())
            taking.over("sealed", time.monotonic())
            self._events.event("snapshot_sealed", **taking.described())
            if commit:
                made = await self.commits.commit(manifest)
                if made.tick >= self.commits.newest:
                    self._made(made)
                # Of two commits in quick succession ZooKeeper may announce only the last.
                await self._is_committed(taking)
        except TimeoutError:
            lacking = "; ".join(taking.waits_for) or "the tracker has not answered"
            self._fail(taking, Cause("other", f"it took more than {self._setting.taking_limit_s:g} s: {lacking}"))
        except CommitRefused as error:
            # A newer one has overtaken it, and nothing is reserved: this is not a fault.
            trouble = self.trouble
            self._fail(taking, error.cause())
            self.trouble, self._failed_s = trouble, float("-inf")
            if taking.reserved:
                taking.reserved = False
                await self._release(taking.id)
        except LowtideError as error:
            self._fail(taking, error.cause())
        except asyncio.CancelledError:
            self._fail(taking, Cause("other", "the life ended"))
            raise
        except Exception as error:
            LOG.exception("snapshot %s failed", taking.id)
            what = f"this is a fault of Lowtide, see the job's log: {type(error).__name__}: {error}"
            self._fail(taking, Cause("other", what))

    async def _collect(self, taking: Taking) -> None:
        """Request it, and wait for all shares."""
        # A second request before all have the first would replace it.
        async with self._pinning:
            participants = self._participants
            if self._missing:
                raise SnapshotFailed(
                    f"{self._missing} of {participants.expected} workers are not up yet",
                    way_out="try again in a few seconds",
                )
            if taking.name is not None:
                await self._reserve(taking)
            # Floors that only a manifest has, from shortly before a life ended, are passed on from one to the next.
            taking.handed_on = () if self.commits.last is None else self.commits.last.floors
            newest = self.commits.newest
            tick = await participants.request(taking.number)
            if tick <= newest:
                raise SnapshotFailed(
                    "min time has not moved since the last commit, or since the start: it is "
                    f"{tick * self._record.slack_ms} ms",
                    way_out="see what holds it in `lowtide status`, and try again when it has moved",
                )
            fronts = list(participants.fronts())
            owners = [owner for _, owner in fronts if owner is not None]
            taking.begin(tick, [*participants.workers(), *owners], {front.number: front for front, _ in fronts})
            await self._until_heard(taking)
        if taking.reserved:
            base = self.commits.at(taking.since)
            await self._reserve(taking, [] if base is None else [base.id])
        await self._until(taking, lambda: taking.whole)

    async def _reserve(self, taking: Taking, bases: Iterable[str] | None = None) -> None:
        """Allow a snapshot to be committed even after a newer one, and keep its bases until then (R17).

        Args:
            taking: The snapshot, of which nothing is written yet.
            bases: The commits it may rest on; None while unknown.
        """
        try:
            await self.commits.reserve(self._incarnation, taking.id, self.commits.bases if bases is None else bases)
            taking.reserved = True
        except (ZooKeeperUnavailable, WriteUnknown) as error:
            LOG.warning("snapshot %s may be refused if a newer one is committed before it: %s", taking.id, error)

    async def _release(self, id_: str) -> None:
        """Release a snapshot that will not be committed; otherwise its reservation goes with the life."""
        with suppress(SnapshotsError):
            await self.commits.release(self._incarnation, id_)

    def _release_forgotten(self) -> None:
        """Release snapshots that are no longer listed, so that reservations do not pile up."""
        for id_ in self._takings.forgotten():
            self._spawn(self._release(id_))

    @property
    def _missing(self) -> int:
        """The number of workers that are not up yet."""
        return max(0, self._participants.expected - len(set(self._participants.workers())))

    async def _until_heard(self, taking: Taking) -> None:
        try:
            async with asyncio.timeout(HEARD_LIMIT_S):
                await self._until(taking, lambda: taking.heard)
        except TimeoutError:
            raise SnapshotFailed(
                f"these workers did not get its request within {HEARD_LIMIT_S:g} s: {', '.join(taking.unheard)}",
                way_out="try again; `lowtide status` shows the job's state",
            ) from None

    async def _until(self, taking: Taking, reached: Callable[[], bool]) -> None:
        while not reached():
            if taking.phase == "failed":
                raise SnapshotFailed(str(taking.why))
            await asyncio.sleep(POLL_S)

    def _fail(self, taking: Taking, why: Cause) -> None:
        if taking.phase in ("failed", "committed"):
            return
        sealed = taking.phase == "sealed"
        if taking.reserved and not sealed and not self._closing:
            taking.reserved = False
            self._spawn(self._release(taking.id))
        taking.why = why.prefixed("it is sealed but not committed: ") if sealed else why
        taking.over("failed", time.monotonic())
        self._failed_s = time.monotonic()
        self.trouble = f"since {datetime.now(UTC):%H:%M:%S} UTC: snapshot {taking.id} failed: {taking.why}"
        self._participants.send(Cancel(taking.number))
        self._events.event("snapshot_failed", why=str(taking.why), **taking.described())

    async def _look_at_store(self) -> None:
        """Report early what would keep the first snapshot from being written."""
        try:
            await asyncio.to_thread(self._store.check)
        except SnapshotsError as error:
            self.trouble = f"since {datetime.now(UTC):%H:%M:%S} UTC: cannot write snapshots: {error}"
            LOG.warning("cannot write snapshots: %s", error)

    # -- commits ---------------------------------------------------------------------------------------------------

    def _made(self, commit: Commit) -> None:
        """Note the last commit, of any life; another one may have been made below it."""
        self._age.committed(commit.at, datetime.now(UTC), time.monotonic())
        if commit.tick <= self.commits.newest and any(each.reserved for each in self._takings):
            self._spawn(self._look_for_committed(set()))

    async def _committed(self, commit: Commit) -> None:
        """Pass on a commit of any life, once, to all that it concerns."""
        self.trouble = ""
        self._on_commit()
        if commit.incarnation == self._incarnation and self._takings.of_id(commit.id) is None:
            # It was sealed so long ago that it is no longer listed.
            with suppress(SnapshotsError):
                self.commits.add(await self.commits.manifest(commit))
                self._participants.send(Committed(commit.tick))
        await self._look_for_committed({commit.id})

    async def _look_for_committed(self, ids: set[str]) -> None:
        """Find out which of this life's sealed snapshots are committed, among these."""
        waiting = {taking.id: taking for taking in self._takings if taking.phase == "sealed"}
        if waiting.keys() - ids:
            with suppress(SnapshotsError):
                ids |= await self.commits.ids()
        for id_, taking in waiting.items():
            if id_ in ids:
                await self._is_committed(taking)

    async def _is_committed(self, taking: Taking) -> None:
        """Note that one of this life's snapshots is committed."""
        if taking.phase == "committed" or taking.manifest is None:
            return
        taking.phase, taking.why, taking.reserved = "committed", None, False
        self.trouble = ""
        self._on_commit()
        beside = taking.manifest.tick < self.commits.newest
        self.commits.add(taking.manifest)
        if not beside:  # Workers use the newest.
            self._participants.send(Committed(taking.manifest.tick))
        self._events.event("snapshot_committed", **taking.described())
        self._upkeep.forget_floors(each for each in self._takings if each.phase == "taking" and each.reserved)
        await self._upkeep.let_base_go(self._incarnation)
        await self._cut_answers()

    async def _cut_answers(self) -> None:
        await self._upkeep.cut_answers([each for each in self._takings if each.reserved])

    def tracker_restarted(self) -> None:
        """Fail snapshots whose request died with the tracker's process before it reached all workers."""
        for taking in self._takings:
            if taking.phase == "taking" and not taking.heard:
                self._fail(taking, Cause("loss", "the tracker restarted before all workers got the request"))

    async def _prune_after(self, id_: str) -> None:
        """Once a snapshot of the job's own is committed, drop what the rule does not keep (R17)."""
        while (taking := self._takings.of_id(id_)) is not None and taking.phase in ("taking", "sealed"):
            await asyncio.sleep(1.0)
        if taking is None or taking.phase != "committed":
            return
        await self._upkeep.prune()
        await self._cut_answers()  # There may be no other commit for long.

    # -- parts -----------------------------------------------------------------------------------------------------

    def _spawn(self, what: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
