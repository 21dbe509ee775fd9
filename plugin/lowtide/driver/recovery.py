"""Chooses the commit that a life begins from, and checks that the current flow can read its state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.conf import Conf
from lowtide.conf.store_access import store_setting
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.core.fronts.floors import Steps
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.driver.refusals import fence_ends_life
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Ask
from lowtide.process.lent_store import MEMORY
from lowtide.sinks.contract import LaneName
from lowtide.sinks.kafka.lasts_records import last_of
from lowtide_snapshots.commits.choice import Choice, choose, manifest_of
from lowtide_snapshots.commits.log import Commit, ZooKeeperCommitLog
from lowtide_snapshots.commits.moment import iso_of
from lowtide_snapshots.errors import ManifestDamaged, NoGoodCommit, NoSuchCommit
from lowtide_snapshots.format.fingerprint import compare
from lowtide_snapshots.format.manifest import LaneLast, Manifest, ttl_of
from lowtide_snapshots.format.parts import SHARED, SHARED_UNIT
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import Store, open_store
from lowtide_tracker import Floor

STEPS = 10
"""Of how many parts one step of progress is made."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StartFrom:
    """The chosen beginning of a start; by default the last good commit.

    Attributes:
        commit: This commit, by its id or name.
        before_ms: The newest commit with a min time at or before this.
        no_state: At the sources' beginning, though there are commits.
        require_state: True to refuse a job without a commit.
        redeliver: True to deliver everything from there on again, as a new output generation.
        floors_from: The job whose floors a first start takes over.
        verified: SHA-256 of the manifest of a commit that this program's preview has verified; empty for none.
    """

    commit: str | None = None
    before_ms: int | None = None
    no_state: bool = False
    require_state: bool = False
    redeliver: bool = False
    floors_from: str | None = None
    verified: str = ""

    def without_state(self, commits: Sequence[object]) -> bool:
        """Return whether a job with these commits begins without state: as asked, or because it has no commit."""
        return self.no_state or (not commits and replace(self, floors_from=None, require_state=False) == StartFrom())

    def refuse_without_state(self, job: str, commits: Sequence[object]) -> None:
        """Refuse a job with these commits if it would begin without state and must not (errors: NoSuchCommit)."""
        if self.require_state and self.without_state(commits):
            raise NoSuchCommit(
                f'job "{job}" has no commit, and --require-state refuses to begin without state',
                where="its commits in ZooKeeper",
                way_out="if it should have one, check job name, zookeeper.hosts and zookeeper.root of the conf; if it "
                "is a first start, leave --require-state out",
            )


@dataclass(frozen=True, slots=True)
class Recovered:
    """The commit and the state that a life begins with.

    Attributes:
        manifest: Of the commit it begins from.
        floors: Of all commits that can be read: a floor that one of them alone knows may have been relied on. The label
            before an offset from which a front is read again counts as one: a later life may begin there.
    """

    manifest: Manifest
    floors: tuple[Floor, ...]

    def same_shapes(self, plan: Plan) -> bool:
        """True if every state has the same type, is forgotten after the same time, and is parted alike."""
        parted = all(part.unit == SHARED_UNIT for part in self.manifest.parts if part.kind in SHARED)
        return parted and {step.shape for step in saved_steps(plan).values()} == set(self.manifest.flow)

    @property
    def forgot(self) -> dict[str, int]:
        """By step, after how many ticks keys were forgotten; steps that did not forget are left out."""
        found = ((shape.vertex, ttl_of(shape)) for shape in self.manifest.flow)
        return {vertex: ttl for vertex, ttl in found if ttl is not None}

    def needed(self, durable: Iterable[Floor]) -> tuple[tuple[Floor, ...], tuple[Floor, ...]]:
        """The floors that say something from where the life begins: of the durable ones, and those of commits alone."""
        kept, commits = Steps(durable), Steps(self.floors)
        for front, offset in self.offsets.items():
            kept.cut(front, offset)
            commits.cut(front, offset)
        known = tuple(kept)
        return known, tuple(floor for floor in commits if kept.add(floor))

    @property
    def offsets(self) -> dict[int, int]:
        """By front the offset from which it is read again."""
        return {front.number: front.offset for front in self.manifest.fronts}

    @property
    def labels(self) -> dict[int, int | None]:
        """By front the label before that offset."""
        return {front.number: front.label for front in self.manifest.fronts}


