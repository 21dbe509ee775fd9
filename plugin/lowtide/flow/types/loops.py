"""Finds the loop that each step is in, and steps that cannot be in one."""

from __future__ import annotations

from collections.abc import Iterator

from lowtide.flow.steps.calls import Call
from lowtide.flow.steps.graph import FlowGraph
from lowtide.flow.steps.steps import Loop


class Loops:
    """The loops of a flow; call `enter` once for every call, in order.

    A step is in a loop if a record can reach it from the loop's head, up to the loop's tail.
    """

    def __init__(self, flow: FlowGraph) -> None:
        self._calls = flow.calls
        self._tails = {call.back: index for index, call in enumerate(flow.calls) if call.back is not None}
        self._names = {call.back: call.name for call in flow.calls if call.back is not None}
        self._loop_of: list[int | None] = []  # by call: the head of the innermost loop it is in
        self._around: dict[int, int | None] = {}  # by head: the loop that it was written in
        self._crossing: set[int] = set()

    def name_of(self, head: int) -> str:
        """Return the name of the loop with this head."""
        return self._names.get(head) or Loop.word

    def made_name(self, head: int) -> str | None:
        """Return the name of a loop's head; None for any other step."""
        return f"{self.name_of(head)}/head" if head in self._tails else None

    def crosses(self, head: int) -> bool:
        """Return whether records may change their key in the loop with this head: its body has a `key_by`."""
        return head in self._crossing

    def _head(self, index: int) -> Loop:
        step = self._calls[index].step
        assert isinstance(step, Loop), "a loop begins with its head"
        return step

    def enter(self, index: int, call: Call) -> Iterator[str]:
        """Place a call; yield the faults of its place."""
        inside = {self._loop_of[parent] for parent in call.parents}
        loop = next((loop for loop in inside if loop is not None), None)
        if call.back is not None:
            if inside != {call.back}:
                yield "the loop's body must return a stream made from the one it is given"
            head = self._head(call.back)
            if not head.keyed and not self.crosses(call.back):
                yield "records in a loop need a key; write key_by before it or in its body"
            self._loop_of.append(self._around[call.back])
            return
        if index in self._tails:
            self._around[index] = loop
            if loop is not None:
                yield f"a loop cannot be inside another, {self.name_of(loop)!r}; do the work of both in one body"
            self._loop_of.append(index)
            return
        self._loop_of.append(loop)
        if loop is not None:
            yield from self._check(index, call, loop, mixed=len(inside) > 1)

    def _check(self, index: int, call: Call, loop: int, mixed: bool) -> Iterator[str]:
        name = self.name_of(loop)
        if index > self._tails.get(loop, index):
            yield f"it takes records from inside the loop {name!r}; take the records that come out of it"
        elif any(self._calls[parent].step.to_all for parent in call.parents):
            yield f"a scan in the loop {name!r} cannot look at a broadcast; do that before or after the loop"
        elif mixed and not call.step.by_port:
            yield f"{call.step.word} takes streams from inside and outside the loop {name!r}; merge them before it"
        elif call.step.no_loop is not None:
            yield call.step.no_loop.format(word=call.step.word, loop=repr(name))
        elif call.step.by:
            self._crossing.add(loop)
