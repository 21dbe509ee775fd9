"""The end of time: min time's last value, once all fronts have reached their stops and all that is due is done."""

from __future__ import annotations

END_MS = 253_402_300_799_000
"""The last second of a `datetime`: nothing is ever due later."""


def end_tick(slack_ms: int) -> int:
    """Return the tick of the end: the heartbeat of a closed front."""
    return END_MS // slack_ms
