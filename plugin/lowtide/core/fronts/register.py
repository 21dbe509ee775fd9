"""The front register as a value: the number of each source partition, and the tick below which it labels nothing (R3).

    register, front = FrontRegister().opened(Partition("orders", "Xk2…", 0), offset=0, above=NO_TICK)
    tracker = Tracker(graph, register.openings(start=0), ...)    # min time runs over the register

Append-only: a number is assigned once and never reused, and an entry never changes. The store writes an entry before
the front's first label, in one step with the check of the incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lowtide.core.fronts.floors import NO_TICK
from lowtide.errors import LifeEnded, RecordRefused
from lowtide_tracker import Floor

MAX_FRONTS = 1 << 31
"""A front's number is an int32 in every order key."""


class RegisterDamaged(LifeEnded):
    """Restore the front register from a backup: without it order keys mean something else."""


class SourceGone(RecordRefused):
    """Restore the topic, or correct the flow's sources, or start a job of another name."""


class SourceTooShort(RecordRefused):
    """Start from a later commit: the source's retention has deleted what this one would have to read again."""


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One source partition, for ever: a topic that is deleted and created again has another id, and so other fronts.

    Attributes:
        source: The source's name in the flow.
        topic_id: The broker's permanent id of the topic, not its name.
        partition: Its number in the topic.
    """

    source: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f'partition {self.partition} of source "{self.source}" (topic id {self.topic_id})'


@dataclass(frozen=True, slots=True)
class FrontEntry:
    """One front.

    Attributes:
        number: Its number, from 0 without gaps in the order of registration.
        partition: The source partition.
        offset: The first offset that it reads.
        opening: The opening floor, a tick: it labels nothing below, in no life.
        start: The flow's start of its topic, when the job began to read it.
        stop: The first offset that it does not read; None if it reads on for ever.
        ends: The flow's stop of its topic; empty if none.
        preloaded: The end of its preloaded records, which are labelled with its opening floor; None for a topic that is
            not preloaded, and for a partition that came later.
    """

    number: int
    partition: Partition
    offset: int
    opening: int
    start: str = "earliest"
    stop: int | None = None
    ends: str = ""
    preloaded: int | None = None

    @property
    def floor(self) -> Floor:
        """The opening floor as a floor."""
        return Floor(self.number, self.offset, self.opening)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain values, for storing."""
        options: dict[str, Any] = {} if self.start == "earliest" else {"start": self.start}
        if self.preloaded is not None:
            options["preloaded"] = self.preloaded
        ends = {} if self.stop is None else {"stop": self.stop, "ends": self.ends}
        return {
            **options,
            **ends,
            "number": self.number,
            "source": self.partition.source,
            "topic_id": self.partition.topic_id,
            "partition": self.partition.partition,
            "offset": self.offset,
            "opening": self.opening,
        }


