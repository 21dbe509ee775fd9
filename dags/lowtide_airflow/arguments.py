"""Values of the arguments of operators, sensors and triggers."""

from __future__ import annotations

from datetime import timedelta


def is_true(value: object) -> bool:
    """Return a truth value; the text of a rendered template, "True" or "False", counts as what it says."""
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


def seconds(value: float | str | timedelta) -> float:
    """Return a length of time in seconds; a number is in seconds (errors: ValueError)."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
