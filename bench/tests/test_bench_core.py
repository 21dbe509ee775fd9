"""The benchmark of the core: every figure is there, and what it times does what it should."""

import gc
import io
import json
from typing import Any

import pytest
from rich.console import Console

from lowtide.cli.main import run
from lowtide.process.interpreter import THRESHOLDS, set_up_collector
from lowtide_bench import core, core_levels, core_report, core_timing
from lowtide_bench.core_levels import FILLING_SIZE, KINDS, Receiver, Records, Sender, TrackerServer, plan_of, recorded
from lowtide_bench.core_timing import STATES, Samples, Timer, spread
from lowtide_bench.tables import markdown, shown

SIZES = (1, 3)


@pytest.fixture(autouse=True)
def _collector_as_before() -> Any:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.fixture(scope="module", autouse=True)
def _few_warm_calls() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "WARM_SAMPLES", 1)
        patch.setattr(core_levels, "FILLING", 2)
        patch.setattr(core, "FILLING", 2)
        yield


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return core.run(SIZES, STATES, 2, lambda _: None)


def test_every_case_has_every_step(result: dict[str, Any]) -> None:
    cases = result["cases"]
    found = [(case["records"], case["state"], case["size"]) for case in cases]
    assert found == [(kind, state, size) for kind in KINDS for size in SIZES for state in STATES]
    for case in cases:
        assert tuple(case["us"]) == core.STEPS
        assert all(us > 0 for us in case["us"].values()), case
        assert case["way_us"] == pytest.approx(sum(case["us"][step] for step in core.WAY), abs=0.02)
        assert case["way_us_per_record"] == pytest.approx(case["way_us"] / case["size"], abs=0.01)
        assert 0 <= case["quiet_share"] <= 1
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_every_stage_is_part_of_some_step(result: dict[str, Any]) -> None:
    """A function that is no longer called on the way would be a stage that no step has."""
    found = {stage for case in result["cases"] for stages in case["stages_us"].values() for stage in stages}
    assert found == {stage for stage, _, _ in core.STAGES} | {"between"}


def test_nothing_stays_watched(result: dict[str, Any]) -> None:
    assert all(getattr(owner, name).__name__ != "timed" for _, owner, name in core.STAGES if result)


def test_the_tables_have_all_steps_sizes_and_the_machine(result: dict[str, Any]) -> None:
    out = io.StringIO()
    Console(file=out, width=250).print(shown(core_report.tables(result), core_report.origin(result)))
    for text in (out.getvalue(), markdown(core_report.tables(result), core_report.origin(result))):
        for words in (*core.STEPS, "both levels", "cold", "warm", "exchange", result["machine"]["model"]):
            assert words in text


def test_the_command_prints_one_object_as_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "core", "--json", "--markdown", "--cold", "--sizes", "1", "--samples", "2"]) == 0
    text = capsys.readouterr().out
    cases = json.loads(text.splitlines()[-1])["cases"]
    assert [(case["records"], case["state"], case["size"]) for case in cases] == [(kind, "cold", 1) for kind in KINDS]
    assert "| both levels |" in text


def test_the_command_refuses_sizes_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "core", "--sizes", "0"]) != 0
    assert "0 is less than 1" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7])
def test_each_record_comes_out_once_and_in_order(kind: Records, size: int) -> None:
    """All but those of the last tick, which min time has not passed."""
    recording = recorded(kind, size, 20, target=0)
    sent = core_levels.FILLING * FILLING_SIZE + 20 * size
    outputs = [message for outputs in recording.outputs for message in outputs]
    per_tick = -(-size // min(size, core_levels.SPAN_TICKS))
    assert sent - per_tick <= len(outputs) < sent
    for lane in {message[1] for message in outputs}:
        stamps = [message[4] for message in outputs if message[1] == lane]
        assert stamps == sorted(stamps)
    if kind == "json":
        counts = [json.loads(message[3] or b"") for message in outputs]
        by_user = {
            user: [each["clicks"] for each in counts if each["user"] == user] for user in {c["user"] for c in counts}
        }
        assert all(clicks == list(range(1, len(clicks) + 1)) for clicks in by_user.values())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_replayed_gives_the_same_bytes(kind: Records) -> None:
    recording = recorded(kind, 5, 10, target=0)
    plan = plan_of(kind)
    sender, receiver, tracker = Sender(plan), Receiver(plan, 0), TrackerServer(plan)
    for place, message in enumerate(recording.messages):
        assert [frame for _, frame in sender.rows(message)] == recording.frames[place]
        receiver.frames(recording.frames[place])
        flushes = sender.flush() + receiver.flush()
        assert flushes == recording.flushes[place]
        assert tracker.receive(flushes) == recording.notices[place]
        sender.notice(recording.notices[place])
        assert receiver.notice(recording.notices[place]) == recording.outputs[place]


def test_samples_are_of_quiet_moments_or_scaled_by_their_calibration() -> None:
    quiet, noisy = Samples(), Samples()
    for _ in range(30):
        quiet.add(2_000, 100)
        quiet.add(9_000, 300)
        noisy.add(9_000, 300)
    assert (quiet.median_us(100), quiet.quiet_share(100)) == (2.0, 0.5)
    assert (noisy.median_us(100), noisy.quiet_share(100)) == (3.0, 0.0)


def test_a_stage_is_without_the_stages_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1_000, 10))
    monkeypatch.setattr(core_timing, "perf_counter_ns", lambda: next(clock))
    timer = Timer("warm", skipped=0)
    inner = timer.watched("inner", lambda: None)
    outer = timer.watched("outer", inner)
    timer.step("step", outer)
    best = timer.samples["step"].best
    found = {name: each.median_us(best) * 1e3 for name, each in timer.samples.items()}
    assert found == {"step": 50, "step/outer": 20, "step/inner": 10}


def test_only_turns_that_count_find_cold_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    evicted: list[int] = []
    monkeypatch.setattr(core_timing, "evict", lambda: evicted.append(1))
    for state in STATES:
        timer = Timer(state, skipped=2)
        for _ in range(5):
            timer.turn("turn", lambda: None)
            timer.step("step", lambda: None)
    assert len(evicted) == 3


def test_a_spread_is_of_all_values() -> None:
    assert spread([5.0, 4.0, 9.0]).as_json() == {"median": 5.0, "min": 4.0, "max": 9.0}


def test_a_worker_collects_seldom_and_leaves_out_what_is_there() -> None:
    set_up_collector()
    assert gc.get_threshold() == THRESHOLDS
    assert gc.get_freeze_count() > 1_000
