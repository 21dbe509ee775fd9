"""What the carriers of a life have made visible, and when no source is to be read (R21, R24)."""

from __future__ import annotations

import io

from life_settings import setting

from lowtide.assignment.setting import StagedSetting
from lowtide.core.fronts.end import END_MS, end_tick
from lowtide.events import EventLog
from lowtide.service.carriers.carriers import Carriers
from lowtide.service.carriers.messages import Carried, CarrierFailed, Found
from lowtide.service.carriers.process import CarrierProcess
from lowtide.sinks.staged.contract import Progress
from lowtide.sinks.staged.log import Backlog
from lowtide_snapshots.cause import Cause

LIMIT_BYTES = 1000


class Rig:
    """Carriers without processes: what these would tell is handed over."""

    def __init__(self, *sinks: str, lanes: int = 2) -> None:
        self.log = io.StringIO()
        self.moves = 0
        self.slack_ms = setting().shape.slack_ms
        last_mark = end_tick(self.slack_ms) // 600 * 600
        staged = tuple(
            StagedSetting(sink=sink, topic=sink, group=sink, lanes=lanes, last_mark=last_mark, pickled=b"")
            for sink in sinks
        )
        life = setting(staged=staged, max_staged_bytes=LIMIT_BYTES)
        self.all = Carriers(life, events=EventLog("job", 1, self.log), moved=self._moved)
        self.by_sink: dict[str, CarrierProcess] = {each.sink: each for each in self.all._all}

    def tell(self, sink: str, *visible: int | None, unread: int = 0) -> None:
        """Visible ticks of its lanes."""
        lanes = {lane: Progress(7, None if tick is None else tick * self.slack_ms) for lane, tick in enumerate(visible)}
        self.by_sink[sink]._hear(Carried(lanes, Backlog(unread // 10, unread, unread)))

    def _moved(self) -> None:
        self.moves += 1


def test_without_staged_sinks_what_is_delivered_is_visible() -> None:
    rig = Rig()
    assert [rig.all.visible(tick) for tick in (None, 7)] == [None, 7]
    assert not rig.all.behind()


def test_r21_visible_is_the_least_of_all_lanes_of_all_sinks_and_of_what_is_delivered() -> None:
    rig = Rig("files", "table")
    assert rig.all.visible(100) is None
    rig.tell("files", 50, 40)
    assert rig.all.visible(100) is None, "of the table nothing is known"
    rig.tell("table", 60, None)
    assert rig.all.visible(100) is None, "of one of its lanes nothing is known"
    rig.tell("table", 60, 70)
    assert [rig.all.visible(tick) for tick in (100, 30, None)] == [40, 30, None]
    rig.tell("files", 90, 90)
    assert rig.all.visible(100) == 60
    assert rig.moves == 3


def test_what_is_visible_stays_so_when_another_process_begins() -> None:
    rig = Rig("files")
    rig.tell("files", 50, 50)
    rig.by_sink["files"]._hear(Found({0: Progress(3), 1: Progress(3)}, Backlog()))
    rig.tell("files", None, 40)
    assert rig.all.visible(100) == 50


def test_r21_times_of_two_processes_are_not_mixed() -> None:
    """Neither has seen that both lanes have passed 50, which completes a folder."""
    rig = Rig("files")
    rig.tell("files", 50, 40)
    rig.tell("files", 40, 60)
    assert rig.all.visible(100) == 40
    rig.tell("files", 60, 60)
    assert rig.all.visible(100) == 60


def test_counts_go_on_when_another_process_begins() -> None:
    rig = Rig("files")
    lanes = {0: Progress(3), 1: Progress(3)}
    for counts in ({"files": 1, "file_bytes": 10}, {"files": 3, "file_bytes": 30}):
        rig.by_sink["files"]._hear(Carried(lanes, Backlog(), counts))
    rig.by_sink["files"]._hear(Found(lanes, Backlog()))
    assert rig.all.moment()["files"].counts == {"files": 3, "file_bytes": 30}
    rig.by_sink["files"]._hear(Carried(lanes, Backlog(), {"files": 2, "file_bytes": 5}))
    assert rig.all.moment()["files"].counts == {"files": 5, "file_bytes": 35}


def test_what_lives_before_made_visible_is_known_while_the_store_is_away() -> None:
    rig = Rig("files")
    found = {lane: Progress(7, 30 * rig.slack_ms) for lane in range(2)}
    rig.by_sink["files"]._hear(Found(found, Backlog(5, 500, 500)))
    assert rig.all.visible(100) == 30
    assert rig.all.moment()["files"].records == 5


def test_after_the_last_mark_comes_the_end_of_time() -> None:
    rig = Rig("files")
    end = end_tick(rig.slack_ms)
    assert end * rig.slack_ms == END_MS
    last = end // 600 * 600
    assert last < end
    rig.tell("files", last - 600, last)
    assert rig.all.visible(end) == last - 600
    rig.tell("files", last, last)
    assert rig.all.visible(end) == end


def test_r24_no_source_is_read_while_a_store_is_too_far_behind() -> None:
    rig = Rig("files", "table")
    rig.tell("files", 1, 1, unread=LIMIT_BYTES)
    assert not rig.all.behind()
    rig.tell("table", 1, 1, unread=LIMIT_BYTES + 1)
    assert [rig.all.behind(), rig.all.behind()] == [True, True]
    (trouble,) = rig.all.troubles
    assert "no source is read, as more than 1000 bytes (job.max_staged_bytes) wait for" in trouble
    assert trouble.endswith("the store of sink table")
    rig.tell("table", 1, 1)
    assert not rig.all.behind()
    assert rig.all.troubles == []
    events = [line.partition('"event":')[2].strip() for line in rig.log.getvalue().splitlines()]
    assert events == ['"sources_rest","sink":"table"}', '"sources_read","sink":"table"}']


def test_what_waits_for_log_time_keeps_no_source_from_being_read() -> None:
    """A file's period that is open is closed only by later records."""
    rig = Rig("files")
    rig.by_sink["files"]._hear(Carried({0: Progress(1), 1: Progress(1)}, Backlog(0, 0, 1 << 40)))
    assert not rig.all.behind()


def test_a_failure_is_a_trouble_until_something_moves() -> None:
    rig = Rig("files")
    carrier = rig.by_sink["files"]
    carrier._hear(CarrierFailed(Cause("loss", "the store is full", way_out="empty it")))
    carrier._failed("ended with status 1")
    (trouble,) = rig.all.troubles
    assert trouble.endswith(" UTC: records are not moving to sink files: the store is full")
    assert '"event":"carrier_stopped","sink":"files","cause":"the store is full' in rig.log.getvalue()
    rig.tell("files", 1, 1, unread=10)
    assert rig.all.troubles == []
    carrier._failed("was killed by SIGKILL")
    assert 'takes records of sink "files" to their store was killed by SIGKILL' in rig.all.troubles[0]
    rig.tell("files", 1, 1, unread=10)
    assert len(rig.all.troubles) == 1, "nothing has moved"
    rig.tell("files", 1, 1)
    assert rig.all.troubles == [], "nothing is left to do"
