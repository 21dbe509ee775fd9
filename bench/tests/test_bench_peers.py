"""The arithmetic of `lowtide bench peers`: verdicts, lags, the table. `make peers` shows the measuring itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.run import Message, run_log
from lowtide_bench.arrivals import Arrivals, latency_of_due_ms
from lowtide_bench.cli.peers import peers
from lowtide_bench.counted import Counted
from lowtide_bench.documents import DOCUMENTS
from lowtide_bench.flows import FLOWS, records_of
from lowtide_bench.peers import FLOWS as PEER_FLOWS
from lowtide_bench.peers import NAMES, Extent
from lowtide_bench.peers.judge import RESULTS, Verdict, judge
from lowtide_bench.peers.measure import Measurement, hopeless
from lowtide_bench.peers.program import why
from lowtide_bench.peers.programs.bare_count import of_documents
from lowtide_bench.peers.programs.steps import STEPS
from lowtide_bench.peers.systems import SYSTEMS
from lowtide_bench.peers.systems.flink import newest_checkpoint
from lowtide_bench.peers.table import table
from lowtide_bench.quiet import NOTE
from lowtide_bench.ramp import WIDE, Ramp, steps
from lowtide_bench.record import Int64s
from lowtide_bench.schedule import NS

SENT = 3_000
PARTITIONS = 2


def results(numbers: list[int], seen: dict[bytes, int]) -> list[bytes]:
    """A counting system's output for these records, its state being `seen`."""
    values = []
    for number in numbers:
        key, value = Counted().message(number, 1_000 + number)
        assert key is not None
        seen[key] = seen.get(key, 0) + 1
        values.append(value[:24] + seen[key].to_bytes(8, "little"))
    return values


def verdict(values: list[bytes]) -> Verdict:
    """Judge these results as the reader keeps them."""
    known = Counted().read(values)
    stamps = np.zeros((2, len(values)), np.int64)
    return judge(np.vstack((known[:2], stamps, known[2:])), SENT, PARTITIONS)


def all_numbers() -> list[int]:
    return [-2, -1, *range(SENT)]


def test_a_run_in_which_nothing_happened_is_clean() -> None:
    assert verdict(results(all_numbers(), {})) == Verdict(0, 0, 0)


def test_results_that_never_came_are_lost() -> None:
    values = results(all_numbers(), {})
    del values[100:103]
    assert verdict(values) == Verdict(lost=3, duplicated=0, wrong=3)


def test_a_replay_from_a_checkpoint_doubles_and_counts_alike() -> None:
    seen: dict[bytes, int] = {}
    values = results(all_numbers()[:1_000], seen)
    checkpoint = dict(seen)
    values += results(all_numbers()[1_000:1_500], seen)
    values += results(all_numbers()[1_000:], checkpoint)
    assert verdict(values) == Verdict(lost=0, duplicated=500, wrong=0)


def test_a_replay_onto_a_state_that_has_counted_already_is_wrong() -> None:
    seen: dict[bytes, int] = {}
    values = results(all_numbers()[:1_500], seen)
    values += results(all_numbers()[1_000:], seen)
    found = verdict(values)
    assert (found.lost, found.duplicated) == (0, 500)
    assert found.wrong == 500, "each record that is counted twice makes a number that nobody should see"


def test_a_state_that_was_lost_is_wrong_though_every_record_has_one_result() -> None:
    values = results(all_numbers()[:1_500], {}) + results(all_numbers()[1_500:], {})
    found = verdict(values)
    assert (found.lost, found.duplicated) == (0, 0)
    assert found.wrong > 0


class Sent:
    """A message as librdkafka gives it."""

    def __init__(self, flow: str, number: int) -> None:
        self._value = records_of(flow).message(number, 1_000 + number)[1]

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


def of_flow(flow: str, numbers: list[int]) -> list[bytes]:
    """What the programs' steps make of these documents."""
    return [value for _, value in of_documents(flow)(Sent(flow, number) for number in numbers)]


def verdict_of(flow: str, values: list[bytes], sent: int) -> Verdict:
    known = records_of(flow).read(values)
    return judge(np.vstack((known[:2], known[:2], known[2:])), sent, PARTITIONS, flow)


@pytest.mark.parametrize("flow", STEPS)
def test_the_steps_of_the_peers_do_what_lowtides_flow_does(flow: str) -> None:
    numbers = [-1, *range(DOCUMENTS + 300)]
    records = records_of(flow)
    log = []
    for place, number in enumerate(numbers):
        key, value = records.message(number, 1_000 + number)
        log.append(Message(Position(0, place), place, key, value))
    plan = compile_flow(FLOWS[flow].make("job", "in", "out"), parallelism=1)
    (source,) = plan.sources()
    (delivered,) = run_log(plan, {source.name: log})[0].values()
    decoded = [[json.loads(value) for value in values] for values in (
        of_flow(flow, numbers), [message.value or b"" for message in delivered],
    )]  # fmt: skip
    ours, theirs = ({(each["word"], each.get("number", each.get("count"))): each for each in one} for one in decoded)
    assert ours == theirs
    assert len(ours) == len(decoded[0]) == len(decoded[1])


