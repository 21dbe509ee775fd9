"""Records with a log time of their own, for tests of flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from lowtide.errors import FlowError
from lowtide.flow.site import user_site

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stamped(Generic[T]):
    """A record, or a message's bytes, with the log time at which it came: a job's log timestamp.

    Example:
        >>> orders.key_by("user").deduplicate("once", within=lt.hours(1)).write("chosen", to_chosen)
        >>> at_noon, at_two = (lt.Stamped(Order("ada", 5), at=noon + lt.hours(hours)) for hours in (0, 2))
        >>> flow.run_locally(orders=[at_noon, at_noon, at_two])["chosen"]
        [Order(user='ada', amount=5), Order(user='ada', amount=5)]
    """

    record: T
    at: datetime


def stamped(records: Iterable[T], by: str | Callable[[T], datetime]) -> list[Stamped[T]]:
    """Give each record the log time found in one of its columns, for `run_locally`.

    Args:
        records: The records.
        by: The column's name, or a function that makes the time of a record.

    Example:
        >>> stamped = lt.stamped([Click("ada", "/", noon)], by="at")
        >>> stamped[0].at == noon
        True
    """
    found = []
    for record in records:
        at = getattr(record, by, None) if isinstance(by, str) else by(record)
        if not isinstance(at, datetime) or at.tzinfo is None:
            what = f"stamped: by={by!r} gives {at!r}, expected a datetime with a time zone"
            raise FlowError(what, where=str(user_site()), way_out="name a column that holds one, or give a function")
        found.append(Stamped(record, at))
    return found
