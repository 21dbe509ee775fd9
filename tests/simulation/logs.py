"""Simulated source partitions: what they hold, what has come so far, and the labels that R1 gives it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec
from state_flows import Document

from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.operators.order import Position
from lowtide.local.run import Message
from lowtide_tracker import Floor

FIRST_MS = 1_000
FAR_MS = 30
"""How far a timestamp may lie ahead of the broker's clock."""
NEVER_MS = 10**9
"""What no clock comes near."""
WORDS = ("to", "be", "or")


@dataclass(slots=True)
class Log:
    """One source partition.

    Attributes:
        front: Its number.
        source: The name of the source that reads it.
        messages: All there will be.
        visible: How many are there already.
        opening: Its opening floor in the register, a tick; None until it is registered.
    """

    front: int
    source: str
    messages: list[Message]
    visible: int = 0
    opening: int | None = None

    @property
    def end(self) -> int:
        """The offset behind the last message that is there, and behind a transaction's marker."""
        return self.messages[self.visible - 1].position.sequence + 1 if self.visible else 0


def draw_log(rng: Random, front: int, source: str, longest: int = 12) -> Log:
    """A log whose timestamps go back, leap and stand, with holes between its offsets."""
    at, offset = FIRST_MS + rng.choice([0, 0, 0, 400]), 0
    messages = []
    for _ in range(rng.randint(0, longest)):
        at += rng.choice([0, 0, 1, 2, 3, 20, -5])
        offset += rng.choice([1, 1, 1, 2, 4])
        stamp = at + (NEVER_MS if rng.random() < 0.03 else 0)  # Now and then one that nobody believes.
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 3)))
        document = Document(rng.choice("abc"), text)
        messages.append(Message(Position(front, offset), stamp, None, msgspec.json.encode(document)))
    return Log(front, source, messages)


class Labels:
    """R1 word for word, for one front in one life: an independent account of what the real one may label.

    Attributes:
        before: The label of the message before the next one.
    """

    def __init__(self, log: Log, slack_ms: int, floors: Floors, before: int) -> None:
        self._slack_ms = slack_ms
        self._front = log.front
        self.floors = floors
        self.before = before

    def take(self, message: Message, caps: Floors) -> int:
        """The label of the next message, with the caps that the front has reported."""
        self.before = self.peek(message, caps)
        return self.before

    def peek(self, message: Message, caps: Floors) -> int:
        """What the label of the next message will be."""
        offset = message.position.sequence
        tick = message.timestamp // self._slack_ms
        for cap in caps.of_front(self._front):
            if cap.cap and cap.offset == offset:
                tick = cap.tick
        return max(self.before, tick, self.floors.tick_at(self._front, offset))

    def least(self, offset: int) -> int:
        """No message from this offset on is labelled below this."""
        return max(self.before, self.floors.tick_at(self._front, offset), NO_TICK)

    def grant(self, floor: Floor) -> None:
        """The front has taken a floor."""
        self.floors.add(floor)
