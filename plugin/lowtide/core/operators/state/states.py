"""Checks of a step's states: a life that begins with one goes on as the life before would have.

Workers and `run_locally` look at them alike: a state is of the type that the step declares, comes back from a snapshot
as it is, and is not changed in place, since it stays what a replay, another key or a snapshot begins with.
"""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from lowtide.core.operators.faults.failure import Failure, UserError, shortened
from lowtide.core.operators.faults.watch import Watch, shown_function
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import encode_rows, is_fixed, saves_of
from lowtide.flow.schema.kinds import Kind, Mismatch, encode_strictly
from lowtide.flow.schema.schema import kind_of
from lowtide.flow.site import Function

_MAKE_ANEW = "make a new state: dataclasses.replace(state, ...), {**state, key: value}, [*state, item]"
_AS_SAVED = "use floats where floats are declared, not ints, and datetimes in UTC"
_AS_DECLARED = "return a state of the types that its annotation declares"


class States(Watch):
    """The states of one scan, broadcast or window.

    Args:
        vertex: The step.
        hint: The states' type.

    Attributes:
        fixed: Whether they are immutable and small: then each is looked at by `saves` alone, and none is watched.
        saves: Whether a state comes back from a snapshot as it is; quick, and `fault` is the judge of what it refuses.
    """

    def __init__(self, vertex: Vertex, hint: Any) -> None:
        super().__init__()
        self._vertex = vertex
        self._kind = kind_of(hint, "its state")
        self._classes = classes_of(hint)
        self._initial = getattr(vertex.step, "initial", None)
        self._initially = encode_rows([self._initial])
        self._equals = _equals_its_copy(self._kind, self._initial)
        self.fixed = is_fixed(self._kind)
        self.saves = saves_of(self._kind)

    def is_initial(self, state: Any) -> bool:
        """Return whether a state counts as the initial one, and so as none: equal, and with the same columns.

        The look at its bytes tells apart what `==` does not: 0.0 and -0.0, or dicts in another order. `==` is but the
        quick way to most answers, and no way where the initial state has a NaN, which equals only itself as an object:
        one from a snapshot is another object.
        """
        initial = self._initial
        if state is initial:
            return True
        if type(state) is not type(initial) or (self._equals and state != initial):
            return False
        return encode_rows([state]) == self._initially

    def fault(self, record: object, after: object, looked: bytes | None) -> Failure | None:
        """Return the fault of a state that a function returned; None if it has none.

        Args:
            record: The record that the function was given.
            after: What it returned.
            looked: How the state before looked: if it was not looked at, neither are the parts of the one after.
        """
        if type(after) not in self._classes:
            names = " or ".join(sorted(each.__qualname__ for each in self._classes))
            found = "None" if after is None else type(after).__qualname__
            return Failure(0, record, f"returned the state {found}, expected {names}")
        if (looked is None and not self.fixed) or self.saves(after):
            return None
        try:
            (again,) = self._kind.decode(encode_strictly(self._kind, [after], ""))
        except Mismatch as mismatch:
            found = f"state{mismatch.path} is {mismatch.value!r}, expected {mismatch.expected}"
            return Failure(0, record, f"returned a state that cannot be saved: {found}", way_out=_AS_DECLARED)
        # Compared as text, since 3 == 3.0 and an hour in Berlin equals one in UTC; written out they differ.
        if repr(again) == repr(after):
            return None
        found = f"{shortened(after)} comes back from a snapshot as {shortened(again)}"
        return Failure(0, record, f"returned a state that cannot be saved as it is: {found}", way_out=_AS_SAVED)

    def changed(self, function: Function, at: bytes | Position, record: object) -> UserError:
        """The error for a function that has changed a state in place: all that begins with it is wrong now."""
        text = f"changed its state in place, in {shown_function(function)}"
        return UserError(self._vertex, at, Failure(0, record, text, way_out=_MAKE_ANEW))


def _equals_its_copy(kind: Kind, value: Any) -> bool:
    """True if a value equals what a snapshot gives back for it; False if it holds a NaN."""
    try:
        (copy,) = kind.decode(encode_strictly(kind, [value], ""))
    except Mismatch:
        return True
    equal: bool = copy == value
    return equal


def classes_of(hint: Any) -> frozenset[type]:
    """The classes that values of a type may be of: of `dict[str, int] | None` dict and NoneType."""
    if hasattr(hint, "__metadata__"):
        return classes_of(get_args(hint)[0])
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return frozenset().union(*map(classes_of, get_args(hint)))
    if origin is Literal:
        return frozenset(map(type, get_args(hint)))
    if hint is None:
        return frozenset((type(None),))
    if hint is float:
        return frozenset((float, int))
    return frozenset((origin or hint,))
