"""Finds what keeps a job's records from where they belong, and names the step, the sink, the partition or the folder.

Five kinds, each with the way out in the words of docs/operations.md. What is found here is seen in gauges and in what
the service knows of Kafka and of disks; what holds min time otherwise is for `advice` to explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowtide.flow.formats.endpoints import KAFKA
from lowtide.status.gauges import LetterGauges
from lowtide.status.job_view import FrontView, SinkView, TroubleKind
from lowtide.status.moment import JobShape, Moment, Room
from lowtide.status.recent import BusyStep, Recent
from lowtide.wording import count_of

BEHIND_MS = 3_000
"""From this lag of min time on a step that takes most of a process's time is slow."""
STANDS_S = 3.0
"""The time from which on a function that does not return makes its step slow."""
UNREAD_S = 5.0
"""The time from which on a record that a worker does not get makes its partition silent."""
OPEN_S = 30.0
"""The same for a transaction that is open: many writers end one every few seconds."""
BUSY_SHARE = 0.6
"""The share of a process's time that a slow step takes at least."""
DRY_S = 5.0
"""The time from which on records that wait for their store make a sink dry."""
LETTERS_S = 600.0
"""For so long after a step's last dead letter it is reported."""
LEAST_SHARE = 0.02
LEAST_BYTES = 64 << 20
"""A disk with less room, of its size or at all, is nearly full."""
LEAST_GIB = 10
"""Sizes from here on are said in GiB."""
NAMED = 3
"""So many partitions are named each; of more their number."""
EXPLAINS_HOLDER: frozenset[TroubleKind] = frozenset({"slow step", "dry sink", "silent partition"})
"""The kinds that say why min time stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One trouble at one moment.

    Attributes:
        kind: Its kind.
        name: The step, the sink, the partition or the folder.
        headline: It in a few words, to stand after "the job runs, but".
        says: It in a sentence, with the figures; it begins with the headline.
        to_do: What to do, a sentence or two each; what can be typed stands between backticks.
        for_s: For how long it has lasted; None if only looks show that.
    """

    kind: TroubleKind
    name: str
    headline: str
    says: str
    to_do: tuple[str, ...]
    for_s: float | None = None


def find_troubles(
    shape: JobShape,
    moment: Moment,
    recent: Recent,
    *,
    lag_ms: int | None,
    fronts: Sequence[FrontView],
    sinks: Sequence[SinkView],
    letters: dict[str, LetterGauges],
) -> list[Found]:
    """Return the troubles at a moment, those that stop records first.

    Args:
        shape: What stays the same.
        moment: What the service sees.
        recent: The last seconds.
        lag_ms: Of min time.
        fronts: The source partitions.
        sinks: The sinks.
        letters: Dead letters by step.
    """
    return [
        *_slow_steps(shape, moment, recent, lag_ms),
        *_silent_partitions(moment, fronts),
        *_dry_sinks(moment, sinks),
        *_full_disks(shape, moment),
        *_dead_letters(shape, recent, letters),
        *_refused_rows(recent),
    ]


# -- slow steps --------------------------------------------------------------------------------------------------------


def _slow_steps(shape: JobShape, moment: Moment, recent: Recent, lag_ms: int | None) -> Iterator[Found]:
    standing = {each.stands.step: each for each in moment.workers if each.stands and each.stands.for_s >= STANDS_S}
    for step, worker in standing.items():
        stands = worker.stands
        assert stands is not None, "it was chosen for that"
        what = f"its function {stands.function} has" if stands.function else "it has"
        yield _slow(
            shape, step, f"{what} not returned for {stands.for_s:.0f} s in worker {worker.worker}", stands.for_s
        )
    if lag_ms is None or lag_ms < BEHIND_MS:
        return
    for busy in recent.busy_steps(BUSY_SHARE):
        if busy.step not in standing and _explains(moment, busy):
            what = f"its function {busy.function} takes" if busy.function else "it takes"
            said = f"{what} {busy.share:.0%} of the time of the process of worker {busy.worker}, and min time is behind"
            yield _slow(shape, busy.step, said, None)


def _slow(shape: JobShape, step: str, said: str, for_s: float | None) -> Found:
    ways: tuple[str, ...] = (
        f"What does step `{step}` wait for? `lowtide logs {shape.job}` has what its functions print.",
        "If it asks a service or a database, make it a `call`: that has many questions open at a time, and a time-out.",
        (
            "If it computes, start with a higher `job.parallelism` (up to `job.lanes`) and more `worker.processes`, or "
            "use `map_batches`. That does not help where one key has most of the records: they go one after the other."
        ),
    )
    if for_s is not None:
        ways = (*ways, "After `worker.call_limit_s` the life ends, and the next one begins. Nothing is lost.")
    return Found(
        kind="slow step",
        name=step,
        headline=f'step "{step}" is slow',
        says=f'step "{step}" is slow: {said}',
        to_do=ways,
        for_s=for_s,
    )


