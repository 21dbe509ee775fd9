"""The number of windows of each span that a cold store has: where it has none, it need not be asked."""

from __future__ import annotations

from collections.abc import Collection

from lowtide.flow.steps.windows import Span


class Stored:
    """The number of entries in a store, by span and hash unit."""

    def __init__(self) -> None:
        self._there: dict[Span, dict[int, int]] = {}

    def add(self, span: Span, unit: int, more: int) -> None:
        """The store has so many more; less, if it is negative."""
        units = self._there.setdefault(span, {})
        units[unit] = units.get(unit, 0) + more
        if not units[unit]:
            del units[unit]
            if not units:
                del self._there[span]

    def units(self, span: Span) -> Collection[int]:
        """The hash units of which it has something of a span."""
        return self._there.get(span, ())

    def spans(self, unit: int) -> list[Span]:
        """The spans of which it has something of a hash unit."""
        return [span for span, units in self._there.items() if unit in units]
