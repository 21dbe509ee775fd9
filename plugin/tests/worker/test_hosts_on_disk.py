"""A host with state on disk: its loop pins, forks and reports; the next life begins from that, in memory or on disk."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hanging import HANGS_S
from stage_rig import Kept, Order, Rig, Served, deployment, orders, packed

from lowtide import Flow, kafka
from lowtide import json as as_json
from lowtide.assignment.deployment import DiskSetting
from lowtide.assignment.messages import PartWritten, ShareFailed, ShareSaved
from lowtide.flow.plan.compiler import compile_flow
from lowtide.worker import saver as saver_module
from lowtide.worker.host import LevelHost
from lowtide.worker.level_deployment import LevelDeployment
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.stores import StoreSetting
from lowtide_tracker import Request

pytest.importorskip("lmdb", reason="lowtide[disk] is not installed")


@dataclass(frozen=True)
class Sum:
    user: str
    total: int


def add(before: Sum, order: Order) -> tuple[Sum, Order]:
    after = Sum(order.user, before.total + order.number)
    return after, Order(order.user, after.total)


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)
    monkeypatch.setattr(saver_module, "PATIENCE_S", 0.2)  # Other tests keep the machine busy.


@pytest.fixture
def tracker() -> Iterator[Served]:
    with Served() as served:
        yield served
        assert served.faults == []


def made(folder: Path, **others: Any) -> LevelDeployment:
    flow = Flow("depth")
    keyed = flow.read("orders", kafka("orders", as_json(Order))).key_by("user")
    keyed.scan("sum", add, Sum("", 0)).write("out", kafka("out", as_json(Order), key="user"))
    plan = compile_flow(flow, parallelism=2, units=16, lanes=2, slack_ms=1)
    disk = DiskSetting(str(folder / "state"), 0, 1 << 30)
    plain = {"store": StoreSetting(str(folder / "store")), "disk": disk, "plan": plan}
    return deployment(**{**plain, **others})


def state_of(rig: Rig, tick: int) -> list[str]:
    found = [stage.core.program.capture(tick)["sum"] for name, stage in rig.stages.items() if name[0] == "1"]
    return sorted(repr((unit, key)) for units in found for unit, keys in units.items() for key in keys)


def fed(rig: Rig, records: int = 600) -> int:
    """Feed it in two parts, each until all is delivered and may leave memory; return the tick."""
    users = [{"user": f"user-{each['number'] * 7 % 97}", "number": each["number"]} for each in orders(records)]
    for end, tick in ((records // 2, 1_000), (records, 2_000)):
        for first in range(end - records // 2, end, 20):
            lane, until = first // 20 % 2, min(first + 20, end)
            rig.read(packed(users[first:until], lane, first, tick=tick - 900 + first), lane)
            rig.turn()
        rig.grant(tick)
        rig.until(partial(at_rest, rig, end, tick))
        for stage in rig.stages.values():
            stage.core.moved(())
    return 2_000


def at_rest(rig: Rig, records: int, tick: int) -> bool:
    """So many records have been delivered, and all hosts know that min time is at a tick."""
    return len(rig.delivered) == records and all(host.local.global_min == tick for host in rig.hosts)


def saved(host: LevelHost, rig: Rig, tick: int, number: int = 1) -> list[Part]:
    """Request a snapshot of a host, and let its loop do what it watches; return the parts."""
    for stage in rig.stages.values():
        stage.core.pin(Request(number, tick))
    news: list[Any] = []
    deadline = time.monotonic() + HANGS_S
    host._save()
    while sum(isinstance(each, ShareSaved) for each in news) < len(rig.stages):
        assert time.monotonic() < deadline
        watched = dict(host.watched())
        for descriptor in select.select(list(watched), [], [], 0.01)[0]:
            rig.route(watched[descriptor]())
        news += [each for _, each in host.news(time.monotonic())]
        assert not [each for each in news if isinstance(each, ShareFailed)]
    return [each.part for each in news if isinstance(each, PartWritten)]


@pytest.mark.parametrize("backend", ["disk", "memory"])
def test_a_life_begins_from_what_a_host_has_saved_from_disk(tracker: Served, tmp_path: Path, backend: str) -> None:
    settings = made(tmp_path)
    rig = Rig.of(settings, tracker.address, 1)
    (host,) = rig.hosts
    tick = fed(rig)
    expected = state_of(rig, tick)
    assert len(expected) == 97
    gauges = host.disk_gauges()
    assert gauges is not None
    assert gauges.misses > 97
    assert gauges.evicted >= 97
    assert [stage.core.program.kept["sum"].number for name, stage in rig.stages.items() if name[0] == "1"] == [0, 0]
    parts = saved(host, rig, tick)
    assert host.close(1.0) == 0
    assert not list((tmp_path / "state").glob("*"))
    disk = settings.disk if backend == "disk" else None
    later = replace(settings, restored=tuple(parts), recovered=True, start=tick, disk=disk)
    with Served() as another:
        again = Rig.of(later, another.address, 1)
        assert state_of(again, tick) == expected
        (next_host,) = again.hosts
        assert (next_host.disk_gauges() is not None) == (backend == "disk")
        next_host.close(1.0)


def test_a_host_without_such_steps_makes_no_folder(tracker: Served, tmp_path: Path) -> None:
    setting = DiskSetting(str(tmp_path / "state"), 0, 1 << 30, frozenset({"sum"}))
    rig = Rig.of(made(tmp_path, disk=setting), tracker.address, 1)
    fed(rig, 100)
    assert rig.hosts[0].disk_gauges() is None
    assert not (tmp_path / "state").exists()
