"""The common part of all calls: the log of answers, and the fate of an answer behind the step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.faults.failure import CallGivenUp, Failure, Fault, raised
from lowtide.core.operators.held.ordered import Holding
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.plain.per_record import said_type
from lowtide.core.operators.questions import Answer, Answered
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.schema.fields import decoder_of
from lowtide.flow.steps.steps import Ask, CallFailed
from lowtide_tracker import Floor

Found = tuple[bytes, int, Any, Answer]
"""The order key at which an answer goes on, the hash unit and the record that was asked about, and the answer."""


class CallNode(Holding):
    """One `call` at one worker.

    Args:
        vertex: The step.

    Attributes:
        ask: The step.
        given: The tick below which all is answered, and the answers are in the log or on their way there.
        reused: The number of answers of earlier lives that were used again.
        first_open: The lowest tick whose answers are not all durable; None if there is none.
        lead_end: The tick before which it may send what no front's window bounds; None for any.
    """

    lead_end: int | None = None

    def __init__(self, vertex: Vertex[Ask]) -> None:
        super().__init__(vertex)
        self.ask = vertex
        self._step = vertex.step
        self._decode = decoder_of(vertex.gives)
        self._cleared: int | None = None
        self._log: Barrier | None = None
        self._log_vertex = -1
        self.given = FIRST_TICK
        self.reused = 0
        self.first_open: int | None = None

    @property
    def _outlived(self) -> bool:
        """True once no record comes any more that an earlier life has asked about: what is known besides is others'."""
        return self._log is not None and not self._log.resumes

    # -- as it begins ----------------------------------------------------------------------------------------------

    def keep_in(self, vertex: int, log: Barrier) -> None:
        """Have answers kept by the barrier of a vertex, which nobody else advances."""
        self._log_vertex, self._log = vertex, log

    def rely_on(self, tick: int) -> None:
        """Take the largest tick that was relied on before the life: output of an earlier life may lie below it."""

    @abstractmethod
    def know(self, answers: Mapping[bytes, Answer], since: bytes | None = None) -> None:
        """Take the answers that earlier lives have kept, by the order keys they have in the log.

        Args:
            answers: The answers.
            since: The order key from which on none of the log's is missing; None if that is not known.
        """

    # -- figures ---------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def open_calls(self) -> int:
        """The number of questions without an answer."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """The number of records that have not been asked about."""

    # -- what it hears ---------------------------------------------------------------------------------------------

    def rest_on(self, floors: Iterable[Floor], cleared: int | None = None) -> None:
        """Take what is known besides min time.

        Args:
            floors: Those that came with min times.
            cleared: The tick below which nothing before the step can end the life any more; None if nothing can at all.
        """
        self._cleared = cleared
        if self._log is not None:
            self._log.rest_on(floors)

    @abstractmethod
    def answered(self, answers: Sequence[Answered], feed: Feed) -> None:
        """Take answers to open questions.

        Raises:
            CallGivenUp: one has failed for good, which is to end the life.
        """

    # -- what it gives ---------------------------------------------------------------------------------------------

    def _give(self, found: Sequence[Found], feed: Feed) -> None:
        """Pass answers on, those that have failed for good as what they become."""
        ats, units, rows, failed = list[bytes](), list[int](), list[Any](), list[tuple[bytes, int, Fault]]()
        for at, unit, row, answer in found:
            made = self._made(at, row, answer)
            if isinstance(made, Failure):
                failed.append((at, unit, Fault(self.vertex, made, None)))
            else:
                ats.append(at)
                units.append(unit)
                rows.append(made)
        if ats:
            self.pass_on(Batch(ats, units, rows), feed)
        if failed:
            feed.fail(Batch([each[0] for each in failed], [each[1] for each in failed], [each[2] for each in failed]))

    def _made(self, at: bytes, row: Any, answer: Answer) -> Any:
        """Return the record of an answer, or a `Failure`."""
        failure = answer.failure
        if failure is None:
            return self._decode(answer.value)[0]
        if self._step.failed == "raise":
            raise CallGivenUp(self.vertex, at, given_up(row, failure))
        return instead_of(self.ask, row, failure)


def given_up(row: Any, failure: CallFailed) -> Failure:
    """Return the failure of a record whose call has failed for good."""
    return Failure(0, row, f"{failure.what} (try {failure.tries})", failure.traceback_text)


def instead_of(ask: Vertex[Ask], row: Any, failure: CallFailed) -> Any:
    """Return what goes on in the place of an answer that has failed for good, or a `Failure`."""
    otherwise = ask.step.otherwise
    if otherwise is None:
        return given_up(row, failure)
    try:
        result = otherwise(row, failure)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
        return raised(0, row, error)
    if type(result) is ask.gives:
        return result
    return Failure(0, row, f"otherwise returned {said_type(result)}, expected {ask.gives.__qualname__}")
