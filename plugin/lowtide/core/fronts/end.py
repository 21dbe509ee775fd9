"""The end of time: where min time goes once all fronts have come to their stops, after all that is due before."""

from __future__ import annotations

__all__ = ["END_MS", "end_tick"]

END_MS = 253_402_300_799_000
"""The last second that a `datetime` can say: nothing is ever due later."""


def end_tick(slack_ms: int) -> int:
    """The tick of the end: what a front that has been closed says it labels nothing below."""
    return END_MS // slack_ms
