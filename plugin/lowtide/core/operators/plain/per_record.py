"""Steps that call a function with each record: `map`, `flat_map`, `filter`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from lowtide.core.operators.faults.failure import Failure, raised
from lowtide.core.operators.faults.watch import record_watch
from lowtide.core.operators.node import Feed, Node
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import TAIL_BYTES, with_child
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.steps.steps import Filter, FlatMap, Map, Split


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
        self.give(batch, results, feed)

    def give(self, batch: Batch, results: list[Any], feed: Feed) -> None:
        """Pass on what comes of one result per record, all of them right."""
        made = self.collect(batch, results)
        if made.ats:
            self.pass_on(made, feed)

    def calls(self, rows: Iterator[Any]) -> Iterator[Any]:
        """One result per row, made when it is asked for."""
        return map(self.function, rows)

    @abstractmethod
    def holds(self, results: list[Any]) -> bool:
        """Return whether all results are of the right type; cheap."""

    @abstractmethod
    def fault(self, result: Any) -> str | None:
        """Return the fault of one result; called only if `holds` is False."""

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


class MapNode(PerRecord):
    """Replaces every record by the function's result, in the same place."""

    def __init__(self, vertex: Vertex[Map]) -> None:
        super().__init__(vertex)
        self.function = vertex.step.function
        self._gives = vertex.gives

    def holds(self, results: list[Any]) -> bool:
        """Return whether all results are of the type itself; a subclass would not come back from an exchange."""
        return set(map(type, results)) <= {self._gives}

    def fault(self, result: Any) -> str | None:
        """Return the fault of one result."""
        if type(result) is self._gives:
            return None
        return f"returned {said_type(result)}, expected {self._gives.__qualname__}"

    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Put the results in place of the records."""
        return batch.with_rows(results)


class FlatMapNode(PerRecord):
    """Replaces every record by the elements of the function's result, numbered from 1 in their child paths (R4)."""

    def __init__(self, vertex: Vertex[FlatMap]) -> None:
        super().__init__(vertex)
        self.function = vertex.step.function
        self._gives = vertex.gives

    def calls(self, rows: Iterator[Any]) -> Iterator[list[Any]]:
        """Each result as a list, so that what a generator raises counts for its record."""
        return map(list, map(self.function, rows))

    def holds(self, results: list[Any]) -> bool:
        """Return whether all elements are of the type itself."""
        return set(map(type, chain.from_iterable(results))) <= {self._gives}

    def fault(self, result: Any) -> str | None:
        """Return the fault of the elements of one record."""
        wrong = [element for element in result if type(element) is not self._gives]
        return f"gave {said_type(wrong[0])}, expected {self._gives.__qualname__}" if wrong else None

    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Lay all elements in a row."""
        ats: list[bytes] = []
        units: list[int] = []
        flags: list[bool] | None = None if batch.flags is None else []
        for index, result in enumerate(results):
            count = len(result)
            at = batch.ats[index]
            head, tail = at[:-TAIL_BYTES], at[-TAIL_BYTES:]
            ats += [b"%b%b%b" % (head, number.to_bytes(4, "big"), tail) for number in range(1, count + 1)]
            if batch.units:
                units += [batch.units[index]] * count
            if flags is not None and batch.flags is not None:
                flags += [batch.flags[index]] * count
        return Batch(ats, units, list(chain.from_iterable(results)), flags)


class FilterNode(PerRecord):
    """Keeps records in their places."""

    def __init__(self, vertex: Vertex[Filter | Split]) -> None:
        super().__init__(vertex)
        self.function = vertex.step.function

    def holds(self, results: list[Any]) -> bool:
        """Return whether all results are bool."""
        return set(map(type, results)) <= {bool}

    def fault(self, result: Any) -> str | None:
        """Return the fault of one result."""
        return not_bool(result)

    def collect(self, batch: Batch, results: list[Any]) -> Batch:
        """Take the records with True."""
        return batch if all(results) else batch.where(results)


class SplitNode(FilterNode):
    """Gives records to one of its two sides, each with that one's number in the child path, as of any ways (R4)."""

    def give(self, batch: Batch, results: list[Any], feed: Feed) -> None:
        """Give the one side the records with True, the other the rest."""
        for ordinal, (follower, port, _) in enumerate(self._followers, 1):
            side = batch.where(results if ordinal == 1 else [not result for result in results])
            if side.ats:
                follower.take(side.with_ats([with_child(at, ordinal) for at in side.ats]), port, feed)


class SideNode(Node):
    """A side of a split, which others take from."""

    def take(self, batch: Batch, port: int, feed: Feed) -> None:
        """Pass records on."""
        self.pass_on(batch, feed)


def not_bool(result: Any) -> str | None:
    """Return the fault of a predicate's result."""
    return None if type(result) is bool else f"returned {said_type(result)}, expected bool"
