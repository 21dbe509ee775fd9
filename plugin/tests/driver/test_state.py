"""Where `[state]` in conf puts the state of a flow's steps."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest

import lowtide as lt
from lowtide.conf import Conf, parse_settings
from lowtide.driver.state import disk_of, explain_state
from lowtide.errors import ConfError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan


@dataclass(frozen=True)
class Event:
    user: str
    number: int


@dataclass
class MadeByCode:
    number: int = 0

    def __post_init__(self) -> None:
        self.hidden = self.number


def count(state: int, event: Event) -> tuple[int, Event]:
    return state + 1, event


def make(state: MadeByCode, event: Event) -> tuple[MadeByCode, Event]:
    return MadeByCode(event.number), event


def plan(*, stateful: bool = True) -> Plan:
    flow = lt.Flow("state")
    events = flow.read("events", lt.kafka("events", lt.json(Event)))
    if stateful:
        once = events.key_by("user").deduplicate("once", within=lt.hours(1))
        seen = once.key_by("number").scan("seen", count, 0)
        made = seen.key_by("user").scan("made", make, MadeByCode())
        made.write("counted", lt.kafka("counted", lt.json(Event)))
    else:
        events.write("out", lt.kafka("out", lt.json(Event)))
    return compile_flow(flow, parallelism=1)


def conf(*settings: str) -> Conf:
    return Conf.load(None, parse_settings(settings))


def test_state_is_in_memory_if_nothing_is_said() -> None:
    assert disk_of(plan(), conf()) is None
    assert explain_state(plan(), conf()) == "state: in memory"


def test_a_backend_is_for_all_steps_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lmdb", reason="lowtide[disk] is not installed")
    setting = disk_of(plan(), conf("state.backend=disk", "state.memory_mb=3", "state.disk_max_gb=0.5"))
    assert setting is not None
    assert (setting.memory_bytes, setting.max_bytes, setting.folder) == (3 << 20, 500_000_000, ".lowtide/state")
    assert setting.in_memory == {"made"}


@pytest.mark.parametrize(
    ("settings", "disk", "memory"),
    [
        (["state.backend=disk"], "once, seen", "made"),
        (["state.backend=disk", "state.steps.seen=memory"], "once", "seen, made"),
        (["state.steps.seen=disk"], "seen", "once, made"),
    ],
)
def test_a_step_may_differ(settings: list[str], disk: str, memory: str) -> None:
    said = explain_state(plan(), conf(*settings)).splitlines()
    assert said[0].startswith("state: on disk under .lowtide/state, up to 64 GB a process")
    assert said[1:] == [f"  on disk:   {disk}", f"  in memory: {memory}"]


@pytest.mark.parametrize(
    ("settings", "what", "way_out"),
    [
        (["state.steps.sen=disk"], 'no step "sen" with state', "once, seen, made"),
        (["state.steps.made=disk"], '"made" can only be in memory', "once, seen; not sessions"),
    ],
)
def test_a_step_that_cannot_be_there_is_refused(settings: list[str], what: str, way_out: str) -> None:
    with pytest.raises(ConfError, match=what) as caught:
        disk_of(plan(), conf(*settings))
    assert way_out in caught.value.way_out


def test_a_plan_whose_classes_are_made_here_can_still_be_pickled() -> None:
    """As those of a program's own file are: by value, without what a decoder leaves on them."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        made = plan()
        assert disk_of(made, conf("state.steps.seen=memory")) is None
        assert explain_state(made, conf("state.backend=disk"))
        assert cloudpickle.dumps(made)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_flow_without_state_has_none_on_disk() -> None:
    assert disk_of(plan(stateful=False), conf("state.backend=disk")) is None
    assert explain_state(plan(stateful=False), conf("state.backend=disk")) == ""


def test_without_the_library_disk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(ConfError) as caught:
        disk_of(plan(), conf("state.backend=disk"))
    assert 'pip install "lowtide[disk]"' in caught.value.way_out


@pytest.mark.parametrize("setting", ["state.backend=rocks", "state.steps.seen=tape", "state.disk_max_gb=0"])
def test_a_value_that_is_none_is_refused(setting: str) -> None:
    with pytest.raises(ConfError):
        conf(setting)


def test_the_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    pytest.importorskip("lmdb", reason="lowtide[disk] is not installed")
    from lowtide.disk import folder
    from lowtide.doctor.machine import state

    class Here:
        plan = plan()
        conf = conf("state.backend=disk", f"state.folder={tmp_path}/state", "state.disk_max_gb=0.001")

    answer = state(Here)  # type: ignore[arg-type]  # all that it looks at
    assert answer.verdict == "ok"
    assert "once, seen; lmdb 3" in answer.found
    Here.conf = conf("state.backend=disk", f"state.folder={tmp_path}/state", "state.disk_max_gb=1e9")
    assert state(Here).verdict == "warn"  # type: ignore[arg-type]
    monkeypatch.setattr(folder, "file_system_of", lambda _: "nfs4")
    assert state(Here).verdict == "fail"  # type: ignore[arg-type]
    Here.conf = conf()
    assert state(Here).found == "in memory"  # type: ignore[arg-type]