def _explains(moment: Moment, busy: BusyStep) -> bool:
    """Return whether a busy step may be why min time is behind: not if a front holds it that another process reads."""
    held = None if moment.tracker is None else moment.tracker.held
    if held is None or not held.at_front:
        return True
    for worker in moment.workers:
        if worker.gauges is not None and worker.gauges.front is not None and worker.gauges.front.front == held.front:
            return (worker.executor, worker.pid) == busy.process
    return False


# -- dry sinks ---------------------------------------------------------------------------------------------------------


def _dry_sinks(moment: Moment, sinks: Sequence[SinkView]) -> Iterator[Found]:
    for sink in sinks:
        staged = moment.staged.get(sink.sink)
        if staged is not None and staged.trouble:
            yield Found(
                kind="dry sink",
                name=sink.sink,
                headline=f'sink "{sink.sink}" takes nothing',
                says=f"{staged.trouble}; {count_of(staged.records, 'record')} wait in Kafka",
                to_do=(
                    *([_sentence(staged.way_out)] if staged.way_out else []),
                    (
                        "Nothing is lost: its records wait in Kafka, the other sinks go on, and the job tries again "
                        "every 30 s at most."
                    ),
                ),
            )
        elif sink.waits_s >= DRY_S:
            waiting = count_of(sink.waiting, "record")
            yield Found(
                kind="dry sink",
                name=sink.sink,
                headline=f'sink "{sink.sink}" takes nothing',
                says=f'sink "{sink.sink}" takes nothing: {waiting} wait for {sink.trouble or _store(sink.store)}',
                to_do=_dry_ways(sink),
                for_s=sink.waits_s,
            )


def _dry_ways(sink: SinkView) -> tuple[str, ...]:
    lost = (
        "Nothing is lost. If it takes longer than `kafka.delivery_limit_ms`, the life ends; the next one delivers what "
        "waits, and nothing twice."
    )
    if sink.store == KAFKA:
        return ("Do the brokers run, and has each partition enough replicas in sync? `lowtide doctor` asks them.", lost)
    return (
        (
            f"Does {_store(sink.store)} run and take writes? Does nobody hold a lock on the table of `{sink.sink}`? "
            "`lowtide doctor flow.py` asks it."
        ),
        lost,
    )


def _store(store: str) -> str:
    kind, _, name = store.partition(":")
    known = {"kafka": "Kafka", "postgres": "PostgreSQL"}.get(kind, kind)
    return known if name in ("", "default") else f"{known} ({name})"


# -- dead letters ------------------------------------------------------------------------------------------------------


def _dead_letters(shape: JobShape, recent: Recent, letters: dict[str, LetterGauges]) -> Iterator[Found]:
    for step, dead in letters.items():
        since_s = recent.since_s("letters", step)
        if since_s is None or since_s > LETTERS_S:
            continue
        place = f" at {dead.at}" if dead.at else ""
        yield Found(
            kind="dead letters",
            name=step,
            headline=f'"{step}" gives records to the dead letters',
            says=f'"{step}" gives records to the dead letters: {dead.records:,} so far, in topic '
            f'"{shape.dead_letters}"; the last{place}: {dead.why}',
            to_do=(
                "`lowtide topic letters flow.py` prints each with its record and its reason.",
                f"Correct the writer of that partition, or `{step}` in the flow. All other records go on.",
                (
                    "To compute these records after all, use `lowtide recover flow.py --redeliver` from a commit "
                    "before them."
                ),
            ),
        )


def _refused_rows(recent: Recent) -> Iterator[Found]:
    for sink, rows in recent.refused.items():
        since_s = recent.since_s("refused", sink)
        if since_s is not None and since_s <= LETTERS_S:
            yield Found(
                kind="dead letters",
                name=sink,
                headline=f'the table of sink "{sink}" refuses rows',
                says=f'the table of sink "{sink}" refuses rows: {rows:,} so far, which are in lowtide.refused',
                to_do=(f"Look at `lowtide.refused` in its database. Correct the step before `{sink}`, or the table.",),
            )


# -- silent partitions -------------------------------------------------------------------------------------------------


