"""A manifest: all that a snapshot consists of, as one JSON object; defined in `snapshots/README.md`."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Self

import pyarrow as pa

from lowtide_snapshots.errors import (
    FormatTooNew,
    ManifestDamaged,
    PartRefused,
    RecordDamaged,
    RecordRefused,
    RecordTooNew,
)
from lowtide_snapshots.format.entries import Chains, FloorAt, FrontAt, LaneLast, Part, chains_of
from lowtide_snapshots.format.json_values import Misfit, instance
from lowtide_snapshots.format.names import incarnation_of, manifest_name
from lowtide_snapshots.format.parts import DELTA_FORMAT, KINDS, SHARED, UNITS_FORMAT, Data, ascending
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.keys import MAX_UNITS

__all__ = [
    "MANIFEST_FORMAT",
    "FloorAt",
    "FrontAt",
    "LaneLast",
    "Manifest",
    "Part",
    "StateSetting",
    "VertexShape",
    "days_of",
    "initial_of",
    "setting_of",
    "shape_of",
    "ttl_of",
    "type_of",
]

MANIFEST_FORMAT = 6
_INITIAL = b"lowtide.initial"
_SETTING = b"lowtide.setting"
_TTL = b"lowtide.ttl"
_DAYS = b"lowtide.days"
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_NO_FIELD = "a field that this format has not"
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class VertexShape:
    """The types that a vertex keeps state in; made by `shape_of`.

    Attributes:
        key: the key's columns, each a name and its type as a text for people; empty where there is no key.
        state: the type of the state (of the record, in kind last), read by `type_of`.
    """

    vertex: str
    kind: str
    key: tuple[tuple[str, str], ...]
    state: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that a snapshot consists of.

    Attributes:
        id: the snapshot's.
        name: the name that the user gave it; None without one.
        tick: its T: the parts hold all records below it, and nothing else.
        incarnation: the life that took it.
        created: when, as `2026-01-31T12:00:00.000Z`.
        base: the id of the committed snapshot whose unchanged parts it points to; None if there was none.
        record: the job's, frozen.
        flow: the types of every vertex with state.
        fronts: from where each front of the register is read again.
        floors: the floors from there on.
        lasts: what each lane had delivered.
        parts: of every unit that has state, whichever snapshots wrote them: a whole part and the deltas after it, in
            the order in which they apply; see `in_order`.
        steps: a text that is the same as long as the flow's steps give records the same lanes and places in the order.
        generation: of the output that `lasts` speaks of.
    """

    job: str
    id: str
    name: str | None
    tick: int
    incarnation: int
    created: str
    base: str | None
    record: JobRecord
    flow: tuple[VertexShape, ...]
    fronts: tuple[FrontAt, ...]
    floors: tuple[FloorAt, ...]
    lasts: tuple[LaneLast, ...]
    parts: tuple[Part, ...]
    steps: str = ""
    generation: int = 0

    @property
    def min_time_ms(self) -> int:
        """T in milliseconds."""
        return self.tick * self.record.slack_ms

    @property
    def path(self) -> str:
        """The manifest's name below the root of the store."""
        return manifest_name(self.job, self.min_time_ms, self.id)

    @property
    def bytes(self) -> int:
        """The size of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def rows(self) -> int:
        """The rows of all parts."""
        return sum(part.rows for part in self.parts)

    def by_unit(self) -> Chains:
        """The parts by vertex and hash unit, in the order in which they apply."""
        return chains_of(self.parts)

    def to_json(self) -> str:
        """The manifest as JSON, the same text for equal manifests."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("flow", "fronts", "floors", "lasts", "parts"):
            values[name] = [asdict(value) for value in values[name]]
        values["record"] = json.loads(self.record.to_json())
        return json.dumps({"format": MANIFEST_FORMAT} | values, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | Data, where: str) -> Self:
        """The inverse of `to_json`.

        Args:
            text: the manifest.
            where: its name in the store, for people.

        Raises:
            ManifestDamaged: it is not a manifest, or contradicts itself.
            FormatTooNew: its format, or that of the job's record in it, is newer than this code.
        """
        values = _values(text, where)
        try:
            values["record"] = JobRecord.from_json(json.dumps(values.get("record")))
            manifest = instance(cls, values)
            manifest._check()
        except RecordTooNew as error:
            raise FormatTooNew(error.what, where=where, way_out=error.way_out) from error
        except (Misfit, PartRefused, RecordDamaged, RecordRefused) as error:
            raise _damaged(str(error), where) from error
        return manifest

    def _check(self) -> None:
        """Hold the fields against each other."""
        kinds = {(shape.vertex, shape.kind) for shape in self.flow}
        for wrong, says in (
            (self.record.job != self.job, f"it is of job {self.job!r} but has the record of {self.record.job!r}"),
            (incarnation_of(self.id) != self.incarnation, f"{self.id} is not a snapshot of life {self.incarnation}"),
            (not _CREATED.fullmatch(self.created), f"it was made at {self.created!r}"),
            (any(not in_order(parts) for parts in self.by_unit().values()), "it has two parts for one unit"),
            (not {kind for _, kind in kinds} <= set(KINDS), "it has a vertex of an unknown kind"),
            (
                not {(part.vertex, part.kind) for part in self.parts} <= kinds,
                "it has a part that belongs to no vertex of its flow",
            ),
        ):
            if wrong:
                raise Misfit(says)
        _ = self.path
        for part in self.parts:
            since = part.tick if part.since is None else part.since
            sizes = part.rows, part.bytes, part.tick - since, self.tick - part.tick
            if min(sizes) < 0 or not _SHA256.fullmatch(part.sha256) or (part.units and not _of_several(part)):
                raise Misfit(f"impossible part: {part}")
            part.name(self.job, self.record.slack_ms)


