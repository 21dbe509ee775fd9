"""A part: the state of one hash unit of one vertex below a min time, as one Parquet file.

A *delta* has only the keys that have changed since an earlier commit, those too that have no state any more. Small
deltas of several hash units are one part.

The format is defined in `snapshots/README.md`. Encoding and decoding are O(rows), column-wise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby, pairwise
from types import NoneType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from lowtide_snapshots.errors import FormatTooNew, PartDamaged, PartRefused
from lowtide_snapshots.format.names import part_name

Data: TypeAlias = bytes | bytearray | memoryview

PART_FORMAT = 6
KINDS = ("scan", "last", "broadcast", "deduplicate", "window", "window_records", "table", "join", "call")
SHARED = frozenset(("broadcast",))
"""The kinds of which one part is the state of all hash units."""
SHARED_UNIT = 0
"""The hash unit of a broadcast's part, since format 3; before, each unit had one, and all were alike."""
ROW_GROUP_ROWS = 131_072
COMPRESSION_LEVEL = 1

_HEAD = b"lowtide.part"
_ORDER_KEY = {
    "tick": pa.int64(),
    "front": pa.int32(),
    "sequence": pa.int64(),
    "child": pa.binary(),
    "trace": pa.uint64(),
}
_BOUNDS = {"window_start": pa.timestamp("us", tz="UTC"), "window_end": pa.timestamp("us", tz="UTC")}
_COLUMNS = {
    "scan": ("key", "state"),
    "last": ("key", *_ORDER_KEY, "record"),
    "broadcast": ("state",),
    "deduplicate": ("key", "tick"),
    "window": ("key", *_BOUNDS, "state"),
    "table": ("key", "record"),
    "join": ("key", *_ORDER_KEY, "record", "paired"),
    "call": ("key", *_ORDER_KEY, "record"),
    "window_records": ("key", *_BOUNDS, *_ORDER_KEY, "record"),
}
_OPTIONAL = {"scan": ("tick",), "table": ("tick",)}
"""Columns after the others that a part of a kind may have, since format 2."""
GONE = "gone"
"""The last column of a delta, since format 5: True where a key has no state any more, and all else is null."""
DELTA_FORMAT = 5
"""The first format with deltas."""
UNIT = "hash_unit"
"""The last column of a part with several hash units, since format 6: ascending."""
UNITS_FORMAT = 6
"""The first format with such parts."""


@dataclass(frozen=True, slots=True)
class PartHead:
    """The head of a part, in the metadata of its Parquet schema.

    Attributes:
        job: the job's name.
        vertex: the vertex whose state it is.
        kind: of that vertex; one of `KINDS`.
        unit: the hash unit; of several the lowest.
        tick: the T of the snapshot that wrote it: the state is that of all records below.
        slack_ms: the length of a tick, in milliseconds.
        snapshot: the id of that snapshot.
        since: of a delta the T of the commit from which on it has what has changed; None for a whole part.
        units: of a part with several hash units all of them, ascending; empty for a part of one.
    """

    job: str
    vertex: str
    kind: str
    unit: int
    tick: int
    slack_ms: int
    snapshot: str
    since: int | None = None
    units: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The part's name below the root of a store; errors as of `part_name`."""
        return part_name(self.job, self.vertex, self.unit, self.tick * self.slack_ms, self.snapshot)


def encode_part(head: PartHead, table: pa.Table) -> memoryview:
    """A part's bytes; the same for the same rows in the same order, as long as pyarrow is the same.

    Args:
        head: what the part is.
        table: the columns of its kind, the rows in their final order.

    Raises:
        PartRefused: the columns are not those of the kind, or a type has no place in Parquet.
    """
    wrong = _mismatch(head, table)
    if wrong:
        raise PartRefused(wrong, where=head.name, way_out="report it: the vertex wrote a table of another form")
    text = json.dumps({"format": PART_FORMAT} | asdict(head), sort_keys=True)
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(
            table.replace_schema_metadata({_HEAD: text.encode()}),
            sink,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            row_group_size=ROW_GROUP_ROWS,
            write_statistics=True,
            write_page_checksum=True,
        )
    except (pa.ArrowException, NotImplementedError) as error:
        raise PartRefused(
            f"Parquet cannot store state of type {table.schema.types}: {error}",
            where=head.name,
            way_out="give the state of the vertex another type",
        ) from error
    return memoryview(sink.getvalue())


