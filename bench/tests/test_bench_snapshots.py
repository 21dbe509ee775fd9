"""The pure parts of the measurements of snapshots: phases, gaps, outages, accounts; and a store in a folder."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lowtide.cli.main import commands
from lowtide.errors import ServiceUnavailable
from lowtide.worker import part_chains, saver
from lowtide_bench import changing, recovering_report, storing_report, variants_report
from lowtide_bench.arrivals import Arrivals
from lowtide_bench.companion import Companion
from lowtide_bench.counted import Counted, state_message
from lowtide_bench.gaps import Gaps, gaps
from lowtide_bench.killer import Kill
from lowtide_bench.outages import Outage, outage
from lowtide_bench.pacer import Pacer, Taken, summary
from lowtide_bench.phases import Course, Phase, whole
from lowtide_bench.recovering import outages, spreads
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.stored import Kept
from lowtide_bench.storing import run as run_store
from lowtide_bench.systems import System
from lowtide_bench.tables import Table, markdown
from lowtide_bench.variants import compared, variants_of
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_snapshots.stores.folder import UNFINISHED

START = 1_700_000_000 * NS
MS = 1_000_000
WHERE = {"cores": 2, "model": "a processor", "load": 1.5, "load_after": 2.5}


def at(*times_ms: float) -> Any:
    return np.array([START + round(each * MS) for each in times_ms], np.int64)


def received(times_ms: list[float], latency_ms: float = 5.0) -> Arrivals:
    times = at(*times_ms)
    return Arrivals(np.arange(len(times)), times - round(latency_ms * MS), times // MS, times, 0, 0)


# -- phases ------------------------------------------------------------------------------------------------------------


def test_each_turn_has_a_window_of_its_own_within_one_even_load() -> None:
    course = Course((0, 10, 1), 2, 5.0, 2.0)
    load = course.load(100, 3.0)
    assert load.seconds == 6 * 5 + 5 * 2
    schedule = load.schedule(START)
    phases = course.phases(schedule)
    assert [phase.every_s for phase in phases] == [0, 10, 1, 0, 10, 1]
    assert phases[0].start_ns == START + 3 * NS
    assert all(phase.end_ns - phase.start_ns == 5 * NS for phase in phases)
    assert all(after.start_ns - phase.end_ns == 2 * NS for phase, after in pairwise(phases))
    assert phases[-1].end_ns == schedule.window_ns[1]
    assert course.turns_of(10) == [1, 4]


def test_one_pace_for_the_whole_window_leaves_out_the_warm_up() -> None:
    assert whole(2, Schedule(START, 10, 3, 4)) == [Phase(2, START + 3 * NS, START + 7 * NS)]


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_gaps_are_distinguished_by_what_fell_into_them() -> None:
    # 10 ms apart, but for 40 ms from 110, 90 ms from 250, 300 ms from 440.
    times = [*range(0, 120, 10), *range(150, 260, 10), *range(340, 450, 10), *range(740, 900, 10)]
    snapshot, boundary = (START + 240 * MS, START + 300 * MS), START + 600 * MS
    found = gaps(at(*times), (START, START + NS), [boundary], [snapshot])
    assert found == Gaps(300.0, 90.0, 90.0, 40.0)


def test_a_gap_counts_if_it_begins_in_the_window_and_needs_two_deliveries() -> None:
    times = at(0, 50, 60, 70, 270, 600)
    assert gaps(times, (START + 50 * MS, START + 100 * MS), []).longest_ms == 200.0
    assert gaps(at(5), (START, START + NS), []) == Gaps(None, None, None, None)
    assert gaps(at(5, 5, 8, 8), (START, START + NS), []).longest_ms == 3.0


def test_the_longest_of_several_windows_passes_over_those_that_have_none() -> None:
    several = [Gaps(3.0, 2.0, None, 2.0), Gaps(9.0, 1.0, None, 1.0), Gaps(None, None, None, None)]
    assert Gaps.longest_of(several) == Gaps(9.0, 2.0, None, 2.0)


# -- kills -------------------------------------------------------------------------------------------------------------


def test_output_is_back_behind_the_longest_gap_that_follows_a_kill() -> None:
    # Killed at 100 ms; some of what was under way still comes; 2 s later the backlog, late at first.
    before, after = list(range(0, 110, 10)), [2000, 2010, 2500, 2600]
    arrivals = received([*before, 130, *after])
    late = arrivals.received_ns - np.array([5 * MS] * 12 + [1_800 * MS, 1_700 * MS, 900 * MS, 5 * MS], np.int64)
    slow = Arrivals(arrivals.sequence, late, arrivals.stamp_ms, arrivals.received_ns, 0, 0)
    assert outage(slow, START + 100 * MS, START + 3 * NS) == Outage(1.9, 1.87, 2.4)


def test_output_that_does_not_come_back_has_no_time() -> None:
    assert outage(received([0, 10]), START + 500 * MS, START + NS) == Outage(None, None, None)
    assert outage(received([0, 490, 1700]), START + 500 * MS, START + NS).back_s == 1.2, "late is not never"


def test_each_kill_is_looked_at_up_to_the_next() -> None:
    arrivals = received([*range(0, 1000, 10), *range(1500, 3000, 10), *range(6000, 9000, 10)])
    kills = [
        Kill("worker 1/0", START + 1000 * MS, START + 1400 * MS, 2, 3.0),
        Kill("worker 1/1", START + 3000 * MS, START + 5500 * MS, 3, None),
    ]
    first, second = outages(arrivals, Schedule(START, 100, 1, 8), kills)
    assert (first["output_back_s"], first["ready_s"], first["incarnation"]) == (0.5, 0.4, 2)
    assert (second["output_back_s"], second["ready_s"]) == (3.0, 2.5)
    found = spreads([first, second])
    assert (found["output_back_p50_s"], found["output_back_max_s"]) == (3.0, 3.0)
    assert found["commit_age_max_s"] is None, "one of them is not known"
    text = table_text(
        recovering_report.tables(
            {"flow": "running-count", "rate": 10, "state_keys": 5, "kill": "worker", "kills": [first, second], **found}
            | {"snapshot_every_s": 5.0, "snapshots": summary([])}
        )
    )
    assert "| worker 1/1 | 2.50 | 3.00 |" in text


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_what_was_taken_is_summed_up_without_what_failed() -> None:
    good = [Taken(0, START, START + each * NS, parts=each, bytes=each * 100, sealed_s=each / 2) for each in (1, 2, 6)]
    found = summary([*good, Taken(0, START, START + 99 * NS, why="the store is full")], left_out=4)
    assert (found["taken"], found["failed"], found["left_out"], found["why"]) == (3, 1, 4, ["the store is full"])
    assert (found["parts_p50"], found["parts_max"]) == (2, 6)
    assert (found["sealed_s_p50"], found["sealed_s_max"]) == (1.0, 3.0)
    assert (found["committed_s_p50"], found["committed_s_max"]) == (2.0, 6.0)
    assert summary([])["bytes_p50"] is None


def test_variants_stand_to_the_one_without_snapshots() -> None:
    def variant(every: float, half: float, gap: float | None) -> dict[str, Any]:
        times = {"p50_ms": half, "p99_ms": 2 * half, "p99_all_ms": 3 * half, "max_ms": 9.0, "gap_quiet_max_ms": gap}
        return {"every_s": every, **times, "gap_max_ms": 99.0, "snapshots": summary([])}

    found = compared([variant(1, 12.0, 40.0), variant(0, 10.0, 25.0), variant(9, 10.0, None)])
    assert [each["p50_change"] for each in found] == [0.2, 0.0, 0.0]
    assert [each["gap_change_ms"] for each in found] == [15.0, 0.0, None]
    assert compared([variant(1, 12.0, 40.0)])[0]["p50_change"] is None
    result = {"flow": "running-count", "rate": 50_000, "state_keys": 10**6, "variants": found}
    text = table_text(variants_report.tables(result))
    assert "| snapshots | every 1 s | none | every 9 s |" in text
    assert "| p50, to none | +20.0% | +0.0% | +0.0% |" in text


def test_a_variant_has_what_was_due_in_its_own_turns() -> None:
    course = Course((0, 5), 2, 1.0, 1.0)
    schedule = course.load(100, 1.0).schedule(START)
    due = START + np.arange(schedule.count) * (NS // 100)
    # The records of its second turn are slow, those of its first are not.
    slow = (due >= START + 7 * NS) & (due < START + 8 * NS)
    came = due + np.where(slow, 60, 5) * MS
    arrivals = Arrivals(np.arange(len(due)), due, due // MS, came, 0, 0)
    pacer = Pacer(course.phases)
    pacer.taken += [Taken(1, START + 3 * NS, START + 4 * NS, parts=7), Taken(3, START + 7 * NS, START + 8 * NS)]
    none, every = variants_of(course, schedule, arrivals, [], pacer)
    assert (none["records"], none["p99_ms"], none["gap_quiet_max_ms"]) == (200, 5.0, 10.0)
    assert (every["records"], every["p50_ms"], every["p99_ms"]) == (200, 60.0, 60.0)
    assert (every["p99_change"], every["gap_change_ms"]) == (11.0, 0.0)
    assert (none["snapshots"]["taken"], every["snapshots"]["taken"], every["snapshots"]["parts_max"]) == (0, 2, 7)
    boundary = START + round(7.5 * NS)
    _, caught = variants_of(course, schedule, arrivals, [boundary], pacer)
    assert caught["records"] == 200, "a boundary takes nothing from what counts, only from the percentiles beside it"


class Idle(Companion):
    """Waits until it is ended, or fails at once."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.waited: bool | None = None
        self._raised = error

    def go(self, system: System, schedule: Schedule) -> None:
        if self._raised is not None:
            raise self._raised
        self.waited = self.wait_until(time.time_ns() + 3600 * NS)


