"""Several workers in one process: what they share and hand to each other, and that nobody downstream can tell."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest
from core_rig import Event, notice, plan, read, reader, total
from hanging import HANGS_S
from idle_stage import IdleStage, StageDeployment
from msgspec.structs import replace
from stage_rig import (
    NOW,
    Kept,
    Order,
    Rig,
    Served,
    deployment,
    id_of,
    kept,
    kept_of,
    line_of,
    opened,
    orders,
    packed,
    stage_of,
    tick,
)

from lowtide import Flow, kafka, millis, tumbling
from lowtide import json as as_json
from lowtide.assignment.messages import Delivered, PartCount, PartWritten, Pinned, ShareDurable, ShareSaved
from lowtide.core.frames import FrameKind
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.segments import segments_of
from lowtide.process.wire import Kind
from lowtide.sinks.contract import Packet
from lowtide.sinks.kafka.claims import transactional_id
from lowtide.worker import saver as saver_module
from lowtide.worker.protocol import Frames
from lowtide.worker.saver import Saver
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.format.parts import PartHead
from lowtide_snapshots.stores import StoreSetting
from lowtide_tracker import Flush, LocalTracker, Notice, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from process_life import Life, Task

FLUSH_S = 0.002


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)


@pytest.fixture
def tracker() -> Iterator[Served]:
    with Served() as served:
        yield served
        assert served.faults == []


def delivered_by(rig: Rig) -> dict[tuple[str, int], list[Any]]:
    """The messages of each partition of each topic, in order."""
    found: dict[tuple[str, int], list[Any]] = {}
    for host in rig.hosts:
        if (sink := kept_of(host)) is not None:
            for message in sink.messages:
                found.setdefault(message[:2], []).append(message[2:])
    return found


def enough(rig: Rig, count: int) -> bool:
    return len(rig.delivered) >= count


# -- frames from neighbour to neighbour --------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_output_is_the_same_however_workers_are_spread(hosts: int) -> None:
    found = []
    for number in (hosts, 0):
        with Served() as tracker:
            rig = Rig.of(deployment(), tracker.address, number)
            for first in range(14, 114, 20):
                rig.read(packed(orders(10, first=first), 1, first - 14, tick=first), 1)
                rig.read(packed(orders(10, first=first + 10), 0, first - 14, tick=first - 3), 0)
                rig.turn()
            rig.grant(200)
            rig.until(partial(enough, rig, 100))
            found.append((delivered_by(rig), len(rig.frames)))
            lines = [host.line_gauges() for host in rig.hosts]
            assert all(0 < line.traffic.flushes <= line.traffic.messages_out for line in lines)
            assert sum(line.traffic.acks for line in lines) == sum(sum(line.acks.values()) for line in lines)
    assert found[0][0] == found[1][0]
    assert (found[0][1] == 0) == (hosts == 1), "no frame leaves a host that has all workers"
    assert found[0][1] < found[1][1]


def test_a_subscriber_learns_what_is_durable_as_soon_as_it_is(tracker: Served) -> None:
    """R18: floors that no bundle carries are kept soon then, too; where nobody listens, nothing is reported."""
    rig = Rig.of(deployment(), tracker.address, 2)

    def reported() -> list[Delivered]:
        return [news for host in rig.hosts for _, news in host.news(time.monotonic()) if isinstance(news, Delivered)]

    rig.read(packed(orders(10), 1, 0, tick=14), 1)
    rig.grant(100)
    rig.until(partial(enough, rig, 10))
    assert reported() == []
    found: list[Delivered] = []
    for host in rig.hosts:
        host.listened(time.monotonic() + 100)

    def all_are_durable() -> bool:
        found.extend(reported())
        return sum(each.tick > 14 for each in found) >= 2

    rig.until(all_are_durable)
    assert max(each.tick for each in found) <= 100


def test_acks_of_a_frame_between_neighbours_cancel_before_they_are_sent(
    tracker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig.of(deployment(), tracker.address, 1)
    sent: list[Flush] = []
    line = line_of(rig.stages["1/0"])
    monkeypatch.setattr(line, "flush", lambda flush: sent.append(flush) if flush is not None else None)
    rig.read(packed(orders(9), tick=5))
    (host,) = rig.hosts
    host.tick(100.0)
    (flush,) = sent
    assert (len(flush.acks), dict(flush.heartbeats)[1]) == (0, 5)


def test_a_frame_that_is_handed_over_overtakes_none_that_went_another_way(tracker: Served) -> None:
    """A tombstone comes after its item, whichever way each of them goes."""
    made = deployment(parallelism=1)
    source = stage_of(made, "0/orders-1", 0, tracker.address)
    ((_, numbered),) = source.rows(packed(orders(3)), NOW)
    target = stage_of(made, "1/0", 1, tracker.address, source.host)
    assert source.rows(packed(orders(2, first=17), first=3), NOW) == []
    assert list(source.host.handed()) == []
    assert source.handed_bytes > 0
    assert target.gauges().waiting == 0
    target.frames([numbered], NOW)
    assert target.gauges().waiting == 3
    list(source.host.handed())
    assert (target.gauges().waiting, source.handed_bytes) == (5, 0)


def test_a_mark_holds_no_frame_back_that_is_handed_over(tracker: Served) -> None:
    """R8: an epoch's end goes through Spark to every target, and nothing else waits for it."""
    made = deployment(parallelism=1)
    source = stage_of(made, "0/orders-1", 0, tracker.address)
    target = stage_of(made, "1/0", 1, tracker.address, source.host)
    ((place, mark),) = source.end(0, NOW)
    assert (place, opened(mark).kind, opened(mark).number) == (0, FrameKind.MARK, 0)
    source.rows(packed(orders(3)), NOW)
    list(source.host.handed())
    assert target.gauges().waiting == 3
    assert target.frames([mark], NOW) == []
    assert target.end(0, NOW) == []


