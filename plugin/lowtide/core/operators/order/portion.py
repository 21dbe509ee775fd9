"""Portions: the work of a worker before others have their turn, counted, not timed, to depend on the input alone."""

from __future__ import annotations


class Portion:
    """The work that may still be done in one call.

    Args:
        size: So many records and closing windows, at least 1; None for any number.

    Attributes:
        left: So many of them.
    """

    __slots__ = ("left",)

    def __init__(self, size: int | None = None) -> None:
        assert size is None or size >= 1, "a portion of nothing never ends"
        self.left = size

    @property
    def spent(self) -> bool:
        """Return whether it is used up."""
        return self.left == 0

    def spend(self, number: int) -> None:
        """Note that so many records or windows have been dealt with."""
        if self.left is not None:
            self.left = max(0, self.left - number)
