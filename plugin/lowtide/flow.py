"""The flow a user writes: a record of its steps. Nothing is checked or run before somebody asks for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lowtide.connectors.spec import Kafka, KafkaSink, KafkaSource
from lowtide.errors import FlowError
from lowtide.steps import Filter, FlatMap, Function, KeyBy, Map, MapBatches, Read, Site, Step, Write

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
U = TypeVar("U")

DEAD_LETTERS = "dead-letters"
"""The name of the sink that takes the records which failed."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""A name that may stand in a path, a topic and a command line as it is."""

NAME_RULE = "use letters, digits, '_', '.' and '-', at most 100, starting with a letter or digit"

_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True)
class Call:
    """One step as it was written down.

    Attributes:
        step: What it does.
        name: Its name, None if it has none.
        parent: Index of the call whose records it takes, None for a source.
        site: Where it was written.
    """

    step: Step
    name: str | None
    parent: int | None
    site: Site


class Flow:
    """A flow from sources to sinks.

    Attributes:
        name: The flow's name, which is also the job's.
        dead_letters: The sink for records that cannot be parsed or whose step raised; without one they stop the job.
        calls: The steps in the order they were written; a step stands after the one it takes records from.
    """

    def __init__(self, name: str, *, dead_letters: Kafka[Any] | None = None) -> None:
        self.site = _site()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise FlowError(f"{name!r} is not a flow's name", where=str(self.site), way_out=NAME_RULE)
        self.name = name
        self.dead_letters = None if dead_letters is None else _sink(dead_letters, "Flow", self.site)
        self.calls: list[Call] = []

    def read(self, name: str, source: Kafka[T]) -> Stream[T]:
        """Read records from a source, e.g. `kafka("orders", json(Order))`."""
        site = _site()
        if not isinstance(source, Kafka):
            raise FlowError(f"read takes kafka(topic, format), found {source!r}", where=str(site))
        if source.key is not None:
            raise FlowError(
                "a source has no key column", where=str(site), way_out="leave out key=; read raw() to see the keys"
            )
        return self._add(Read(KafkaSource(source.topic, source.format)), name, None, site)

    def run_locally(self, **inputs: Iterable[Any]) -> dict[str, list[Any]]:
        """Run the flow here and now on lists of records, one per source, in order; no Spark, no services.

        Args:
            **inputs: The records of each source by its name (`**{"my-source": [...]}` where that is no identifier):
                objects of the source's type, or the bytes of messages. A source that is not named has no records.

        Returns:
            The records written to each sink by its name, in order; those that failed under "dead-letters".
        """
        from lowtide.local import run_records

        return run_records(self, inputs)

    def _add(self, step: Step, name: str | None, parent: int | None, site: Site) -> Stream[Any]:
        self.calls.append(Call(step, name, parent, site))
        return Stream(self, len(self.calls) - 1)

    def __repr__(self) -> str:
        return f"Flow({self.name!r})"


class Stream(Generic[T]):
    """The records that come out of a step; any number of steps may take them."""

    def __init__(self, flow: Flow, call: int) -> None:
        self._flow = flow
        self._call = call

    def map(self, function: Callable[[T], U], *, name: str | None = None, returns: type[U] | None = None) -> Stream[U]:
        """Turn every record into one other record.

        Args:
            function: Takes a record, returns one; deterministic, and changes neither its record nor anything else.
            name: The step's name; by default the function's.
            returns: The type of the new records if the function's annotations do not say it.
        """
        return self._then(Map(_callable(function), returns), _name(function, name))

    def flat_map(
        self, function: Callable[[T], Iterable[U]], *, name: str | None = None, returns: type[U] | None = None
    ) -> Stream[U]:
        """Turn every record into any number of records, in the order the function gives them; see `map`."""
        return self._then(FlatMap(_callable(function), returns), _name(function, name))

    def filter(self, function: Callable[[T], bool], *, name: str | None = None) -> Stream[T]:
        """Keep the records for which the function returns True; see `map`."""
        return self._then(Filter(_callable(function)), _name(function, name))

    def map_batches(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], returns: type[U], *, name: str | None = None
    ) -> Stream[U]:
        """Turn Arrow record batches of any length into others, row by row: row i of the result is made of row i.

        How records are cut into batches depends on timing, so a row must not depend on its neighbours.

        Args:
            function: Takes and returns a batch with the columns of the dataclasses, in their order; same length.
            returns: The type of the new records.
            name: The step's name; by default the function's.
        """
        return self._then(MapBatches(_callable(function), returns), _name(function, name))

    def key_by(self, *columns: str, name: str | None = None) -> Stream[T]:
        """Bring records with equal values in these columns together, wherever they came from."""
        site = _site()
        if not columns or not all(isinstance(column, str) for column in columns):
            raise FlowError("key_by takes the names of one or more columns", where=str(site))
        return self._then(KeyBy(columns), name, site)

    def write(self, name: str, sink: Kafka[T]) -> None:
        """Write the records to a sink, e.g. `kafka("totals", json(Total), key="user")`."""
        site = _site()
        self._then(Write(_sink(sink, "write", site)), name, site)

    def _then(self, step: Step, name: str | None, site: Site | None = None) -> Stream[Any]:
        return self._flow._add(step, name, self._call, site or _site())

    def __repr__(self) -> str:
        call = self._flow.calls[self._call]
        return f"Stream({self._flow.name!r}, {call.name!r})"


def _callable(function: Function) -> Function:
    if not callable(function):
        raise FlowError(f"a function is expected, found {function!r}", where=str(_site()))
    return function


def _name(function: Function, name: str | None) -> str | None:
    """The given name, else the function's own; None for a lambda, a partial or an object."""
    if name is not None:
        return name
    own = getattr(function, "__name__", None)
    return own if isinstance(own, str) and own.isidentifier() else None


def _sink(sink: Kafka[Any], taker: str, site: Site) -> KafkaSink:
    if not isinstance(sink, Kafka):
        raise FlowError(f"{taker} takes kafka(topic, format), found {sink!r}", where=str(site))
    return KafkaSink(sink.topic, sink.format, sink.key)


def _site() -> Site:
    """The innermost frame outside of this package: the user's line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def main(flow: Flow) -> None:
    """Run the flow as `lowtide run` does, with the arguments of the command line."""
    from lowtide.cli import main_flow

    main_flow(flow)