def test_a_companion_ends_at_once_and_its_error_is_heard() -> None:
    idle, failing = Idle(), Idle(ServiceUnavailable("the job is gone"))
    system: Any = None
    for companion in (idle, failing):
        companion.begin(system, Schedule(START, 1, 0, 1))
        companion.end()
    idle.check()
    assert idle.waited is False
    with pytest.raises(ServiceUnavailable, match="the job is gone"):
        failing.check()


def test_a_snapshot_that_falls_due_while_another_is_under_way_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_client: object, turn: int) -> Taken:
        asked_ns = time.time_ns()
        time.sleep(0.25)
        return Taken(turn, asked_ns, time.time_ns())

    monkeypatch.setattr("lowtide_bench.pacer.take", slow)
    now = time.time_ns()
    pacer = Pacer(lambda _: [Phase(0, now, now + NS), Phase(0.1, now, now + round(0.85 * NS))])
    system: Any = NoSystem()
    pacer.go(system, Schedule(now, 1, 0, 1))
    assert {each.turn for each in pacer.taken} == {1}
    found = pacer.of_turns([1])
    assert found["taken"] + found["left_out"] == 9, "each beat of 0.85 s is one or the other"
    assert found["taken"] <= 3


class NoSystem:
    """A system that is never asked for anything but its control API."""

    def client(self) -> None:
        return None


