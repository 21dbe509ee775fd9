"""The contract of staged sinks: files, tables, and all other stores that have no transactions of their own.

Hosts deliver to the *staged log* `lowtide.JOB.staged.SINK`, one partition per lane, as to any topic: claims, `last` and
rescaling are Kafka's (R13, R19). A *carrier* takes the records on from there. It needs no claim, as it is a function of
the log (R20): what readers of the store can tell apart follows from log time and offsets, never from wall clock, the
bounds of bundles, or which carrier it was. Its position is read, never remembered, and moves in the step that makes
records visible, or after it; the log is cut only below what is visible (R24).

A carrier's lanes are the partitions. If the job has got more lanes, these have other numbers, and what a key had before
may be in another partition (`flow/plan/lane_partitions.py`). A sink with `by_key` is given that first (`ages.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lowtide.conf import Conf
from lowtide.flow.formats.endpoints import StagedSink
from lowtide.flow.plan.lane_partitions import births_of, partition_of_lane


class StagedRow(NamedTuple):
    """A record in the staged log.

    Attributes:
        offset: Its offset in the lane's partition; offsets ascend, with gaps.
        time_ms: Its log time, ms since 1970: the beginning of its tick; never falls within a lane.
        key: Its key as a message's key, in UTF-8; None if the sink has none.
        value: The record as JSON, as `lt.json(Type)` writes it.
    """

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of one lane.

    Attributes:
        needed: The offset from which the carrier still needs the log; the log may be cut below it.
        visible_ms: The log time below which readers of the store see all of the lane's records; None while unknown.
    """

    needed: int
    visible_ms: int | None = None


def visible_ms(lanes: Mapping[int, Progress]) -> int | None:
    """Return the log time below which readers of a store see everything; None while it is unknown of a lane."""
    times = [each.visible_ms for each in lanes.values()]
    known = [each for each in times if each is not None]
    return min(known) if known and len(known) == len(times) else None


class Carrier(Protocol):
    """Takes one sink's records from its staged log into its store; all calls come from one thread."""

    def open(self, kept: Mapping[int, int]) -> Mapping[int, int]:
        """Connect to the store, and return by lane the offset to read from.

        Args:
            kept: By lane the largest `needed` that a carrier has reported, or the log's beginning. A store that keeps
                its position itself returns its own.

        Raises:
            LowtideError: the store does not answer, refuses, or does not fit the records.
        """

    def take(self, lane: int, rows: Sequence[StagedRow]) -> None:
        """Take a lane's next records, in order (errors: LowtideError)."""

    def mark(self, lane: int, time_ms: int) -> None:
        """Note that none of the lane's records below this log time follows (errors: LowtideError)."""

    def settle(self, now_s: float) -> None:
        """Make visible what can be: called after each read, and about ten times a second (errors: LowtideError).

        Args:
            now_s: Monotonic clock, s; it may decide when records become visible, never which or how. Infinite where
                nothing more is waited for, as when the job stops: after that all is visible that can be.
        """

    def progress(self) -> Mapping[int, Progress]:
        """Return by lane how far it is."""

    def counts(self) -> Mapping[str, int]:
        """Return what it has done since it was opened, by what it counts; see `COUNTS` in `status/metrics.py`."""

    def close(self) -> None:
        """Give back what was opened; called once, also after an error. What is not visible is taken again."""


@runtime_checkable
class InStep(Protocol):
    """Addition to `Carrier` for one that brings lanes into one order: what comes too early waits in its memory."""

    def resting(self) -> Collection[int]:
        """Return the lanes of which it takes no more until others have come further; asked after each `settle`.

        What of them is in the log could not become visible before.
        """


@runtime_checkable
class Follows(Protocol):
    """Addition to `Carrier` for one that has to know what carriers before it have made visible."""

    def follow(self, visible_ms: int) -> None:
        """Take the largest log time below which one of them has reported a lane as visible; before `open`."""


@runtime_checkable
class FromMarks(Protocol):
    """Addition to `Carrier` for one that may begin at a mark that it has been given, as well as after the last row.

    A lane without rows has a mark each second. Of these only the last one that counts is then kept, and read again by
    the next carrier.
    """

    from_marks: bool
    """True."""


@dataclass(frozen=True, slots=True)
class Carriage:
    """One staged sink of a job, as its carrier knows it.

    Attributes:
        job: The job's name.
        job_id: The job's id for good.
        generation: Output generation.
        sink: The sink's name in the flow.
        lanes: Number of lanes, numbered from 0.
        slack_ms: Length of a tick in ms: log times are multiples of it.
        settings: What `Staged.settings` returned.
        workers: Workers of a level in this life; None where no life is, which is as good as one for each lane.
        lane_counts: The numbers of lanes that the job has had, the current one last; empty if it has never grown.
    """

    job: str
    job_id: str
    generation: int
    sink: str
    lanes: int
    slack_ms: int
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    workers: int | None = None
    lane_counts: tuple[int, ...] = ()

    def lane_of(self, partition: int) -> int:
        """Return the job's lane that a lane of the log, a partition, is of."""
        return partition_of_lane(self.lane_counts).index(partition) if self.lane_counts else partition

    def births_of(self, partition: int) -> int:
        """Return the number of the growth that made a partition: what a key has in a later one is newer."""
        return births_of(self.lane_counts)[partition] if self.lane_counts else 0


class Staged(StagedSink, Protocol):
    """A sink whose records are staged; a frozen value that pickles with the plan. `store` is "kafka", `place` its own.

    What it can write is at most what `lt.json(Type)` can: that is how its records are staged.
    """

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return what `carrier` needs of the conf, secrets included (errors: ConfError)."""

    def carrier(self, carriage: Carriage) -> Carrier:
        """Return a carrier; it opens nothing yet."""
