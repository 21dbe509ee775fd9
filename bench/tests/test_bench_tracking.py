"""The benchmark of what progress costs: notices are never early and all come, and what is compared is there."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lowtide.cli.main import run as lowtide
from lowtide_bench.cli.tracking import SHORTEST_MS
from lowtide_bench.mechanisms import mechanism as mechanisms
from lowtide_bench.mechanisms import report
from lowtide_bench.mechanisms.asked import MARKERS, MECHANISMS, TRACKER, Asked, Setting
from lowtide_bench.mechanisms.mechanism import Markers, Mechanism, Tracked
from lowtide_bench.mechanisms.node import KEYS, expected
from lowtide_bench.mechanisms.nodes import TURN_S
from lowtide_bench.mechanisms.played import Played
from lowtide_bench.mechanisms.plots import plots
from lowtide_bench.mechanisms.run import run
from lowtide_bench.mechanisms.truth import Early
from lowtide_bench.tables import markdown
from lowtide_bench.tracking.script import START
from lowtide_tracker import TimeWentBack

TOLD = (MARKERS, TRACKER)


def play(mechanism: str, seed: int) -> Played:
    """Play a flow whose records, ticks, messages and turns come in an order drawn by a seed, to its end."""
    chance = Random(seed)
    world = Played(mechanism, nodes=chance.randint(1, 4), depth=chance.randint(1, 4))
    for _ in range(chance.randint(20, 300)):
        kind = chance.randrange(12)
        if kind == 0:
            world.next_tick()
        elif kind < 4:
            world.emit(chance.randrange(len(world.nodes)), chance.randrange(KEYS))
        else:
            world.step(chance)
    world.next_tick()
    world.carry_all()
    return world


def play_all(mechanism: str, seeds: Iterable[int]) -> list[Played]:
    return [play(mechanism, seed) for seed in seeds]


@pytest.mark.parametrize("mechanism", TOLD)
def test_notices_are_never_early_and_in_the_end_all_have_come(mechanism: str) -> None:
    """`Truth` raises `Early` otherwise."""
    for each in play_all(mechanism, range(200)):
        assert {node.mechanism.notice for node in each.nodes} == {each.tick}
        assert each.truth.least == each.tick
        assert len(each.truth.delays) == len(each.nodes) * (each.tick - START)
        assert min(each.truth.delays) >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_flow_is_the_same_under_each_mechanism(mechanism: str) -> None:
    for each in play_all(mechanism, range(20)):
        assert each.counts == expected(each.made, each.nodes[0].depth)
        assert each.truth.finished == each.made.total()


@pytest.mark.parametrize(("nodes", "depth"), [(1, 1), (2, 3), (5, 2)])
def test_a_tick_takes_a_marker_from_each_node_to_each_other_at_every_shuffle(nodes: int, depth: int) -> None:
    world = Played(MARKERS, nodes=nodes, depth=depth)
    for _ in range(7):
        world.next_tick()
        world.carry_all()
    assert sum(node.markers for node in world.nodes) == 7 * depth * nodes * (nodes - 1)


class OfOneChannel(Markers):
    """Passes on what one channel has said."""

    def marked(self, level: int, sender: int, tick: int) -> None:
        self._aligned[level] = max(tick, self._aligned[level])


class LateFolds(Tracked):
    """What a frame causes is folded after the frame's own ack."""

    def __init__(self, node: int, depth: int) -> None:
        super().__init__(node, depth)
        self.kept: tuple[int, tuple[int, ...], int] | None = None

    def sent(self, level: int, ticks: Collection[int]) -> tuple[int, Sequence[int]]:
        if self.kept is not None:
            self.local.fold(*self.kept)
        self.kept = (level, tuple(ticks), self.local.new_value())
        return self.kept[2], sorted(ticks)


@pytest.mark.parametrize(("mechanism", "broken"), [(MARKERS, OfOneChannel), (TRACKER, LateFolds)])
def test_a_rule_that_is_broken_is_noticed(
    mechanism: str, broken: type[Mechanism], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanisms, broken.__bases__[0].__name__, broken)
    with pytest.raises((Early, TimeWentBack)):
        play_all(mechanism, range(50))


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    usual = Setting(nodes=3, depth=2, period=50, rate=500, flush=2)
    few = {"nodes": (1, 3), "depths": (2,), "periods": (50,), "rates": (500,), "flushes": (2,)}
    return run(Asked(seconds=0.5, usual=usual, **few), lambda _: None)


def test_what_is_counted_is_what_the_protocol_says(result: dict[str, Any]) -> None:
    """Markers of a node that is behind may say two ticks as one."""
    one, three = result["by_nodes"]
    assert one[MARKERS]["messages"] == 0
    assert 0 < three[MARKERS]["messages"] <= 0.5 / 0.05 * 2 * 3 * 2
    for case in (one, three):
        assert case[TRACKER]["messages"] > 0
        assert {case[mechanism]["records"] for mechanism in MECHANISMS} == {250}
        for mechanism in TOLD:
            assert 0 <= case[mechanism]["delay_p50_ms"] <= case[mechanism]["delay_p99_ms"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_the_tables_and_pictures_have_all_cases(result: dict[str, Any]) -> None:
    text = markdown(report.tables(result), report.origin(result))
    assert text.count(TRACKER) >= sum(len(result[name]) for name in report.SWEEPS)
    for name, picture in plots(result).items():
        drawn = ET.fromstring(picture.svg())
        assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == len(picture.lines), name


def test_the_command_prints_one_object_as_its_last_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = ["--nodes", "2", "--depths", "1", "--periods", "100", "--rates", "500", "--flushes", "2", "--seconds", "0.5"]
    usual = ["--among", "2", "--depth", "1", "--rate", "500"]
    assert lowtide(["bench", "tracking", "--json", "--markdown", "--plots", str(tmp_path), *few, *usual]) == 0
    text = capsys.readouterr().out
    assert json.loads(text.splitlines()[-1])["by_nodes"][0]["nodes"] == 2
    assert "| nodes |" in text
    assert (tmp_path / "tracking-nodes-messages.svg").is_file()


def test_the_command_refuses_a_period_shorter_than_a_turn(capsys: pytest.CaptureFixture[str]) -> None:
    assert round(1_000 * TURN_S) == SHORTEST_MS
    assert lowtide(["bench", "tracking", "--periods", "4,100"]) != 0
    assert "a period of 4 ms" in capsys.readouterr().err
