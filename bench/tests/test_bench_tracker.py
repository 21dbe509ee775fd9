"""The benchmark of the tracker: every figure is there, what is counted is right, and the pictures show it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from lowtide.cli.main import run as lowtide
from lowtide_bench.plot import draw
from lowtide_bench.tables import markdown
from lowtide_bench.tracking import counted, named, plots, report
from lowtide_bench.tracking.asked import Asked
from lowtide_bench.tracking.run import run
from lowtide_bench.tracking.script import START, Script, chain, fronts
from lowtide_tracker import Graph, Tracker

RATE, SECONDS = 8.0, 1.0


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    asked = Asked(
        seconds=SECONDS,
        entries=20,
        capacity_workers=4,
        rate=RATE,
        workers=(2, 8),
        traffic_rate=RATE,
        depths=(1, 5),
        depth=2,
        records=(10, 1_000, 100_000),
        shards=(1, 2),
        keyed=(2, 4),
    )
    return run(asked, lambda _: None)


def test_every_figure_that_is_compared_is_there(result: dict[str, Any]) -> None:
    for name in ("acks_per_s", "advances_per_s", "notify_p50_ms", "notify_p99_ms", "messages_per_s"):
        assert result[name] > 0, name
    assert result["notify_p50_ms"] <= result["notify_p99_ms"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_traffic_is_linear_in_workers(result: dict[str, Any]) -> None:
    """Each flush is one message in; out come notices and `Applied`, for each worker the same."""
    few, many = result["by_workers"]
    for case in (few, many):
        rounds = case["flushes_per_s"] / case["workers"]
        assert case["acks_per_s"] == pytest.approx(20 * case["flushes_per_s"], rel=0.02)
        assert case["messages_in_per_s"] == case["flushes_per_s"]
        assert rounds <= case["messages_out_per_s"] / case["workers"] <= 4 * rounds
    # Between two reports that see all flushes; seconds of the run may differ a little on a busy machine.
    assert many["bytes_in_per_s"] / many["flushes_per_s"] == pytest.approx(
        few["bytes_in_per_s"] / few["flushes_per_s"], rel=0.1
    )


def test_traffic_is_flat_in_records(result: dict[str, Any]) -> None:
    few, some, many = result["by_records"]
    assert few["messages_per_s"] == 10
    assert {**some, "records_per_s": 0, "messages_per_record": 0} == {
        **many, "records_per_s": 0, "messages_per_record": 0,
    }  # fmt: skip
    assert many["messages_per_s"] <= 1_000 / counted.FLUSH_MS


def test_acks_of_a_shard_fall_with_their_number_and_messages_do_not(result: dict[str, Any]) -> None:
    assert result["by_shards"] == counted.by_shards((1, 2), workers=4, depth=2, entries=20, rounds=20)
    for case in counted.by_shards((1, 2, 5, 8), workers=4, depth=2, entries=20, rounds=20):
        assert case["acks_per_flush"] * case["shards"] == pytest.approx(20, rel=0.01)
        assert case["messages_in_per_flush"] == 1


def test_messages_of_a_tracker_are_as_many_as_its_relays(result: dict[str, Any]) -> None:
    assert [(case["workers"], case["relays"]) for case in result["by_relays"]] == [(2, 0), (2, 1), (8, 0), (8, 1)]
    cases = counted.by_relays((100, 1_000), among=50, depth=2, entries=2, rounds=5)
    for alone, relayed in zip(cases[::2], cases[1::2], strict=True):
        workers, relays = alone["workers"], relayed["relays"]
        assert relays == workers / 50
        assert (alone["messages_in_per_round"], relayed["messages_in_per_round"]) == (workers, relays)
        assert alone["notices_out_per_round"] / workers == relayed["notices_out_per_round"] / relays
        assert alone["acks_in_per_round"] == 2 * workers
        assert relayed["acks_in_per_round"] <= 4 * relays


def test_what_a_worker_hears_with_early_keys_does_not_grow_with_the_others(result: dict[str, Any]) -> None:
    """F5: without naming segments notices have an entry for each worker's part, and each flush sends one to all."""
    ways = [(case["workers"], case["way"]) for case in result["by_early_keys"] if case["rate"] == 1_000]
    assert ways == [(count, way) for count in (2, 4) for way in named.WAYS]
    entries: dict[str, list[float]] = {way: [] for way in named.WAYS}
    notices: dict[str, list[float]] = {way: [] for way in named.WAYS}
    for case in named.by_early_keys((4, 16), (10_000,), turns=120):
        entries[case["way"]].append(case["entries"] / case["workers"])
        notices[case["way"]].append(case["notices"] / case["workers"])
        assert case["flushes"] >= case["made"] > 0
    assert entries["all"][1] > 2 * entries["all"][0]
    assert notices["all"][1] > 1.2 * notices["all"][0]
    assert entries["named"][1] < 1.1 * entries["named"][0]
    assert notices["named"][1] < 1.1 * notices["named"][0]
    assert notices["named"][1] < 3 * notices["off"][1]