def decode_part(data: Data, name: str) -> tuple[PartHead, pa.Table]:
    """Read a part.

    Args:
        data: its bytes.
        name: the name it was asked for by, below the root of the store.

    Raises:
        PartDamaged: it is not a Parquet file, has no head, is another part than its name says, or lacks a column.
        FormatTooNew: its format is newer than this code.
    """
    try:
        source = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        head = _head(source.schema_arrow.metadata or {}, name)
        table = source.read().replace_schema_metadata(None)
    except (pa.ArrowException, OSError, ValueError, NotImplementedError, MemoryError) as error:
        raise _damaged(f"it is not a whole Parquet file ({error})", name) from error
    try:
        said = head.name
    except PartRefused as error:
        raise _damaged(f"its head has {error.what}", name) from error
    if said != name:
        raise _damaged(f"its head says that it is {said}", name)
    wrong = _mismatch(head, table)
    if wrong:
        raise _damaged(wrong, name)
    return head, table


def by_unit(table: pa.Table) -> dict[int, pa.Table]:
    """The rows of each hash unit in a part with several, as in a part of its own."""
    units, rest = table.column(UNIT).to_pylist(), table.drop_columns(UNIT)
    starts = [row for row, unit in enumerate(units) if row == 0 or units[row - 1] != unit]
    return {units[start]: rest.slice(start, end - start) for start, end in pairwise([*starts, len(units)])}


def sha256(data: Data) -> str:
    """The SHA-256 of an object's bytes, in lower hex."""
    return hashlib.sha256(data).hexdigest()


def _head(metadata: dict[bytes, bytes], name: str) -> PartHead:
    try:
        values = json.loads(metadata[_HEAD])
        found = values.pop("format")
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise _damaged("it has no head", name) from error
    if type(found) is int and found > PART_FORMAT:
        raise FormatTooNew(
            f"the part has format {found}; this version of Lowtide reads up to {PART_FORMAT}",
            where=name,
            way_out="use the version of Lowtide that wrote it, or a newer one",
        )
    types: dict[str, Any] = {field.name: int if field.type == "int" else str for field in fields(PartHead)}
    del types["since"], types["units"]
    if type(found) is int and found >= DELTA_FORMAT:
        types["since"] = NoneType if values.get("since", 0) is None else int
    if type(found) is int and found >= UNITS_FORMAT:
        types["units"] = list
    if type(found) is not int or found < 1 or {key: type(value) for key, value in values.items()} != types:
        raise _damaged(f"its head is {metadata[_HEAD][:200]!r}", name)
    return PartHead(**values | {"units": tuple(values.get("units", ()))})


def _mismatch(head: PartHead, table: pa.Table) -> str:
    """Return the fault in the columns of a part; empty if there is none."""
    kind, delta = head.kind, () if head.since is None else (GONE, UNIT) if head.units else (GONE,)
    if kind not in _COLUMNS:
        return f"{kind!r} is not a kind of part; the kinds are {', '.join(KINDS)}"
    names, wanted_names = tuple(table.column_names), _COLUMNS[kind]
    if names not in (wanted_names + delta, wanted_names + _OPTIONAL.get(kind, ()) + delta) or (
        delta and kind in SHARED
    ):
        what = f"a delta of kind {kind}" if delta else f"kind {kind}"
        return f"its columns are {table.column_names}, but {what} has {[*wanted_names, *delta]}"
    for column in table.schema:
        wanted = {**_ORDER_KEY, **_BOUNDS, GONE: pa.bool_(), UNIT: pa.int32()}.get(column.name)
        if wanted is not None and column.type != wanted:
            return f"column {column.name} is {column.type}, not {wanted}"
        if column.name in ("key", "record") and not pa.types.is_struct(column.type):
            return f"column {column.name} is {column.type}, not a struct"
    if kind == "broadcast" and table.num_rows != 1:
        return f"it has {table.num_rows} rows; a broadcast's part has one"
    return _units_mismatch(head, table) if head.units else ""


def _units_mismatch(head: PartHead, table: pa.Table) -> str:
    """Return the fault in the hash units of a part with several; empty if there is none."""
    if head.since is None or not ascending(head.units) or head.unit != head.units[0]:
        return f"it is a part of the hash units {list(head.units)}, but has the name of {head.unit}"
    if tuple([unit for unit, _ in groupby(table.column(UNIT).to_pylist())]) != head.units:
        return "its rows are not those of its hash units, in their order"
    return ""


def ascending(units: Sequence[int]) -> bool:
    """Return whether hash units stand in their order, each once."""
    return all(type(unit) is int for unit in units) and all(one < other for one, other in pairwise(units))


def _damaged(why: str, name: str) -> PartDamaged:
    return PartDamaged(
        f"cannot read a part: {why}", where=name, way_out="recover from an earlier commit, and check the store"
    )
