"""The steps a flow is made of, as frozen values: what each one does, not how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowtide.connectors.spec import KafkaSink, KafkaSource

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Read:
    """Records come in from a source."""

    source: KafkaSource


@dataclass(frozen=True, slots=True)
class Map:
    """Every record becomes one record; `returns` is its type where the function does not say."""

    function: Function
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Every record becomes any number of records, in the order the function gives them."""

    function: Function
    returns: type | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Records for which the function says True go on."""

    function: Function


@dataclass(frozen=True, slots=True)
class MapBatches:
    """An Arrow record batch becomes another one of `returns`, row by row in the same order.

    How records are cut into batches depends on timing, so row i of the result must depend on row i alone.
    """

    function: Function
    returns: type


@dataclass(frozen=True, slots=True)
class KeyBy:
    """Records with equal values in `columns` come together; without columns, those of one front do."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Records go out to a sink."""

    sink: KafkaSink


Step = Read | Map | FlatMap | Filter | MapBatches | KeyBy | Write

WORD = {
    Read: "read",
    Map: "map",
    FlatMap: "flat_map",
    Filter: "filter",
    MapBatches: "map_batches",
    KeyBy: "key_by",
    Write: "write",
}
"""What a step is called in the user's code."""
