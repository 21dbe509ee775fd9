"""Values that JSON cannot write, by the types of a record's fields."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import cache
from typing import Any

from lowtide.flow.formats.writable import Rule, Writable, of_type, record_rule

_MINUTE_S = 60


@cache
def json_writable(record: Any) -> Writable:
    """The records of a dataclass that JSON can write."""
    return Writable(record.__qualname__, record_rule(record, of_type(record, json_rule)))


def json_rule(hint: Any) -> Rule | None:
    """The rule of JSON for a value of a plain type."""
    return _TIME if hint is datetime else _FLOAT if hint is float else None


def sayable(plain: Any) -> Any:
    """Make plain values readable: numbers that JSON lacks, and would write as null, become text."""
    if isinstance(plain, dict):
        return {name: sayable(value) for name, value in plain.items()}
    if isinstance(plain, list | tuple):
        return list(map(sayable, plain))
    return repr(plain) if isinstance(plain, float) and not math.isfinite(plain) else plain


def _has_whole_offset(moment: datetime) -> bool:
    if moment.tzinfo is UTC:
        return True
    offset = moment.utcoffset()
    return offset is None or not (offset.microseconds or offset.seconds % _MINUTE_S)


def _offset_fault(moment: datetime) -> tuple[str, str]:
    what = f"{moment} is {moment.utcoffset()} ahead of UTC, but RFC 3339 has only whole minutes; use .astimezone(UTC)"
    return "", what


def _float_fault(value: float) -> tuple[str, str]:
    return "", f"JSON cannot hold {value}; declare the field as float | None and use None"


_FLOAT = Rule(math.isfinite, _float_fault)
_TIME = Rule(_has_whole_offset, _offset_fault, "{0}.tzinfo is UTC")