def test_a_worker_whose_neighbour_does_not_come_to_its_frames_reads_no_more(tracker: Served) -> None:
    made = deployment(parallelism=1, max_queued_bytes=1000)
    source = stage_of(made, "0/orders-1", 0, tracker.address)
    ((_, numbered),) = source.rows(packed(orders(3)), NOW)
    target = stage_of(made, "1/0", 1, tracker.address, source.host)
    assert not source.full()
    source.rows(packed(orders(30, first=17), first=3), NOW)
    assert (source.full(), target.full()) == (True, False), "what it waits for comes through its target's own task"
    target.frames([numbered], NOW)
    assert source.name in [name for name, _ in source.host.handed()], "it is looked at again"
    assert not source.full()


# -- tracker and sinks -------------------------------------------------------------------------------------------------


def test_a_worker_that_comes_later_knows_what_its_host_has_heard(tracker: Served) -> None:
    rig = Rig.of(deployment(), tracker.address, 1)
    rig.grant(20)
    rig.until(lambda: rig.stages["1/0"].core.min_time == 20)
    later = stage_of(deployment(), "0/orders-2", 9, tracker.address, rig.hosts[0], opening=20)
    assert later.core.min_time == 20
    with Served() as other:
        alone = Rig.of(deployment(parallelism=1), other.address, 2)
        alone.grant(20)
        alone.until(lambda: alone.stages["0/orders-0"].core.min_time == 20)
        target = stage_of(deployment(parallelism=1), "1/0", 9, other.address, alone.stages["0/orders-1"].host)
        tick(target, 1e9)
        packet = kept(target).packets[-1]
        assert packet.mark is not None
        rests_on = [*packet.mark.floors, *packet.mark.covered]
        assert len(rests_on) == 2, "R2: the floors that min time rests on, though they were heard before it came"


def test_a_worker_that_comes_while_a_snapshot_is_taken_takes_part(tracker: Served, tmp_path: Path) -> None:
    made = deployment(parallelism=1, store=StoreSetting(str(tmp_path)))
    source = stage_of(made, "0/orders-1", 0, tracker.address)
    source.host._request = Request(1, 7)
    source.host.local.hear(Notice(1, 1, 0, {1: 9}, 9, ()))
    later = stage_of(made, "0/orders-0", 1, tracker.address, source.host, opening=9)
    news = [each for name, each in source.host.news(-1.0) if name == later.name]
    assert news[:2] == [Pinned(number=1, front=(0, 0, 9)), ShareSaved(1)]


def test_a_tracker_that_is_made_anew_waits_for_hosts(tracker: Served) -> None:
    rig = Rig.of(deployment(), tracker.address, 2)
    rig.read(packed(orders(10), tick=5))
    rig.turn()
    tracker.stop()
    rig.until(lambda: all(host.line is not None and host.line.fileno() < 0 for host in rig.hosts))
    rig.read(packed(orders(10, first=24), first=10, tick=8))
    rig.grant(20)
    tracker.start([0, 1])
    rig.until(lambda: len(rig.delivered) >= 20)
    assert sorted(record["number"] for record in rig.delivered) == list(range(14, 34))


