"""Sources, sinks and merges: records come in, go out, and come together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from lowtide.flow.formats.endpoints import KafkaSource, Sink
from lowtide.flow.steps.signature import said
from lowtide.flow.steps.step import Asked, Step

_INSIDE = "{word} cannot be in the loop {loop}, whose records have not come out yet"


@dataclass(frozen=True, slots=True)
class Read(Step):
    """Records come in from a source."""

    word: ClassVar[str] = "read"
    reads: ClassVar[bool] = True

    source: KafkaSource

    @override
    def explained(self, takes: Sequence[str], names: Sequence[str], gives: str, others: Sequence[str]) -> str:
        return f"{self.word} {self.source} -> {gives}"


@dataclass(frozen=True, slots=True)
class Merge(Step):
    """The records of several streams of one type in one."""

    word: ClassVar[str] = "merge"

    @override
    def gives(self, asked: Asked) -> Any:
        if len(set(asked.names)) < len(asked.names):
            asked.fault("a stream is merged with itself, so each record would come twice; leave it out")
        types = {said(takes): None for takes in asked.takes if takes is not None}
        if len(types) > 1:
            asked.fault(f"merge takes streams of one type, found {' and '.join(types)}; map them to one type first")
        return asked.takes[0]

    @override
    def takes(self, gives: Sequence[str], names: Sequence[str]) -> str:
        return f"{gives[0]} of {', '.join(names)}"


@dataclass(frozen=True, slots=True)
class Write(Step):
    """Records go out to a sink."""

    word: ClassVar[str] = "write"
    writes: ClassVar[bool] = True
    delivers: ClassVar[bool] = True
    looks: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = _INSIDE

    sink: Sink

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        return f" -> {self.sink}"

    @override
    def unused(self, parents: Sequence[str]) -> str | None:
        return None