# -- state -------------------------------------------------------------------------------------------------------------


def test_a_record_that_only_fills_the_state_is_in_no_figure_and_has_a_key_of_its_own() -> None:
    records = Counted()
    messages = [state_message(number, START) for number in range(5000)]
    assert len({key for key, _ in messages}) == 5000
    assert {len(key) for key, _ in messages} == {8}
    assert {key for key, _ in messages}.isdisjoint(records.message(number, START)[0] for number in range(5000))
    values = [value for _, value in messages] + [records.message(0, START)[1]]
    known = records.read(values)
    assert len(np.unique(known[0])) == 5001
    columns = np.vstack((known[:2], known[1] // MS, known[1], known[2], np.ones(5001, np.int64)))
    arrivals = Arrivals.of(columns, records)
    assert (arrivals.sequence.tolist(), arrivals.faults) == ([0], 0)
    doubled = Arrivals.of(np.hstack((columns, columns[:, :1])), records)
    assert doubled.faults == 1, "a key of the state that was counted twice is seen"


@pytest.mark.parametrize(("kept", "state_bytes"), [("scan", 0), ("windows", 50)])
def test_state_is_written_to_a_store_and_read_back_and_nothing_is_left(
    tmp_path: Path, state_bytes: int, kept: Kept
) -> None:
    result = run_store(2000, state_bytes, kept, 2, [StoreSetting(str(tmp_path))], lambda _: None)
    (store,) = result["stores"]
    assert result["steps"]["parts"] == 128
    assert result["steps"]["raw_bytes"] >= 2000 * (8 + 8 + state_bytes)
    assert result["steps"]["parquet_bytes"] > 2000 * state_bytes
    assert state_bytes < result["memory_bytes_per_key"] < state_bytes + 1_000
    assert all(store[name]["median"] > 0 for name in ("pause_ms", "write_s", "write_raw_mb_per_s", "read_s"))
    assert store["unchanged_ms"]["max"] < 1e3 * store["write_s"]["min"], "nothing is written again"
    # A machine that is full has the idle writer killed over a part; what it leaves is swept a day later.
    left = [file for file in tmp_path.rglob("*") if file.is_file() and not file.name.endswith(UNFINISHED)]
    assert left == []
    assert "| written, MB/s raw |" in table_text(storing_report.tables({**result, "machine": WHERE}))


def test_after_few_changes_deltas_are_written_and_few_units_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_chains, "LEAST_BYTES", 0)
    monkeypatch.setattr(part_chains, "BYTES_SHARE", 0)
    monkeypatch.setattr(saver, "PATIENCE_S", 0.0)
    found = changing.run(2_000, 50, 20, StoreSetting(str(tmp_path)), lambda _: None)
    whole, deltas = found["ways"][changing.WHOLE], found["ways"][changing.DELTAS]
    assert whole["whole"]["mean"] == whole["parts"]["mean"]
    assert 0 < deltas["whole"]["mean"] < whole["whole"]["mean"] / 2
    assert deltas["parts"]["mean"] == pytest.approx(deltas["whole"]["mean"] + 1, abs=0.1), "small deltas are one part"
    assert deltas["mb"]["mean"] < whole["mb"]["mean"]
    left = [file for file in tmp_path.rglob("*") if file.is_file() and not file.name.endswith(UNFINISHED)]
    assert left == []
    assert "of these whole" in table_text([storing_report._after_changes(found)])


@pytest.mark.s3
def test_state_is_written_to_s3_beside_the_folder_and_nothing_is_left(tmp_path: Path, s3: Any, bucket: str) -> None:
    url = f"s3://{bucket}/bench"
    given = ["--set", f"snapshots.url={url}", "--set", f"snapshots.endpoint={s3.endpoint}"]
    options = ["--set", "snapshots.region=us-east-1", "--folder", str(tmp_path), "--keys", "500", "--trials", "1"]
    done = CliRunner().invoke(commands, ["bench", "store", *options, *given, "--json"], standalone_mode=False)
    assert done.exception is None, done.output
    folder, remote = json.loads(done.output.splitlines()[-1])["stores"]
    assert folder["where"].startswith(str(tmp_path))
    assert remote["where"].startswith(url)
    assert remote["write_parquet_mb_per_s"]["median"] > 0
    store = open_store(StoreSetting(f"s3://{bucket}", endpoint=s3.endpoint, region="us-east-1"))
    assert store.names("") == []
    store.close()


def table_text(tables: Any) -> str:
    found: list[Table] = list(tables)
    return markdown(found, "here")


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["latency", "--flow", "passthrough", "--state-keys", "5"], "fills the state of running-count"),
        (["latency", "--tracking", "off"], "No such option"),
        (["snapshots", "--every", "0,1,1"], "twice"),
        (["snapshots", "--every", "0,-1"], "not a time in seconds"),
        (["snapshots", "--every", "often"], "is not a number of seconds"),
        (["recovery"], "--kill"),
        (["store", "--keys", "0"], "--keys"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(commands, ["bench", *arguments])
    assert done.exit_code == 2
    assert said in done.output