def refuse_stateless(plan: Plan, conf: Conf, start: StartFrom) -> None:
    """Refuse a start that requires state and finds no commit, before anything is written for it.

    Raises:
        NoSuchCommit: there is no commit.
        ServiceUnavailable: ZooKeeper does not answer.
    """
    if not start.require_state:
        return
    with fence_ends_life(), ZooKeeperAccess.of(conf.zookeeper).store(plan.name) as store:
        start.refuse_without_state(plan.name, ZooKeeperCommitLog(store).commits())


def recover(
    store: JobStore, plan: Plan, conf: Conf, incarnation: int, *, start: StartFrom, say: Say
) -> Recovered | None:
    """Choose the commit to begin from, see that all of it is there and that the flow can read it.

    Only for the newest life: no older one can commit then.

    Returns:
        None for a job that begins without state.

    Raises:
        FlowError: the flow cannot read its state.
        SnapshotsError: no commit matches the request or is whole; or the store or ZooKeeper does not answer.
    """
    log = ZooKeeperCommitLog(store)
    commits = log.commits()
    start.refuse_without_state(plan.name, commits)
    if start.without_state(commits):
        if commits:
            refuse_answers_twice(plan)
            say(f"the job has {len(commits)} commits, but begins without state because of --allow-no-state")
        log.set_restored(incarnation, None)
        return None
    files = open_store(store_setting(conf.snapshots))
    try:
        if conf.snapshots.url == MEMORY and not files.names(""):
            raise _gone(plan.name)
        say("looking for the commit to begin from")
        choice = _chosen(log, files, plan, incarnation, start=start, say=say)
        manifest = choice.manifest
        if start.redeliver:
            log.rewind(incarnation, choice.commit)
            commits = log.commits()
        manifests = _manifests(log, files, commits, manifest)
        say(
            f"beginning from commit {manifest.id} of {iso_of(manifest.min_time_ms)}: "
            f"{manifest.rows:,} rows of state in {len(manifest.parts)} parts"
        )
        return Recovered(manifest, tuple(Steps(floor for each in manifests for floor in _floors_of(each))))
    finally:
        files.close()


def refuse_answers_twice(plan: Plan) -> None:
    """Refuse to begin without state where answers in the order of their coming have been cut below a commit.

    Their records would be read and asked about again, and come out behind all that was delivered (errors: FlowError).
    """
    for ask in plan.those(Ask):
        if ask.step.order == "answer":
            raise FlowError(
                f'call "{ask.name}" gives answers in the order in which they came, and those below the commits of the '
                "job are no longer kept: without state, their records would be asked about and delivered again",
                where=f"job {plan.name!r}",
                way_out="start from a commit, without --allow-no-state; or give the flow another name: a new job reads "
                "its sources from their beginning",
            )


def _gone(job: str) -> NoGoodCommit:
    return NoGoodCommit(
        f"the commits of job {job!r} were in the memory of a service that has ended",
        where=f"[snapshots].url = {MEMORY}",
        way_out="begin without state, with --allow-no-state and another job name; keep what has to outlive a program "
        "in a folder, S3 or Azure",
    )


def _chosen(
    log: ZooKeeperCommitLog, files: Store, plan: Plan, incarnation: int, *, start: StartFrom, say: Say
) -> Choice:
    """Choose a commit and record it, so that no one drops it; if it was just dropped, choose again."""
    while True:
        choice = choose(
            log, files, commit=start.commit, before_ms=start.before_ms, progress=_in_steps(say), verified=start.verified
        )
        for skipped, why in choice.skipped:
            say(f"DAMAGED: skipping commit {skipped.id}: {why}")
        refuse_other_state(plan, choice.manifest, say)
        try:
            log.set_restored(incarnation, choice.commit)
        except NoSuchCommit:
            say(f"commit {choice.commit.id} was dropped meanwhile; looking for another")
        else:
            return choice


