"""The types of substreams: what their predicates take, what their ends have, and what is kept of open ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lowtide.errors import FlowError
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.steps.agg import columns_of, fills
from lowtide.flow.steps.signature import said
from lowtide.flow.steps.steps import Asked, Substream, check_predicate
from lowtide.flow.steps.substream import FIELDS, OF_STATE, Following


def typed_substream(step: Substream, asked: Asked, key: Sequence[str]) -> Substream:
    """Return the step as a plan has it.

    Raises:
        Unreadable: what does not fit, to follow its function's name.
        FlowError: something else does not fit.
    """
    takes = asked.takes[0]
    assert step.returns is not None, "it is written with it"
    for function in step.functions.values():
        check_predicate(function, asked, takes)
    if takes is None:
        return step
    taken = columns_of(takes)
    returns = schema_of(step.returns).record
    for name in key:
        if name in {**FIELDS, **OF_STATE}:
            raise FlowError(
                f"the key has a column {name!r}, which is a word of substreams", way_out="key by another name"
            )
    by_key: dict[str, Any] = {name: taken[name] for name in key if name in taken}
    wanted = _wanted(returns, by_key | FIELDS)
    columns = list((by_key | OF_STATE).items())
    state: Any = dataclasses.make_dataclass(f"{returns.__name__}State", columns, frozen=True)
    following = Following(replace(step, returns=returns), key, state, wanted)
    return replace(
        step,
        function=following,
        state=state | None,
        returns=returns,
        timer=following.timer,
        on_timer=following.on_timer,
    )


def _wanted(returns: type, given: Mapping[str, Any]) -> list[str]:
    """Return the fields of a result, which fit what fills them (errors: FlowError)."""
    kinds = schema_of(returns).kinds
    fields = {name: hint for name, hint in columns_of(returns).items() if name in kinds}
    for name, hint in fields.items():
        if name not in given:
            raise FlowError(
                f"nothing fills {returns.__qualname__}.{name}",
                way_out=f"the fields of an end are columns of the key, and {', '.join(FIELDS)}",
            )
        if not fills(hint, given[name]):
            raise FlowError(f"{returns.__qualname__}.{name} is {said(hint)}, but what fills it is {said(given[name])}")
    return list(fields)
