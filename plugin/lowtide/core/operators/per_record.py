"""Calling a user's function once per record, with no Python code of ours per record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lowtide.core.operators.batch import Batch
from lowtide.core.operators.failure import Failure, raised
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.watching import record_watch
from lowtide.flow.plan import Vertex


class PerRecord(Node):
    """A step that calls its function with every record, once, in order."""

    function: Callable[[Any], Any]

    def __init__(self, vertex: Vertex) -> None:
        super().__init__(vertex)
        self._watch = record_watch(vertex)

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Call the function with every record, then look at all results at once."""
        rows, watch = batch.rows, self._watch
        looked = None if watch is None else watch.look(rows)
        results, failures = call_each(self.calls, rows)
        if watch is not None:
            watch.check(rows, looked, batch.ats)
        if not self.holds(results):
            failed = {failure.index for failure in failures}
            origins = [index for index in range(len(rows)) if index not in failed]
            found = list(map(self.fault, results))
            wrong = [(origins[index], fault) for index, fault in enumerate(found) if fault]
            failures += [Failure(index, rows[index], fault) for index, fault in wrong]
            failures.sort(key=lambda failure: failure.index)
            results = [result for result, fault in zip(results, found, strict=True) if not fault]
        if failures:
            batch = self.bury(batch, failures, feed)
            if not batch.ats:
                return
        made = self.collect(batch, results)
        if made.ats:
            self.pass_on(made, feed)

    def calls(self, rows: Iterator[Any]) -> Iterator[Any]:
        """One result per row, made when it is asked for."""
        return map(self.function, rows)

    @abstractmethod
    def holds(self, results: list[Any]) -> bool:
        """Whether all results are of the right type; cheap."""

    @abstractmethod
    def fault(self, result: Any) -> str | None:
        """What is wrong with one result; asked only if `holds` says no."""

    @abstractmethod
    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Make the step's batch of one result per record; perhaps an empty one."""


def call_each(calls: Callable[[Iterator[Any]], Iterator[Any]], rows: Sequence[Any]) -> tuple[list[Any], list[Failure]]:
    """Call a function with every row once; the results of those that did not raise, and the failures of the others.

    `extend` keeps what came before an exception, so the number of results tells which row raised, and the iterator
    goes on after it. A StopIteration from the user's function ends `map` without an exception: the number tells too.
    """
    results: list[Any] = []
    failures: list[Failure] = []
    remaining = iter(rows)
    while True:
        try:
            results.extend(calls(remaining))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            index = len(results) + len(failures)
            failures.append(raised(index, rows[index], error))
        else:
            index = len(results) + len(failures)
            if index == len(rows):
                return results, failures
            failures.append(raised(index, rows[index], StopIteration()))


def said_type(value: object) -> str:
    """The type of a value for a message."""
    return "None" if value is None else type(value).__qualname__
