"""A store of staged records for tests: a file of lines for each lane, whose last line is the position."""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from lowtide.conf import Conf
from lowtide.errors import ServiceUnavailable
from lowtide.flow.formats.endpoints import KAFKA
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.formats.writable import Writable
from lowtide.sinks.staged.contract import Carriage, Carrier, Progress, StagedRow

LAST_BYTES = 1 << 16
"""More than any line has."""


@dataclass(frozen=True)
class Lines:
    """A folder with a file for each lane: `offset time key value` by line.

    While the folder has a file `away`, the store does not answer; while it has a file `slow`, it settles nothing.
    """

    folder: str
    record: type = dict
    key_column: str | None = None
    mark_every_ms: int = 1_000
    staged: ClassVar[bool] = True
    store: ClassVar[str] = KAFKA
    form: ClassVar[str] = "lines"
    by_key: ClassVar[bool] = False

    @property
    def place(self) -> str:
        return f'folder "{self.folder}"'

    @property
    def writable(self) -> Writable:
        return JsonFormat(self.record).writable

    def faults(self) -> Sequence[str]:
        return ()

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        return {"password": "open sesame"}

    def carrier(self, carriage: Carriage) -> Carrier:
        assert carriage.settings == {"password": "open sesame"}
        return LineCarrier(Path(self.folder), carriage.lanes)


class LineCarrier:
    """Compares the position with the file's in the step that appends, so any number of them may be at work."""

    def __init__(self, folder: Path, lanes: int) -> None:
        self._folder = folder
        self._lanes = range(lanes)
        self._waiting: dict[int, list[StagedRow]] = {lane: [] for lane in self._lanes}
        self._next: dict[int, int] = {}
        self._marks: dict[int, int] = {}
        self._visible: dict[int, int] = {}
        self._counts: dict[str, int] = {}

    def open(self, kept: Mapping[int, int]) -> Mapping[int, int]:
        self._ask()
        for lane in self._lanes:
            with _locked(self._folder, lane) as file:
                self._next[lane] = max(kept[lane], _position(file))
        return dict(self._next)

    def take(self, lane: int, rows: Sequence[StagedRow]) -> None:
        self._waiting[lane] += rows

    def mark(self, lane: int, time_ms: int) -> None:
        self._marks[lane] = time_ms

    def settle(self, now_s: float) -> None:
        self._ask()
        if (self._folder / "slow").exists() and now_s < math.inf:
            return
        for lane, rows in self._waiting.items():
            if rows:
                with _locked(self._folder, lane) as file:
                    position = _position(file)
                    new = [row for row in rows if row.offset >= position]
                    os.write(file.fileno(), b"".join(map(_line, new)))
                self._counts["lines"] = self._counts.get("lines", 0) + len(new)
                self._next[lane] = rows[-1].offset + 1
                rows.clear()
        self._visible |= self._marks

    def progress(self) -> Mapping[int, Progress]:
        return {lane: Progress(at, self._visible.get(lane)) for lane, at in self._next.items()}

    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)

    def close(self) -> None:
        self._waiting.clear()

    def _ask(self) -> None:
        if (self._folder / "away").exists():
            raise ServiceUnavailable("the store of lines does not answer", way_out="remove the file away")


def lines_of(folder: Path, lane: int) -> list[tuple[int, str, str]]:
    """Return a lane's lines: time, key and value."""
    if not (folder / f"{lane}.lines").exists():
        return []
    with _locked(folder, lane) as file:
        file.seek(0)
        found = [each.decode().split(" ", 3) for each in file.read().splitlines()]
    return [(int(time_ms), key, value) for _, time_ms, key, value in found]


@contextmanager
def _locked(folder: Path, lane: int) -> Iterator[BinaryIO]:
    with (folder / f"{lane}.lines").open("ab+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _position(file: BinaryIO) -> int:
    """Return the offset after the last line's; a carrier that was killed may have left half a line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LAST_BYTES))
    whole, newline, half = file.read().rpartition(b"\n")
    if half:
        file.truncate(size - len(half))
    if not newline:
        return 0
    return int(whole.rpartition(b"\n")[2].split(b" ", 1)[0]) + 1


def _line(row: StagedRow) -> bytes:
    return b"%d %d %s %s\n" % (row.offset, row.time_ms, row.key or b"-", row.value)