def _of_several(part: Part) -> bool:
    """Return whether this may be a part of several hash units."""
    ordered = ascending(part.units) and part.unit <= part.units[0] and part.units[-1] < MAX_UNITS
    return ordered and part.since is not None and part.kind not in SHARED


def in_order(parts: Sequence[Part]) -> bool:
    """Return whether these may be the parts of one unit: one after the other in time, deltas after the first.

    The first may be a delta, too: of a unit that had no state before.
    """
    later = all(part.since is not None and before.tick < part.tick for before, part in pairwise(parts))
    return later and len({part.kind for part in parts}) <= 1


@dataclass(frozen=True, slots=True)
class StateSetting:
    """The setting that a vertex's state depends on besides its type.

    Attributes:
        text: a text for people: of windows how they are cut.
        initial: one value of the state's type, the state of the keys that no part has; None where there is none.
        ttl: after how many ticks a key is forgotten; None for never.
        days: of windows of a calendar, when the days of its time zone begin; opaque here.
    """

    text: str = ""
    initial: pa.Array | None = None
    ttl: int | None = None
    days: str = ""


def shape_of(
    vertex: str, kind: str, key: pa.StructType | None, state: pa.DataType, setting: StateSetting = StateSetting()
) -> VertexShape:
    """The shape of a vertex.

    Args:
        vertex: its name.
        kind: its kind.
        key: the key's columns; None where there is no key.
        state: the type of its state.
        setting: the setting that it depends on, too.
    """
    columns = () if key is None else tuple((field.name, str(field.type)) for field in key)
    schema = pa.schema([pa.field("state", state)])
    metadata = {_SETTING: setting.text.encode()} if setting.text else {}
    if setting.initial is not None:
        batch = pa.record_batch([setting.initial], schema=schema).serialize()
        metadata[_INITIAL] = base64.b64encode(batch)
    if setting.ttl is not None:
        metadata[_TTL] = b"%d" % setting.ttl
    if setting.days:
        metadata[_DAYS] = setting.days.encode()
    message = schema.with_metadata(metadata or None).serialize()
    return VertexShape(vertex, kind, columns, base64.b64encode(message).decode())


def type_of(shape: VertexShape) -> pa.DataType:
    """The type of a vertex's state.

    Raises:
        ManifestDamaged: it cannot be read.
    """
    return _schema_of(shape).field("state").type


def setting_of(shape: VertexShape) -> str:
    """Return the setting that a vertex's state depends on besides its type; errors as of `type_of`."""
    return ((_schema_of(shape).metadata or {}).get(_SETTING) or b"").decode()


def initial_of(shape: VertexShape) -> pa.Array | None:
    """The state of the keys that no part has, as an array of one; None where the shape does not say it.

    Raises:
        ManifestDamaged: it cannot be read.
    """
    schema = _schema_of(shape)
    said = (schema.metadata or {}).get(_INITIAL)
    if said is None:
        return None
    try:
        column = pa.ipc.read_record_batch(pa.py_buffer(base64.b64decode(said, validate=True)), schema).column(0)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise _damaged(f"cannot read the initial state ({error})", f"vertex {shape.vertex!r}") from error
    return column


def ttl_of(shape: VertexShape) -> int | None:
    """After how many ticks a key was forgotten; None for never. Errors as of `type_of`."""
    said = (_schema_of(shape).metadata or {}).get(_TTL)
    try:
        return None if said is None else int(said)
    except ValueError as error:
        raise _damaged(f"its time to live is not a number ({error})", f"vertex {shape.vertex!r}") from error


def days_of(shape: VertexShape) -> str:
    """Return the starts of its calendar's days, as its writer knew them; empty if absent. Errors as of `type_of`."""
    return ((_schema_of(shape).metadata or {}).get(_DAYS) or b"").decode()


def _schema_of(shape: VertexShape) -> pa.Schema:
    try:
        message = base64.b64decode(shape.state, validate=True)
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        schema.field("state")
        return schema
    except (ValueError, KeyError, OSError, pa.ArrowException) as error:
        raise _damaged(f"cannot read the type of the state ({error})", f"vertex {shape.vertex!r}") from error


def _values(text: str | Data, where: str) -> dict[str, Any]:
    try:
        values = json.loads(bytes(text) if isinstance(text, memoryview) else text)
    except ValueError as error:
        raise _damaged(f"it is not JSON ({error})", where) from error
    found = values.pop("format", None) if isinstance(values, dict) else None
    if type(found) is not int or found < 1:
        raise _damaged("it has no format number", where)
    if found > MANIFEST_FORMAT:
        raise FormatTooNew(
            f"the manifest has format {found}; this version of Lowtide reads up to {MANIFEST_FORMAT}",
            where=where,
            way_out="use the version of Lowtide that wrote it, or a newer one",
        )
    assert isinstance(values, dict)
    for part in parts if isinstance(parts := values.get("parts"), list) else ():
        if found < DELTA_FORMAT and isinstance(part, dict):
            part["since"] = _NO_FIELD if "since" in part else None
        if found < UNITS_FORMAT and isinstance(part, dict):
            part["units"] = _NO_FIELD if "units" in part else []
    return values


def _damaged(why: str, where: str) -> ManifestDamaged:
    return ManifestDamaged(
        f"cannot read a manifest: {why}", where=where, way_out="recover from an earlier commit, and check the store"
    )
