"""The difference between two snapshots of a job: records, rows, bytes, units, and the flow's shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lowtide_snapshots.errors import RecordRefused
from lowtide_snapshots.format.fingerprint import Difference, compare
from lowtide_snapshots.format.manifest import Manifest, Part


@dataclass(frozen=True, slots=True)
class FrontDiff:
    """One front; an offset is None where the snapshot does not know the front."""

    number: int
    source: str
    partition: int
    before: int | None
    after: int | None

    @property
    def records(self) -> int | None:
        """The distance between the offsets; None if one is unknown. Markers and compacted records count."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class VertexDiff:
    """One vertex with state.

    Attributes:
        rows_before, rows_after: of all parts: a key that deltas have again has a row in each.
        units: how many hash units have state in the second snapshot.
        changed: the number whose parts differ from the first, or are gone.
    """

    vertex: str
    rows_before: int
    rows_after: int
    bytes_before: int
    bytes_after: int
    units: int
    changed: int


@dataclass(frozen=True, slots=True)
class Diff:
    """All of it; `ticks` and `ids` are those of both snapshots."""

    ids: tuple[str, str]
    ticks: tuple[int, int]
    fronts: tuple[FrontDiff, ...]
    vertices: tuple[VertexDiff, ...]
    shape: tuple[Difference, ...]


def diff(before: Manifest, after: Manifest) -> Diff:
    """Hold two snapshots of one job against each other; O(parts), reads no part.

    Raises:
        RecordRefused: they are of two jobs.
    """
    if before.job != after.job:
        raise RecordRefused(
            f"snapshot {before.id} is of job {before.job!r}, and {after.id} of job {after.job!r}",
            way_out="give two snapshots of one job",
        )
    return Diff(
        ids=(before.id, after.id),
        ticks=(before.tick, after.tick),
        fronts=_fronts(before, after),
        vertices=_vertices(before, after),
        shape=tuple(compare(before.flow, after.flow, {})),
    )


def _fronts(before: Manifest, after: Manifest) -> tuple[FrontDiff, ...]:
    old = {front.number: front for front in before.fronts}
    new = {front.number: front for front in after.fronts}
    found = []
    for number in sorted(old.keys() | new.keys()):
        was, now = old.get(number), new.get(number)
        front = now or was
        assert front is not None
        offsets = was.offset if was else None, now.offset if now else None
        found.append(FrontDiff(number, front.source, front.partition, *offsets))
    return tuple(found)


def _vertices(before: Manifest, after: Manifest) -> tuple[VertexDiff, ...]:
    names = {part.vertex for manifest in (before, after) for part in manifest.parts}
    found = []
    for vertex in sorted(names | {shape.vertex for manifest in (before, after) for shape in manifest.flow}):
        old, new = _units(before, vertex), _units(after, vertex)
        changed = sum(_alone(old.get(unit, ())) != _alone(new.get(unit, ())) for unit in old.keys() | new.keys())
        sizes = (_rows(before, vertex), _rows(after, vertex), _bytes(before, vertex), _bytes(after, vertex))
        found.append(VertexDiff(vertex, *sizes, len(new), changed))
    return tuple(found)


Units = dict[int, tuple[Part, ...]]
"""A vertex's parts by hash unit."""


def _units(manifest: Manifest, vertex: str) -> Units:
    return {unit: parts for (its, unit), parts in manifest.by_unit().items() if its == vertex}


def _alone(parts: Sequence[Part]) -> list[Part]:
    """Return parts without the hash units for which they count, as these become fewer."""
    return [replace(part, units=()) for part in parts]


def _rows(manifest: Manifest, vertex: str) -> int:
    return sum(part.rows for part in manifest.parts if part.vertex == vertex)


def _bytes(manifest: Manifest, vertex: str) -> int:
    return sum(part.bytes for part in manifest.parts if part.vertex == vertex)