@pytest.mark.parametrize("flow", STEPS)
def test_documents_are_judged_by_their_words(flow: str) -> None:
    sent = DOCUMENTS + 200
    values = of_flow(flow, [-2, -1, *range(sent)])
    assert len(values) == PARTITIONS + records_of(flow).outputs(sent)
    assert verdict_of(flow, values, sent) == Verdict(0, 0, 0)
    assert verdict_of(flow, values[:-3], sent) == Verdict(lost=3, duplicated=0, wrong=3)
    assert verdict_of(flow, [*values, *values[-5:]], sent) == Verdict(lost=0, duplicated=5, wrong=0)
    forgot = of_flow(flow, [-2, -1, *range(1_000)]) + of_flow(flow, list(range(1_000, sent)))
    assert verdict_of(flow, forgot, sent).wrong > 0


@pytest.mark.parametrize("flow", PEER_FLOWS)
def test_every_flow_of_the_peers_is_one_of_lowtides_and_is_judged(flow: str) -> None:
    due = [identity for number in range(1_500) for identity, _ in RESULTS[flow].results(number)]
    assert len(due) == len(set(due)) == FLOWS[flow].records().outputs(1_500)


def test_a_system_that_cannot_do_a_flow_says_why() -> None:
    extent = Extent(flow="inverted-index", rates=(100, 200), seconds=1, warmup_s=0, limits=False, kill=False, tries=1)
    here: Any = None
    found = Measurement(SYSTEMS["spark-real-time"], here, extent, print).rows()
    assert [row["rate"] for row in found] == [100, 200]
    assert all("takes no Python" in row["error"] for row in found)


