"""A job's view, from what the service knows at one moment."""

import io
import json
import math
import re
from dataclasses import replace

import msgspec
import pytest
from seen import MIN_TIME, PARTITIONS, SHAPE, moment, reader, report, worker

from lowtide import Flow, kafka, raw
from lowtide.cli.status_page import show
from lowtide.core.fronts.floors import NO_TICK
from lowtide.events import EventLog
from lowtide.flow.plan.compiler import compile_flow
from lowtide.histogram import Histogram
from lowtide.status.gauges import FrontGauges, KeptGauges, LateGauges, LineGauges, SinkGauges
from lowtide.status.job_view import FrontView, JobView, Percentiles
from lowtide.status.job_watch import JobWatch
from lowtide.status.metrics import JobMetrics
from lowtide.status.moment import OUTLET, JobShape, Moment, StagedMoment
from lowtide.status.recent import Recent
from lowtide.status.teller import delivered_time, job_view
from lowtide.status.tracker_report import ShardState
from lowtide_bench.flows import inverted_index
from lowtide_snapshots.job.standbys import Standby
from lowtide_tracker import Holder, Traffic


def view(at: Moment, *before: Moment) -> JobView:
    """The view at a moment, with looks a second apart."""
    watch = JobWatch(SHAPE, EventLog("index", 3, io.StringIO()))
    for second, look in enumerate((*before, at)):
        watch.look(float(second), look)
    seen = watch.view()
    assert seen is not None
    return seen


def durations(*ms: float) -> dict[int, int]:
    histogram = Histogram()
    for one in ms:
        histogram.add(round(one * 1e6))
    return histogram.counts


def test_who_holds_min_time_is_named_and_for_how_long() -> None:
    """The front with its partition, an open ack with its segment; time that stands is counted."""
    seen = view(moment(5000), moment(1000), moment(3000))
    assert (seen.min_time_ms, seen.lag_ms, seen.holder) == (2 * MIN_TIME, 5000, "front 3 (documents-1)")
    assert seen.held_s == 2.0
    assert [segment.holder for segment in seen.segments] == ["front 3 (documents-1)", ""]
    ack = report(Holder(MIN_TIME + 1, 2, None), global_min=MIN_TIME + 1)
    seen = view(moment(tracker=ack), moment(), moment())
    assert [segment.holder for segment in seen.segments] == ["", "an open ack of segment 2 at 2026-01-02 03:05:00.002"]
    assert (seen.holder, seen.held_s) == (seen.segments[1].holder, 0.0)
    closed = report(Holder(MIN_TIME, 1, None, at_front=True))
    assert view(moment(tracker=closed)).holder.startswith("no front that feeds segment 1 is open")


def test_the_part_of_each_worker_says_what_its_lanes_wait_for() -> None:
    """The segment itself is where the last of its parts is: before that all has left it."""
    flow = Flow("index", dead_letters=kafka("dead", raw()))
    flow.read("documents", kafka("documents", raw())).write("index", kafka("index", raw()))
    shape = JobShape.of(
        compile_flow(flow, parallelism=2, lanes=4, slack_ms=2, early_keys=True), incarnation=3, started_ms=1
    )
    first, second = (each.part for each in shape.parts)
    assert [(each.segment, each.worker, each.lanes) for each in shape.parts] == [
        (1, "1/0", (0, 1)),
        (1, "1/1", (2, 3)),
    ]
    assert (shape.segments[first], shape.segments[second]) == ("index (worker 1/0)", "index (worker 1/1)")
    held = Holder(MIN_TIME, second, None)
    ahead = Holder(MIN_TIME + 9, 1, 3, at_front=True)
    times = {1: MIN_TIME + 9, first: MIN_TIME + 9, second: MIN_TIME}
    assert shape.whole(times) == times | {1: MIN_TIME}
    tracker = report(held, min_times=times, global_min=MIN_TIME, holders={1: ahead, first: ahead, second: held})
    watch = JobWatch(shape, EventLog("index", 3, io.StringIO()))
    seen = watch.look(0.0, moment(tracker=tracker))
    whole, one, other = (next(each for each in seen.segments if each.segment == n) for n in (1, first, second))
    assert (whole.min_time_ms, whole.lanes, whole.waits_for) == (2 * MIN_TIME, [], "")
    assert (one.min_time_ms, one.lanes, one.waits_for) == (2 * MIN_TIME + 18, [0, 1], "front 3 (documents-1)")
    assert (other.min_time_ms, other.lanes) == (2 * MIN_TIME, [2, 3])
    assert other.waits_for == other.holder == seen.holder
    assert other.waits_for.startswith(f"an open ack of segment {second} at ")
    assert [step.step for step in seen.steps if step.holds] == ["index"]
    page = io.StringIO()
    show(seen, page)
    assert re.search(r"index \(worker 1/0\) .* front 3 \(documents-1\)", page.getvalue())


