"""Late records, counted: how many of how many, how late at most, and the newest minute's first."""

from __future__ import annotations

from typing import Literal

from lowtide.core.operators.order.order import Position, position_of

US_PER_MINUTE = 60_000_000

Why = Literal["closed", "ahead"]
"""It came when log time had passed what it belongs to, or its time lay too far in the future."""


class LateSeen:
    """The late records that a step has seen, of one stream.

    Attributes:
        records: How many records came, late or not.
        closed: Records that came after log time had passed their windows, or their partners'.
        ahead: Records whose time was too far ahead.
        most_us: The largest lead of log time over the time of a record that came too late.
        minute: The minute of log time, since 1970, in which the last one came; -1 if none was late.
        first: Position of the first one of that minute; None if none was late.
        first_us: The lead of log time over it.
    """

    __slots__ = ("ahead", "closed", "first", "first_us", "minute", "most_us", "records")

    def __init__(self) -> None:
        self.records = 0
        self.closed = 0
        self.ahead = 0
        self.most_us = 0
        self.minute = -1
        self.first: Position | None = None
        self.first_us = 0

    def add(self, why: Why, at: bytes, began_us: int, moment_us: int) -> None:
        """A record is late.

        Args:
            why: Why.
            at: Its order key.
            began_us: Where its tick begins, in log time.
            moment_us: Its own time.
        """
        behind = began_us - moment_us
        if why == "ahead":
            self.ahead += 1
        else:
            self.closed += 1
            self.most_us = max(self.most_us, behind)
        minute = began_us // US_PER_MINUTE
        if minute != self.minute:
            self.minute, self.first, self.first_us = minute, position_of(at), behind
