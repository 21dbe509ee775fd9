"""The benchmark of the core: every figure is there, and its parts do what they should. Nothing is timed."""

import gc
import io
import json
from typing import Any

import pytest
from lowtide.operators.output import Deliver
from rich.console import Console

from lowtide.bench import core, core_report
from lowtide.bench.core_grouping import MODES, STEPS, Step, course, plan_of
from lowtide.bench.core_records import arrivals, late_share
from lowtide.bench.core_timing import Extent, measured, spread
from lowtide.bench.core_traffic import FLUSH_ENTRIES, FLUSHES, MOVING, Traffic, tracker
from lowtide.cli.main import run
from lowtide.operators.program import Program
from lowtide.worker.garbage import THRESHOLDS, set_up_collector
from lowtide_tracker import Flush

TINY = Extent(records=400, calls=4, trials=1, limit_s=1.0, sizes=(10, 100), notices=3)
FIGURES = {"acks_per_s", "notify_p99_ms", "label_per_s", "scan_per_s", "group_per_s", "barrier_per_s"}


@pytest.fixture(autouse=True)
def _collector_as_before() -> Any:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for name, inner in value.items() if not name.endswith("_share") for number in numbers(inner)]
    return [value]


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return core.run(TINY, lambda _: None)


def test_every_figure_is_there_and_positive(result: dict[str, Any]) -> None:
    assert result.keys() >= FIGURES | core_report.GOALS.keys()
    figures = {name: value for name, value in result.items() if name.endswith(("_per_s", "_ms"))}
    assert all(value > 0 for value in figures.values()), figures
    variants = {name: part for name, part in result["variants"].items() if name != "collector"}
    assert all(number > 0 for number in numbers(variants))
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_every_variant_is_there(result: dict[str, Any]) -> None:
    variants = result["variants"]
    assert variants["acks"]["entries_per_flush"] == FLUSH_ENTRIES
    assert list(variants["label"]) == ["10", "100"]
    for part in ("scan", "last"):
        assert list(variants[part]) == list(MODES)
        for mode in MODES:
            assert set(variants[part][mode]["in_order"]["100"]) >= {"per_s", "without_decode_per_s", "repairs_share"}
    assert list(variants["barrier"]) == ["columns", "rows"]
    assert {setting for case in variants["collector"].values() for setting in case} == {"defaults", "worker"}


def test_the_report_has_all_figures_as_tables_and_as_markdown(result: dict[str, Any]) -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(core_report.report(result))
    for told in (out.getvalue(), core_report.markdown(result)):
        for words in (*FIGURES, "optimistic, two fronts", "longest pause", result["machine"]["model"]):
            assert words in told


def test_the_command_prints_one_object_as_its_last_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lowtide.bench.core_timing.Extent", lambda **_: TINY)
    assert run(["bench", "core", "--json", "--markdown", "--trials", "1"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told.splitlines()[-1]).keys() >= FIGURES
    assert "| acks_per_s |" in told


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fronts", [1, 2])
def test_both_modes_deliver_every_record_once(step: Step, fronts: int) -> None:
    arrived = arrivals(plan_of(step), 100, 20, fronts=fronts, keys=50)
    optimistic, ordered = (Program(plan_of(step), 1, mode) for mode in MODES)
    first, second = course(optimistic, arrived), course(ordered, arrived)
    assert first.records == second.records == 2_000
    # What is taken back came out as an item, and comes again: one item and one tombstone more for every repair.
    assert first.delivered == 2_000 + 2 * first.repairs
    assert (first.repairs > 0) == (fronts == 2)
    left = sum([len(output.batch) for output in ordered.advance(1 << 62) if isinstance(output, Deliver)])
    assert (second.delivered + left, second.repairs) == (2_000, 0)


def test_two_fronts_bring_records_late_and_one_does_not() -> None:
    assert late_share(arrivals(plan_of("scan"), 100, 10, keys=50)) == 0
    assert 0 < late_share(arrivals(plan_of("scan"), 100, 10, fronts=2, keys=50)) < 1


def test_every_round_has_full_flushes_and_moves_min_time_where_it_says() -> None:
    traffic, listening = Traffic(), tracker()
    for _ in range(3):
        flushes = [flush for worker in traffic.round() if isinstance(flush := worker.flush(), Flush)]
        assert [len(flush.acks) for flush in flushes] == [FLUSH_ENTRIES] * FLUSHES
        moved = [place for place, flush in enumerate(flushes) if listening.receive(flush)]
        assert tuple(moved) == MOVING
        assert listening.global_min == traffic.min_time
    listening.check()


def test_a_spread_is_of_the_trials_after_the_first() -> None:
    rates = iter([1.0, 5.0, 4.0, 9.0])
    found = measured(lambda: {"per_s": next(rates)}, Extent(trials=3, limit_s=60.0))["per_s"]
    assert found == spread([5.0, 4.0, 9.0])
    assert found.as_json() == {"median": 5.0, "min": 4.0, "max": 9.0}
    assert measured(lambda: {"per_s": 2.0}, Extent(limit_s=0.0))["per_s"].trials == 1


def test_a_worker_collects_seldom_and_leaves_out_what_is_there() -> None:
    set_up_collector()
    assert gc.get_threshold() == THRESHOLDS
    assert gc.get_freeze_count() > 1_000