def arrivals(sent_ns: Int64s, late_ns: Int64s, came: Any = slice(None)) -> Arrivals:
    numbers = np.arange(len(sent_ns))
    columns = np.array((numbers, sent_ns, sent_ns // 1_000_000, sent_ns + late_ns))[:, came]
    return Arrivals(columns[0], columns[1], columns[2], columns[3], 0)


def ramp_and_due(*rates: int) -> tuple[Ramp, Int64s]:
    ramp = Ramp(1_000 * NS, rates, 4.0)
    return ramp, np.array([ramp.time_of(number) for number in range(ramp.count)])


def queue_behind(due: Int64s, capacity: int) -> Int64s:
    """The delay of each record where so many are processed a second, in order."""
    done, late = 0, np.zeros_like(due)
    for number, at in enumerate(due.tolist()):
        done = max(done, at) + NS // capacity
        late[number] = done - at
    return late


def test_the_rates_below_the_capacity_are_kept_up_with() -> None:
    ramp, due = ramp_and_due(100, 150, 200, 300)
    found = steps(arrivals(due, queue_behind(due, 220)), ramp, WIDE)
    assert [step.kept for step in found] == [True, True, True, False]


def test_batches_that_grow_with_the_rate_are_kept_up_with() -> None:
    ramp, due = ramp_and_due(100, 200)
    late = np.where(due < ramp.start_of(1), NS, 3 * NS // 2)
    assert [step.kept for step in steps(arrivals(due, late), ramp, WIDE)] == [True, True]


def test_a_step_whose_records_never_came_is_not_kept() -> None:
    ramp, due = ramp_and_due(100, 200)
    came = np.arange(len(due)) < 600
    found = steps(arrivals(due, np.full_like(due, 1_000_000), came), ramp, WIDE)
    assert [step.kept for step in found] == [True, False]
    assert found[1].as_json()["lag_ms"] is None


def test_a_document_is_due_with_all_its_words() -> None:
    ramp, due = ramp_and_due(100, 150)
    sent = np.repeat(due, 20)
    numbers = np.repeat(np.arange(len(due), dtype=np.int64), 20)
    late = np.full_like(sent, 1_000_000)
    came = np.arange(len(sent)) % 20 < 8
    some = Arrivals(numbers[came], sent[came], sent[came], (sent + late)[came], 0)
    assert [step.kept for step in steps(some, ramp, WIDE)] == [True, True]
    assert [step.kept for step in steps(some, ramp, WIDE, lambda count: 20 * count)] == [False, False]


def test_records_that_never_came_count_as_late_without_end() -> None:
    due = np.arange(100) * NS
    some = arrivals(due, np.full_like(due, 2_000_000), np.arange(100) < 95)
    assert latency_of_due_ms(some, 100, 50) == 2.0
    assert latency_of_due_ms(some, 100, 99) == float("inf")


def run(**more: Any) -> dict[str, Any]:
    clean = {"lost": 0, "duplicated": 0, "wrong": 0, "killed_of": 50_000}
    limit = {"sustained_per_s": 14_000, "sustained_at_least": False, "steps": [{"rate": 1_000}]}
    head = {"system": "one", "title": "One", "delivery": "exactly once", "rate": 1_000}
    return {**head, "p50_ms": 41.25, "p99_ms": 173.4, **limit, **clean, **more}


def rows(*runs: dict[str, Any]) -> list[str]:
    return table({"runs": list(runs)}).splitlines()[2:]


def test_the_table_has_a_row_per_system_and_a_column_per_rate() -> None:
    lines = table({"runs": [run(), run(rate=50_000, p50_ms=None, p99_ms=None)]}).splitlines()
    assert lines == [
        "|  | delivery | after one SIGKILL | 1,000 records/s | 50,000 records/s | sustained |",
        "|---|---|---|---|---|---|",
        "| One | exactly once | nothing lost, doubled or wrong of 50,000 | 41.2 / 173 ms | - | 14,000/s |",
    ]


def test_the_table_tells_what_a_kill_cost_and_limits_that_were_not_found() -> None:
    (lossy,) = rows(run(lost=1, duplicated=20_989, sustained_at_least=True))
    assert "| 1 lost, 20,989 duplicated of 50,000 |" in lossy
    assert lossy.endswith("| ≥ 14,000/s |")
    (slow,) = rows(run(sustained_per_s=0, steps=[{"rate": 500}, {"rate": 250}]))
    assert slow.endswith("| < 250/s |")


def test_the_table_marks_what_was_disturbed_and_says_what_that_means() -> None:
    lines = table({"runs": [run(marked=True, limit_marked=True), run(rate=2_000, marked=False)]}).splitlines()
    assert "| 41.2 / 173 ms † | 41.2 / 173 ms | 14,000/s † |" in lines[2]
    assert lines[3:] == ["", NOTE]


def test_the_table_says_what_could_not_be_measured() -> None:
    (row,) = rows({"system": "one", "title": "One", "delivery": "x", "rate": 1_000, "error": "no such package"})
    assert row == "| One | x | not measured | not measured | not measured |"


def test_a_saved_result_becomes_a_table_without_measuring(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    file.write_text("progress\n" + json.dumps({"runs": [run()]}) + "\n")
    done = CliRunner().invoke(peers, ["--from", str(file), "--table"])
    assert done.exit_code == 0, done.output
    assert "| One | exactly once |" in done.output
    assert json.loads(done.output.splitlines()[-1]) == {"runs": [run()]}


def test_a_system_that_is_not_there_is_refused_with_those_that_are() -> None:
    done = CliRunner().invoke(peers, ["--systems", "bare,flonk"])
    assert done.exit_code == 2
    assert "'flonk' is none of lowtide, " in done.output
    assert "bytewax" in done.output


def test_every_system_has_its_name() -> None:
    assert tuple(SYSTEMS) == NAMES


@pytest.mark.parametrize("kind", SYSTEMS.values(), ids=list(SYSTEMS))
def test_the_rates_of_every_system_rise(kind: Any) -> None:
    assert list(kind.rates) == sorted(set(kind.rates))


def test_a_rate_far_above_the_limit_is_not_measured_but_one_below_all_that_was_tried_is() -> None:
    found = {"sustained_per_s": 14_000, "steps": [{"rate": 10_000}, {"rate": 14_000}, {"rate": 20_000}]}
    assert [hopeless(rate, found) for rate in (1_000, 14_000, 20_000, 50_000)] == [False, False, False, True]
    none_kept = {"sustained_per_s": 0, "steps": [{"rate": 10_000}, {"rate": 2_500}]}
    assert [hopeless(rate, none_kept) for rate in (1_000, 2_500)] == [False, True]
    assert not hopeless(50_000, {"sustained_per_s": None})


def test_the_cause_is_found_in_a_long_log() -> None:
    traces = [f"  at some.Class(Class.java:{line})" for line in range(100)]
    log = ["INFO begun", "java.lang.IllegalStateException: no room", *traces, "Plan: Project", "  Aggregate"]
    assert why("\n".join(log)) == "java.lang.IllegalStateException: no room"
    assert why("begun\n\nkilled\n") == "begun / killed"


def test_the_newest_complete_checkpoint_is_the_one_to_go_on_from(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    for job, number in (("killed", 9), ("restored", 10), ("restored", 11)):
        (tmp_path / job / f"chk-{number}").mkdir(parents=True)
    for job, number in (("restored", 10), ("killed", 9)):
        (tmp_path / job / f"chk-{number}" / "_metadata").touch()
    assert newest_checkpoint(tmp_path) == tmp_path / "restored" / "chk-10"
