"""Kept state whose type changes between two lives: a start refuses it, and the dry run says so."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from lowtide import Flow, Window, event_time, json, kafka, minutes, tumbling
from lowtide.cli.recovery import Recovery
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.driver.frozen import job_record
from lowtide.driver.recovery import refuse_other_state
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.commits.choice import Choice
from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.format.fingerprint import compare
from lowtide_snapshots.format.manifest import Manifest


@dataclass(frozen=True)
class Whole:
    user: str
    at: datetime
    amount: int


@dataclass(frozen=True)
class Broken:
    user: str
    at: datetime
    amount: float


def typed(function: Any, *takes: Any, gives: Any) -> Any:
    """A function with annotations that a test makes."""
    names = inspect.signature(function).parameters
    function.__annotations__ = dict(zip(names, takes, strict=True)) | {"return": gives}
    return function


def keeping(record: Any, what: str) -> Plan:
    """A flow with a step that keeps records of a type: as they are, in a list or a dict, or as what they fold to."""

    def newest(keeps: Any, to: Any) -> Any:
        return typed(lambda state, one: (to(state, one), one), keeps, record, gives=tuple[keeps, record])

    def pair(one: Any, other: Any) -> Any:
        return one

    paired = typed(pair, record, record, gives=record)
    row = typed(lambda one, other: one, record, record | None, gives=record)
    folded = typed(lambda state, one: one, record | None, record, gives=record | None)
    made = typed(lambda window, state: state, Window, record | None, gives=record)
    listed = typed(lambda window, rows: list(rows), Window, tuple[record, ...], gives=list[record])
    last = typed(lambda rows: rows[-1], tuple[record, ...], gives=record)
    seen = typed(lambda state, one, beside: (state, one), int, record, tuple[record, ...], gives=tuple[int, record])
    shown = typed(lambda state, one: (*state, one), tuple[record, ...], record, gives=tuple[record, ...])
    flow = Flow("stage")
    first, second = (flow.read(name, kafka(name, json(record))) for name in ("payments", "others"))
    keyed = first.key_by("user")
    time = event_time("at", wait=minutes(1), late="drop")
    near: dict[str, Any] = {"before": minutes(1), "after": minutes(1)}
    steps: dict[str, Callable[[], Any]] = {
        "scan": lambda: keyed.scan("kept", newest(record | None, lambda _, one: one), None),
        "list": lambda: keyed.scan("kept", newest(tuple[record, ...], lambda all_, one: (*all_, one)), ()),
        "dict": lambda: keyed.scan("kept", newest(dict[str, record], lambda all_, one: {**all_, "": one}), {}),
        "reduce": lambda: keyed.reduce("kept", paired),
        "last": lambda: keyed.last(2, name="kept").map(last, name="last"),
        "fold": lambda: keyed.window("kept", tumbling(minutes(1))).fold(folded, None, made),
        "apply": lambda: keyed.window("kept", tumbling(minutes(1))).apply(listed),
        "broadcast": lambda: keyed.scan("scan", seen, 0, broadcast=second.broadcast("kept", shown, ())),
        "join": lambda: keyed.join("kept", second.key_by("user"), paired, time=time, **near),
        "table": lambda: keyed.join_table("kept", second.key_by("user").table("rows"), row, how="left"),
    }
    steps[what]().write("out", kafka("out", json(record)))
    if what not in ("broadcast", "join", "table"):
        second.write("rest", kafka("rest", json(record)))
    return compile_flow(flow, parallelism=1, slack_ms=2)


def manifest(plan: Plan) -> Manifest:
    """A snapshot of a flow at its tick 10, without any part."""
    return Manifest(
        job="stage", id="000001-0001", name=None, tick=10, incarnation=1, created="2026-01-31T12:00:00.000Z", base=None,
        record=job_record(plan), flow=tuple(step.shape for step in saved_steps(plan).values()), fronts=(), floors=(),
        lasts=(), parts=(),
    )  # fmt: skip


def dry_run(plan: Plan, before: Manifest) -> Recovery:
    commit = Commit(before.tick, before.id, None, before.path, "ab" * 32, 1, before.created)
    steps = saved_steps(plan)
    shapes, defaults = [step.shape for step in steps.values()], {name: step.defaults for name, step in steps.items()}
    differences = tuple(compare(before.flow, shapes, defaults))
    return Recovery(plan, Choice(before, commit, ()), 1, before.id, differences, (), None, False)


KEPT = ["scan", "list", "dict", "reduce", "last", "fold", "apply", "broadcast", "join", "table"]


@pytest.mark.parametrize("what", KEPT)
@pytest.mark.parametrize(
    ("was", "now", "said"),
    [(Whole, Broken, "amount is double, but was int64"), (Broken, Whole, "amount is int64, but was double")],
)
def test_a_field_of_another_number_type_is_refused_and_said_beforehand(
    what: str, was: type, now: type, said: str
) -> None:
    before, plan = manifest(keeping(was, what)), keeping(now, what)
    what_it_says = f'state of "kept[^"]*": field [^ ]*{said}'
    with pytest.raises(FlowError, match=what_it_says):
        refuse_other_state(plan, before, print)
    with pytest.raises(FlowError, match=what_it_says):
        dry_run(plan, before).refuse()
    assert f"{said}, so it cannot begin from here" in dry_run(plan, before).page()


@pytest.mark.parametrize("what", KEPT)
def test_the_same_flow_is_not_refused(what: str) -> None:
    plan = keeping(Broken, what)
    dry_run(plan, manifest(plan)).refuse()
