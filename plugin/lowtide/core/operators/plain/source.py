"""`read`: messages become records."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.faults.failure import unreadable
from lowtide.core.operators.faults.limits import Limits
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import SIGN_32, SIGN_64, packer, step_id, tail_of
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Read


class SourceNode(Node):
    """Parses messages; a failure's record is the message's value. What a format gives fits its type.

    Args:
        vertex: The source.
        plan: The plan.
        limits: How large messages may be; None for no limits.
    """

    sound = True

    def __init__(self, vertex: Vertex[Read], plan: Plan, limits: Limits | None) -> None:
        super().__init__(vertex)
        self._job = plan.name
        self._pack, self._branch = packer(plan.branch_of(vertex))
        self._format = vertex.step.source.format
        self._limits = limits
        self._tails: dict[int, bytes] = {}
        self._signs: list[Node] = []

    def lead_signs(self, followers: Sequence[Node]) -> None:
        """Say what makes signs of its messages, for clocks; beside the ways that records go."""
        self._signs += followers

    def feed(self, rows: SourceRows, feed: Feed) -> None:
        """Make records of labelled messages, and pass on what can be parsed; be it none, they are signs for clocks."""
        for sign in self._signs:
            sign.take(self._placed(rows), 0, feed)
        large = () if self._limits is None else self._limits.messages(rows)
        if large and self._limits is not None:
            found = [self._limits.message_fault(rows, index, self.vertex) for index in large]
            feed.fail(self._placed(rows).pick(large).with_rows(found))
            missing = set(large)
            rows = rows.pick([index for index in range(len(rows)) if index not in missing])
        if not rows.offsets:
            return
        decoded = self._format.decode(rows)
        batch = self._placed(rows)
        if decoded.failures:
            record, values = self.vertex.gives, rows.values
            failures = [
                unreadable(index, values[index], self._format, record, reason) for index, reason in decoded.failures
            ]
            batch = self.bury(batch, failures, feed)
        if decoded.rows:
            self.pass_on(batch.with_rows(decoded.rows), feed)

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """No record comes to a source."""
        raise AssertionError("a source takes messages")

    def _placed(self, rows: SourceRows) -> Batch:
        """A batch of nothing yet, in the messages' places."""
        pack, front, rest = self._pack, rows.front + SIGN_32, self._branch + self._tail(rows.front)
        places = zip(rows.ticks, rows.offsets, strict=True)
        ats = [pack(tick + SIGN_64, front, offset + SIGN_64, rest) for tick, offset in places]
        return Batch(ats, [], [None] * len(ats), None, list(dict.fromkeys(rows.ticks)))

    def _tail(self, front: int) -> bytes:
        tail = self._tails.get(front)
        if tail is None:
            tail = self._tails[front] = tail_of(step_id(self._job, self.vertex.name, 0, front))
        return tail
