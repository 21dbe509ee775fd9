"""Outputs that a repair leaves as they were: in a loop they must not go round once more.

Elsewhere a repair takes back every later output of its key and gives it again, equal or not: a needless repair further
down happens once. On a cycle it comes back and repairs everything after it again: of n records that go to and fro
between two keys, a late one would cause n waves of n repairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowtide.core.operators.faults.failure import Fault
from lowtide.flow.schema.fields import encode_rows, fits_of

Output = tuple[bytes, int, Any]
"""Order key, hash unit and output; of a step that gives several for a record, a tuple of them."""


def changed_only(taken: Sequence[Output], given: Sequence[Output], gives: Any) -> tuple[list[Output], list[Output]]:
    """Leave out what is taken back and given again with the same bytes.

    Args:
        taken: What a repair takes back, each order key once.
        given: What it gives in place of it.
        gives: The type of the outputs.
    """
    before = {at: out for at, _, out in taken}
    same = {at for at, _, out in given if at in before and _same(before[at], out, gives)}
    if not same:
        return list(taken), list(given)
    return [each for each in taken if each[0] not in same], [each for each in given if each[0] not in same]


def _same(one: Any, other: Any, gives: Any) -> bool:
    """Return whether two outputs are indistinguishable: equal in Python is not enough (decision 005)."""
    if one is other:
        return True
    if isinstance(one, Fault) or type(one) is not type(other):
        return False
    if type(one) is tuple:
        return len(one) == len(other) and all(_same(*pair, gives) for pair in zip(one, other, strict=True))
    fits = fits_of(_record(gives))
    return bool(fits(one) and fits(other)) and encode_rows([one]) == encode_rows([other])


def _record(gives: Any) -> Any:
    """The type of the records; of a `last`, of those in its windows."""
    return gives.__args__[0] if getattr(gives, "__origin__", None) is tuple else gives