def test_a_tracker_that_is_being_rebuilt_takes_no_time_back() -> None:
    """Who it waits for is said, and the min times are those that were known before."""
    said = "workers 1 have not reported"
    rebuilt = replace(report(min_times={1: 0, 2: 0}, global_min=0, missing=(1,), era=2), held=None, holder=said)
    seen = view(moment(3000, tracker=rebuilt, restarts=1), moment(1000), moment(2000, tracker=rebuilt))
    assert (seen.min_time_ms, seen.lag_ms, seen.held_s) == (2 * MIN_TIME, 3000, 2.0)
    assert seen.segments[1].min_time_ms == 2 * MIN_TIME
    assert seen.holder == "workers 1 have not reported"
    assert (seen.tracker.era, seen.tracker.restarts) == (2, 1)
    assert view(moment(tracker=rebuilt)).min_time_ms is None
    assert view(moment(tracker=None), moment()).min_time_ms is None


def test_what_is_not_known_yet_is_none() -> None:
    fresh = report(global_min=NO_TICK, min_times={1: NO_TICK})
    seen = view(Moment(now_ms=1, phase="starting", fronts=PARTITIONS, tracker=fresh))
    assert (seen.min_time_ms, seen.lag_ms, seen.delivered_time_ms, seen.latency_ms.p50) == (None, None, None, None)
    assert (seen.segments[0].min_time_ms, seen.rates.records_in) == (None, None)
    assert [front.heartbeat_ms for front in seen.fronts] == [None, None, None]


def test_fronts_of_workers_and_those_of_the_service_stand_side_by_side() -> None:
    idle = {4: FrontGauges(front=4, heartbeat=MIN_TIME + 1, next_offset=0)}
    workers = [reader("0/documents-1", 3, parked=9, pulling=False), reader("0/documents-0", 0)]
    seen = view(moment(10, workers=workers, idle_fronts=idle)).fronts
    assert [(front.front, front.partition, front.worker) for front in seen] == [
        (0, "documents-0", "0/documents-0"),
        (3, "documents-1", "0/documents-1"),
        (4, "documents-2", ""),
    ]
    stopped = FrontView(
        front=3, partition="documents-1", worker="0/documents-1", heartbeat_ms=2 * MIN_TIME, lag_ms=10,
        next_offset=7, parked=9, pulling=False, quiet_s=0.0,
    )  # fmt: skip
    assert seen[1] == stopped
    assert (seen[2].lag_ms, seen[2].next_offset) == (8, 0)


def test_what_is_reported_is_what_is_stored() -> None:
    """R18: that all workers are through does not make delivered time yet; only what is stored is published."""
    workers = [worker("1/0", delivered_time=MIN_TIME), worker("1/1", delivered_time=MIN_TIME - 5)]
    assert view(moment(workers=workers)).delivered_time_ms is None
    assert view(moment(workers=workers, delivered_time=MIN_TIME - 9)).delivered_time_ms == 2 * (MIN_TIME - 9)


