"""A tracker in shards: the same answers as one table, and nothing early under any order of arrival (R9)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from lowtide_tracker import Flush, Graph, LocalTracker, Notice, TableFull, TimeWentBack, Tracker
from lowtide_tracker.messages import FrontClosed, FrontOpened, Report
from lowtide_tracker.shards.merge import Merge, ShardView
from lowtide_tracker.shards.shard import Shard
from lowtide_tracker.shards.sharding import Splitter, round_up, shard_of

FRONT = 7
GRAPH = {1: [], 2: [1]}


class Sharded:
    """Shards and their merge, between which what is chosen to move moves, and nothing else."""

    def __init__(self, shards: int = 2, *, start: int = 4, inbound: dict[int, list[int]] | None = None) -> None:
        self.graph, self.start, self.count = Graph(inbound or GRAPH), start, shards
        self.shards = [Shard(self.graph, {FRONT: start}, shard=at, shards=shards, start=start) for at in range(shards)]
        self.merge = Merge(self.graph, {FRONT: start}, shards=shards, start=start, capacity_ticks=100)
        self.splitters: dict[int, Splitter] = {}
        self.report(*range(shards))

    def parts(self, flush: Flush | None) -> list[Flush]:
        assert flush is not None
        return self.splitters.setdefault(flush.worker, Splitter(self.count)).split(flush)

    def report(self, *shards: int) -> list[Notice | FrontOpened | FrontClosed]:
        events = []
        for at in shards:
            report = self.shards[at].report()
            if report is not None:
                events += self.merge.receive(report)
        for event in events:
            if isinstance(event, Notice):
                for shard in self.shards:
                    shard.hear(event)
        return events

    def apply(self, parts: list[Flush]) -> None:
        """Everywhere, reported at once."""
        for shard, part in zip(self.shards, parts, strict=True):
            shard.receive(part)
        self.report(*range(self.count))


def test_every_tick_has_one_shard_and_rounding_up_loses_nothing() -> None:
    for shards in (1, 2, 3, 8):
        for tick in range(-20, 20):
            rounded = [round_up(tick, shard, shards) for shard in range(shards)]
            assert min(rounded) == tick == rounded[shard_of(tick, shards)]
            assert [shard_of(each, shards) for each in rounded] == list(range(shards))


def test_a_heartbeat_goes_only_where_it_moves_and_a_node_time_goes_everywhere() -> None:
    splitter, local = Splitter(4), LocalTracker(1, incarnation=1)
    sent = []
    for tick in (5, 6, 7):
        local.heartbeat(FRONT, tick)
        flush = local.flush()
        assert flush is not None
        sent.append(splitter.split(flush))
    assert [[part.number for part in parts] for parts in sent] == [[1] * 4, [2] * 4, [3] * 4]
    assert [part.heartbeats for part in sent[0]] == [((7, 8),), ((7, 5),), ((7, 6),), ((7, 7),)]
    assert [part.heartbeats for part in sent[1]] == [(), ((7, 9),), (), ()]


def replay() -> tuple[Sharded, list[list[Flush]]]:
    """The papers' replay: 5 is through while 4 is on its way; then 4 is taken, which opens 5 again.

    The flushes: worker 2 acks 4 and sends at 5 again; worker 3 acks that.
    """
    sharded = Sharded()
    front, grouping, sink = (LocalTracker(worker, incarnation=1) for worker in (1, 2, 3))
    value = front.new_value()
    front.fold(1, [4], value)
    front.heartbeat(FRONT, 9)
    sharded.apply(sharded.parts(front.flush()))
    assert sharded.merge.min_times() == {1: 4, 2: 4}
    again = grouping.new_value()
    grouping.fold(2, [5], again)
    grouping.fold(1, [4], value)
    first = sharded.parts(grouping.flush())
    sink.fold(2, [5], again)
    return sharded, [first, sharded.parts(sink.flush())]


def test_the_papers_replay_is_not_released_early() -> None:
    """Tick 4's shard learns that 4 is through before tick 5's shard learns that 5 is open again."""
    sharded, [repaired, taken] = replay()
    sharded.shards[0].receive(repaired[0])
    sharded.report(0)
    assert sharded.merge.min_times() == {1: 4, 2: 4}
    sharded.shards[1].receive(repaired[1])
    sharded.report(1)
    assert sharded.merge.min_times() == {1: 9, 2: 5}
    sharded.apply(taken)
    assert sharded.merge.min_times() == {1: 9, 2: 9}


def test_a_report_with_more_than_is_covered_is_not_passed_over() -> None:
    """Where the papers' guard fails: tick 5's shard reports that 5 is open again together with another worker's part.

    So its report is not covered, and what it said before, that nothing is at 5, is not what counts.
    """
    sharded, [repaired, _] = replay()
    other = LocalTracker(4, incarnation=1)
    other.fold(2, [12], other.new_value())
    parts = sharded.parts(other.flush())
    sharded.shards[1].receive(parts[1])
    sharded.shards[1].receive(repaired[1])
    sharded.report(1)
    sharded.shards[0].receive(repaired[0])
    sharded.report(0)
    assert sharded.merge.min_times() == {1: 9, 2: 5}


def test_what_opened_and_closed_within_one_report_is_not_passed_over() -> None:
    """Worker 3's flush, which closes 5 again, has not reached the other shard; what it caused may have come there."""
    sharded, [repaired, taken] = replay()
    for part in (repaired[1], taken[1]):
        sharded.shards[1].receive(part)
    sharded.report(1)
    sharded.shards[0].receive(repaired[0])
    sharded.report(0)
    assert sharded.merge.min_times() == {1: 9, 2: 5}
    sharded.shards[0].receive(taken[0])
    sharded.report(0)
    assert sharded.merge.min_times() == {1: 9, 2: 9}


