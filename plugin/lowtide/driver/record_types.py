"""Compares the types of what sources and sinks carry, and the flow's parameters, with those of the last life.

Each life that begins keeps them in ZooKeeper, as texts for people. Nothing depends on them: changes are reported, and
no start is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.kinds import Kind, Nullable
from lowtide.flow.schema.nested_kinds import Mapping as MappingKind
from lowtide.flow.schema.nested_kinds import Sequenced, Struct
from lowtide.flow.schema.schema import kind_of
from lowtide_snapshots.format.fingerprint import Difference
from lowtide_snapshots.job.store import JobStore

PARAMETERS = "parameter"
"""The key of the flow's parameters beside "source" and "sink"."""

ROOM_BYTES = 256 << 10
"""As JSON, of all steps: a node of ZooKeeper holds four times as much. Of steps beyond it nothing is kept."""


def note_records(store: JobStore, plan: Plan, incarnation: int, say: Callable[[str], None]) -> None:
    """Say what has changed since the last life, and keep what this one has.

    Raises:
        SnapshotsError: the life is over, or ZooKeeper does not answer.
    """
    was = store.records()
    for each in (*changed_records(was, plan), *changed_parameters(was, plan)):
        say(f"the flow has changed: {each.what}")
    store.set_records(incarnation, {**kept_records(plan), PARAMETERS: dict(plan.parameters)})


def kept_records(plan: Plan) -> dict[str, dict[str, dict[str, str]]]:
    """Of "source" and "sink", by the step's name, each field's type in Python's words, as `lines[].price`: `float`."""
    kept: dict[str, dict[str, dict[str, str]]] = {"source": {}, "sink": {}}
    room = ROOM_BYTES
    for kind, vertices in (("source", plan.sources()), ("sink", plan.sinks())):
        for vertex in vertices:
            fields = dict(_fields(kind_of(vertex.takes, vertex.name), ""))
            room -= len(json.dumps({vertex.name: fields}))
            if room < 0:
                return kept
            kept[kind][vertex.name] = fields
    return kept


def changed_parameters(was: Mapping[str, Any] | None, plan: Plan) -> list[Difference]:
    """Hold a flow's parameters against those of the last life, of which `was` is what it kept."""
    before: Mapping[str, Any] = (was or {}).get(PARAMETERS, {})
    changes = [
        f"parameter {name} is {value!r}, but was {before[name]!r}"
        for name, value in plan.parameters.items()
        if name in before and (type(before[name]), before[name]) != (type(value), value)
    ]
    return [Difference(plan.name, each, False) for each in changes]


def changed_records(was: Mapping[str, Any] | None, plan: Plan) -> list[Difference]:
    """Hold a flow's records against those of the last life.

    Args:
        was: What `kept_records` gave for it; None if it kept nothing.
        plan: The current flow.

    Returns:
        Each field that differs, in the order of the current flow; removed fields come after the others of their step.
        Steps that are new or gone are not among them.
    """
    found = []
    for kind, steps in kept_records(plan).items():
        before = (was or {}).get(kind, {})
        for name, fields in steps.items():
            if name in before:
                changes = _changes(before[name], fields)
                found += [Difference(name, f'records of {kind} "{name}": {what}', False) for what in changes]
    return found


def _changes(was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for field, kind in now.items():
        if field not in was:
            yield f"field {field} ({kind}) is new"
        elif was[field] != kind:
            yield f"field {field} is {kind}, but was {was[field]}"
    for field, kind in was.items():
        if field not in now:
            yield f"field {field} ({kind}) is gone"


def _fields(kind: Kind, path: str, none: str = "") -> Iterator[tuple[str, str]]:
    """Return the paths below a value with their contents; containers are named without them."""
    if isinstance(kind, Nullable):
        yield from _fields(kind.inner, path, " | None")
    elif isinstance(kind, Sequenced):
        yield path, f"{kind.python.__name__}{none}"
        yield from _fields(kind.item, f"{path}[]")
    elif isinstance(kind, MappingKind):
        yield path, f"dict{none}"
        yield from _fields(kind.value, f"{path}{{}}")
    elif isinstance(kind, Struct):
        if path:
            yield path, f"dataclass{none}"
        for name, inner in kind.fields:
            yield from _fields(inner, f"{path}.{name}" if path else name)
    else:
        yield path, f"{kind.name}{none}"
