"""Arguments of operators, sensors and triggers: their values, and the names that they had before."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

__all__ = ["is_true", "refuse_old_names", "seconds"]

OLD_NAMES = {
    "connection": "lowtide_conn_id",
    "if_untold": "if_at_least_once",
    "limit_s": "timeout",
    "most": "max_deaths",
    "poll_s": "poll_interval",
    "told_ms": "delivered_at_death_ms",
    "until": "end_time",
}


def refuse_old_names(kind: type, given: Iterable[str]) -> None:
    """Refuse arguments that have another name now.

    Raises:
        TypeError: one of the given names is an old one; the text has the current one.
    """
    for name in given:
        if name in OLD_NAMES:
            raise TypeError(f"{kind.__name__}: the argument {name!r} is now called {OLD_NAMES[name]!r}")


def is_true(value: object) -> bool:
    """Return a truth value; the text of a rendered template, "True" or "False", counts as what it says."""
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


def seconds(value: float | str | timedelta) -> float:
    """Return a length of time in seconds; a number is in seconds (errors: ValueError)."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