Step = tuple[str, int, int]


def orders(shards: int) -> Iterator[list[Step]]:
    """All orders in which two workers' parts, and two reports of each shard, can come."""

    def walk(done: list[Step], left: dict[Step, int]) -> Iterator[list[Step]]:
        choices = [step for step, count in left.items() if count]
        if not choices:
            yield list(done)
        for step in choices:
            left[step] -= 1
            done.append(step)
            yield from walk(done, left)
            done.pop()
            left[step] += 1

    parts = {("part", worker, shard): 1 for worker in range(2) for shard in range(shards)}
    yield from walk([], parts | {("report", 0, shard): 2 for shard in range(shards)})


def released_early(*, taken: bool) -> bool:
    """True if min time passes what is open, in any order in which the replay's repair and one more flush arrive.

    The other one takes what the repair has sent, or has nothing to do with it.
    """
    for order in orders(2):
        sharded, [repaired, sink] = replay()
        other = LocalTracker(4, incarnation=1)
        other.fold(2, [12], other.new_value())
        parts = [repaired, sink if taken else sharded.parts(other.flush())]
        left = {(worker, shard) for worker in range(2) for shard in range(2)}
        try:
            for what, worker, shard in order:
                if what == "part":
                    sharded.shards[shard].receive(parts[worker][shard])
                    left.remove((worker, shard))
                else:
                    sharded.report(shard)
                under_way = {worker for worker, _ in left}
                least = 4 if 0 in under_way else 5 if 1 in under_way or not taken else 9
                if sharded.merge.min_time(2) > least:
                    return True
        except TimeWentBack:
            return True
        sharded.report(0, 1)
        assert sharded.merge.min_times() == {1: 9, 2: 9 if taken else 5}
    return False


@pytest.mark.parametrize("taken", [False, True])
def test_no_order_of_arrival_releases_early(taken: bool) -> None:
    assert not released_early(taken=taken)