def test_a_host_delivers_under_one_name_that_no_other_has(tracker: Served) -> None:
    """W10, R13: the first of its workers that delivers gives it; the next life claims all names."""
    made = deployment(letters=True)
    two = Rig.of(made, tracker.address, 2)
    names = [id_of(two.stages[name]) for name in ("0/orders-0", "0/orders-1")]
    assert names == [transactional_id("stage", 0, 0), transactional_id("stage", 0, 1)]
    assert kept(two.stages["1/0"]) is kept(two.stages["0/orders-0"])
    without = Rig.of(deployment(), tracker.address, 2)
    later = [id_of(without.stages[name]) for name in ("1/0", "1/1")]
    assert later == [transactional_id("stage", 1, 0), transactional_id("stage", 1, 1)], "level 0 delivers nothing there"


def test_what_is_released_in_one_turn_goes_together(tracker: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig.of(deployment(), tracker.address, 1)
    sink = kept(rig.stages["1/0"])
    given: list[int] = []
    put = sink.put

    def counted(*packets: Packet) -> None:
        given.append(len(packets))
        put(*packets)

    monkeypatch.setattr(sink, "put", counted)
    for stage in rig.stages.values():
        stage.host._kept_s = 1e9
    rig.read(packed(orders(20), tick=5))
    rig.grant(20)
    rig.until(lambda: len(rig.delivered) >= 20)
    assert given == [2], "both lanes"
    rig.until(lambda: sum(stage.gauges().delivered for stage in rig.stages.values()) == 20)
    counts = {place: len(messages) for (_, place), messages in delivered_by(rig).items()}
    assert {place: rig.stages[f"1/{place}"].gauges().delivered for place in counts} == counts, "each its own"


def test_holds_of_two_workers_at_one_tick_are_two() -> None:
    """R6: the first that goes on must not let min time pass what the second still keeps."""
    flow = Flow("holds")
    first = flow.read("events", kafka("events", as_json(Event))).key_by("key", name="first").scan("one", total, 0)
    first.key_by("number").scan("two", total, 0).write("out", kafka("out", as_json(Event)))
    made = compile_flow(flow, parallelism=2, units=8, lanes=2, slack_ms=1)
    shared = LocalTracker(0, 1, start=0)
    cores = [WorkerCore(made, 1, place, tracker=shared, grouping="ordered") for place in (0, 1)]
    shared.hear(notice(1, 3, 3))
    for core in cores:
        core._hold({2: [5]})
    shared.hear(notice(2, 6, 3))
    values: list[list[int]] = []
    for core in cores:
        core.moved(())
        flush = shared.flush()
        values.append([] if flush is None else [value for _, _, value in flush.acks])
    assert len(values[0]) == 1, "the second still holds"
    assert values[1] == values[0], "folded again, it cancels out"


def test_what_was_due_for_a_restored_worker_goes_out_in_its_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """R6b: others of the host have heard long ago that the window is over; who waits for it has not."""
    flow = Flow("windows")
    keyed = flow.read("orders", kafka("orders", as_json(Order))).key_by("user", name="users")
    newest = keyed.window("newest", tumbling(millis(10))).reduce(later)
    newest.key_by("number").write("out", kafka("out", as_json(Order)))
    made = deployment(plan=compile_flow(flow, parallelism=2, units=8, lanes=2, slack_ms=1), recovered=True)
    saved = {"newest": {7: [("ann", [((100_000, 110_000), Order("ann", 14))])]}}
    monkeypatch.setattr(
        "lowtide.worker.stage_parts.load_state", lambda _, birth, *__: saved if birth.name == "1/1" else {"newest": {}}
    )
    with Served(levels=3, dues=segments_of(made.plan).dues) as served:
        fronts = [stage_of(made, "0/orders-0", 0, served.address)]
        host = fronts[0].host
        fronts.append(stage_of(made, "0/orders-1", 1, served.address, host))
        stage_of(made, "1/0", 2, served.address, host)
        rig = Rig({stage.name: stage for stage in fronts})
        rig.grant(500)
        rig.until(lambda: host.local.min_time(1) == 500)
        assert host.local.min_time(2) == 0, "nobody knows what is due for the worker that has not come"
        stage_of(made, "1/1", 3, served.address, host)
        emitted = dict(host.tick(time.monotonic() + FLUSH_S))
        assert [opened(frame).ticks for _, frame in emitted["1/1"]] == [[110]]
        rig.until(lambda: host.local.min_time(2) == 110)
        assert not served.faults


def test_windows_that_close_together_close_in_portions_one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """True if a worker hears in that turn that min time has moved, or only goes on: others have their turn after it."""
    flow = Flow("windows")
    keyed = flow.read("orders", kafka("orders", as_json(Order))).key_by("user", name="users")
    keyed.window("newest", tumbling(millis(10))).reduce(later).write("out", kafka("out", as_json(Order)))
    made = deployment(plan=compile_flow(flow, parallelism=1, units=8, lanes=2, slack_ms=1), recovered=True)
    names = [f"user-{number}" for number in range(9)]
    saved = {"newest": {7: [(name, [((100_000, 110_000), Order(name, 14))]) for name in names]}}
    monkeypatch.setattr("lowtide.worker.stage_parts.load_state", lambda *_: saved)
    monkeypatch.setattr("lowtide.worker.stage_parts.PORTION", 2)
    with Served(levels=2, dues=segments_of(made.plan).dues) as served:
        fronts = [stage_of(made, "0/orders-0", 0, served.address)]
        host = fronts[0].host
        fronts.append(stage_of(made, "0/orders-1", 1, served.address, host))
        worker = stage_of(made, "1/0", 2, served.address, host)
        rig = Rig({stage.name: stage for stage in fronts})
        rig.grant(500)
        closed: list[int] = []
        deadline = time.monotonic() + HANGS_S
        while (before := worker.core.program.kept["newest"].number) and time.monotonic() < deadline:
            host.hear()
            host.tick(time.monotonic() + FLUSH_S)
            closed.append(before - worker.core.program.kept["newest"].number)
        assert [each for each in closed if each] == [2, 2, 2, 2, 1]
        assert not served.faults


def later(_: Order, other: Order) -> Order:
    return other


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_one_process_writes_the_shares_of_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    level_0, cores = reader(), {}
    frames = read(level_0, [(5, 1), (7, 2)]).frames
    for number in range(2):
        cores[f"1/{number}"] = WorkerCore(plan(), 1, 0, tracker=LocalTracker(number, 1, start=0))
    saver = Saver(plan(), StoreSetting(str(tmp_path)), incarnation=1)
    for name, core in cores.items():
        for frame in frames:
            core.frame(frame)
        saver.add(name, core)
        core.notice(replace(notice(1, 7, 7), request=Request(1, 7)))
    forks: list[int] = []
    fork = os.fork

    def counted() -> int:
        forks.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", counted)
    monkeypatch.setattr(saver_module.Saver, "_put", staticmethod(lambda _store, head, *_: part_of(head)))
    begun = saver.begin()
    said = [*begun]
    while saver.descriptors():
        said += saver.hear()
    assert (len(forks), [name for name, _ in begun]) == (1, ["1/0", "1/1"])
    for name in cores:
        mine = [type(each) for worker, each in said if worker == name]
        mine.remove(ShareDurable)  # It comes with the first look, which may find lines of the process or none.
        assert mine == [Pinned, PartCount, PartWritten, ShareSaved]


def part_of(head: PartHead) -> Part:
    return Part(head.vertex, head.kind, head.unit, head.tick, head.snapshot, 1, 1, "")


# -- processes ---------------------------------------------------------------------------------------------------------


class Echo(IdleStage):
    """Answers each frame with its process, and says how often the flow was loaded there."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        return [(0, str(os.getpid()).encode()) for _ in messages]

    def rows(self, message: bytes, now_ns: int) -> Frames:
        return [(0, str(os.getpid()).encode())]


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Echo"]))


def attached(life: Life, worker: str) -> Task:
    answer = life.attach(worker, 0)
    assert not isinstance(answer, str), answer
    return answer


def pid_of(task: Task, kind: Kind = Kind.FRAME) -> int:
    task.send(kind, b"x")
    task.connection.settimeout(HANGS_S)
    return int(task.receive()[1][4:])


@pytest.mark.zookeeper
def test_a_hosts_second_worker_attaches_while_the_first_runs(life: Life) -> None:
    life.begin(StageDeployment(Echo))
    first = attached(life, "1/0")
    pid = pid_of(first)
    second = attached(life, "0/in-0")
    assert pid_of(second, Kind.ROWS) == pid
    assert pid_of(first) == pid
    workers = life.status().workers
    assert {worker.address for worker in workers} == {workers[0].address}
    assert set(life.pids().values()) == {pid}


@pytest.mark.zookeeper
def test_a_host_that_is_killed_ends_the_life_and_every_worker_is_named(life: Life, kill: Callable[[int], None]) -> None:
    life.begin(StageDeployment(Echo))
    for worker in ("1/0", "0/in-0"):
        attached(life, worker)
    (pid,) = set(life.pids().values())
    kill(pid)
    cause = life.cause()
    for worker in ("1/0", "0/in-0"):
        assert f"worker {worker} (pid {pid} on executor 0) died: killed by SIGKILL" in cause


@pytest.mark.zookeeper
def test_as_many_hosts_as_are_asked_for(life: Life) -> None:
    life.processes = 2
    life.begin(StageDeployment(Echo))
    pids = [pid_of(attached(life, worker)) for worker in ("1/0", "1/1", "1/2")]
    assert (pids[0] == pids[2], len(set(pids))) == (True, 2)