def test_delivered_time_is_that_of_the_slowest_of_all_workers() -> None:
    """R18: one that has not spoken yet may have the oldest record of all."""
    workers = [worker("1/0", delivered_time=9), worker("1/1", delivered_time=5)]
    assert delivered_time(workers, expected=2) == 5
    assert delivered_time(workers, expected=3) is None
    assert delivered_time([*workers, worker("1/2")], expected=2) is None
    assert delivered_time([*workers, worker("1/2", delivered_time=NO_TICK)], expected=2) is None
    assert delivered_time([], expected=0) is None


def test_rates_are_those_of_the_last_seconds() -> None:
    def at(second: int, read: int) -> Moment:
        sources = [reader("0/documents-0", 0, read // 2), reader("0/documents-1", 3, read // 2)]
        return moment(workers=[*sources, worker("1/0", records_in=read, delivered=read // 10, repairs=second)])

    counts = [0, 1000, 1000, 1000, 1000, 1000, 1000, 1600]
    seen = view(at(7, counts[-1]), *(at(second, read) for second, read in enumerate(counts[:-1])))
    assert (seen.rates.records_in, seen.rates.delivered) == (120.0, 12.0)
    assert (seen.totals.records_in, seen.totals.delivered, seen.totals.repairs) == (1600, 160, 7)


def test_percentiles_are_those_of_the_last_seconds() -> None:
    """Slow records of long ago are no longer felt; buckets that JSON made text of are numbers again."""
    old = durations(*[900.0] * 50)
    recent = Recent()
    hops = {"pack": durations(1.0), "python": durations(2.0)}
    recent.look(0.0, [worker("1/0", latency=old, hops=hops)])
    assert recent.percentiles("latency").p50 == pytest.approx(900, rel=1 / 8)
    for second in range(1, 12):
        grown = Histogram(old)
        grown.merge(durations(*[5.0] * second))
        text = {str(bucket): count for bucket, count in grown.counts.items()}
        recent.look(float(second), [worker("1/0", latency=text, hops=hops, turns=old)])
    assert recent.percentiles("latency").p99 == pytest.approx(5, rel=1 / 8)
    assert recent.percentiles("pack") == Percentiles()
    assert recent.hops == ["pack", "python 1"], "no record passes through a turn of the loop"
    assert not math.isnan(recent.percentiles("pack").p50 or 0)


def test_counts_of_another_life_are_no_negative_rates() -> None:
    recent = Recent()
    recent.look(0.0, [reader("0/documents-0", 0, 1000)])
    recent.look(1.0, [reader("0/documents-0", 0, 10)])
    assert recent.rates.records_in is None
    recent.look(2.0, [reader("0/documents-0", 0, 30)])
    assert recent.rates.records_in == 20.0


def test_the_first_late_record_of_each_minute_is_an_event() -> None:
    """Of each step; the page says how many of how many, and how late at most."""

    def seen(records: int, closed: int, minute: int, first: str, most_ms: float) -> LateGauges:
        return LateGauges(records=records, closed=closed, minute=minute, first=first, first_ms=40, most_ms=most_ms)

    out = io.StringIO()
    watch = JobWatch(SHAPE, EventLog("index", 3, out))
    looks = [
        {"1/0": seen(100, 0, -1, "", 0)},
        {"1/0": seen(200, 1, 7, "clicks-0, offset 12", 40)},
        {"1/0": seen(200, 2, 7, "clicks-0, offset 12", 90), "1/1": seen(200, 1, 7, "clicks-1, offset 4", 50)},
        {"1/0": seen(200, 2, 7, "clicks-0, offset 12", 90), "1/1": seen(200, 2, 8, "clicks-1, offset 9", 95_000)},
    ]
    for second, late in enumerate(looks):
        watch.look(float(second), moment(workers=[worker(name, late={"w": each}) for name, each in late.items()]))
    reported = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(each["event"], each["step"], each["first"], each["late"], each["of"]) for each in reported] == [
        ("records_late", "w", "clicks-0, offset 12", 1, 200),
        ("records_late", "w", "clicks-1, offset 9", 4, 400),
    ]
    shown = watch.view()
    assert shown is not None
    page = io.StringIO()
    show(shown, page)
    assert "4 for w (1.00% of 400, by 95.0 s at most)" in page.getvalue()


def test_what_is_kept_is_summed_up_and_shown() -> None:
    each = {"sales/left": KeptGauges(what="records", count=1_000, bytes=50_000)}
    seen = view(moment(workers=[worker("1/0", kept=each), worker("1/1", kept=each), worker("1/2")]))
    assert seen.kept == {"sales/left": KeptGauges(what="records", count=2_000, bytes=100_000)}
    page = io.StringIO()
    show(seen, page)
    assert re.search(r"sales/left +2,000 +records +100,000", page.getvalue())


def test_calls_are_summed_up_over_workers_and_hosts_and_shown_with_what_they_took_lately() -> None:
    watch = JobWatch(SHAPE, EventLog("index", 3, io.StringIO()))
    long_ago, lately = durations(900.0), durations(4.0)
    for second, more in ((0.0, {}), (20.0, {bucket: 50 * count for bucket, count in lately.items()})):
        asked = {"seconds": long_ago | more, "oldest_s": 2.5 * second, "retries": 3, "failures": 1}
        of_step = {"open": 2, "waiting": 70, "reused": 5}
        workers = [
            worker("1/0", calls={"score": of_step}, callers={"score": asked}, caller_restarts=1),
            worker("1/1", calls={"score": of_step}),
            worker("1/2", calls={"score": {}}, callers={"score": asked | {"oldest_s": 1.0}}, caller_restarts=0),
        ]
        seen = watch.look(second, moment(workers=workers))
    calls = seen.calls["score"]
    assert (calls.open, calls.waiting, calls.reused, calls.retries, calls.failures) == (4, 140, 10, 6, 2)
    assert (calls.oldest_s, calls.per_s, seen.caller_restarts) == (50.0, 5.0, 1)
    assert calls.took_ms.p99 == pytest.approx(4, rel=1 / 8)
    assert "callers" not in seen.workers[0].gauges
    assert sum(watch.call_seconds()["score"].values()) == 102
    page = io.StringIO()
    show(seen, page)
    assert re.search(r"score +4 +50.0 s +140 +5 +4\.\d ms/4\.\d ms +6 +2 +10", page.getvalue())


def test_calls_that_hold_min_time_are_named_by_their_step() -> None:
    """That of the earliest record; and no call where another record holds it."""

    def holder(held: Holder, **calls: dict[str, int]) -> str:
        tracker = report(held, global_min=MIN_TIME)
        return view(moment(workers=[worker("1/0", calls=calls), worker("1/1")], tracker=tracker)).holder

    later, first = {"open": 9, "first": MIN_TIME}, {"open": 1, "first": MIN_TIME - 1}
    ack, due = Holder(MIN_TIME, 2, None), Holder(MIN_TIME, 2, None, owner=3)
    for held in (ack, due):
        assert holder(held, score=later, address=first) == 'open calls of "address" at 2026-01-02 03:05:00.000'
        kept = holder(held, score={"open": 0, "first": MIN_TIME})
        assert kept.partition(" at ")[0] == 'answers to calls of "score" that are not yet durable'
    assert holder(ack, score={"open": 9, "first": MIN_TIME + 1}).startswith("an open ack of segment 2")
    assert holder(Holder(MIN_TIME, 1, 3, at_front=True), score=later) == "front 3 (documents-1)"


@pytest.mark.parametrize(
    ("held", "said", "word"),
    [
        (Holder(MIN_TIME, 1, 0, at_front=True), {}, "the worker that reads front 0 (documents-0) grow?"),
        (Holder(MIN_TIME, 1, 3, at_front=True), {}, "front 3 (documents-1) waits because others are behind it"),
        (Holder(MIN_TIME, 1, 4, at_front=True), {}, "No worker reads front 4 (documents-2) while nothing comes there."),
        (Holder(MIN_TIME, 1, None, at_front=True), {}, ""),
        (Holder(MIN_TIME, 2, None), {}, "A record is on its way to `index`."),
        (Holder(MIN_TIME, 3, None), {}, "A record waits before the sinks."),
        (Holder(MIN_TIME, 2, None, owner=1, reported=False), {}, "worker 1 before segment 2 has not begun."),
        (Holder(MIN_TIME, 2, None, owner=1), {}, "A record is on its way to `index`."),
        (Holder(MIN_TIME, 2, None), {"open": 1, "first": MIN_TIME}, "Does the service that `score` asks answer?"),
        (Holder(MIN_TIME, 2, None), {"open": 0, "first": MIN_TIME}, "into `lowtide.index.answers.score`."),
    ],
)
def test_each_holder_has_a_way_out(held: Holder, said: dict[str, int], word: str) -> None:
    calls = {"calls": {"score": said}} if said else {}
    workers = [reader("0/documents-0", 0), reader("0/documents-1", 3, pulling=False), worker("1/0", **calls)]
    seen = view(moment(workers=workers, tracker=report(held, global_min=MIN_TIME)))
    assert word in " ".join(seen.to_do)
    assert bool(seen.to_do) == bool(word)
    assert [line for line in seen.to_do if "{" in line] == []
    page = io.StringIO()
    show(msgspec.structs.replace(seen, lag_ms=60_000, held_s=50.0), page)
    assert all(line.replace("`", "") in page.getvalue() for line in seen.to_do)
    behind = view(moment(workers=workers, tracker=report(held, global_min=MIN_TIME), chain=["other: held by front 0"]))
    assert behind.to_do == ["This job waits for another one: look at the last one that is named as holding it."]


def test_the_flow_is_shown_with_what_holds_it_and_what_passes_each_level() -> None:
    def at(count: int, held: Holder) -> Moment:
        late = {"index": {"records": 9, "closed": 2, "ahead": 1}, "last/left": {"records": 3, "closed": 1}}
        workers = [
            reader("0/documents-0", 0, count),
            worker("1/0", records_in=count, records_out=3 * count, late=late),
            worker("2/0", records_in=2 * count),
            worker("2/1", records_in=count),
            worker("2/2"),
        ]
        return moment(workers=workers, tracker=report(held, global_min=MIN_TIME))

    seen = view(at(500, Holder(MIN_TIME, 2, None)), at(100, Holder(MIN_TIME, 2, None)))
    assert [(each.step, each.does, each.level, each.after) for each in seen.steps] == [
        ("documents", "read", 0, []), ("last", "last", 1, [0]), ("changes", "flat_map", 1, [1]),
        ("index", "scan", 2, [2]), ("index", "write", 2, [3]),
    ]  # fmt: skip
    assert [each.holds for each in seen.steps] == [False, False, False, True, False]
    assert [each.late for each in seen.steps] == [0, 1, 0, 3, 0]
    levels = [(each.workers, each.records_in, each.records_out, each.in_per_s, each.out_per_s) for each in seen.levels]
    assert levels == [(1, 500, 0, 400, 0), (1, 500, 1500, 400, 1200), (2, 1500, 0, 1200, 0)]
    front = view(at(1, Holder(MIN_TIME, 1, 0, at_front=True)))
    assert not any(each.holds for each in front.steps)
    assert front.levels[0].in_per_s is None


def test_the_trackers_traffic_is_shown_by_worker_by_segment_and_by_record() -> None:
    """One worker of each process tells of its line; the tracker's own count stands beside it."""
    first = LineGauges(traffic=Traffic(30, 900, 20, 8_000, flushes=20, acks=70, notices=25), acks={1: 30, 2: 40})
    second = LineGauges(traffic=Traffic(40, 1_000, 10, 4_000, flushes=10, acks=35, notices=39), acks={2: 35})
    workers = [reader("0/documents-0", 0, 500), worker("1/0", line=first), worker("1/1", line=second), worker("1/2")]
    seen = view(moment(workers=workers))
    assert [segment.acks for segment in seen.segments] == [30, 75]
    assert (seen.tracker.workers, seen.tracker.traffic) == (4, report().traffic)
    assert seen.tracker.messages_per_record == 0.2
    assert [each.gauges.get("line", {}).get("traffic", {}).get("bytes_out") for each in seen.workers] == [
        None, 8_000, 4_000, None,
    ]  # fmt: skip
    page = io.StringIO()
    show(seen, page)
    assert "5,000 messages in, 4,000 out, 600,000 bytes in, 120,000 out" in page.getvalue()
    assert "4,000 flushes with 16,000 acks; 0.2 messages a record" in page.getvalue()
    assert msgspec.json.decode(msgspec.json.encode(seen), type=JobView) == seen
    assert view(moment(workers=[worker("1/0", line=first)])).tracker.messages_per_record is None
    assert view(moment(tracker=None)).tracker.traffic == Traffic()


def test_looks_are_not_kept_for_ever() -> None:
    recent = Recent()
    for second in range(1000):
        recent.look(float(second), [])
    assert len(recent._looks) < 15


def test_a_view_survives_json() -> None:
    events = EventLog("index", 3, io.StringIO())
    events.event("worker_lost", worker="1/0", pid=4)
    workers = [reader("0/documents-0", 0, 5), worker("2/1", delivered=4, transactions=2, latency=durations(3.0))]
    seen = job_view(SHAPE, moment(workers=workers), Recent(), events.last)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=JobView) == seen
    assert (seen.sinks[0].delivered, seen.sinks[0].transactions, seen.sinks[0].lanes) == (0, 2, 4)
    assert "latency" not in seen.workers[1].gauges
    assert seen.events[0]["event"] == "worker_lost"


def test_a_sink_that_is_dry_shows_by_its_newest_record() -> None:
    shape = replace(SHAPE, sinks={"index": (2, 4), "refunds": (2, 4)})
    first = worker("2/0", sinks={"index": SinkGauges(records=3, bytes=30, newest=MIN_TIME - 500)})
    other = worker("2/1", sinks={"index": SinkGauges(records=4, bytes=50, newest=MIN_TIME - 1000)})
    seen = job_view(shape, moment(workers=[first, other]), Recent())
    index, refunds = seen.sinks
    assert (index.delivered, index.bytes, index.newest_ms) == (7, 80, 2 * (MIN_TIME - 500))
    assert index.lag_ms is not None
    assert index.lag_ms - (seen.lag_ms or 0) == 1000
    assert (refunds.delivered, refunds.bytes, refunds.newest_ms, refunds.lag_ms) == (0, 0, None, None)
    page = io.StringIO()
    show(seen, page)
    assert re.search(r"index +4 +exactly_once +7 +80 +\d", page.getvalue())
    assert re.search(r"refunds +4 +exactly_once +0 +0 +none yet", page.getvalue())


def test_a_sinks_transactions_are_those_of_its_workers_processes() -> None:
    """Whichever worker of a process counts them: here one of another level."""
    counting = msgspec.structs.replace(worker("1/0", transactions=7), pid=102)
    elsewhere = msgspec.structs.replace(worker("1/1", transactions=5), pid=101)
    seen = view(moment(workers=[counting, elsewhere, worker("2/0", delivered=4)]))
    assert [sink.transactions for sink in seen.sinks] == [7]


def test_the_shape_of_a_plan_names_who_receives() -> None:
    plan = compile_flow(inverted_index("index", "documents", "index"), parallelism=2)
    shape = JobShape.of(plan, incarnation=4, started_ms=1)
    assert shape.segments.keys() == {1, 2, 3}
    assert (shape.segments[2], shape.segments[3]) == ("index", OUTLET)
    assert shape.sinks == {"index": (2, plan.lanes)}
    assert (shape.job, shape.incarnation, shape.slack_ms) == ("index", 4, plan.slack_ms)
    assert [(each.name, each.word, each.level, each.after, each.segments) for each in shape.steps] == [
        ("documents", "read", 0, (), ()), ("documents/by-name/last", "last", 1, (0,), (1,)),
        ("changes", "flat_map", 1, (1,), ()), ("index", "scan", 2, (2,), (2,)), ("index", "write", 2, (3,), (3,)),
    ]  # fmt: skip


def metrics_of(seen: JobView) -> str:
    return JobMetrics("index", lambda: seen, dict, dict, dict).exposition()[0].decode()


def test_what_a_carrier_counts_is_a_metric() -> None:
    """What it counts by another name is in the view alone."""
    counts = {"files": 3, "file_bytes": 70, "commits refused": 2, "puts taken": 5, "moons": 1}
    seen = view(moment(staged={"index": StagedMoment(counts=counts)}))
    told = metrics_of(seen)
    for name, labels, value in (
        ("files", 'job_name="index",sink="index"', 3),
        ("file_bytes", 'job_name="index",sink="index"', 70),
        ("table_commits", 'job_name="index",result="refused",sink="index"', 2),
        ("puts", 'job_name="index",result="taken",sink="index"', 5),
    ):
        assert f"lowtide_{name}_total{{{labels}}} {value}.0" in told
    assert "moons" not in told


def test_a_shard_of_the_tracker_that_is_missing_is_named() -> None:
    """On the page, in the metrics, and as who holds min time."""
    shards = (
        ShardState(0, 1, 70, Traffic(acks=12), ""),
        ShardState(1, 3, 71, Traffic(acks=4), "has been silent for 4 s"),
    )
    away = replace(report(shards=shards), held=None, holder="shard 1 of the tracker has been silent for 4 s")
    seen = view(moment(tracker=away))
    assert [(each.era, each.pid, each.traffic.acks) for each in seen.tracker.shards] == [(1, 70, 12), (3, 71, 4)]
    assert seen.holder == "shard 1 of the tracker has been silent for 4 s"
    page = io.StringIO()
    show(seen, page)
    assert "0: era 1, process 70; 1: has been silent for 4 s" in page.getvalue()
    assert 'lowtide_tracker_shard_acks_total{job_name="index",shard="0"} 12.0' in metrics_of(seen)
    reported = metrics_of(seen)
    assert 'lowtide_tracker_shard_working{job_name="index",shard="0"} 1.0' in reported
    assert 'lowtide_tracker_shard_working{job_name="index",shard="1"} 0.0' in reported
    alone = view(moment())
    assert "tracker_shard" not in metrics_of(alone)


def test_the_programs_that_wait_for_the_lease_are_shown() -> None:
    ready = Standby("2026-01-01T00:00:00+00:00", "process 7 on there", True)
    starting = Standby("2026-01-01T00:00:09+00:00", "process 8 on here")
    seen = view(moment(standbys=[ready, starting]))
    assert seen.standbys == [ready, starting]
    page = io.StringIO()
    show(seen, page)
    assert re.search(r"standbys +process 7 on there, ready .*; process 8 on here, starting", page.getvalue())
    assert "standbys" not in page_of(view(moment()))


def page_of(seen: JobView) -> str:
    page = io.StringIO()
    show(seen, page)
    return page.getvalue()