@pytest.mark.parametrize("guard", ["none", "papers", "lows"])
def test_a_weaker_guard_releases_early(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was last said; what was last covered; where each report stood in the end."""

    def stands(self: ShardView) -> list[int]:
        latest = list(self.covered)
        for _, moved in self.pending if guard != "papers" else ():
            for group, (_, stand) in moved.items():
                latest[group] = min(stand, latest[group] if guard == "lows" else stand)
        return latest

    monkeypatch.setattr(ShardView, "stands", stands)
    assert any(released_early(taken=taken) for taken in (False, True))


@pytest.mark.parametrize("weak", [False, True])
def test_reports_that_become_one_keep_how_low_they_were(weak: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 opened and closed in a report that another one joins, which opens 7."""
    if weak:
        real = ShardView.add

        def add(self: ShardView, report: Report, moved: dict[int, tuple[int, int]]) -> None:
            full = len(self.pending) >= self._max_pending
            real(self, report, moved)
            if full:
                self.pending[-1][1].update(moved)

        monkeypatch.setattr(ShardView, "add", add)
    sharded, [repaired, taken] = replay()
    sharded.merge._views[1]._max_pending = 2
    other = LocalTracker(4, incarnation=1)
    for at, tick in enumerate((12, 7)):
        other.fold(2, [tick], other.new_value())
        sharded.shards[1].receive(sharded.parts(other.flush())[1])
        sharded.report(1)
        for part in (repaired[1], taken[1]) if at == 0 else ():
            sharded.shards[1].receive(part)
        sharded.report(1)
    assert len(sharded.merge._views[1].pending) == 2
    sharded.shards[0].receive(repaired[0])
    sharded.report(0)
    assert sharded.merge.min_time(2) == (7 if weak else 5)


def test_a_front_that_opens_holds_min_time_until_all_shards_know_it() -> None:
    sharded = Sharded()
    order = sharded.merge.open_front(8, 0)
    local = LocalTracker(1, incarnation=1)
    local.heartbeat(FRONT, 20)
    sharded.apply(sharded.parts(local.flush()))
    assert sharded.merge.global_min == 4
    sharded.shards[0].order(order)
    assert sharded.report(0) == []
    sharded.shards[1].order(order)
    assert sharded.report(1) == [FrontOpened(8, 4)]
    assert sharded.merge.global_min == 4
    closing = sharded.merge.close_front(8)
    for shard in sharded.shards:
        shard.order(closing)
    [notice, closed] = sharded.report(0, 1)
    assert isinstance(notice, Notice)
    assert notice.min_times == {1: 20, 2: 20}
    assert closed == FrontClosed(8)


def test_a_shard_that_died_is_rebuilt_from_absolute_sums_and_nothing_moves_before() -> None:
    sharded = Sharded()
    sender, receiver = LocalTracker(1, incarnation=1), LocalTracker(2, incarnation=1)
    value = sender.new_value()
    sender.fold(1, [5], value)
    sender.heartbeat(FRONT, 12)
    sharded.apply(sharded.parts(sender.flush()))
    assert sharded.merge.min_time(1) == 5
    receiver.fold(1, [5], value)
    taken = sharded.parts(receiver.flush())
    sharded.shards[0].receive(taken[0])
    sharded.shards[1] = Shard(
        sharded.graph, sharded.merge.fronts, shard=1, shards=2, start=4, orders=sharded.merge.orders
    ).rebuilt_from([1, 2])
    sharded.shards[1].receive(Splitter(2).report(sender.absolute(), 1))
    assert sharded.shards[1].missing == (2,)
    assert sharded.report(0, 1) == []
    sharded.shards[1].receive(Splitter(2).report(receiver.absolute(), 1))
    [notice] = sharded.report(0, 1)
    assert isinstance(notice, Notice)
    assert notice.min_times == {1: 12, 2: 12}
    sharded.shards[1].receive(taken[1])
    assert sharded.report(1) == []


@pytest.mark.parametrize("guarded", [True, False])
def test_a_rebuilt_shard_counts_once_all_that_it_rests_on_has_arrived(guarded: bool) -> None:
    """Tick 5 opened and closed while shard 1 was dead; what closed it sent at 6, which shard 0 does not know."""
    sharded, _ = replay()
    front, grouping, sink = (LocalTracker(worker, incarnation=1) for worker in (1, 2, 3))
    front.fold(1, [4], front.new_value())
    front.heartbeat(FRONT, 9)
    first, again = front.flush(), grouping.new_value()
    assert first is not None
    grouping.fold(2, [5], again)
    grouping.fold(1, [4], first.acks[0][2])
    repaired = sharded.parts(grouping.flush())
    sink.fold(2, [5], again)
    sink.fold(2, [6], sink.new_value())
    taken = sharded.parts(sink.flush())
    sharded.shards[1] = Shard(sharded.graph, sharded.merge.fronts, shard=1, shards=2, start=4).rebuilt_from([1, 2, 3])
    for local in (front, grouping, sink):
        sharded.shards[1].receive(Splitter(2).report(local.absolute(), 1))
    report = sharded.shards[1].report()
    assert report is not None
    assert report.whole
    if not guarded:
        report = replace(report, stands=tuple((name, stand, stand) for name, _, stand in report.stands))
    sharded.merge.receive(report)
    sharded.shards[0].receive(repaired[0])
    report = sharded.shards[0].report()
    assert report is not None
    sharded.merge.receive(report)
    assert sharded.merge.min_times() == ({1: 4, 2: 4} if guarded else {1: 9, 2: 9})
    if guarded:
        sharded.shards[0].receive(taken[0])
        sharded.report(0)
        assert sharded.merge.min_times() == {1: 9, 2: 6}


def test_a_new_merge_goes_on_from_what_the_shards_say() -> None:
    sharded = Sharded()
    local = LocalTracker(1, incarnation=1)
    local.fold(1, [6], local.new_value())
    local.heartbeat(FRONT, 9)
    sharded.apply(sharded.parts(local.flush()))
    before = sharded.merge.min_times()
    sharded.merge = Merge(sharded.graph, {FRONT: 4}, shards=2, start=4, capacity_ticks=100, era=2)
    for shard in sharded.shards:
        shard.join(2)
    assert sharded.report(0) == []
    [notice] = sharded.report(1)
    assert isinstance(notice, Notice)
    assert (notice.era, notice.number, notice.min_times) == (2, 1, before)


def test_an_ack_below_what_was_announced_ends_the_life() -> None:
    sharded = Sharded()
    local = LocalTracker(1, incarnation=1)
    local.heartbeat(FRONT, 9)
    sharded.apply(sharded.parts(local.flush()))
    part = Flush.of(2, 1, [(1, 6, 5)])
    with pytest.raises(TimeWentBack, match="tick 6 is below min time 9"):
        sharded.shards[0].receive(part)
    with pytest.raises(TimeWentBack, match="tick 6 is below min time 9"):
        sharded.merge.receive(Report(0, False, ((2, 1),), 0, ((1, 6, 6),)))


def test_capacity_is_counted_from_what_was_announced() -> None:
    sharded = Sharded(start=0)
    for tick, refused in ((99, False), (100, True)):
        part = Flush.of(tick, 1, [(1, tick, 5)])
        shard = sharded.shards[tick % 2]
        shard.receive(part)
        report = shard.report()
        assert report is not None
        if refused:
            with pytest.raises(TableFull, match="100 ticks ahead"):
                sharded.merge.receive(report)
        else:
            sharded.merge.receive(report)


def test_work_is_divided_by_the_number_of_shards() -> None:
    local = LocalTracker(1, incarnation=1)
    flushes = []
    for at in range(50):
        for tick in range(40 * at, 40 * at + 40):
            local.fold(1, [tick], local.new_value())
        flush = local.flush()
        assert flush is not None
        flushes.append(flush)
    for shards in (1, 2, 4, 8):
        splitter = Splitter(shards)
        counts = [0] * shards
        for flush in flushes:
            for at, part in enumerate(splitter.split(flush)):
                counts[at] += len(part.acks)
        assert counts == [2000 // shards] * shards


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_with_everything_sent_the_answers_are_the_centralised_trackers(shards: int) -> None:
    sharded = Sharded(shards, start=0)
    central = Tracker(Graph(GRAPH), {FRONT: 0}, start=0, capacity_ticks=100)
    locals_ = [LocalTracker(worker, incarnation=1) for worker in range(3)]
    values: list[tuple[int, int]] = []
    for at in range(40):
        local = locals_[at % 3]
        if at % 3 == 0:
            tick = at // 2
            values.append((tick, local.new_value()))
            local.fold(1, [tick], values[-1][1])
            local.heartbeat(FRONT, tick)
        elif at % 3 == 1 and len(values) > 3:
            tick, value = values.pop(at % 2)
            local.fold(1, [tick], value)
        else:
            local.fold(2, [at + 1], local.new_value())
        flush = local.flush()
        if flush is not None:
            central.receive(flush)
            sharded.apply(sharded.parts(flush))
            assert sharded.merge.min_times() == central.min_times()
            sharded.merge.check()
