"""The state of steps as Arrow tables and back: the columns of parts, as `snapshots/README.md` defines them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping, Sequence
from itertools import chain, groupby, islice, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lowtide.core.operators.faults.failure import shortened
from lowtide.core.operators.order.order import FIRST_TICK, OrderKey, tick_of
from lowtide.core.operators.state.group import Key
from lowtide.errors import LifeEnded
from lowtide.flow.plan.plan import Plan, Vertex, is_of, side_of
from lowtide.flow.schema.fields import encode_rows
from lowtide.flow.schema.kinds import SCALARS, Kind, Mismatch, Nullable
from lowtide.flow.schema.nested_kinds import Mapping as MappingKind
from lowtide.flow.schema.nested_kinds import Sequenced, Struct
from lowtide.flow.schema.schema import kind_of, schema_of
from lowtide.flow.steps.step import Saved
from lowtide.flow.steps.steps import Scan
from lowtide.flow.steps.windows import Span
from lowtide.flow.time.durations import ticks_of
from lowtide.flow.time.zones import day_marks, differ
from lowtide_snapshots.format.manifest import StateSetting, VertexShape, days_of, initial_of, shape_of
from lowtide_snapshots.format.parts import GONE, UNIT

KEYED_BY_UNIT = "hash_unit"
"""The name for the key of a step whose records go by hash unit alone."""


class KeyUnreadable(ValueError):
    """Say the key's columns by their names, each with a value of its type."""


