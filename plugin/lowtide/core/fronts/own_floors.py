"""Floors that a front sets by itself, at its own next offset, where what it reads is older than its label (R2, R8)."""

from __future__ import annotations

from lowtide.core.fronts.floors import NO_TICK

LIFT_MS = 50
"""A front whose label has stood for so long while it reads on sets a floor of its own, and again once it lags its grant
by as much. A floor costs about 40 bytes in the sinks until a commit covers it: 20 a second at most."""


class Grants:
    """Grants that found their front at another offset, as far as a front that moves on needs them; constant size.

    A grant `(offset, tick)` says that nothing at or after its offset was in the log at that time, so it holds at every
    later offset too. Of those ahead of the front two are kept, the first and the newest: as one that is reached makes
    room for the newest, a front that follows its log at some distance reaches one again and again.

    Example:
        >>> grants = Grants()
        >>> for offset, tick in [(10, 100), (20, 200), (30, 300)]:
        ...     grants.add(offset, tick)
        >>> [grants.tick_at(offset) == tick for offset, tick in [(9, NO_TICK), (12, 100), (29, 100), (31, 300)]]
        [True, True, True, True]
    """

    __slots__ = ("_first", "_newest", "_reached")

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None
        self._newest: tuple[int, int] | None = None
        self._reached = NO_TICK

    def add(self, offset: int, tick: int) -> None:
        """Take a grant; the service makes them in the order of offsets and ticks."""
        if self._first is None or self._first[0] >= offset:
            self._first = offset, tick
        else:
            self._newest = offset, tick

    def tick_at(self, offset: int) -> int:
        """The largest tick granted at or before this offset, `NO_TICK` if none was; offsets never fall."""
        while self._first is not None and self._first[0] <= offset:
            self._reached = max(self._reached, self._first[1])
            self._first, self._newest = self._newest, None
        return self._reached


class OwnFloors:
    """Decides whether a front sets a floor at its own next offset, and up to which tick.

    Records that are older than one before them have its label, so as long as they flow the front stands at one tick,
    and min time with it. Such a front goes up to what it was granted at an offset that it has read past; or one tick
    further, once the records of one tick fill its window, which does not stop the front that min time waits for.

    Neither touches a label that was given, in this life or in one before. What lies at or after a grant's offset came
    after this life began. What is labelled at or above the tick that anything relies on was never let out.

    Args:
        slack_ms: How many milliseconds one tick is long.
        lift_ms: See `LIFT_MS`.
        relied_on: The largest tick that anything relies on; see `KnownFloors`.
        max_bytes: What one tick may have.

    Attributes:
        grants: What was granted at other offsets.
        older: Whether the last message's own time lies before its label.
    """

    __slots__ = ("_lift_ms", "_lift_ticks", "_max_bytes", "_relied_on", "_risen_ms", "_slack_ms", "grants", "older")

    def __init__(self, *, slack_ms: int, lift_ms: int, relied_on: int, max_bytes: int) -> None:
        self.grants = Grants()
        self.older = False
        self._slack_ms = slack_ms
        self._lift_ms = lift_ms
        self._lift_ticks = max(1, lift_ms // slack_ms)
        self._relied_on = relied_on
        self._max_bytes = max_bytes
        self._risen_ms = relied_on * slack_ms

    def read(self, stamp: int, label: int, now_ms: int, *, risen: bool) -> None:
        """Note the last message of some: its timestamp, its label, and whether timestamps of theirs raised that."""
        self.older = stamp // self._slack_ms < label
        if risen:
            self._risen_ms = now_ms

    def stands(self, now_ms: int) -> bool:
        """True if no timestamp has raised the label for a while."""
        return now_ms - self._risen_ms >= self._lift_ms

    def tick(self, offset: int, heartbeat: int, tick_bytes: int, now_ms: int) -> int:
        """The tick of a floor at this offset, `NO_TICK` for none; of a front that stands.

        Args:
            offset: What the front expects next.
            heartbeat: What it labels nothing below.
            tick_bytes: What the messages that are labelled so have together.
            now_ms: The broker's time.
        """
        granted = self.grants.tick_at(offset)
        if granted >= heartbeat + self._lift_ticks:
            return granted
        return heartbeat + 1 if tick_bytes >= self._max_bytes and self._may_close(heartbeat, now_ms) else NO_TICK

    def _may_close(self, tick: int, now_ms: int) -> bool:
        """True if older messages may count as one tick later, never beyond now.

        Messages in order do not: their label is their own time, and they would become late. Nor does a tick that
        something relies on: an older life may have let out more of it, and it would be delivered again.
        """
        return self.older and self._relied_on <= tick < now_ms // self._slack_ms
