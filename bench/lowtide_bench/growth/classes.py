"""The class of growth that a series of counts follows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

WITHIN = 0.05
"""The largest part of a count that a class may miss it by; counts repeat, so little is noise."""
CLASSES: dict[str, Callable[[float], float]] = {
    "O(1)": lambda _: 0.0,
    "O(n)": lambda n: n,
    "O(n log n)": lambda n: n * log2(n),
    "O(n^2)": lambda n: n * n,
}
"""From slow to fast growth; a count is a constant, and a multiple of this."""
NONE = "none"


def class_of(points: Sequence[tuple[float, float]]) -> str:
    """Return the slowest class whose a + b f(n) is within `WITHIN` of each count, with a and b not below 0.

    Args:
        points: (n, count), with counts that are not below 0.

    Returns:
        One of `CLASSES`, or `NONE`.
    """
    for name, growth in CLASSES.items():
        if _miss([(growth(n), count) for n, count in points]) <= WITHIN:
            return name
    return NONE


def _miss(points: Sequence[tuple[float, float]]) -> float:
    """Return the largest part of a count that the best line misses, by least squares of such parts."""
    counted = [(x, count) for x, count in points if count]
    if not counted:
        return 0.0
    if len(counted) < len(points):
        return float("inf")
    return max(abs(1 - (a + b * x) / count) for a, b in [_line(counted)] for x, count in counted)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a and b, neither below 0, with the least sum of ((count - a - b x) / count)^2."""
    weighed = [(1 / count**2, x, count) for x, count in points]
    ww = sum(w for w, _, _ in weighed)
    wx, wxx = sum(w * x for w, x, _ in weighed), sum(w * x * x for w, x, _ in weighed)
    wy, wxy = sum(w * y for w, _, y in weighed), sum(w * x * y for w, x, y in weighed)
    spread = ww * wxx - wx * wx
    if spread <= 1e-12 * ww * wxx:
        return wy / ww, 0.0
    b = (ww * wxy - wx * wy) / spread
    a = (wy - b * wx) / ww
    if b < 0:
        return wy / ww, 0.0
    return (a, b) if a >= 0 else (0.0, wxy / wxx)
