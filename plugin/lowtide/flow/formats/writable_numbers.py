"""Rules for numbers whose field in a message has fewer bits than in the dataclass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from lowtide.flow.formats.writable import Findings, Rule

_FLOAT_LIMIT = float(2**128 - 2**103)
"""From here on the nearest 32-bit float is infinity."""

ROUNDED = "the message has a 32-bit float, so values are rounded to about 7 digits"


def _fits_float(value: float) -> bool:
    # 32-bit floats have infinity and NaN too.
    return -_FLOAT_LIMIT < value < _FLOAT_LIMIT or not math.isfinite(value)


FLOAT_32 = Rule(_fits_float, lambda value: ("", f"{value} is too large for a 32-bit float and would become infinite"))


def within(low: int, high: int, name: str) -> Rule:
    """The rule for integers from `low` to `high`, both included."""
    return Rule(range(low, high + 1).__contains__, lambda value: ("", f"{value} is outside {name}, {low} to {high}"))


def members_of(hint: Any) -> Sequence[Any]:
    """The members of an Enum or a Literal; none of any other type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return list(hint) if isinstance(hint, type) and issubclass(hint, Enum) else ()


def stored(member: Any) -> Any:
    """Return the number that is written for a member."""
    return member.value if isinstance(member, Enum) else member


def of_integers(qualname: str, members: Sequence[Any], rule: Rule, findings: Findings) -> Rule | None:
    """The rule for an int, or for members that are int: None if all of them fit.

    Args:
        qualname: The field, for the findings.
        members: The members; none for an int.
        rule: The rule for an int.
        findings: Receives what may not fit, or never does.
    """
    fits, fault = rule.fits, rule.fault
    outside = [member for member in members if not fits(stored(member))]
    if members and not outside:
        return None
    if members and len(outside) == len(members):
        findings.never.append(f"{qualname}: {fault(stored(outside[0]))[1]}")
    elif members:
        findings.perhaps.append(f"{qualname}: {fault(stored(outside[0]))[1]}: a record with it does not fit")
    else:
        return rule
    return Rule(lambda member: fits(stored(member)), lambda member: fault(stored(member)))