def refuse_other_state(plan: Plan, manifest: Manifest, say: Say) -> None:
    """Compare the current flow with that of a snapshot; report readable differences.

    Raises:
        FlowError: what cannot be read, each with its reason.
    """
    steps = saved_steps(plan)
    shapes = [step.shape for step in steps.values()]
    differences = compare(manifest.flow, shapes, {name: step.defaults for name, step in steps.items()})
    fatal = [each.what for each in differences if each.fatal]
    if not fatal:
        was = {shape.vertex: shape for shape in manifest.flow}
        at_us = manifest.tick * plan.slack_ms * 1_000
        kept = [(step, was[name]) for name, step in steps.items() if name in was]
        found = [what for step, then in kept for what in (step.began_otherwise(then), step.cut_otherwise(then, at_us))]
        fatal = [what for what in found if what is not None]
    if fatal:
        raise FlowError(
            "the flow cannot read the state of its last commit: " + "; ".join(fatal),
            where=f"commit {manifest.id} of job {manifest.job!r}",
            way_out="start the old flow; or give new fields defaults, and steps their old names; or begin without "
            "state, with --allow-no-state and another job name",
        )
    for each in differences:
        say(f"the flow has changed: {each.what}")


def refuse_shorter_lasts(manifest: Manifest, last: Mapping[LaneName, OrderKey], generation: int) -> None:
    """Refuse a lane that has delivered less than it had at the snapshot: its topic has lost something (R13).

    Raises:
        LifeEnded: one has.
    """
    if manifest.generation != generation:
        return  # A new generation of output begins with nothing.
    for lane in manifest.lasts:
        was = _key_of(lane)
        now = last_of(last, LaneName(lane.level, lane.sink, lane.lane), _units_of(manifest.record, lane))
        if was is not None and (now is None or now < was):
            raise LifeEnded(
                f'lane {lane.lane} of sink "{lane.sink or "dead letters"}" had delivered up to tick {was.tick} at '
                f"snapshot {manifest.id}, but now has {'nothing' if now is None else f'tick {now.tick}'}",
                where=f"the lasts topic of job {manifest.job!r}",
                way_out="restore the topic; or begin from an older commit, which may deliver records again",
            )


def _units_of(record: JobRecord, lane: LaneLast) -> range:
    """The hash units of a lane; none of a front's dead letters, whose lane is the front."""
    if not lane.sink and not lane.level:
        return range(0)
    return record.units_of_lane(lane.lane)


def _manifests(log: ZooKeeperCommitLog, files: Store, commits: Iterable[Commit], known: Manifest) -> list[Manifest]:
    """The manifests of all commits that can be read, ascending."""
    found = []
    for commit in commits:
        try:
            found.append(known if commit.id == known.id else manifest_of(log, files, commit))
        except ManifestDamaged:
            continue
    return found


def _floors_of(manifest: Manifest) -> Iterator[Floor]:
    """Yield the floors that a manifest holds."""
    for each in manifest.floors:
        yield Floor(each.front, each.offset, each.tick, each.cap)
    for front in manifest.fronts:
        if front.label is not None:
            yield Floor(front.number, front.offset, front.label)


def _key_of(lane: LaneLast) -> OrderKey | None:
    if lane.last is None:
        return None
    tick, front, sequence, child, trace = json.loads(lane.last)
    return OrderKey(tick, front, sequence, tuple(child), trace)


def _in_steps(say: Say) -> Callable[[int, int], None]:
    """Progress in steps, not one for each part."""

    def progress(done: int, parts: int) -> None:
        if done and (done == parts or done % max(1, parts // STEPS) == 0):
            say(f"verifying: {done} of {parts} parts")

    return progress
