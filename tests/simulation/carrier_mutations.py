"""Rules of carriers broken on purpose (R20 to R22, R24): where a position moves, what a file has, what is cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lowtide.sinks.files import groups
from lowtide.sinks.files.carrier import FilesCarrier
from lowtide.sinks.files.fold import Fold
from lowtide.sinks.files.groups import GroupFold
from lowtide.sinks.puts import carrier as puts_carrier
from lowtide.sinks.puts.contract import Put
from lowtide.sinks.staged.ages import Ages
from lowtide.sinks.staged.carry import Carrying
from lowtide.sinks.staged.contract import Carriage, Progress
from lowtide.sinks.staged.log import StagedLog
from lowtide.sinks.tables.carrier import TRIES, Conflict, TableCarrier

from .carrier_stores import SimulatedTopic
from .mutation import Mutation, Patch

CLOCK_S = 3.0
"""How long a file is open by the clock."""


def position_first() -> list[Patch]:
    """A table's position moves in a commit of its own, before the rows."""
    real: Any = TableCarrier._append

    def append(self: Any, rows: Any, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        real(self, rows.slice(0, 0), before, after)
        real(self, rows, after, after)

    return [(TableCarrier, "_append", append)]


def position_remembered() -> list[Patch]:
    """A carrier begins at what was reported, not at the table's position."""
    real: Any = TableCarrier.open

    def begin(self: Any, kept: Mapping[int, int]) -> Mapping[int, int]:
        real(self, kept)
        for lane, offset in kept.items():
            self._lanes[lane].committed = offset
        return kept

    return [(TableCarrier, "open", begin)]


def retries_on() -> list[Patch]:
    """A refused commit is made again on the table's next version, as libraries do by themselves."""

    def append(self: Any, rows: Any, _before: object, after: Mapping[int, int]) -> None:
        for _ in range(TRIES):
            try:
                self._table.append(rows, after)
            except Conflict:
                self._table.load()
            else:
                return
        raise self._conflict("it was refused")

    return [(TableCarrier, "_append", append)]


def file_cut_by_bundle() -> list[Patch]:
    """A file ends with what was read at once."""
    real: Any = Fold.take

    def take(self: Any, rows: Sequence[Any]) -> list[Any]:
        made: list[Any] = real(self, rows)
        self._end_files(made)
        return made

    return [(Fold, "take", take)]


def file_cut_by_clock() -> list[Patch]:
    """Files end some seconds after the last ones did."""
    real: Any = FilesCarrier.settle
    ended: dict[int, float] = {}

    def settle(self: Any, now_s: float) -> None:
        if now_s < math.inf and now_s >= ended.setdefault(id(self), now_s) + CLOCK_S:
            ended[id(self)] = now_s
            for group, fold in self._folds.items():
                pieces: list[Any] = []
                fold._fold._end_files(pieces)
                self._write(group, pieces)
        real(self, now_s)

    return [(FilesCarrier, "settle", settle)]


def asset_at_delivered() -> list[Patch]:
    """A time counts as visible once the carrier has read all records below it."""

    def progress(self: Any) -> dict[int, Progress]:
        return {
            lane: Progress(self._progress[lane].needed, fold._fold.known_ms)
            for fold in self._folds.values()
            for lane in fold._lanes
        }

    return [(FilesCarrier, "progress", progress)]


def merged_by_arrival() -> list[Patch]:
    """Records of a group of lanes come into a file as they are read."""
    real: Any = GroupFold._know

    def know(self: Any, lane: Any, first_ms: int, time_ms: int) -> list[Any]:
        rows, lane.waiting = lane.waiting, []
        return [*self._fold.take(rows), *real(self, lane, first_ms, time_ms)]

    return [(GroupFold, "_know", know)]


def silent_not_awaited() -> list[Patch]:
    """Records go on once all lanes that have any are as far, whatever may come of the others."""

    def know(self: Any, lane: Any, first_ms: int, time_ms: int) -> list[Any]:
        lane.first_ms = first_ms if lane.first_ms is None else lane.first_ms
        lane.known_ms = max(lane.known_ms, time_ms)
        last = min([each for each in self._lanes.values() if each.waiting] or [lane], key=lambda each: each.known_ms)
        return [*self._fold.take(self._passed(last)), *self._fold.mark(last.known_ms)]

    return [(GroupFold, "_know", know)]


def waiting_not_needed() -> list[Patch]:
    """What waits for other lanes is not needed any more."""
    real: Any = GroupFold.needed

    def needed(self: Any) -> dict[int, int]:
        return {number: self._lanes[number].next if self._lanes[number].waiting else offset
                for number, offset in real(self).items()}  # fmt: skip

    return [(GroupFold, "needed", needed)]


def last_one_rests() -> list[Patch]:
    """The lane that others wait for rests with them."""

    def resting(self: Any) -> frozenset[int]:
        return frozenset(self._lanes if self._waiting_bytes > groups.WAITING_BYTES else ())

    return [(GroupFold, "resting", resting)]


def times_mixed() -> list[Patch]:
    """A lane is visible as far as any carrier has said, whatever the others have seen of the other lanes."""

    def known(self: Any, progress: Mapping[int, Progress]) -> dict[int, Progress]:
        for lane, each in progress.items():
            self._visible[lane] = max(self._visible[lane] or 0, each.visible_ms or 0) or None
        return {lane: Progress(each.needed, self._visible[lane]) for lane, each in progress.items()}

    return [(Carrying, "_known", known)]


def lane_goes_on_alone() -> list[Patch]:
    """A lane's progress does not wait until a carrier has heard of all lanes."""
    real: Any = FilesCarrier._end_buckets

    def end_buckets(self: Any) -> bool:
        real(self)
        return True

    return [(FilesCarrier, "_end_buckets", end_buckets)]


def staged_cut_at_delivered() -> list[Patch]:
    """The log is cut below what has been read."""
    real: Any = StagedLog.keep

    def keep(self: Any, progress: Mapping[int, Progress], now_s: float) -> None:
        real(self, {lane: Progress(self._topic.next[lane], each.visible_ms) for lane, each in progress.items()}, now_s)

    return [(StagedLog, "keep", keep)]


def cut_before_report() -> list[Patch]:
    """The log is cut before it is reported."""
    real: Any = StagedLog._report

    def report(self: Any, progress: Mapping[int, Progress]) -> None:
        if self._claimed and (moved := self._moved(progress)):
            self._topic.cut({lane: each.needed for lane, each in moved.items()})
        real(self, progress)

    return [(StagedLog, "_report", report)]


def report_goes_back() -> list[Patch]:
    """A carrier that is not as far as another one reports all the same."""

    def moved(self: Any, progress: Mapping[int, Progress]) -> dict[int, Progress]:
        return {lane: each for lane, each in progress.items() if each != self._kept[lane]}

    return [(StagedLog, "_moved", moved)]


def reports_mixed() -> list[Patch]:
    """What is reported has some lanes of one carrier, and some of another."""

    def moved(self: Any, progress: Mapping[int, Progress]) -> dict[int, Progress]:
        ahead = {lane: each for lane, each in progress.items() if each.needed >= self._kept[lane].needed}
        return {lane: each for lane, each in ahead.items() if each != self._kept[lane]}

    return [(StagedLog, "_moved", moved)]


def overtaken_is_lost() -> list[Patch]:
    """Records that another carrier has cut are taken for lost."""

    def missing(self: Any, lane: int, offset: int, begin: int) -> Exception:
        lost: Exception = self._lost(lane, f"begins at offset {begin}, but offset {offset} is needed")
        return lost

    return [(StagedLog, "_missing", missing)]


def loss_passed_over() -> list[Patch]:
    """A carrier begins where the log does, if that is later."""
    real: Any = StagedLog.begin

    def begin(self: Any, offsets: Mapping[int, int]) -> None:
        begins = self._topic.begins()
        real(self, {lane: max(offset, begins[lane]) for lane, offset in offsets.items()})

    return [(StagedLog, "begin", begin)]


class _Unversioned:
    """A client whose puts have all the same version."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, puts: Sequence[Put]) -> None:
        self._client.put([each._replace(version=0) for each in puts])


def put_unversioned() -> list[Patch]:
    """A put carries no version, so that the last one to come wins."""
    real: Any = puts_carrier.client_of
    return [(puts_carrier, "client_of", lambda *arguments: _Unversioned(real(*arguments)))]


def births_forgotten() -> list[Patch]:
    """A put's version does not say when its partition was made."""
    return [(Carriage, "births_of", lambda *_: 0)]


def ages_side_by_side() -> list[Patch]:
    """Partitions that a growth made are read beside those that have what their keys had before."""
    return [(Ages, "waiting", property(lambda _: frozenset()))]


def outgrown_goes_on() -> list[Patch]:
    """A carrier of a life with fewer lanes does not end where the log says that there are more."""
    return [(SimulatedTopic, "_end_outgrown", lambda *_: None)]


def carrier(
    name: str, rule: str, what: str, patches: Callable[[], list[Patch]], store: str, **options: float
) -> Mutation:
    """A mutation of the carriers' world, where answers are lost."""
    return Mutation(name, rule, what, "carrier", patches, {"store": store, "lost": 0.1, "kills": 8, **options})


CARRIERS = [
    carrier("position-first", "R20", "a table's position moves before the rows", position_first, "table"),
    carrier("position-remembered", "R20", "a table's position is not read", position_remembered, "table"),
    carrier("retries-on", "R20", "a refused commit is made again, whatever came between", retries_on, "table"),
    carrier("file-cut-by-bundle", "R20", "a file ends with what was read at once", file_cut_by_bundle, "files"),
    carrier("file-cut-by-clock", "R20", "a file ends by the clock", file_cut_by_clock, "files"),
    carrier("asset-at-delivered", "R21", "what was read counts as visible", asset_at_delivered, "files"),
    carrier("merged-by-arrival", "R20", "lanes of one file are merged as they are read", merged_by_arrival, "files",
            lanes=3, workers=1),
    carrier("silent-not-awaited", "R20", "records pass lanes that may be behind", silent_not_awaited, "files",
            lanes=3, workers=1),
    carrier("waiting-not-needed", "R24", "the log is cut below what waits for other lanes", waiting_not_needed, "files",
            lanes=3, workers=1),
    carrier("last-one-rests", "R20", "the lane that others wait for rests, too", last_one_rests, "files",
            lanes=3, workers=1),
    carrier("times-mixed", "R21", "lanes are visible as several carriers say", times_mixed, "files",
            lanes=3, workers=3, mark_ms=1_000, marks_again=1.0, begins=30, kills=20, lost=0, burst=60),
    carrier("lane-goes-on-alone", "R24", "a lane goes on before all lanes are heard of", lane_goes_on_alone, "files",
            lanes=3, workers=3),
    carrier("put-unversioned", "R22", "puts carry no version", put_unversioned, "puts"),
    carrier("staged-cut-at-delivered", "R24", "the log is cut below what was read", staged_cut_at_delivered, "table"),
    carrier("cut-before-report", "R24", "the log is cut before that is reported", cut_before_report, "puts"),
    carrier("report-goes-back", "R24", "a carrier that woke late reports where it was", report_goes_back, "puts",
            lanes=3, begins=40, kills=3),
    carrier("reports-mixed", "R24", "a report has lanes of two carriers", reports_mixed, "files",
            lanes=3, begins=40, kills=3),
    carrier("births-forgotten", "R22", "versions begin again in partitions that a growth makes", births_forgotten,
            "puts", grows=True),
    carrier("ages-side-by-side", "R22", "partitions of a growth are read beside older ones", ages_side_by_side,
            "puts", grows=True),
    carrier("outgrown-goes-on", "R20", "carriers of lives with fewer lanes take their lanes for all", outgrown_goes_on,
            "files", grows=True, kills=2, burst=60),
    carrier("overtaken-is-lost", "R24", "records that another carrier has cut are missed", overtaken_is_lost, "puts"),
    carrier("loss-passed-over", "R24", "records that somebody deletes are not missed", loss_passed_over, "puts"),
]  # fmt: skip