class SavedStep:
    """The saving of one step's state.

    Attributes:
        vertex: The step's name.
        kind: One of `lowtide_snapshots.format.parts.KINDS`.
        key: The key's columns as a struct's type; None where there is no key.
        state: The type of the state; of `last`, joins, tables, and windows that keep their records that of these; of
            `deduplicate` that of ticks.
    """

    def __init__(self, plan: Plan, vertex: Vertex, port: int = 0) -> None:
        """Look at a step, of a join at one of its sides."""
        saved = _saved(plan, vertex, port)
        assert saved is not None, f"{vertex.name} keeps no state"
        self.vertex = side_of(vertex, port) if vertex.step.sides > 1 else vertex.name
        self.kind = saved.kind
        self._kind = kind_of(saved.content, f"the state of {vertex.name}")
        self._setting = saved.setting
        self._initial = saved.initial
        self._ttl = None if saved.ttl is None else ticks_of(saved.ttl, plan.slack_ms) + saved.longer
        self._tz = saved.tz
        self._days = day_marks(saved.tz) if saved.tz else ""
        self._names: tuple[str, ...] = ()
        self._keys: list[Kind] = []
        if self.kind != "broadcast":
            self._names = plan.key_of(vertex, saved.port)
            known = (
                schema_of(plan.keyed(vertex, saved.port).gives).kinds if self._names else {KEYED_BY_UNIT: SCALARS[int]}
            )
            self._names = self._names or (KEYED_BY_UNIT,)
            self._keys = [known[name] for name in self._names]
        types = zip(self._names, self._keys, strict=True)
        self.key = pa.struct([pa.field(name, kind.arrow) for name, kind in types]) if self._names else None
        self.state: pa.DataType = self._kind.arrow

    @property
    def shape(self) -> VertexShape:
        """Return its shape for a manifest."""
        initial = self._kind.encode([self._initial]) if self.kind == "scan" else None
        setting = StateSetting(self._setting, initial, self._ttl, self._days)
        return shape_of(self.vertex, self.kind, self.key, self.state, setting)

    def began_otherwise(self, was: VertexShape) -> str | None:
        """Return the fault if keys that are in no part had another initial state; None if they had this one.

        A state equal to the initial one is not saved, so keys that had it would find the new one. Fields that the state
        has gained since take their defaults, as in saved states.

        Args:
            was: The step's shape in a snapshot, of a type that `compare` lets through.
        """
        column = initial_of(was) if self.kind == "scan" else None
        if column is None:
            return None  # It has none, or the snapshot is of a version that did not note it.
        (then,) = self._kind.decode(_fitted(self._kind, column))
        if encode_rows([then]) == encode_rows([self._initial]):
            return None
        return (
            f'step "{self.vertex}" begins with {shortened(self._initial)}, but began with {shortened(then)}, and keys '
            "with that state are not saved: give the step another name"
        )

    def cut_otherwise(self, was: VertexShape, at_us: int) -> str | None:
        """Return the fault if a calendar's windows would end elsewhere than the saved ones; None if they do not.

        Args:
            was: The step's shape in a snapshot.
            at_us: The snapshot's moment, in microseconds since 1970.
        """
        then = days_of(was)
        year = differ(then, self._days, at_us) if then and self._days else None
        if year is None:
            return None
        return (
            f'step "{self.vertex}" goes by the days of {self._tz}, which begin differently in {year} on the '
            "machine that took the snapshot: install the same tzdata on all machines, or give the step another name"
        )

    @property
    def defaults(self) -> frozenset[str]:
        """The state's fields that have a default, by their paths: `total`, `lines[].price`, `named{}.price`."""
        return frozenset(_defaults(self._kind, ""))

    def table(self, entries: Sequence[tuple[Key, Any]]) -> pa.Table:
        """The captured state of one hash unit as the columns of a part; one row per key, of `last` per element.

        Raises:
            LifeEnded: a state is not of the type that the step declares.
        """
        try:
            if self.kind in _ELEMENTS:
                return self._elements(entries)
            if self.kind in _WINDOWS:
                return self._windows(entries)
            if self.kind == "join":
                return self._waiting(entries)
            if self.kind == "broadcast":
                return pa.table({"state": self._kind.encode([state for _, state in entries])})
            columns = {"key": self._key_column([key for key, _ in entries])}
            if self.kind == "deduplicate":
                return pa.table(columns | {"tick": pa.array([tick for _, tick in entries], pa.int64())})
            content = "record" if self.kind == "table" else "state"
            if self._ttl is not None:
                columns[content] = self._kind.encode([state for _, (state, _) in entries])
                columns["tick"] = pa.array([tick for _, (_, tick) in entries], pa.int64())
            else:
                columns[content] = self._kind.encode([state for _, state in entries])
            return pa.table(columns)
        except Mismatch as mismatch:
            raise LifeEnded(
                f"the state{mismatch.path} of a key is {mismatch.value!r}, expected {mismatch.expected}",
                where=f'step "{self.vertex}"',
                way_out="make the function return states of the type that it declares",
            ) from None

    def entries(self, table: pa.Table, gone: int = FIRST_TICK) -> list[tuple[Key, Any]]:
        """The inverse of `table`; fields that the state has got since take their defaults.

        Of a step that forgets, the tick of a key's last record is None where the step did not forget when it was saved.

        Args:
            table: The part.
            gone: Keys are left out whose last record is of this tick or an earlier one: they had been forgotten.
        """
        if self.kind == "last":
            return [(key, elements) for key, elements in self._read(table) if tick_of(elements[-1][0]) > gone]
        if gone > FIRST_TICK and "tick" in table.column_names:
            table = table.filter(pc.field("tick") > gone)
        return self._read(table)

    def delta(self, entries: Sequence[tuple[Key, Any]], gone: Sequence[Key]) -> pa.Table:
        """The changes of a hash unit as the columns of a delta part: keys with their state, and those without any.

        Raises:
            LifeEnded: a state is not of the type that the step declares.
        """
        table = self.table(entries)
        flags = [False] * table.num_rows + [True] * len(gone)
        if gone:
            keys = pa.table({"key": self._key_column(list(gone))})
            table = pa.concat_tables([table, keys], promote_options="default")
        return table.append_column(GONE, pa.array(flags, pa.bool_()))

    def deltas(self, changes: Mapping[int, tuple[Sequence[tuple[Key, Any]], Sequence[Key]]]) -> pa.Table:
        """The changes of several hash units as the columns of one delta part.

        Args:
            changes: By hash unit what `delta` takes.
        """
        tables = []
        for unit in sorted(changes):
            table = self.delta(*changes[unit])
            tables.append(table.append_column(UNIT, pa.repeat(pa.scalar(unit, pa.int32()), table.num_rows)))
        return pa.concat_tables(tables).combine_chunks()

    def applied(self, tables: Sequence[pa.Table], gone: int = FIRST_TICK) -> list[tuple[Key, Any]]:
        """The state of a hash unit from its parts in their order: a whole one, and the deltas after it.

        Args:
            tables: The parts.
            gone: See `entries`.
        """
        if len(tables) == 1 and GONE not in tables[0].column_names:
            return self.entries(tables[0], gone)
        found: dict[Key, Any] = {}
        for schema, alike in groupby(tables, key=lambda table: table.schema):
            if GONE not in schema.names:
                found = dict(self.entries(next(alike), gone))
                continue
            table = self._newest(list(alike))
            flags = table.column(GONE)
            for key in self._keys_of(_whole(table.column("key").filter(flags))):
                found.pop(key, None)
            found.update(self.entries(table.filter(pc.invert(flags)).drop_columns(GONE), gone))
        return list(found.items())

    def _newest(self, deltas: Sequence[pa.Table]) -> pa.Table:
        """Return deltas as one, with the rows that each key has in the last of them that has it."""
        if len(deltas) == 1:
            return deltas[0]
        table = pa.concat_tables(deltas).combine_chunks()
        keys = self._keys_of(_whole(table.column("key")))
        numbers = [number for number, each in enumerate(deltas) for _ in range(each.num_rows)]
        last = dict(zip(keys, numbers, strict=True))
        return table.filter(pa.array([last[key] == number for key, number in zip(keys, numbers, strict=True)]))

    def _read(self, table: pa.Table) -> list[tuple[Key, Any]]:
        columns = {name: _whole(table.column(name)) for name in table.column_names}
        try:
            if self.kind in _ELEMENTS:
                return self._elements_of(columns)
            if self.kind in _WINDOWS:
                return self._windows_of(columns)
            if self.kind == "join":
                return self._waiting_of(columns)
            if self.kind == "deduplicate":
                return list(zip(self._keys_of(columns["key"]), columns["tick"].to_pylist(), strict=True))
            states = self._kind.decode(_fitted(self._kind, columns["record" if self.kind == "table" else "state"]))
            keys = [None] * len(states) if self.key is None else self._keys_of(columns["key"])
        except (Mismatch, AssertionError) as error:
            raise LifeEnded(
                f"cannot read the saved state: {error}",
                where=f'step "{self.vertex}"',
                way_out="restore its type and the steps before it to what they were when it was saved: an Enum member "
                "may be gone",
            ) from error
        if self._ttl is not None:
            ticks = columns["tick"].to_pylist() if "tick" in columns else [None] * len(states)
            states = list(zip(states, ticks, strict=True))
        return list(zip(keys, states, strict=True))

    def keys_of(self, asked: Sequence[Mapping[str, str]]) -> list[Key]:
        """Keys, each given as text by column; the only column of a key may be "".

        Raises:
            KeyUnreadable: a column is missing or not in the key, or a text is not a value of its type.
        """
        names = self._names
        for texts in asked:
            if set(texts) != set(names) and not (len(names) == 1 and set(texts) == {""}):
                raise KeyUnreadable(f'the key of "{self.vertex}" is {", ".join(names)}; give each of them once')
        columns = []
        for name, kind in zip(names, self._keys, strict=True):
            found = [texts[name] if name in texts else texts[""] for texts in asked]
            try:
                columns.append(kind.decode(pa.array(found, pa.string()).cast(kind.arrow)))
            except (pa.ArrowException, KeyError, Mismatch, ValueError) as error:
                if len(asked) > 1:
                    return [key for texts in asked for key in self.keys_of([texts])]
                raise KeyUnreadable(f"{name}={found[0]!r} is not of type {kind.name}") from error
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def shown(self, entries: Sequence[tuple[Key, Any]]) -> list[list[dict[str, Any]]]:
        """The states of keys as plain values: for each its rows as a part has them."""
        rows: list[dict[str, Any]] = self.table(entries).to_pylist(maps_as_pydicts="strict")
        there = iter(rows)
        return [list(islice(there, self._rows_of(state))) for _, state in entries]

    def _rows_of(self, state: Any) -> int:
        """The number of rows of a key's state."""
        if self.kind == "window_records":
            return sum(len(elements) for _, elements in state)
        return len(state) if self.kind in (*_ELEMENTS, "window", "join") else 1

    def _windows(self, entries: Sequence[tuple[Key, Any]]) -> pa.Table:
        """One row per open window, or per record of one."""
        if self.kind == "window":
            keys = [key for key, saved in entries for _ in saved]
            windows = list(chain.from_iterable([saved for _, saved in entries]))
            columns = {"key": self._key_column(keys), **_bounds([span for span, _ in windows])}
            return pa.table({**columns, "state": self._kind.encode([state for _, state in windows])})
        rows = [(key, span, state) for key, saved in entries for span, state in saved]
        table = self._elements([(key, elements) for key, _, elements in rows])
        bounds = _bounds([span for _, span, elements in rows for _ in elements])
        for index, (name, column) in enumerate(bounds.items(), 1):
            table = table.add_column(index, name, column)
        return table

    def _windows_of(self, columns: dict[str, pa.Array]) -> list[tuple[Key, Any]]:
        keys, spans = self._keys_of(columns["key"]), _spans_of(columns)
        states: list[Any]
        if self.kind == "window":
            states = self._kind.decode(_fitted(self._kind, columns["state"]))
        else:
            runs = list(zip(keys, spans, strict=True))
            keys, spans, states = [], [], []
            for (key, span), elements in self._runs(runs, columns):
                keys.append(key)
                spans.append(span)
                states.append(elements)
        each = zip(keys, zip(spans, states, strict=True), strict=True)
        if len(set(keys)) == len(keys):
            return [(key, [window]) for key, window in each]
        found: dict[Key, list[tuple[Span, Any]]] = {}
        for key, window in each:
            windows = found.get(key)
            if windows is None:
                found[key] = [window]
            else:
                windows.append(window)
        return list(found.items())

    def _waiting(self, entries: Sequence[tuple[Key, Any]]) -> pa.Table:
        """One row per record that waits for partners."""
        table = self._elements([(key, [(at, row) for at, row, _ in saved]) for key, saved in entries])
        paired = [is_paired for _, saved in entries for _, _, is_paired in saved]
        return table.append_column("paired", pa.array(paired, pa.bool_()))

    def _waiting_of(self, columns: dict[str, pa.Array]) -> list[tuple[Key, Any]]:
        paired = iter(columns["paired"].to_pylist())
        return [
            (key, [(at, row, next(paired)) for at, row in elements]) for key, elements in self._elements_of(columns)
        ]

    def _elements(self, entries: Sequence[tuple[Key, Any]]) -> pa.Table:
        elements = list(chain.from_iterable(elements for _, elements in entries))
        at = [OrderKey.of(at) for at, _ in elements]
        keys = chain.from_iterable([key] * len(elements) for key, elements in entries)
        return pa.table(
            {
                "key": self._key_column(list(keys)),
                "tick": pa.array([each.tick for each in at], pa.int64()),
                "front": pa.array([each.front for each in at], pa.int32()),
                "sequence": pa.array([each.sequence for each in at], pa.int64()),
                "child": pa.array([_path_bytes(each.child) for each in at], pa.binary()),
                "trace": pa.array([each.trace for each in at], pa.uint64()),
                "record": self._kind.encode([row for _, row in elements]),
            }
        )

    def _elements_of(self, columns: dict[str, pa.Array]) -> list[tuple[Key, Any]]:
        return self._runs(self._keys_of(columns["key"]), columns)

    def _runs(self, names: Sequence[Any], columns: dict[str, pa.Array]) -> list[tuple[Any, list[tuple[bytes, Any]]]]:
        """Elements that stand together under one name."""
        n = len(names)
        if not n:
            return []
        orders = [columns[name].to_pylist() for name in ("tick", "front", "sequence", "child", "trace")]
        ats = [
            OrderKey(tick, front, sequence, _path_of(child), trace).packed()
            for tick, front, sequence, child, trace in zip(*orders, strict=True)
        ]
        rows = self._kind.decode(_fitted(self._kind, columns["record"]))
        starts = [0, *(index for index in range(1, n) if names[index] != names[index - 1]), n]
        return [
            (names[start], list(zip(ats[start:end], rows[start:end], strict=True))) for start, end in pairwise(starts)
        ]

    def _key_column(self, keys: list[Key]) -> pa.Array:
        assert self.key is not None
        values: list[list[Any]] = [keys] if len(self._keys) == 1 else [list(one) for one in zip(*keys, strict=True)]
        if not keys:
            values = [[] for _ in self._keys]
        columns = [kind.encode(column) for kind, column in zip(self._keys, values, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(self.key))

    def _keys_of(self, column: pa.Array) -> list[Key]:
        parts = [kind.decode(column.field(index)) for index, kind in enumerate(self._keys)]
        return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


def saved_steps(plan: Plan, level: int | None = None) -> dict[str, SavedStep]:
    """Return the saving of each step of a plan that keeps state, by name; of one level if it is given."""
    found: dict[str, SavedStep] = {}
    for vertex in plan.vertices:
        if vertex.step.exchange or level not in (None, vertex.level) or _saved(plan, vertex) is None:
            continue
        steps = [SavedStep(plan, vertex, port) for port in range(vertex.step.sides)]
        if is_of(vertex, Scan) and (beside := plan.broadcast_of(vertex)) is not None:
            steps.append(SavedStep(plan, beside))
        found |= {step.vertex: step for step in steps}
    return found


def _saved(plan: Plan, vertex: Vertex, port: int = 0) -> Saved | None:
    return vertex.step.saved([plan.vertices[parent].gives for parent in vertex.parents], port)


_ELEMENTS = ("last", "call")
_WINDOWS = ("window", "window_records")
_BOUNDS = ("window_start", "window_end")
_MOMENTS = pa.timestamp("us", tz="UTC")


def _bounds(spans: Sequence[Span]) -> dict[str, pa.Array]:
    return {
        name: pa.array([span[index] for span in spans], pa.int64()).cast(_MOMENTS) for index, name in enumerate(_BOUNDS)
    }


def _spans_of(columns: dict[str, pa.Array]) -> list[Span]:
    starts, ends = (columns[name].cast(pa.int64()).to_numpy(zero_copy_only=False).tolist() for name in _BOUNDS)
    known: dict[Span, Span] = {}
    # Windows that end together share their span in memory.
    return [known.setdefault(span, span) for span in zip(starts, ends, strict=True)]


def _path_bytes(path: tuple[int, ...]) -> bytes:
    return struct.pack(f">{len(path)}I", *path)


def _path_of(data: bytes) -> tuple[int, ...]:
    """A child path; in parts of earlier versions zeros after it bring all paths to one length."""
    return tuple(element for element in struct.unpack(f">{len(data) // 4}I", data) if element)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [column.combine_chunks()])