def test_shards_that_are_served_have_what_was_counted(result: dict[str, Any]) -> None:
    """One tracker alone is not a tracker in shards; a connection's first messages come before the first flush."""
    (case,) = result["by_shards_served"]
    assert (case["shards"], case["acks_per_flush"], case["messages_in_per_flush"]) == (2, 10, 1)
    assert case["merge_messages_in_per_flush"] > 0
    assert case["notify_p50_ms"] <= case["notify_p99_ms"]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_min_time_passes_a_round_with_its_last_flush_and_not_before(depth: int) -> None:
    """The start of the latency; for any worker as the last one."""
    for last in range(6):
        script = Script(0, 6, depth=depth, entries=7)
        tracker = Tracker(Graph(chain(depth)), fronts(6), start=START, capacity_ticks=1_000)
        for number in range(3):
            order = sorted(script.workers, key=lambda worker: (worker == last, worker % 2))
            for worker in order:
                assert tracker.global_min == script.opens_at(number)
                flush = script.flush(worker, number)
                assert len(flush.acks) == 7
                tracker.receive(flush)
                tracker.check()
            assert tracker.global_min == script.opens_at(number + 1)


def test_the_tables_and_pictures_have_all_cases(result: dict[str, Any], tmp_path: Path) -> None:
    text = markdown(report.tables(result), report.origin(result))
    for words in ("acks/s", "By workers", "By segments", "By records", "By shards", result["machine"]["model"]):
        assert words in text
    draw(plots.plots(result), tmp_path)
    drawn = {path.name: ET.parse(path).getroot() for path in tmp_path.iterdir()}
    assert set(drawn) == set(plots.plots(result))
    for name, picture in plots.plots(result).items():
        svg = "{http://www.w3.org/2000/svg}"
        points = sum(len(each) for each in picture.lines.values())
        assert len(drawn[name].findall(f"{svg}circle")) == points > 0
        assert len(drawn[name].findall(f"{svg}polyline")) == len(picture.lines)


def test_the_command_prints_one_object_as_its_last_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = ["--workers", "2", "--depths", "1", "--among", "2", "--shards", "1", "--records", "10", "--seconds", "1"]
    assert lowtide(["bench", "tracker", "--json", "--markdown", "--plots", str(tmp_path), *few]) == 0
    text = capsys.readouterr().out
    assert json.loads(text.splitlines()[-1])["by_workers"][0]["workers"] == 2
    assert "| workers |" in text
    assert (tmp_path / "tracker-workers.svg").is_file()


def test_the_command_refuses_an_odd_number_of_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert lowtide(["bench", "tracker", "--workers", "3"]) != 0
    assert "3 workers: half of them send" in capsys.readouterr().err
