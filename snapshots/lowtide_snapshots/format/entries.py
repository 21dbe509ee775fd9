"""The entries of a manifest: parts, fronts, floors and lanes; plain values, which messages between processes carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lowtide_snapshots.format.names import part_name


@dataclass(frozen=True, slots=True)
class Part:
    """A part that belongs to a snapshot.

    Attributes:
        kind: of the vertex.
        unit: the hash unit; of several in one part the lowest.
        tick: the T of the snapshot that wrote the part: a unit that did not change points to an older one.
        snapshot: the id of that snapshot.
        rows: how many rows it has.
        bytes: its size.
        sha256: of its bytes, in lower hex.
        since: of a delta the T of the commit from which on it has what has changed; None for a whole part.
        units: of a part with several hash units those whose state rests on it, ascending; empty for a part of one.
    """

    vertex: str
    kind: str
    unit: int
    tick: int
    snapshot: str
    rows: int
    bytes: int
    sha256: str
    since: int | None = None
    units: tuple[int, ...] = ()

    @property
    def counts_for(self) -> tuple[int, ...]:
        """The hash units whose state rests on it."""
        return self.units or (self.unit,)

    def name(self, job: str, slack_ms: int) -> str:
        """The part's name below the root of the store."""
        return part_name(job, self.vertex, self.unit, self.tick * slack_ms, self.snapshot)


Chains = dict[tuple[str, int], tuple[Part, ...]]
"""Parts by vertex and hash unit, in the order in which they apply."""


def chains_of(parts: Iterable[Part]) -> Chains:
    """The parts of each hash unit, in the order in which they are given."""
    found: Chains = {}
    for part in parts:
        for unit in part.counts_for:
            found[part.vertex, unit] = (*found.get((part.vertex, unit), ()), part)
    return found


def parts_in(chains: Mapping[tuple[str, int], Iterable[Part]]) -> tuple[Part, ...]:
    """The inverse of `chains_of`: each part once, with the hash units that have it here, in the order of ticks."""
    found: dict[tuple[str, int, int, str], tuple[Part, list[int]]] = {}
    for (vertex, unit), chain in chains.items():
        for part in chain:
            found.setdefault((vertex, part.tick, part.unit, part.snapshot), (part, []))[1].append(unit)
    ordered = [found[place] for place in sorted(found)]
    return tuple([replace(part, units=tuple(sorted(units))) if part.units else part for part, units in ordered])


@dataclass(frozen=True, slots=True)
class FrontAt:
    """From where a front is read again.

    Attributes:
        number: the front's, in the register.
        offset: the first that is read again.
        label: the largest label before it, as a tick; None if there is none.
    """

    number: int
    source: str
    topic_id: str
    partition: int
    offset: int
    label: int | None


@dataclass(frozen=True, slots=True)
class FloorAt:
    """A floor: from `offset` on, `front` labels nothing below `tick`; with `cap`, only the record at `offset`."""

    front: int
    offset: int
    tick: int
    cap: bool


@dataclass(frozen=True, slots=True)
class LaneLast:
    """The last delivery of a lane of a sink; `last` is the plugin's text, None before the first delivery."""

    level: int
    sink: str
    lane: int
    last: str | None
