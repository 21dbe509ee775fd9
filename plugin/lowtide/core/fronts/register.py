"""The front register as a value: which source partition has which number, and below which tick it labels nothing (R3).

    register, front = FrontRegister().opened(Partition("orders", "Xk2…", 0), offset=0, above=NO_TICK)
    tracker = Tracker(graph, register.openings(start=0), ...)    # min time runs over the register

Append-only: a number is allotted once and never used again, and what an entry says never changes. Whoever stores it
writes an entry before the front's first label, in one step with the check of the incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lowtide.core.fronts.floors import NO_TICK
from lowtide.errors import LifeEnded, RecordRefused
from lowtide_tracker import Floor

__all__ = ["FrontEntry", "FrontRegister", "Partition", "RegisterDamaged", "SourceGone", "SourceTooShort"]

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
    """One source partition, for ever: a topic that is deleted and made again has another id, and so other fronts.

    Attributes:
        source: The source's name in the flow.
        topic_id: What the broker calls the topic for good, not its name.
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
        partition: What it is the front of.
        offset: The first offset that it reads.
        opening: The opening floor, a tick: it labels nothing below, in no life.
        start: What the flow said of where its topic is read from, when the job began to read it.
        stop: The first offset that it does not read; None if it reads on for ever.
        ends: What the flow said of where its topic ends; empty if nothing.
        preloaded: Where its preloaded records end: those below are labelled with its opening floor; None for a topic
            that is not preloaded, and of a partition that came later.
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
        """The entry as plain values, for storing."""
        told: dict[str, Any] = {} if self.start == "earliest" else {"start": self.start}
        if self.preloaded is not None:
            told["preloaded"] = self.preloaded
        ends = {} if self.stop is None else {"stop": self.stop, "ends": self.ends}
        return {
            **told,
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
                f"the front register is damaged: it names the fronts {numbers}, where each number from 0 on and each "
                "partition stands once",
                way_out="restore it from a backup; order keys that were delivered rest on it",
            )

    def find(self, partition: Partition) -> FrontEntry | None:
        """The front of a partition; None if it is not registered. O(fronts)."""
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
        """Register a partition; one that is there already stays as it is.

        Args:
            partition: The partition.
            offset: The first offset that it will read: its earliest at this moment.
            above: The opening floor: at least any announced min time (`Tracker.open_front` answers it) and above the
                tick of any `last` in a sink. `NO_TICK` for a job that has never run.
            start: What the flow says of where its topic is read from.
            stop: The first offset that it will not read; None for none.
            ends: What the flow says of where its topic ends.
            preloaded: Where its preloaded records end, if it is to have some.

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
        """What a tracker is made with: every front's opening floor, connected or not, at least the life's start."""
        return {entry.number: max(start, entry.opening) for entry in self.entries}

    def floors(self) -> tuple[Floor, ...]:
        """The opening floors."""
        return tuple(entry.floor for entry in self.entries)

    def starts(
        self,
        manifest: Mapping[int, int],
        there: Mapping[Partition, int],
        *,
        commit: str = "",
        closed: Iterable[int] = (),
    ) -> dict[int, int]:
        """Where each front is read from: the manifest says, else the register.

        Args:
            manifest: By front the offset that the commit has; empty where there is no commit.
            there: The partitions that the sources have now, with the earliest offset that is still there.
            commit: The commit's id, for people; empty where there is none.
            closed: Fronts that were closed for good.

        Returns:
            An offset for every front that is not closed.

        Raises:
            SourceGone: a registered partition is not there any more.
            SourceTooShort: what has to be read again has been deleted.
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
                    "start a job of another name",
                )
            offset = starts[entry.number] = manifest.get(entry.number, entry.offset)
            if earliest > offset:
                short.append(
                    f"{entry.partition} begins at offset {earliest}, but the job has to read from {offset}: "
                    f"{earliest - offset} offsets have been deleted"
                )
        if short:
            later = "begin from a later commit, if lowtide snapshots list shows one: lowtide recover --commit ID; else "
            raise SourceTooShort(
                "; ".join(short),
                where=f"the job would begin from commit {commit}" if commit else "there is no commit to begin from",
                way_out=f"{later if commit else ''}start a job of another name; and keep sources for longer than the "
                "oldest commit",
            )
        return starts

    def to_json(self) -> list[dict[str, Any]]:
        """The entries as plain values, for storing."""
        return [entry.to_json() for entry in self.entries]

    @classmethod
    def from_json(cls, entries: Iterable[Mapping[str, Any]]) -> FrontRegister:
        """The inverse of `to_json`, from entries in any order.

        Raises:
            RegisterDamaged: a number or a partition is missing or there twice, or a field is not what it should be.
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
                    f"an entry of the front register cannot be read: {entry!r}",
                    way_out="restore it from a backup; order keys that were delivered rest on it",
                ) from error
        return cls(tuple(sorted(found, key=lambda entry: entry.number)))
