"""Carriers one after the other on a staged log in memory: what the next one begins with, and what is cut."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import lowtide as lt
from lowtide.conf import Conf
from lowtide.sinks.files.formats import JsonLines
from lowtide.sinks.puts.carrier import PutsCarrier
from lowtide.sinks.puts.contract import Put
from lowtide.sinks.staged import log as staged_log
from lowtide.sinks.staged.carry import Carrying, ignore
from lowtide.sinks.staged.contract import Carriage, Carrier, Progress, StagedRow
from lowtide.sinks.staged.log import StagedLog
from lowtide.sinks.staged.partitions import Piece

HOUR_MS = 3_600_000
HOUR = 1_700_000_000_000 // HOUR_MS * HOUR_MS
MINUTE_MS, SECOND_MS = 60_000, 1_000


@dataclass(frozen=True)
class Order:
    number: int


class Lanes:
    """The log: by lane its rows and marks, and what carriers have reported of it."""

    def __init__(self, lanes: int) -> None:
        self.entries: list[list[StagedRow | int]] = [[] for _ in range(lanes)]
        self.told: dict[int, Progress] = {}
        self.begin = dict.fromkeys(range(lanes), 0)

    def row(self, lane: int, time_ms: int) -> None:
        offset = len(self.entries[lane])
        self.entries[lane].append(StagedRow(offset, time_ms, b"k", b'{"number":%d}' % offset))

    def marks(self, lane: int, times_ms: Iterable[int]) -> None:
        self.entries[lane] += times_ms


class Reading:
    """See `lowtide.sinks.staged.log.Topic`."""

    name = where = "a log in memory"

    def __init__(self, log: Lanes) -> None:
        self.lanes = range(len(log.entries))
        self.next: dict[int, int] = {}
        self._log = log

    def claim(self) -> dict[int, Progress]:
        return self.reported()

    def reported(self) -> dict[int, Progress]:
        return dict(self._log.told)

    def report(self, progress: Mapping[int, Progress]) -> None:
        self._log.told |= progress

    def begins(self) -> dict[int, int]:
        return dict(self._log.begin)

    def ends(self) -> dict[int, int]:
        return {lane: len(self._log.entries[lane]) for lane in self.lanes}

    def cut(self, offsets: Mapping[int, int]) -> None:
        self._log.begin |= offsets

    def assign(self, offsets: Mapping[int, int]) -> None:
        self.next = dict(offsets)

    def rest(self, lanes: Collection[int]) -> None:
        assert not lanes

    def read(self, wait_s: float) -> list[Piece]:
        del wait_s
        pieces = []
        for lane in self.lanes:
            for offset, entry in enumerate(self._log.entries[lane][self.next[lane] :], self.next[lane]):
                row = isinstance(entry, StagedRow)
                pieces.append(Piece(lane, [entry]) if row else Piece(lane, [], entry, offset))  # type: ignore[list-item, arg-type]
            self.next[lane] = len(self._log.entries[lane])
        return pieces

    def close(self) -> None: ...


class Puts:
    """A store of puts that takes all."""

    compares = True

    def put(self, puts: Sequence[Put], /) -> None: ...


def files(place: Path, lanes: int) -> Carrier:
    sink = lt.files(f"{place}/hour={{tick:%Y-%m-%d-%H}}/", JsonLines(Order))
    settings = sink.settings(Conf())
    return sink.carrier(Carriage("shop", "a", 0, "orders", lanes, 10, settings, workers=1))


def puts(_: Path, lanes: int) -> Carrier:
    return PutsCarrier(Carriage("shop", "a", 0, "orders", lanes, 10, {"limit_s": 1.0}), "orders", Puts(), None)


def drain(log: Lanes, carrier: Carrier) -> None:
    with Carrying(StagedLog(Reading(log)), carrier, ignore) as carrying:
        assert carrying.drain()


@pytest.mark.parametrize("carrier", [files, puts])
def test_of_a_lane_without_rows_the_last_mark_that_counts_is_kept_and_no_others(
    tmp_path: Path, carrier: type[Carrier]
) -> None:
    """Else a log of marks grows for ever, and each carrier reads all of it."""
    log = Lanes(3)
    log.row(0, HOUR)
    for lane, end_ms in ((0, 25 * MINUTE_MS), (1, 25 * MINUTE_MS), (2, 21 * MINUTE_MS)):
        log.marks(lane, range(HOUR, HOUR + end_ms + 1, 2 * SECOND_MS))
    drain(log, carrier(tmp_path, 3))  # type: ignore[call-arg]
    minutes = (25, 25, 21) if carrier is puts else (20, 20, 20)
    for lane, minute in enumerate(minutes):
        assert log.entries[lane][log.begin[lane]] == HOUR + minute * MINUTE_MS
        assert log.told[lane] == Progress(log.begin[lane], HOUR + minute * MINUTE_MS)
    before = dict(log.begin)
    drain(log, carrier(tmp_path, 3))  # type: ignore[call-arg]
    assert log.begin == before, "the next one begins there"


def test_a_lane_that_rows_come_to_late_is_whole_and_no_folder_is_left_out(tmp_path: Path) -> None:
    log = Lanes(2)
    log.marks(0, range(HOUR, HOUR + 3 * HOUR_MS, SECOND_MS))
    drain(log, files(tmp_path, 2))
    assert not log.told, "of the second lane nothing is known, so no folder is complete"
    log.marks(1, [HOUR + 4 * HOUR_MS])
    drain(log, files(tmp_path, 2))
    log.row(1, HOUR + 4 * HOUR_MS)
    for lane in (0, 1):
        log.marks(lane, [HOUR + 5 * HOUR_MS])
    drain(log, files(tmp_path, 2))
    done = sorted(tmp_path.glob("*/_lowtide/orders.done.json"))
    assert [json.loads(each.read_text())["rows"] for each in done] == [0, 0, 0, 0, 1]


def test_marks_of_a_lane_that_is_far_ahead_take_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_log, "MARKS", 100)
    log = Lanes(2)
    log.marks(0, range(HOUR, HOUR + HOUR_MS, SECOND_MS))
    log.marks(1, [HOUR, HOUR + 30 * MINUTE_MS])
    drain(log, files(tmp_path, 2))
    at = log.entries[0][log.begin[0]]
    assert isinstance(at, int)
    assert HOUR + 20 * MINUTE_MS < at <= HOUR + 30 * MINUTE_MS, "not all that could be cut is"


def test_a_folder_is_complete_with_the_files_of_earlier_carriers_also_after_a_lower_mark(tmp_path: Path) -> None:
    """A life that begins at an older commit marks its lanes from there on: others may have put files beyond."""
    log = Lanes(1)
    log.row(0, HOUR + 9 * MINUTE_MS)
    log.marks(0, [HOUR - 30 * MINUTE_MS, HOUR + 10 * MINUTE_MS])
    drain(log, files(tmp_path, 1))
    log.row(0, HOUR + 11 * MINUTE_MS)
    log.marks(0, [HOUR - 20 * MINUTE_MS, HOUR + HOUR_MS])
    # As of a version that kept all marks after a lane's last row.
    log.told[0], log.begin[0] = Progress(1, log.told[0].visible_ms), 1
    drain(log, files(tmp_path, 1))
    before, done = sorted(tmp_path.glob("*/_lowtide/orders.done.json"))
    assert [each["rows"] for each in json.loads(done.read_text())["files"]] == [1, 1]
    assert not json.loads(before.read_text())["files"]
