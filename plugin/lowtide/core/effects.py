"""The inputs and outputs of a worker's core, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.bundle import Bundle
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.operators.program import Captured
from lowtide.core.operators.questions import Question

LastKeys = Mapping[tuple[int, int], OrderKey]
"""The order key up to which records are durable, by sink (its vertex) and lane."""


def letters_of(level: int) -> int:
    """Return the number that stands for a level's dead letters in place of a sink's vertex; lanes are the level's.

    At level 0 each front is a lane of its own.
    """
    return ~level


def level_of(letters: int) -> int:
    """Return the level whose dead letters a number stands for."""
    return ~letters


class Frame:
    """Records on their way from one worker to another.

    Attributes:
        vertex: The exchange.
        target: The worker's place in its level.
        value: The value folded at each tick, by the sender and by the receiver; one per frame and target.
        ticks: The distinct ticks, ascending.
        batch: The records.
        payload: The records encoded (`fields.encode_rows`); for a received frame its bytes, which give its size.
    """

    __slots__ = ("batch", "payload", "target", "ticks", "value", "vertex")

    def __init__(self, vertex: int, target: int, value: int, ticks: list[int], batch: Batch, payload: bytes) -> None:
        self.vertex = vertex
        self.target = target
        self.value = value
        self.ticks = ticks
        self.batch = batch
        self.payload = payload


@dataclass(slots=True)
class Effects:
    """The output of a worker.

    Attributes:
        frames: For the next level, in order.
        questions: For outside services.
        bundles: For the sinks, by vertex; by `letters_of(level)` those of dead letters, whose rows are `Dead`.
    """

    frames: list[Frame] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    bundles: list[tuple[int, Bundle]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state that one worker saves at min time T.

    Attributes:
        tick: T.
        state: The state of its groupings.
        start: At level 0 the offset from which the front must be read again, and the label before it.
    """

    tick: int
    state: Captured
    """The state of the changed hash units; a unit whose state has gone is there without keys."""
    start: tuple[int, int] | None
