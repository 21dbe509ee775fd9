"""The answers of calls in a local run: those that a job has kept, or what a function says now."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Self

from lowtide.calls.once import Local
from lowtide.calls.setting import setting_of
from lowtide.core.operators.call_node import instead_of
from lowtide.core.operators.faults.failure import Failure
from lowtide.core.operators.order.order import SIGN_32, SIGN_64, tick_of
from lowtide.core.operators.questions import Answer, call_key
from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.fields import decoder_of
from lowtide.flow.steps.steps import Ask, CallFailed
from lowtide.local.calls import Failed
from lowtide.local.items import Item, Order

TICK_BYTES = TRACE_BYTES = 8
JOB = "local"
"""The job id in call keys of a local run."""

Kept = Mapping[str, Mapping[bytes, Answer]]
"""By the name of a call the answers that a job has kept, by `place_of` their record."""

Answering = Callable[[Vertex[Ask], Item], Any]
"""Gives the answer to a record, or `CallFailed`; or one of these `Later`."""


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that goes on at a later tick than its record, as the job has given it.

    Attributes:
        tick: The tick.
        answer: The answer, or `CallFailed`.
    """

    tick: int
    answer: Any


class Coming:
    """The answers of one call that are still to come: records in the places where these go on."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Order, Item, Any]] = []

    def add(self, item: Item, later: Later) -> None:
        """Have an answer come to a record."""
        moved = item.at(later.tick)
        heappush(self._waiting, (moved.order, moved, later.answer))

    @property
    def next(self) -> Order | None:
        """Return the place of the first one; None if none is to come."""
        return self._waiting[0][0] if self._waiting else None

    def pop(self) -> tuple[Item, Any]:
        """Take the first one: the record in its new place, and the answer."""
        _, item, answer = heappop(self._waiting)
        return item, answer


def place_of(order: Order) -> bytes:
    """Return a place in the order as packed order keys begin: without the trace."""
    tick, front, sequence, child = order
    path = (*child, 0)
    return struct.pack(f">QIQ{len(path)}I", tick + SIGN_64, front + SIGN_32, sequence + SIGN_64, *path)


def kept_answers(kept: Mapping[bytes, Answer]) -> dict[bytes, Answer]:
    """Return answers by their records' places, given them by packed order key."""
    return {at[:-TRACE_BYTES]: answer for at, answer in kept.items()}


class Asked:
    """The functions of a plan's calls, or others in their place; a context manager, which leaves their resources.

    Args:
        plan: The plan.
        answers: By the name of a call the function that answers instead of its own.

    Raises:
        FlowError: there is no such call.
    """

    def __init__(self, plan: Plan, answers: Mapping[str, Callable[..., Any]]) -> None:
        known = [ask.name for ask in plan.those(Ask)]
        if unknown := sorted(set(answers) - set(known)):
            calls = f"its calls are {', '.join(known)}" if known else "it has none"
            raise FlowError(f"the flow has no call {', '.join(unknown)}; {calls}")
        self._answers = answers
        self._stack = ExitStack()
        self._asking: dict[str, Local] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self, vertex: Vertex[Ask], item: Item) -> Any:
        """Return the answer to a record, or `CallFailed`."""
        asking = self._asking.get(vertex.name)
        if asking is None:
            setting = setting_of(vertex)
            if vertex.name in self._answers:
                setting = setting.faked(self._answers[vertex.name])
            asking = self._asking[vertex.name] = self._stack.enter_context(Local(setting, pauses=False))
        return asking.ask(item.record, call_key(JOB, vertex.name, place_of(item.order) + bytes(TRACE_BYTES)))


def from_kept(kept: Kept, others: Answering) -> Answering:
    """Answer as a job was answered (errors, where it has not asked: KeyError); others answer what it has not kept."""
    places: dict[str, dict[bytes, bytes]] = {}

    def answer(vertex: Vertex[Ask], item: Item) -> Any:
        if vertex.name not in kept:
            return others(vertex, item)
        answers, place, tick = kept[vertex.name], place_of(item.order), item.order.tick
        if vertex.step.order == "answer":
            if vertex.name not in places:
                places[vertex.name] = {each[TICK_BYTES:]: each for each in answers}
            place = places[vertex.name][place[TICK_BYTES:]]
            tick = tick_of(place)
        found = answers[place]
        given = found.failure or decoder_of(vertex.gives)(found.value)[0]
        return given if tick == item.order.tick else Later(tick, given)

    return answer


def answered(vertex: Vertex[Ask], item: Item, answer: Any) -> Item:
    """Return what a call gives for an answer; raises Failed."""
    if not isinstance(answer, CallFailed):
        return item.becomes(answer)
    made = instead_of(vertex, item.record, answer)
    if isinstance(made, Failure):
        raise Failed(item.record, made)
    return item.becomes(made)
