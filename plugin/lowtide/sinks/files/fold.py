"""Decides which records of a group of lanes go into which file, from their order alone (R20).

A file has the group's records of one *period* of log time and of one *part*, the value of the columns that files are
partitioned by. It is put together of *pieces*, some of which end a row group. Nothing here depends on how the log was
cut into batches, on the wall clock, or on what a carrier did before, as long as it began with a period's first record.
`groups.py` gives the records of several lanes one order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import NamedTuple

from lowtide.sinks.staged.contract import StagedRow


class FileKey(NamedTuple):
    """A file of a group.

    Attributes:
        period_ms: The first log time of its period.
        part: Its folder below the bucket's, as `country=DE/`; "" if files are not partitioned.
        number: Its number in that period and part, from 0.
    """

    period_ms: int
    part: str
    number: int


class Piece(NamedTuple):
    """The next records of a file, in order.

    Attributes:
        file: The file.
        rows: The records; perhaps none if something ends with it.
        ends_group: True if the row group ends with it.
        last: True if the file ends with it.
    """

    file: FileKey
    rows: Sequence[StagedRow]
    ends_group: bool
    last: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that decide which file has which records: to change one changes files.

    Attributes:
        roll_ms: Length of a period.
        file_bytes: Staged bytes of a file's values at which it ends.
        open_files: Files of one group that can be open at once; one more ends all of them.
        group_bytes: Staged bytes in the open row groups of a group of lanes at which all of these end.
        group_rows: The number of such records.
        piece_rows: Records of a piece; smaller ones leave more to do at the period's end, when readers wait.
        piece_bytes: Staged bytes of a piece.
    """

    roll_ms: int
    file_bytes: int
    open_files: int = 100
    group_bytes: int = 16 << 20
    group_rows: int = 131_072
    piece_rows: int = 2_048
    piece_bytes: int = 1 << 20


@dataclass(slots=True)
class _OpenFile:
    key: FileKey
    bytes: int = 0
    group_rows: int = 0
    group_bytes: int = 0
    waiting: list[StagedRow] = field(default_factory=list)
    waiting_bytes: int = 0


PartsOf = Callable[[Sequence[StagedRow]], Sequence[str]]
"""Returns each row's part."""


class Fold:
    """The files of records that come in one order, by their log times.

    Args:
        limits: See there.
        parts_of: Returns each row's part; None if files are not partitioned.

    Attributes:
        known_ms: The log time below which nothing follows; None while unknown.
    """

    def __init__(self, limits: Limits, parts_of: PartsOf | None) -> None:
        self.known_ms: int | None = None
        self._limits = limits
        self._parts_of = parts_of
        self._period_ms: int | None = None
        self._end_ms = 0
        self._open: dict[str, _OpenFile] = {}
        self._numbers: dict[str, int] = {}
        self._group_rows = 0
        self._group_bytes = 0

    @property
    def over_ms(self) -> int | None:
        """The first log time of the oldest period that is not over; None while unknown."""
        if self.known_ms is None or self._period_ms is not None:
            return self._period_ms
        return self.known_ms - self.known_ms % self._limits.roll_ms

    def take(self, rows: Sequence[StagedRow]) -> list[Piece]:
        """Take the next records, and return the pieces that are now complete; O(rows)."""
        made: list[Piece] = []
        limits = self._limits
        parts = repeat("") if self._parts_of is None else self._parts_of(rows)
        for row, part in zip(rows, parts, strict=False):
            if self._period_ms is None or row.time_ms >= self._end_ms:
                self._end_period(made)
                self._begin_period(row)
            file = self._open.get(part) or self._begin_file(part, made)
            size = len(row.value)
            file.waiting.append(row)
            file.waiting_bytes += size
            file.bytes += size
            file.group_rows += 1
            file.group_bytes += size
            self._group_rows += 1
            self._group_bytes += size
            if file.bytes >= limits.file_bytes:
                self._end_group(file, made, last=True)
                del self._open[part]
            elif self._group_bytes >= limits.group_bytes or self._group_rows >= limits.group_rows:
                for each in self._open.values():
                    self._end_group(each, made, last=False)
            elif file.waiting_bytes >= limits.piece_bytes or len(file.waiting) >= limits.piece_rows:
                made.append(Piece(file.key, file.waiting, ends_group=False, last=False))
                file.waiting, file.waiting_bytes = [], 0
        if rows:
            self._know(rows[-1].time_ms)
        return made

    def mark(self, time_ms: int) -> list[Piece]:
        """Note that nothing below this log time follows, and return the pieces that are now complete."""
        made: list[Piece] = []
        self._know(time_ms)
        if self._period_ms is not None and time_ms >= self._end_ms:
            self._end_period(made)
        return made

    def _know(self, time_ms: int) -> None:
        self.known_ms = time_ms if self.known_ms is None else max(self.known_ms, time_ms)

    def _begin_period(self, row: StagedRow) -> None:
        self._period_ms = row.time_ms - row.time_ms % self._limits.roll_ms
        self._end_ms = self._period_ms + self._limits.roll_ms

    def _end_period(self, made: list[Piece]) -> None:
        self._end_files(made)
        self._numbers.clear()
        self._period_ms = None

    def _begin_file(self, part: str, made: list[Piece]) -> _OpenFile:
        if len(self._open) >= self._limits.open_files:
            self._end_files(made)
        number = self._numbers.get(part, 0)
        self._numbers[part] = number + 1
        assert self._period_ms is not None, "a file is of a period"
        file = self._open[part] = _OpenFile(FileKey(self._period_ms, part, number))
        return file

    def _end_files(self, made: list[Piece]) -> None:
        for each in self._open.values():
            self._end_group(each, made, last=True)
        self._open.clear()

    def _end_group(self, file: _OpenFile, made: list[Piece], *, last: bool) -> None:
        if file.group_rows or last:
            made.append(Piece(file.key, file.waiting, ends_group=True, last=last))
            self._group_rows -= file.group_rows
            self._group_bytes -= file.group_bytes
            file.waiting, file.waiting_bytes, file.group_rows, file.group_bytes = [], 0, 0, 0