def _silent_partitions(moment: Moment, fronts: Sequence[FrontView]) -> Iterator[Found]:
    names = {front.front: front.partition for front in fronts}
    silent = {names.get(front, f"front {front}"): why for front, why in moment.unanswered.items()}
    for partition in sorted(silent)[:NAMED]:
        rest = f" (and {len(silent) - NAMED} more partitions are silent)" if len(silent) > NAMED else ""
        yield Found(
            kind="silent partition",
            name=partition,
            headline=f"partition {partition} is silent",
            says=f"partition {partition} is silent: Kafka does not report its end ({silent[partition]}), so its time "
            f"does not move while nothing comes from it{rest}",
            to_do=(
                f"Does the broker that leads {partition} run, and has the partition a leader? `lowtide doctor` asks.",
                "Nothing is lost: the job waits, asks again every second, and goes on by itself.",
            ),
        )
    for partition, offset, for_s in moment.unread.values():
        if for_s >= UNREAD_S and partition not in silent and not any(each.stands for each in moment.workers):
            yield Found(
                kind="silent partition",
                name=partition,
                headline=f"partition {partition} is silent",
                says=f"partition {partition} is silent: its worker does not get the record at offset {offset}, which "
                "the driver does get",
                to_do=(
                    (
                        f"Does the executor reach the broker that leads {partition}? Its log says which broker it "
                        "lacks: look at the network and at `advertised.listeners`."
                    ),
                    "After `job.stall_limit_ms` the life ends and says so; the next one reads the record again.",
                ),
                for_s=for_s,
            )
    for front, (offset, for_s) in moment.open_transactions.items():
        partition = names.get(front, f"front {front}")
        if for_s >= OPEN_S and partition not in silent:
            yield Found(
                kind="silent partition",
                name=partition,
                headline=f"partition {partition} is silent",
                says=f"partition {partition} is silent: a transaction of its writer is open at offset {offset}, and "
                "what was written after it cannot be read before it ends",
                to_do=(
                    (
                        f"Does the writer of {partition} hang? End it or its transaction: "
                        "`kafka-transactions.sh find-hanging` names it, `abort` ends it."
                    ),
                    (
                        "Otherwise Kafka ends it after the writer's `transaction.timeout.ms`. Nothing is lost; these "
                        "records count as of the time at which they can be read."
                    ),
                ),
                for_s=for_s,
            )


# -- full disks --------------------------------------------------------------------------------------------------------


def _full_disks(shape: JobShape, moment: Moment) -> Iterator[Found]:
    rooms = [*moment.rooms]
    largest: dict[str, str] = {}
    for worker in moment.workers:
        disk = None if worker.gauges is None else worker.gauges.disk
        if disk is None or not disk.folder or any(room.folder == disk.folder for room in rooms):
            continue
        kept = {step: each.bytes for step, each in (worker.gauges.kept or {}).items()} if worker.gauges else {}
        step = max(kept, key=lambda each: kept[each], default="")
        largest[disk.folder] = step
        rooms.append(Room("state", disk.folder, disk.free_bytes, disk.size_bytes))
    for room in rooms:
        if room.free_bytes < min(LEAST_BYTES, room.size_bytes) or room.free_bytes < LEAST_SHARE * room.size_bytes:
            whose, ways = _ROOMS[room.what]
            step = largest.get(room.folder, "")
            most = f'; step "{step}" has most of it' if step else ""
            yield Found(
                kind="full disk",
                name=room.folder,
                headline=f"the disk of {whose} is nearly full",
                says=f"the disk of {whose} is nearly full: {room.folder} has {_size(room.free_bytes)} left of "
                f"{_size(room.size_bytes)}{most}",
                to_do=tuple(way.format(job=shape.job, folder=room.folder) for way in ways),
            )


def _size(count: int) -> str:
    mib = count / (1 << 20)
    return f"{mib:,.0f} MiB" if mib < LEAST_GIB << 10 else f"{mib / 1024:,.0f} GiB"


_ROOMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "log": (
        "the job's log",
        (
            "Free space at `{folder}`. The job goes on without its log meanwhile; nothing is lost but lines.",
            "To keep it elsewhere, set `[job].folder` at the next start.",
        ),
    ),
    "snapshots": (
        "the snapshots",
        (
            "Free space at `{folder}`, for instance by `lowtide snapshots prune {job} --keep 1`.",
            "The job goes on, and its last commit stays; only new snapshots fail. Then `lowtide snapshot {job}`.",
        ),
    ),
    "state": (
        "the state",
        (
            "Free space at `{folder}`, or name another `state.folder` at the next start; a shorter `ttl` needs less.",
            "If it fills up, the life ends. Nothing is lost: the next start goes on from the last commit.",
        ),
    ),
}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?")) else ".")
