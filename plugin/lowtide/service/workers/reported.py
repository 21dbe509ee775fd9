"""Names that are reported while they have a fault, and the time since when it is these."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime


class Reported:
    """The names of one fault; pure.

    Attributes:
        names: Those that have it, sorted.
        since: The time, UTC, at which they became these; empty before the first.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.since = ""

    def changed(self, names: Iterable[str], now: datetime | None) -> bool:
        """Take those that have the fault now, and return whether they are others than before.

        Args:
            names: The names.
            now: The time, UTC; None for the clock's.
        """
        found = sorted(names)
        if found == self.names:
            return False
        self.names, self.since = found, f"{now or datetime.now(UTC):%H:%M:%S}"
        return True
