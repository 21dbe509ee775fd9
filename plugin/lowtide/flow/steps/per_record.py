"""Steps that call a function with a record or a batch, and keep nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from lowtide.flow.site import Function
from lowtide.flow.steps.signature import NOTHING, Unreadable, element_of, said, signature_of
from lowtide.flow.steps.step import Asked, Step, called, check_predicate, signature_of_record


@dataclass(frozen=True, slots=True)
class Map(Step):
    """Turns every record into one record; `returns` is its type if the function does not say."""

    word: ClassVar[str] = "map"
    per_record: ClassVar[bool] = True
    takes_windows: ClassVar[bool] = True

    function: Function
    returns: type | None = None

    @override
    def gives(self, asked: Asked) -> Any:
        return asked.record(_returned(self, asked))

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"


@dataclass(frozen=True, slots=True)
class FlatMap(Step):
    """Turns every record into any number of records, in the order the function gives them."""

    word: ClassVar[str] = "flat_map"
    per_record: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    takes_windows: ClassVar[bool] = True

    function: Function
    returns: type | None = None

    @override
    def gives(self, asked: Asked) -> Any:
        return asked.record(_returned(self, asked, many=True))

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"


@dataclass(frozen=True, slots=True)
class Filter(Step):
    """Passes the records for which the function returns True."""

    word: ClassVar[str] = "filter"
    per_record: ClassVar[bool] = True
    takes_windows: ClassVar[bool] = True

    function: Function

    @override
    def gives(self, asked: Asked) -> Any:
        check_predicate(self.function, asked, asked.takes[0])
        return asked.takes[0]


@dataclass(frozen=True, slots=True)
class Split(Step):
    """Sends records to the one of its two `Side`s that the function chooses; only those take them, in this order."""

    word: ClassVar[str] = "split"
    per_record: ClassVar[bool] = True
    takes_windows: ClassVar[bool] = True

    function: Function

    @override
    def gives(self, asked: Asked) -> Any:
        check_predicate(self.function, asked, asked.takes[0])
        return asked.takes[0]


@dataclass(frozen=True, slots=True)
class Side(Step):
    """The records of a `Split` for which the function returns `says`."""

    word: ClassVar[str] = "split"
    takes_windows: ClassVar[bool] = True

    says: bool

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{parents[0]}/{str(self.says).lower()}"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        whose = f"the records for which {parents[0]} returns {self.says}"
        return f"nothing takes {whose}; end their stream with .write(...), or use filter instead"


@dataclass(frozen=True, slots=True)
class MapBatches(Step):
    """Turns an Arrow record batch into one of `returns`, row by row in the same order.

    Batches are cut by timing, so row i of the result must depend on row i alone.
    """

    word: ClassVar[str] = "map_batches"
    batched: ClassVar[bool] = True
    looks: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    function: Function
    returns: type

    @override
    def gives(self, asked: Asked) -> Any:
        signature_of(self.function, "batch")
        return asked.record(self.returns)

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {gives}"


def _returned(step: Map | FlatMap, asked: Asked, *, many: bool = False) -> Any:
    """Return the type of the records that a function gives."""
    returns = signature_of_record(step.function, asked, asked.takes[0]).returns
    if many and returns is not NOTHING:
        returns = element_of(returns)
    if returns is NOTHING or returns is Any:
        if step.returns is None:
            how = "a lambda cannot, so add" if called(step.function) == "<lambda>" else "annotate it, or add"
            raise Unreadable(f"does not say what it returns: {how} returns=Type")
        return step.returns
    if step.returns not in (None, returns):
        raise Unreadable(f"returns {said(returns)}, but returns= says {said(step.returns)}")
    return returns
