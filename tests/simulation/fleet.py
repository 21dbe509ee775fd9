"""What one life of the protocol world has: its frames, its fronts, and what is held."""

from __future__ import annotations

from dataclasses import dataclass, field

from .tracking import Line


@dataclass(slots=True)
class Frame:
    """Ticks on their way to a worker of a segment; what they may cause has one `life` less."""

    segment: int
    worker: int
    ticks: tuple[int, ...]
    value: int
    life: int


@dataclass(slots=True)
class Front:
    """A front: labels nothing below `label` any more."""

    number: int
    line: Line
    feeds: tuple[int, ...]
    label: int
    floors: int = 0


@dataclass(slots=True)
class Fleet:
    """What one life of the protocol world has."""

    frames: list[Frame] = field(default_factory=list)
    held: list[tuple[Line, int, int, int]] = field(default_factory=list)
    fronts: list[Front] = field(default_factory=list)
    closed: dict[frozenset[int], list[int]] = field(default_factory=dict)
    """By all that can reach a segment: the last labels of the fronts that fed it and were closed, in that order."""
    lost: set[int] = field(default_factory=set)
