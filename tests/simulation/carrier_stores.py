"""The staged log of one sink and the stores to which carriers take it: their requests may be lost, or come late.

A late one comes whenever something else does: after its carrier has sent it again, or is dead. What a store does with
a request is one step; each store compares as a real one does: the version of a table, whether an object is there, the
version of a put, the claim of a report.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from lowtide.errors import ServiceUnavailable
from lowtide.flow.plan.lane_partitions import partition_of_lane
from lowtide.sinks.errors import CatalogUnavailable, Overtaken
from lowtide.sinks.files.endpoint import Files
from lowtide.sinks.files.groups import Groups
from lowtide.sinks.files.pattern import Pattern
from lowtide.sinks.puts.contract import Put, Unavailable
from lowtide.sinks.staged.contract import Progress, StagedRow
from lowtide.sinks.staged.partitions import ClaimLost, Gone, Piece
from lowtide.sinks.tables.carrier import Conflict, Position
from lowtide_snapshots.stores import Entry
from lowtide_snapshots.stores.errors import AlreadyThere, NotThere, StoreUnavailable

from .commit_actors import LONG_AGO, Killed
from .verdict import Violation

T = TypeVar("T")
LATE = 0.5
"""How likely a request of a carrier that dies is on its way already."""


class Requests:
    """The way from carriers to stores.

    Attributes:
        lost: How likely an answer is lost, and perhaps the request, or it comes late.
        late: What is still on its way.
    """

    def __init__(self, rng: Random, stop: Callable[[], None], lost: float) -> None:
        self.lost = lost
        self.late: list[Callable[[], object]] = []
        self._rng = rng
        self._stop = stop

    def send(self, do: Callable[[], T], failed: Callable[[], Exception]) -> T:
        """Have a store do something; the carrier may die before it, and after it."""
        rng = self._rng
        try:
            self._stop()
        except Killed:
            if rng.random() < LATE:
                self.late.append(do)
            raise
        if rng.random() < self.lost:
            fate = rng.choice(["request", "answer", "late"])
            if fate == "answer":
                self._take(do)
            elif fate == "late":
                self.late.append(do)
            raise failed()
        made = do()
        self._stop()
        return made

    def arrive(self) -> bool:
        """Let one that was late come; False if there is none."""
        if not self.late:
            return False
        self._take(self.late.pop(self._rng.randrange(len(self.late))))
        return True

    @staticmethod
    def _take(do: Callable[[], object]) -> None:
        with suppress(ClaimLost, Conflict, AlreadyThere, Overtaken):
            do()


@dataclass(slots=True)
class Lane:
    """A partition of the staged log, and all that ever was in it.

    Attributes:
        offsets: Of the rows and marks that readers get.
        entries: These rows and marks.
        rows: The rows alone.
        begin: The offset below which the log is cut.
        end: The offset after its last record.
        mark_ms: The latest mark.
    """

    offsets: list[int] = field(default_factory=list)
    entries: list[StagedRow | int] = field(default_factory=list)
    rows: list[StagedRow] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    mark_ms: int = 0

    def append(self, entries: Sequence[StagedRow | int], *, committed: bool) -> None:
        """Write a transaction, whose end is a record of its own."""
        for entry in entries:
            if committed:
                made = entry if isinstance(entry, int) else entry._replace(offset=self.end)
                self.offsets.append(self.end)
                self.entries.append(made)
                if isinstance(made, int):
                    self.mark_ms = max(self.mark_ms, made)
                else:
                    self.rows.append(made)
            self.end += 1
        self.end += 1


@dataclass(slots=True)
class Log:
    """A staged log, and what carriers have reported of it.

    Attributes:
        lanes: By lane.
        reported: By lane.
        claim: The number of the last claim.
    """

    lanes: list[Lane]
    grown: list[list[int]] = field(default_factory=list)
    """The offsets at which lanes say that there are more of them, by lane; once for each growth."""
    reported: dict[int, Progress] = field(default_factory=dict)
    claim: int = 0


class SimulatedTopic:
    """See `lowtide.sinks.staged.log.Topic`.

    Args:
        log: What it reads.
        requests: The way to Kafka.
        rng: Chance.
        rest: Called where nothing comes.
        cutting: Told of each cut: the lane and the offset.
    """

    name = "simulated topic"
    where = "nowhere"

    def __init__(
        self,
        log: Log,
        requests: Requests,
        rng: Random,
        rest: Callable[[], None],
        cutting: Callable[[int, int], None],
    ) -> None:
        self.lanes = range(len(log.lanes))
        self.next: dict[int, int] = {}
        self._fetched: dict[int, int] = dict.fromkeys(self.lanes, 0)
        self._log, self._requests, self._rng, self._rest, self._cutting = log, requests, rng, rest, cutting
        self._resting: Collection[int] = ()
        self._claim = 0

    def claim(self) -> dict[int, Progress]:
        def do() -> int:
            if len(self._log.lanes) > len(self.lanes):
                raise outgrown()
            self._log.claim += 1
            return self._log.claim

        self._claim = self._ask(do)
        return self.reported()

    def reported(self) -> dict[int, Progress]:
        return self._ask(lambda: dict(self._log.reported))

    def report(self, progress: Mapping[int, Progress]) -> None:
        claim, told = self._claim, dict(progress)

        def do() -> None:
            if claim != self._log.claim:
                raise ClaimLost
            self._log.reported |= told

        self._ask(do)

    def begins(self) -> dict[int, int]:
        return self._ask(lambda: {number: self._log.lanes[number].begin for number in self.lanes})

    def ends(self) -> dict[int, int]:
        return self._ask(lambda: {number: self._log.lanes[number].end for number in self.lanes})

    def cut(self, offsets: Mapping[int, int]) -> None:
        below = dict(offsets)

        def do() -> None:
            for number, offset in below.items():
                self._cutting(number, offset)
                self._log.lanes[number].begin = max(self._log.lanes[number].begin, offset)

        self._ask(do)

    def assign(self, offsets: Mapping[int, int]) -> None:
        self.next = dict(offsets)

    def rest(self, lanes: Collection[int]) -> None:
        self._resting = lanes

    def read(self, wait_s: float) -> list[Piece]:
        """Return some of what is there; what was fetched before a cut is still returned."""
        del wait_s
        going = [number for number in self.lanes if number not in self._resting]
        pieces = [piece for number in going for piece in self._read(number, self._log.lanes[number])]
        if not pieces:
            self._rest()
        return pieces

    def close(self) -> None: ...

    def _read(self, number: int, lane: Lane) -> list[Piece]:
        at, rng = self.next[number], self._rng
        if at >= lane.begin:
            self._fetched[number] = lane.end if rng.random() < 0.5 else at
        elif at >= self._fetched[number]:
            raise Gone(number)
        first, pieces, rows = bisect_left(lane.offsets, at), list[Piece](), list[StagedRow]()
        last = min(len(lane.offsets), first + rng.choice([0, 1, 3, 20]))
        self._end_outgrown(number, at, lane.end if last == len(lane.offsets) else lane.offsets[last])
        for entry, offset in zip(lane.entries[first:last], lane.offsets[first:last], strict=True):
            if isinstance(entry, int):
                pieces.append(Piece(number, rows, entry, offset))
                rows = []
            else:
                rows.append(entry)
        if last == len(lane.offsets):
            self.next[number] = lane.end
        elif last > first:
            self.next[number] = lane.offsets[last - 1] + 1
        return [*pieces, Piece(number, rows)] if rows else pieces

    def _end_outgrown(self, number: int, first: int, end: int) -> None:
        """End a carrier of a life with fewer lanes once it reads that there are more."""
        for offsets in self._log.grown:
            if number < len(offsets) and len(self.lanes) <= len(offsets) and first <= offsets[number] < end:
                raise outgrown()

    def _ask(self, do: Callable[[], T]) -> T:
        return self._requests.send(do, lambda: ServiceUnavailable("Kafka does not answer", way_out="wait"))


def outgrown() -> Overtaken:
    """Return how a carrier of a life with fewer lanes ends."""
    return Overtaken("the job has more lanes by now", way_out="nothing")


class Objects:
    """A store of objects that are put if they are absent; the files in it are what the log says, each row once.

    Args:
        files: The sink.
        sink: Its name.
        log: What it is to hold in the end.
        requests: The way to it.
        groups: How many groups there are, whose lanes share files.
    """

    where = "the simulated objects"

    def __init__(self, files: Files, sink: str, log: Log, requests: Requests, groups: int) -> None:
        self.objects: dict[str, bytes] = {}
        self._files, self._sink, self._log, self._requests, self._groups = files, sink, log, requests, groups
        self._pattern = Pattern(files.pattern)
        self._numbers: set[int] = set()
        self._complete_ms = 0
        """The log time below which all folders have been found complete."""

    # -- as readers see it -----------------------------------------------------------------------------------------

    def has(self, row: StagedRow) -> bool:
        """Return whether a row is in a file."""
        return number_of(row.value) in self._numbers

    def check_end(self) -> None:
        """Each row is in one file, and each folder with files is complete."""
        expected = self._expected(range(1 << 62))
        if missing := expected.keys() - self.objects.keys():
            raise Violation("output", f"files are missing: {sorted(missing)}")
        if lacking := self.incomplete(1 << 62):
            raise Violation("output", f"{lacking} is not complete")

    def incomplete(self, below_ms: int) -> str:
        """Return a folder with files that is not complete, though it is over; empty if there is none."""
        end_ms = self._pattern.first_ms(below_ms) if below_ms < 1 << 62 else below_ms
        if end_ms <= self._complete_ms:
            return ""
        for name in self._expected(range(self._complete_ms, end_ms)):
            folder = name.rpartition("/")[0]
            if f"{folder}/_lowtide/{self._sink}.done.json" not in self.objects:
                return folder
        self._complete_ms = end_ms
        return ""

    def _look(self, name: str, data: bytes) -> None:
        """See that what becomes visible is what the log says."""
        if name.endswith(".done.json"):
            self._look_at_done(name, data)
        elif name.endswith(".jsonl"):
            period_ms = int(name.rsplit("-", 2)[1])
            right = self._expected(range(period_ms, period_ms + 1)).get(name, [])
            if data != b"".join(row.value + b"\n" for row in right):
                raise Violation("output", f"{name} is put with {data!r}, and the log says {right}")
            self._numbers |= {number_of(row.value) for row in right}

    def _look_at_done(self, name: str, data: bytes) -> None:
        folder = name.rpartition("_lowtide/")[0]
        right = {each for each in self._expected(range(1 << 62)) if each.startswith(folder)}
        said = {folder + each["name"] for each in json.loads(data)["files"]}
        if said != right or right - self.objects.keys():
            raise Violation("safety", f"{name} says {sorted(said)}, and there are {sorted(right)} in the log")

    def _expected(self, periods: range) -> dict[str, list[StagedRow]]:
        """Return by name the files that the log makes, of some periods."""
        files: dict[str, list[StagedRow]] = {}
        counts = [*map(len, self._log.grown), len(self._log.lanes)]
        lanes, groups = partition_of_lane(counts), Groups(counts[0], self._groups)
        if (said := self.objects.get(f"_lowtide/{self._sink}.json")) is not None:
            groups = Groups.said(json.loads(said))  # It may have been opened first by a life with more lanes.
        for number in range(groups.count):
            count, size, before = 0, 0, -1
            places = sorted(place for lane, place in enumerate(lanes) if groups.of(lane, counts[-1]) == number)
            own = [self._log.lanes[place] for place in places]
            for row in sorted([row for lane in own for row in lane.rows], key=lambda row: row.time_ms):
                period = row.time_ms - row.time_ms % self._files.roll_ms
                if period not in periods:
                    continue
                if period != before:
                    count, size, before = 0, 0, period
                elif size >= self._files.max_file_bytes:
                    count, size = count + 1, 0
                size += len(row.value)
                name = f"{self._pattern.folder(period)}{self._sink}-{number}-{period}-{count}.jsonl"
                files.setdefault(name, []).append(row)
        return files

    # -- as carriers see it (`lowtide_snapshots.stores.Store`) -----------------------------------------------------

    def put(self, name: str, data: bytes | bytearray | memoryview) -> None:
        made = bytes(data)

        def do() -> None:
            if name not in self.objects:
                self._look(name, made)
            if self.objects.setdefault(name, made) != made:
                raise AlreadyThere("other bytes", where=name)

        self._ask(do)

    def get(self, name: str) -> bytes:
        if name not in self.objects:
            raise NotThere("it is not there", where=name)
        return self._ask(lambda: self.objects[name])

    def names(self, prefix: str) -> list[Entry]:
        return self._ask(
            lambda: [
                Entry(name, len(data), LONG_AGO)
                for name, data in sorted(self.objects.items())
                if name.startswith(prefix)
            ]
        )

    def delete(self, names: Iterable[str]) -> None: ...

    def sweep(self, prefix: str) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...

    def _ask(self, do: Callable[[], T]) -> T:
        return self._requests.send(do, lambda: StoreUnavailable("it did not answer"))


class Rows:
    """A table in a catalog that compares versions; what it has is the log below its position, each row once.

    Attributes:
        version: The number of its last commit, whoever made it.
        position: What the last commit of the sink has moved it to; None before the first.
    """

    def __init__(self, log: Log) -> None:
        self.version = 0
        self.position: dict[int, int] | None = None
        self._log = log
        self._numbers: set[int] = set()

    def has(self, row: StagedRow) -> bool:
        """Return whether a row is in the table."""
        return number_of(row.value) in self._numbers

    def append(self, version: int, numbers: Sequence[int], position: Position) -> int:
        """Append to a version, if it is the last one; return the next."""
        if version != self.version:
            raise Conflict("another commit was first")
        if twice := self._numbers.intersection(numbers):
            raise Violation("output", f"rows are appended twice: {sorted(twice)}")
        self._numbers.update(numbers)
        self.version, self.position = version + 1, dict(position)
        right = {
            number_of(row.value)
            for number, lane in enumerate(self._log.lanes)
            for row in lane.rows
            if row.offset < self.position.get(number, 0)
        }
        if right != self._numbers:
            raise Violation("output", f"rows {sorted(right ^ self._numbers)} and position {self.position} are apart")
        return self.version

    def check_end(self) -> None:
        """All rows are there."""
        right = {number_of(row.value) for lane in self._log.lanes for row in lane.rows}
        if right != self._numbers:
            raise Violation("output", f"rows {sorted(right - self._numbers)} are missing")


class SimulatedTable:
    """See `lowtide.sinks.tables.carrier.Table`: a handle, which appends to the version that it has loaded."""

    place = "the simulated table"

    def __init__(self, rows: Rows, requests: Requests) -> None:
        self._rows, self._requests = rows, requests
        self._version = -1

    def open(self, schema: pa.Schema) -> None:
        self._ask(lambda: None)

    def load(self) -> dict[int, int] | None:
        self._version, position = self._ask(lambda: (self._rows.version, self._rows.position))
        return None if position is None else dict(position)

    def append(self, rows: pa.Table, position: Position) -> None:
        version, numbers, after = self._version, rows["number"].to_pylist(), dict(position)
        self._version = self._requests.send(
            lambda: self._rows.append(version, numbers, after), lambda: Conflict("no answer")
        )

    def _ask(self, do: Callable[[], T]) -> T:
        return self._requests.send(do, lambda: CatalogUnavailable("no answer", way_out="wait"))


class Versioned:
    """A store of values by key that refuses older versions; a key never goes back.

    Nor does a carrier give it an older value of a key after a newer one: it may be one that cannot compare.

    Also the `lowtide.sinks.puts.contract.PutStore`, and the client of each lane.

    Args:
        log: What it is to hold in the end.
        requests: The way to it.
        rng: Chance.
        caller: Returns whose request it is.
    """

    compares = True

    def __init__(self, log: Log, requests: Requests, rng: Random, caller: Callable[[], object]) -> None:
        self._log, self._requests, self._rng, self._caller = log, requests, rng, caller
        self._there: dict[str, Put] = {}
        self._given: dict[tuple[object, str], int] = {}
        """By carrier and key the last value that it was given."""

    def has(self, row: StagedRow) -> bool:
        """Return whether readers see a row, or a newer one of its key."""
        assert row.key is not None
        there = self._there.get(row.key.decode())
        return there is not None and number_of(there.value) >= number_of(row.value)

    def settings(self, conf: object) -> Mapping[str, Any]:
        return {}

    def client(self, name: str, carriage: object) -> Versioned:
        return self

    def put(self, puts: Sequence[Put]) -> None:
        """Put each, in any order."""
        for each in self._rng.sample(puts, len(puts)):
            by, number = (self._caller(), each.key), number_of(each.value)
            if self._given.get(by, 0) > number:
                raise Violation("output", f"a carrier puts {each.key} back from {self._given[by]} to {number}")
            self._given[by] = number
            self._requests.send(lambda each=each: self._take(each), lambda: Unavailable("no answer"))  # type: ignore[misc]

    def check_end(self) -> None:
        """Each key has its last value."""
        last = {row.key.decode(): row.value for lane in self._log.lanes for row in lane.rows if row.key is not None}
        if (found := {key: put.value for key, put in self._there.items()}) != last:
            raise Violation("output", f"there is {found}, and the log says {last}")

    def _take(self, put: Put) -> None:
        there = self._there.get(put.key)
        if there is not None and there.version > put.version:
            return
        if there is not None and number_of(there.value) > number_of(put.value):
            raise Violation("output", f"key {put.key} goes back from {there.value!r} to {put.value!r}")
        self._there[put.key] = put


def number_of(value: bytes | None) -> int:
    """Return the number of a row by its value."""
    return int(json.loads(value or b"{}")["number"])
