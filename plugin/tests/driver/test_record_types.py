"""The records of sources and sinks whose types change between two lives: what is kept, and what is said."""

from __future__ import annotations

import json
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest

from lowtide import Flow, Precision, kafka, raw
from lowtide import json as as_json
from lowtide.driver import record_types
from lowtide.driver.record_types import changed_records, kept_records
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan


@dataclass(frozen=True)
class Line:
    price: int
    tags: list[str]


@dataclass(frozen=True)
class Costly:
    price: float
    tags: tuple[str, ...]


def passing(kind: Any, name: str = "in", *, more: bool = False) -> Plan:
    """A flow that passes on records with a field, where its type is not None, and perhaps another stream."""
    fields = [("id", int)] if kind is None else [("id", int), ("field", kind)]
    record = make_dataclass("Record", fields, frozen=True)
    flow = Flow("passing")
    flow.read(name, kafka("in", as_json(record))).write("out", kafka("out", as_json(record)))
    if more:
        flow.read("more", kafka("more", raw())).write("rest", kafka("rest", raw()))
    return compile_flow(flow, parallelism=1, slack_ms=2)


def stored(plan: Plan) -> dict[str, Any]:
    """ZooKeeper's record of it."""
    kept: dict[str, Any] = json.loads(json.dumps(kept_records(plan)))
    return kept


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (int, float, ["field field is float, but was int"]),
        (str, bytes, ["field field is bytes, but was str"]),
        (int | None, int, ["field field is int, but was int | None"]),
        (Literal["a"], Literal["a", "b"], ["field field is Literal['a', 'b'], but was Literal['a']"]),
        (list[int], tuple[int, ...], ["field field is tuple, but was list"]),
        (dict[str, int], dict[str, str | None], ["field field{} is str | None, but was int"]),
        (list[int], int, ["field field is int, but was list", "field field[] (int) is gone"]),
        (Line, Line | None, ["field field is dataclass | None, but was dataclass"]),
        (
            list[Line],
            list[Costly],
            ["field field[].price is float, but was int", "field field[].tags is tuple, but was list"],
        ),
        (None, int, ["field field (int) is new"]),
        (int, None, ["field field (int) is gone"]),
    ],
)
def test_a_field_of_another_type_is_said_with_its_step(was: Any, now: Any, said: list[str]) -> None:
    found = changed_records(stored(passing(was)), passing(now))
    steps = [("in", 'records of source "in"'), ("out", 'records of sink "out"')]
    assert [(each.vertex, each.what) for each in found] == [
        (name, f"{of}: {what}") for name, of in steps for what in said
    ]
    assert not any(each.fatal for each in found)


@pytest.mark.parametrize("kind", [int, str | None, Line, Annotated[Decimal, Precision(9, 2)], Literal[1, 2], None])
def test_of_what_is_the_same_nothing_is_said(kind: Any) -> None:
    plan = passing(kind, more=True)
    assert changed_records(stored(plan), plan) == []


def test_of_steps_that_are_new_or_gone_or_were_not_kept_nothing_is_said() -> None:
    plan, more = passing(int, "in"), passing(float, "other", more=True)
    assert {each.vertex for each in changed_records(stored(plan), more)} == {"out"}
    assert {each.vertex for each in changed_records(stored(more), plan)} == {"out"}
    assert changed_records(None, plan) == changed_records({}, plan) == []


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = passing(Line, more=True)
    whole = kept_records(plan)
    assert {kind: set(steps) for kind, steps in whole.items()} == {"source": {"in", "more"}, "sink": {"out", "rest"}}
    monkeypatch.setattr(record_types, "ROOM_BYTES", len(json.dumps(whole)) // 2)
    part = kept_records(plan)
    assert len(json.dumps(part)) < len(json.dumps(whole)) / 2 + 50
    assert part["source"]["in"] == whole["source"]["in"]
    assert changed_records(part, passing(Costly, more=True))
