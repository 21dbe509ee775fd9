"""Checks that the current flow can read a frozen flow's state (R11): vertices, keys and types of state.

State is read by vertex and by field name: another order of fields makes no difference. A new field is read if the
current flow has a default for it. Everything else that differs would drop state or misread it, and is fatal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lowtide_snapshots.format.manifest import VertexShape, setting_of, type_of


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `what` is a text for people, and with a `fatal` one the state cannot be read."""

    vertex: str
    what: str
    fatal: bool


def compare(
    frozen: Sequence[VertexShape], now: Sequence[VertexShape], defaults: Mapping[str, Collection[str]]
) -> list[Difference]:
    """Hold the current flow against that of a snapshot.

    Args:
        frozen: of the snapshot.
        now: of the flow to start.
        defaults: by vertex, the fields of its state that have a default: `pages`, `pages.count`; below a list's element
            `visits[].count`, below a map's value `visits{}.count`.

    Returns:
        All differences, those of one vertex together, in the order of the current flow; vertices that are gone last.

    Raises:
        ManifestDamaged: the type of a state cannot be read.
    """
    old = {shape.vertex: shape for shape in frozen}
    found: list[Difference] = []
    for shape in now:
        was = old.pop(shape.vertex, None)
        if was is None:
            found.append(Difference(shape.vertex, f'step "{shape.vertex}" is new and starts without state', False))
        else:
            found += _of_vertex(was, shape, defaults.get(shape.vertex, ()))
    gone = 'step "{}" is gone, and its state would be dropped'
    return found + [Difference(vertex, gone.format(vertex), True) for vertex in old]


def _of_vertex(was: VertexShape, now: VertexShape, defaults: Collection[str]) -> Iterator[Difference]:
    vertex = now.vertex
    if was.kind != now.kind:
        yield Difference(vertex, f'step "{vertex}" keeps {now.kind} state, but kept {was.kind}', True)
        return
    if was.key != now.key:
        yield Difference(vertex, f'the key of "{vertex}" is {_key(now.key)}, but was {_key(was.key)}', True)
    if setting_of(was) != setting_of(now):
        what = f'step "{vertex}" is {setting_of(now) or "different"}, but was {setting_of(was) or "different"}'
        yield Difference(vertex, f"{what}: give it another name", True)
    for what, fatal in _of_types("", type_of(was), type_of(now), defaults):
        yield Difference(vertex, f'state of "{vertex}": {what}', fatal)


def _of_types(path: str, was: pa.DataType, now: pa.DataType, defaults: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield the differences between two types, each with whether it is fatal; `path` leads to them."""
    if pa.types.is_struct(was) and pa.types.is_struct(now):
        yield from _of_structs(f"{path}." if path else "", was, now, defaults)
    elif pa.types.is_list(was) and pa.types.is_list(now):
        yield from _of_types(f"{path}[]", was.value_type, now.value_type, defaults)
    elif pa.types.is_map(was) and pa.types.is_map(now) and was.key_type == now.key_type:
        yield from _of_types(f"{path}{{}}", was.item_type, now.item_type, defaults)
    elif was != now:
        yield f"{f'field {path}' if path else 'it'} is {now}, but was {was}", True


def _of_structs(
    prefix: str, was: pa.StructType, now: pa.StructType, defaults: Collection[str]
) -> Iterator[tuple[str, bool]]:
    old = {field.name: field.type for field in was}
    for field in now:
        path = f"{prefix}{field.name}"
        if field.name in old:
            yield from _of_types(path, old.pop(field.name), field.type, defaults)
        elif path in defaults:
            yield f"field {path} ({field.type}) is new and starts with its default", False
        else:
            yield f"field {path} ({field.type}) is new and has no default", True
    for name, kind in old.items():
        yield f"field {prefix}{name} ({kind}) is gone", True


def _key(key: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in key) or "nothing"