@dataclass(frozen=True, slots=True)
class FrontRegister:
    """All fronts of a job.

    Attributes:
        entries: By number.
    """

    entries: tuple[FrontEntry, ...] = ()

    def __post_init__(self) -> None:
        numbers = [entry.number for entry in self.entries]
        if numbers != list(range(len(numbers))) or len({entry.partition for entry in self.entries}) < len(numbers):
            raise RegisterDamaged(
                f"the front register is damaged: it has the fronts {numbers}, expected each number from 0 up and each "
                "partition exactly once",
                way_out="restore it from a backup; delivered order keys depend on it",
            )

    def find(self, partition: Partition) -> FrontEntry | None:
        """Return the front of a partition; None if it is not registered. O(fronts)."""
        return next((entry for entry in self.entries if entry.partition == partition), None)

    def opened(
        self,
        partition: Partition,
        *,
        offset: int,
        above: int,
        start: str = "earliest",
        stop: int | None = None,
        ends: str = "",
        preloaded: int | None = None,
    ) -> tuple[FrontRegister, FrontEntry]:
        """Register a partition; a registered one stays as it is.

        Args:
            partition: The partition.
            offset: The first offset that it will read: its earliest at this moment.
            above: The opening floor: at least any announced min time (`Tracker.open_front` answers it) and above the
                tick of any `last` in a sink. `NO_TICK` for a job that has never run.
            start: The flow's start of its topic.
            stop: The first offset that it will not read; None for none.
            ends: The flow's stop of its topic.
            preloaded: The end of its preloaded records, if it has some.

        Returns:
            The register with it, and its entry.
        """
        known = self.find(partition)
        if known is not None:
            return self, known
        assert len(self.entries) < MAX_FRONTS, "front numbers are int32"
        entry = FrontEntry(len(self.entries), partition, offset, above, start, stop, ends, preloaded)
        return FrontRegister((*self.entries, entry)), entry

    def openings(self, start: int = NO_TICK) -> dict[int, int]:
        """Return every front's opening floor for a tracker, connected or not, at least the life's start."""
        return {entry.number: max(start, entry.opening) for entry in self.entries}

    def floors(self) -> tuple[Floor, ...]:
        """Return the opening floors."""
        return tuple(entry.floor for entry in self.entries)

    def starts(
        self,
        manifest: Mapping[int, int],
        there: Mapping[Partition, int],
        *,
        commit: str = "",
        closed: Iterable[int] = (),
    ) -> dict[int, int]:
        """Return where each front is read from: by the manifest, else the register.

        Args:
            manifest: By front the offset that the commit has; empty where there is no commit.
            there: The partitions that the sources have now, with the earliest offset that is still there.
            commit: The commit's id, for people; empty where there is none.
            closed: Fronts that were closed for good.

        Returns:
            An offset for every front that is not closed.

        Raises:
            SourceGone: a registered partition no longer exists.
            SourceTooShort: records that must be read again have been deleted.
        """
        starts, short = {}, []
        shut = set(closed)
        for entry in self.entries:
            if entry.number in shut:
                continue
            earliest = there.get(entry.partition)
            if earliest is None:
                raise SourceGone(
                    f"{entry.partition} is gone; it is front {entry.number} of this job",
                    way_out="restore the topic; if it was deleted on purpose or recreated, its records are others: "
                    "start a job under another name",
                )
            offset = starts[entry.number] = manifest.get(entry.number, entry.offset)
            if earliest > offset:
                short.append(
                    f"{entry.partition} begins at offset {earliest}, but the job must read from {offset}: "
                    f"{earliest - offset} offsets have been deleted"
                )
        if short:
            later = "begin from a later commit, if lowtide snapshots list shows one: lowtide recover --commit ID; else "
            raise SourceTooShort(
                "; ".join(short),
                where=f"the job would begin from commit {commit}" if commit else "there is no commit to begin from",
                way_out=f"{later if commit else ''}start a job under another name; and keep the sources longer than "
                "the age of the oldest commit",
            )
        return starts

    def to_json(self) -> list[dict[str, Any]]:
        """Return the entries as plain values, for storing."""
        return [entry.to_json() for entry in self.entries]

    @classmethod
    def from_json(cls, entries: Iterable[Mapping[str, Any]]) -> FrontRegister:
        """Read the output of `to_json`, with entries in any order.

        Raises:
            RegisterDamaged: a number or a partition is missing or there twice, or a field is not valid.
        """
        found = []
        for entry in entries:
            try:
                partition = Partition(str(entry["source"]), str(entry["topic_id"]), int(entry["partition"]))
                number, offset, opening = int(entry["number"]), int(entry["offset"]), int(entry["opening"])
                stop = None if entry.get("stop") is None else int(entry["stop"])
                preloaded = None if entry.get("preloaded") is None else int(entry["preloaded"])
                start, ends = str(entry.get("start", "earliest")), str(entry.get("ends", ""))
                found.append(FrontEntry(number, partition, offset, opening, start, stop, ends, preloaded))
            except (KeyError, TypeError, ValueError) as error:
                raise RegisterDamaged(
                    f"cannot read an entry of the front register: {entry!r}",
                    way_out="restore it from a backup; delivered order keys depend on it",
                ) from error
        return cls(tuple(sorted(found, key=lambda entry: entry.number)))