def _fitted(kind: Kind, column: pa.Array) -> pa.Array:
    """A column in the type that it has now: fields that were added take their defaults."""
    if column.type == kind.arrow:
        return column
    if isinstance(kind, Nullable):
        return _fitted(kind.inner, column)
    mask = column.is_null() if column.null_count else None
    if isinstance(kind, Struct):
        there = {field.name for field in column.type}
        declared = {field.name: field for field in dataclasses.fields(kind.record)}  # type: ignore[arg-type]
        columns = [
            _fitted(inner, column.field(name))
            if name in there
            else inner.encode([_default(declared[name]) for _ in range(len(column))])
            for name, inner in kind.fields
        ]
        return pa.StructArray.from_arrays(columns, fields=kind.arrow_fields, mask=mask)
    if isinstance(kind, Sequenced):
        return pa.ListArray.from_arrays(column.offsets, _fitted(kind.item, column.values), type=kind.arrow, mask=mask)
    assert isinstance(kind, MappingKind), f"{column.type} was let through as {kind.name}"
    return pa.MapArray.from_arrays(
        column.offsets, column.keys, _fitted(kind.value, column.items), type=kind.arrow, mask=mask
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    assert field.default is not dataclasses.MISSING, f"{field.name} was let through without a default"
    return field.default


def _defaults(kind: Kind, path: str) -> list[str]:
    if isinstance(kind, Nullable):
        return _defaults(kind.inner, path)
    if isinstance(kind, Sequenced):
        return _defaults(kind.item, f"{path}[]")
    if isinstance(kind, MappingKind):
        return _defaults(kind.value, f"{path}{{}}")
    if not isinstance(kind, Struct):
        return []
    prefix, nothing = f"{path}." if path else "", dataclasses.MISSING
    fields = dataclasses.fields(kind.record)  # type: ignore[arg-type]
    given = (each.name for each in fields if not (each.default is nothing and each.default_factory is nothing))
    found = [f"{prefix}{name}" for name in given]
    for name, inner in kind.fields:
        found += _defaults(inner, f"{prefix}{name}")
    return found
