"""The pure parts of the benchmark: schedule, accounts, boundaries, breakdown, report."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.histogram import Histogram
from lowtide.local.run import Message, run_log
from lowtide_bench import boundaries, hops
from lowtide_bench.arrivals import Arrivals, percentiles
from lowtide_bench.breakdown import breakdown
from lowtide_bench.counted import Counted
from lowtide_bench.figures import Figures, Observed
from lowtide_bench.flows import FLOWS
from lowtide_bench.gaps import gaps
from lowtide_bench.load import Rise
from lowtide_bench.look import Look
from lowtide_bench.markdown import markdown, ramp
from lowtide_bench.pacer import Taken, summary
from lowtide_bench.processes import busy_s, cpu_s, descendants, orphans_s
from lowtide_bench.quiet import Noise
from lowtide_bench.ramp import Ramp, drained_per_s, steps, sustained
from lowtide_bench.record import KEYS, Records, Sample, Samples
from lowtide_bench.report import report
from lowtide_bench.roles import roles, roles_of
from lowtide_bench.run import shares
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.sides import ratios

START = 1_700_000_000 * NS
MS = 1_000_000


def arrived(*records: tuple[int, float, float]) -> Arrivals:
    """Arrivals of `(sequence, sent in ms after START, latency in ms)`, in the order of arrival."""
    columns = [
        (sequence, START + round(sent * MS), START // MS + int(sent), START + round((sent + latency) * MS))
        for sequence, sent, latency in sorted(records, key=lambda record: record[1] + record[2])
    ]
    return Arrivals.of(np.array(columns, dtype=np.int64).reshape(-1, 4).T, Samples())


@pytest.mark.parametrize("rate", [1, 3, 7, 10, 999, 1000, 30_000, 50_000])
def test_a_record_is_due_exactly_from_its_time_on(rate: int) -> None:
    schedule = Schedule(START, rate, 1, 2)
    assert schedule.count == 3 * rate
    for sequence in (0, 1, 2, rate - 1, rate, 3 * rate - 1):
        time = schedule.time_of(sequence)
        assert schedule.due(time) >= sequence + 1
        assert schedule.due(time - 1) <= sequence
    assert schedule.due(START - 1) == 0
    assert schedule.due(START + 100 * NS) == schedule.count


def test_what_is_due_does_not_depend_on_when_one_looks() -> None:
    """Open loop: after a stall of a second, all its records are due, each at the time it always had."""
    schedule = Schedule(START, 1000, 0, 10)
    before, after = schedule.due(START + NS), schedule.due(START + 2 * NS)
    assert after - before == 1000
    assert schedule.time_of(before) == START + before * MS


def test_the_window_begins_after_the_warm_up() -> None:
    schedule = Schedule(START, 10, 2, 3)
    assert schedule.warmup_count == 20
    assert schedule.window_ns == (START + 2 * NS, START + 5 * NS)


def test_a_sample_is_about_100_bytes_of_the_flows_own_type() -> None:
    _, value = Samples().message(123_456, START)
    sample = msgspec.json.decode(value, type=Sample)
    assert (sample.sequence, sample.sent_ns) == (123_456, START)
    assert 90 <= len(value) <= 110
    assert len({msgspec.json.decode(Samples().message(i, START)[1], type=Sample).key for i in range(3 * KEYS)}) == KEYS
    assert msgspec.json.encode(sample) == value


def log_of(records: Records, count: int) -> list[Message]:
    """Records, one a millisecond, in two partitions."""
    log = []
    for sequence in range(count):
        key, value = records.message(sequence, START + sequence * MS)
        position = Position(records.partition(sequence, 2), sequence)
        log.append(Message(position, START // MS + sequence, key, value))
    return log


@pytest.mark.parametrize("name", FLOWS)
def test_every_message_that_comes_out_is_known_again(name: str) -> None:
    records, count = FLOWS[name].records(), 2_500
    plan = compile_flow(FLOWS[name].make("job", "in", "out"), parallelism=2)
    (source,) = plan.sources()
    written, _ = run_log(plan, {source.name: log_of(records, count)})
    (delivered,) = written.values()
    known = records.read([message.value or b"" for message in delivered])
    assert len(known[0]) == len(np.unique(known[0])) == records.outputs(count)
    sequence = known[0] // records.width
    assert set(sequence.tolist()) <= set(range(count))
    assert ((known[1] - START) // MS == sequence).all()
    assert not records.faults(known[2:])


@pytest.mark.parametrize("name", FLOWS)
def test_what_is_only_passed_on_is_known_again_too(name: str) -> None:
    records = FLOWS[name].passed()
    values = [message.value or b"" for message in log_of(records, 50)]
    assert records.read(values)[0].tolist() == list(range(records.outputs(50)))
    assert records.faults(records.read(values)[2:]) is None


@pytest.mark.parametrize("name", FLOWS)
def test_a_probe_comes_out_as_one_message_with_an_identity_below_0(name: str) -> None:
    records = FLOWS[name].records()
    plan = compile_flow(FLOWS[name].make("job", "in", "out"), parallelism=2)
    (source,) = plan.sources()
    sent = [records.message(-number, START) for number in (1, 2)]
    assert {records.partition(-number, 2) for number in (1, 2)} == {0, 1}
    probes = [Message(Position(0, offset), START // MS, key, value) for offset, (key, value) in enumerate(sent)]
    written, _ = run_log(plan, {source.name: probes})
    (delivered,) = written.values()
    identities = records.read([message.value or b"" for message in delivered])[0]
    assert len(identities) == 2
    assert (identities < 0).all()


RAMP = Ramp(START, (10, 20, 30), 2.0)


def test_a_ramp_says_when_each_record_is_due() -> None:
    assert RAMP.firsts == [0, 20, 60, 120]
    assert RAMP.time_of(20) == START + 2 * NS
    assert RAMP.time_of(21) == START + 2 * NS + NS // 20
    assert RAMP.time_of(RAMP.count) == START + 6 * NS == RAMP.window_ns[1]
    for sequence in range(RAMP.count):
        time = RAMP.time_of(sequence)
        assert RAMP.due(time) >= sequence + 1
        assert RAMP.due(time - 1) <= sequence
    assert (RAMP.due(START - 1), RAMP.due(START + 100 * NS)) == (0, RAMP.count)


def served(rate: float) -> Arrivals:
    """Arrivals if so many records a second are taken, one after the other."""
    free_ms, records = 0.0, []
    for sequence in range(RAMP.count):
        sent_ms = (RAMP.time_of(sequence) - START) / MS
        free_ms = max(free_ms, sent_ms) + 1e3 / rate
        records.append((sequence, sent_ms, free_ms - sent_ms))
    return arrived(*records)


@pytest.mark.parametrize(("rate", "highest"), [(9, 0), (10.5, 10), (19, 10), (21, 20), (29, 20), (31, 30)])
def test_sustained_is_the_last_rate_at_which_the_lag_does_not_grow(rate: float, highest: int) -> None:
    assert sustained(steps(served(rate), RAMP)) == highest


def test_a_step_that_was_disturbed_is_made_good_by_the_next() -> None:
    arrivals = served(100)
    late = (arrivals.sequence >= 30) & (arrivals.sequence < 60)
    disturbed = replace(arrivals, received_ns=arrivals.received_ns + np.where(late, NS, 0))
    found = steps(disturbed, RAMP)
    assert [step.kept for step in found] == [True, False, True]
    assert sustained(found) == 30


def test_what_is_left_behind_is_drained_and_counted() -> None:
    drained = drained_per_s(served(15), RAMP)
    assert drained == pytest.approx(15, rel=0.1)
    assert drained_per_s(served(31), RAMP) is None


def test_a_ramps_table_has_both_sides_and_says_which_steps_were_not_kept() -> None:
    side: dict[str, Any] = {"sustained_per_s": 10, "drained_per_s": None, "lost": 0, "duplicated": 0, "faults": None}
    side["steps"] = [step.as_json() for step in steps(served(15), RAMP)]
    share = {"sustained_per_s": 1.0, "drained_per_s": None}
    of_skeleton = {"sustained_per_s": 0.5, "drained_per_s": None}
    run = {"flow": "running-count", "grouping": "ordered", **side, "share_of_bare": share}
    run |= {"share_of_skeleton": of_skeleton, "subjects": ["bare", "skeleton", "flow"]}
    text = ramp({**run, "skeleton": side, "bare": side})
    assert "| running-count, ordered | 10 | - | 1.00 | - | 0.50 | - | 0, 0, - |" in text
    assert re.search(r"\| 30/s( \| [\d,]+ \(not kept\)){3} \|", text)


def test_a_ramps_table_has_no_column_for_what_was_left_out() -> None:
    side: dict[str, Any] = {"sustained_per_s": 10, "drained_per_s": None, "lost": 0, "duplicated": 0, "faults": None}
    side["steps"] = [step.as_json() for step in steps(served(15), RAMP)]
    run = {"flow": "running-count", "grouping": "ordered", "subjects": ["skeleton"]}
    text = ramp({**run, "skeleton": side, "bare": None})
    assert "running-count" not in text
    assert "bare loop |" not in text.split("\n\n")[1]
    assert re.search(r"\| 30/s \| [\d,]+ \(not kept\) \|$", text, re.MULTILINE)


def test_a_share_is_given_only_of_what_was_taken_to_its_limit() -> None:
    flow, other = {"sustained_per_s": 40, "drained_per_s": 60.0}, {"sustained_per_s": 80, "drained_per_s": 120.0}
    assert shares(flow, other, 100) == {"sustained_per_s": 0.5, "drained_per_s": 0.5}
    assert shares(flow, other, 80) == {"sustained_per_s": None, "drained_per_s": 0.5}
    assert shares(flow, {}, 80) == {"sustained_per_s": None, "drained_per_s": None}


def test_a_warm_up_counts_in_no_step() -> None:
    rise = Rise((10, 20), 2.0, 3.0)
    ramp = rise.schedule(START)
    assert (ramp.rates, ramp.warmup_steps) == ((10, 10, 10, 20), 2)
    assert [step.rate for step in steps(served(30), ramp)] == [10, 20]


def test_a_step_of_which_nothing_came_is_not_kept() -> None:
    arrivals = served(100)
    found = steps(arrivals.only(arrivals.sequence < 60), RAMP)
    assert [step.kept for step in found] == [True, True, False]


def test_a_counted_record_has_32_bytes_and_its_key_comes_from_every_partition() -> None:
    records = Counted()
    seen = {(records.message(i, START)[0], records.partition(i, 2)) for i in range(20 * KEYS)}
    assert len(seen) == 2 * KEYS
    assert {len(records.message(i, START)[1]) for i in (-1, 0, 10**9)} == {32}


@pytest.mark.parametrize(
    ("counts", "faults"),
    [([1, 2, 3], 0), ([1, 3, 4], 1), ([1, 2, 2, 3], 1), ([2, 3], 1), ([1, 3, 2], 2), ([0, 1], 1)],
)
def test_a_count_is_one_more_than_the_one_before_of_its_key(counts: list[int], faults: int) -> None:
    others = [(9, 1), (9, 2), (9, 3), (9, 4)]
    rows = [pair for own, other in zip_longest(((5, count) for count in counts), others) for pair in (own, other)]
    assert Counted().faults(np.array([row for row in rows if row is not None]).T) == faults


def test_probes_are_left_out_and_duplicates_counted_once_at_their_first_arrival() -> None:
    arrivals = arrived((-1, 0, 1), (-2, 0, 1), (0, 10, 5), (2, 12, 5), (1, 11, 9), (0, 10, 50))
    assert arrivals.sequence.tolist() == [0, 1, 2]
    assert arrivals.duplicated == 1
    assert arrivals.latency_ms().tolist() == [5.0, 9.0, 5.0]


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles(np.arange(1.0, 101.0)) == [51.0, 91.0, 100.0]
    assert percentiles(np.array([7.0])) == [7.0, 7.0, 7.0]
    assert all(np.isnan(percentiles(np.array([]))))


def test_sustained_is_what_was_received_within_the_window() -> None:
    schedule = Schedule(START, 10, 0, 1)
    arrivals = arrived(*((i, i * 100, 150) for i in range(10)))
    assert arrivals.sustained_per_s(schedule) == 9
    assert arrived(*((i, i * 100, 5) for i in range(10))).sustained_per_s(schedule) == 10


def test_a_boundary_catches_what_was_under_way_when_the_flow_went_on() -> None:
    # Every 10 ms a record that takes 5 ms; from 100 ms to 200 ms nothing gets through, then all at once.
    records = [(i, i * 10.0, 205.0 - i * 10 if 10 <= i < 20 else 5.0) for i in range(40)]
    arrivals = arrived(*records)
    found = boundaries.find(arrivals, [START + 150 * MS])
    assert np.flatnonzero(found.caught).tolist() == [*range(10, 21)]
    assert found.stalls_ms == [105.0]


def test_what_still_waits_behind_a_boundary_counts() -> None:
    records = [(i, i * 10.0, max(5.0, 205.0 - i * 10)) if i >= 10 else (i, i * 10.0, 5.0) for i in range(20)]
    late = [(20, 206.0, 80.0), (21, 207.0, 80.0)]
    found = boundaries.find(arrived(*records, *late), [START + 150 * MS])
    assert not found.caught[20:].any()


def test_a_boundary_outside_what_is_measured_is_none() -> None:
    arrivals = arrived(*((i, i * 10.0, 5.0) for i in range(10)))
    found = boundaries.find(arrivals, [START - NS, START + NS])
    assert not found.caught.any()
    assert found.stalls_ms == []


def status(exchange: dict[str, int]) -> dict[str, Any]:
    workers = [
        {"level": 0, "gauges": {"hops": {"pack": {"50": 3}, "python": {"60": 1}}}},
        {"level": 1, "gauges": {"hops": {"exchange": exchange, "python": {"70": 2}, "wait": {"90": 2}}}},
        {"level": 1, "gauges": {"hops": {"exchange": exchange}, "turns": {"40": 3}}},
        {"level": 1, "gauges": {}},
    ]
    return {"workers": workers}


def test_hops_are_summed_over_workers_and_counted_from_one_status_to_the_next() -> None:
    before, after = hops.of_status(status({"80": 1})), hops.of_status(status({"80": 5, "90": 1}))
    assert before == {
        "pack": {50: 3}, "python 0": {60: 1}, "exchange 1": {80: 2}, "python 1": {70: 2}, "wait": {90: 2},
        "turn": {40: 3},
    }  # fmt: skip
    assert hops.between(before, after)["exchange 1"].counts == {80: 8, 90: 2}


def test_the_parts_of_the_median_add_up_to_it() -> None:
    counted = Histogram()
    counted.add(2 * MS, 100)
    arrivals = arrived(*((i, i * 10.0, 9.0) for i in range(100)))
    counts = {"pack": counted, "exchange 1": counted, "python 0": Histogram(), "unknown": counted}
    parts = breakdown(arrivals, counts)
    assert [part.name for part in parts] == ["generator", "stages", "exchange_1", "source_and_reader"]
    assert [part.how for part in parts] == ["measured", "counted", "counted", "remainder"]
    assert sum(part.p50_ms for part in parts) == pytest.approx(9.0)
    assert parts[0].p50_ms == 1.0, "half a tick"
    to_sink = breakdown(arrivals, {"source": counted, "wait": counted, "sink": counted, "exchange 2": counted})
    assert [part.name for part in to_sink] == ["generator", "source", "exchange_2", "wait", "sink", "reader"]


def observed(sent: int) -> Observed:
    cpu_s = {"jvm": 1.0, "workers": 0.5, "kafka": 4.0}
    return Observed(sent, sent, 0.1, 0.2, [START + 95 * MS], {}, cpu_s, Noise(0.05, 0.7), 9.0)


def test_lost_and_duplicated_cover_the_warm_up_and_percentiles_do_not() -> None:
    schedule = Schedule(START, 100, 0.05, 0.15)
    records = [(i, i * 10.0, 500.0 if i < 5 else 4.0) for i in range(20) if i not in (2, 17)]
    figures = Figures.of(arrived(*records, (0, 0.0, 600.0)), schedule, observed(20))
    assert (figures.lost, figures.duplicated, figures.records) == (2, 1, 14)
    assert (figures.p50_ms, figures.max_ms) == (4.0, 4.0)
    assert figures.caught == 1


def test_figures_of_nothing_are_null() -> None:
    figures = Figures.of(arrived((-1, 0, 1)), Schedule(START, 10, 0, 1), observed(10)).as_json()
    assert figures["lost"] == 10
    assert figures["p50_ms"] is None
    assert figures["boundary_stall_max_ms"] is None
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_cpu_is_reported_by_role_and_the_workers_by_record_that_came_out_in_the_window() -> None:
    """Two of 21 records came after the window, and one that was due before came in it."""
    schedule = Schedule(START, 100, 0.01, 0.2)
    arrivals = arrived((0, 0.0, 15.0), *((i, i * 10.0, 4.0 if i < 19 else 500.0) for i in range(1, 21)), (3, 30.0, 9.0))
    text = Figures.of(arrivals, schedule, observed(21)).as_json()
    assert text["cpu_s"] == 1.5, "Kafka is not measured"
    assert text["cpu_by_process_s"] == {"jvm": 1.0, "workers": 0.5, "kafka": 4.0}
    assert text["workers_us_per_record"] == pytest.approx(0.5 / 19 * 1e6, abs=0.01)


def test_workers_are_known_by_their_fork_server_and_everything_else_by_its_command() -> None:
    fork_server = "python -m lowtide.worker.forkserver"
    commands = {
        2: "java -cp x org.apache.spark.deploy.SparkSubmit pyspark-shell",
        3: "python -m lowtide.service",
        4: "python -m lowtide.service.tracker.main",
        5: fork_server,
        6: fork_server,
        7: fork_server,
        8: "java -cp /ivy/org.apache.zookeeper_zookeeper.jar kafka.Kafka server.properties",
        9: "java org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg",
        10: "python -m lowtide_bench.generator",
        11: "python -m lowtide_bench.skeleton.worker",
        12: "",
        13: "jspawnhelper",
        14: "",
        1: "lowtide bench latency",
    }
    parent_of = {1: 0, 2: 1, 3: 2, 4: 3, 5: 2, 6: 5, 7: 6, 8: 1, 9: 1, 10: 1, 11: 1, 12: 6, 13: 2, 14: 5}
    assert roles_of(commands, parent_of) == {
        2: "jvm", 3: "service", 4: "tracker", 5: "fork_server", 6: "workers", 7: "workers", 8: "kafka", 9: "zookeeper",
        10: "generator", 11: "workers", 12: "workers", 13: "jvm", 14: "workers", 1: "driver",
    }  # fmt: skip
    assert roles()[os.getpid()] == "driver"


def test_a_process_that_ended_in_the_window_counts_with_the_one_that_waited_for_it() -> None:
    """Of process 2's 1.5 s, which are 1's now, 1 s was before; 4 began in the window."""
    before = Look({}, {1: "workers", 2: "workers", 3: "jvm"}, {1: 5.0, 2: 1.0, 3: 2.0}, 100.0, 7.0, 50.0)
    after = Look({}, {1: "workers", 3: "jvm", 4: "workers"}, {1: 7.5, 3: 2.5, 4: 0.25}, 103.0, 7.5, 60.0)
    assert after.cpu_s(before) == {"workers": 1.75, "jvm": 0.5}
    noise = after.noise(before, low=True)
    assert noise.others == pytest.approx(0.025), "half a second is of orphans, which may be the run's"
    assert noise.machine == pytest.approx(0.3 / (os.cpu_count() or 1))


def test_ratios_say_how_many_times_as_much_as_each_other_subject() -> None:
    flow = {"p50_ms": 9.0, "p90_ms": 12.0, "p99_ms": None, "sustained_per_s": 100.0}
    bare = {"p50_ms": 3.0, "p90_ms": 4.0, "p99_ms": 5.0, "sustained_per_s": 100.0}
    found = ratios(flow, {"bare": bare, "skeleton": None})
    assert found["bare"] == {"p50_ms": 3.0, "p90_ms": 3.0, "p99_ms": None, "sustained_per_s": 1.0}
    assert set(found["skeleton"].values()) == {None}


def test_the_report_shows_a_column_for_each_subject_and_the_breakdown() -> None:
    schedule = Schedule(START, 100, 0, 0.2)
    arrivals = arrived(*((i, i * 10.0, 4.0) for i in range(20)))
    found = gaps(arrivals.received_ns, schedule.window_ns, [], [(START + 60 * MS, START + 62 * MS)])
    figures = {**Figures.of(arrivals, schedule, observed(20)).as_json(), **found.as_json()}
    where = {"cores": 2, "model": "a processor", "load": 1.5, "load_after": 2.5}
    run = {"flow": "passthrough", "rate": 100, "seconds": 0.2, "warmup_s": 0.0, "machine": where}
    run |= {"snapshot_every_s": 1.0, "state_keys": 1000, "snapshots": summary([Taken(0, START, START + NS, 3)])}
    others = {"bare": {**figures, "p50_ms": 1.0, "p99_ms": 2.0}, "skeleton": {**figures, "p50_ms": 2.5}}
    run |= {"subjects": ["bare", "skeleton", "flow"], **others, "ratios": ratios(figures, others)}
    out = io.StringIO()
    Console(file=out, width=160).print(report({**run, **figures}))
    text = out.getvalue()
    text += markdown([{**run, **figures, "grouping": "ordered"}])
    assert "p50 4.0 x bare, 1.6 x skeleton; p99 2.0 x bare, 1.0 x skeleton" in text
    assert re.search(r"around it: Kafka\W+4.00\W+4.00\W+4.00", text)
    assert "| 4.0, 2.0 | 1.6, 1.0 |" in text
    assert "snapshots, 1,000 keys in state before" in text
    assert "| 100 | passthrough, ordered | 100 | 4.0 |" in text
    for words in (
        "passthrough at 100 records/s",
        "bare loop",
        "skeleton",
        "without the records that 1 epoch boundaries held up",
        "p99 with epoch boundaries",
        "remainder",
        "a processor",
        "keys in state",
    ):
        assert words in text


def test_a_report_of_the_skeleton_alone_has_its_column_and_no_ratio() -> None:
    schedule = Schedule(START, 100, 0, 0.2)
    arrivals = arrived(*((i, i * 10.0, 4.0) for i in range(20)))
    figures = {
        **Figures.of(arrivals, schedule, observed(20)).as_json(),
        **gaps(arrivals.received_ns, schedule.window_ns, []).as_json(),
    }
    where = {"cores": 2, "model": "a processor", "load": 1.5, "load_after": 2.5}
    run = {"flow": "passthrough", "rate": 100, "seconds": 0.2, "warmup_s": 0.0, "machine": where}
    run |= {"subjects": ["skeleton"], "bare": None, "skeleton": figures, "snapshot_every_s": 0.0, "state_keys": 0}
    run |= {"ratios": ratios({}, {"bare": None, "skeleton": figures}), "grouping": "ordered"}
    out = io.StringIO()
    Console(file=out, width=160).print(report(run))
    text = out.getvalue() + markdown([run])
    assert "| 100 | skeleton | 100 | 4.0 |" in text
    assert " x " not in text
    assert "where the time goes" not in text


def test_processes_are_found_with_their_descendants_and_cpu_time() -> None:
    assert descendants({2}, {1: 0, 2: 1, 3: 2, 4: 3, 5: 1}) == {2, 3, 4}
    assert 0 < cpu_s(os.getpid()) <= busy_s()
    assert cpu_s(0) == 0
    assert 0 <= orphans_s() < busy_s()


def test_the_cpu_of_a_child_counts_once_it_was_waited_for() -> None:
    before = cpu_s(os.getpid())
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    with subprocess.Popen([sys.executable, "-c", burn]) as child:
        child.wait()
    assert cpu_s(os.getpid()) - before >= 0.25
