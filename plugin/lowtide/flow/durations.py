"""Durations: what `ttl=`, `within=`, `wait=` and the sizes of windows are written with."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["days", "hours", "millis", "minutes", "seconds"]


def millis(number: float) -> timedelta:
    """So many milliseconds."""
    return timedelta(milliseconds=number)


def seconds(number: float) -> timedelta:
    """So many seconds."""
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    """So many minutes."""
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    """So many hours."""
    return timedelta(hours=number)


def days(number: float) -> timedelta:
    """So many times 24 hours."""
    return timedelta(days=number)
