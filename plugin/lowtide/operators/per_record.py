"""Calling a user's function once per record, with no Python code of ours per record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.operators.batch import Batch
from lowtide.operators.failure import Failure, raised


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step made of a batch: the records that go on, and those that failed, in order."""

    batch: Batch
    failures: list[Failure]


class Operator(ABC):
    """One step at work."""

    @abstractmethod
    def apply(self, batch: Batch) -> Stepped:
        """Do the step to a batch; a record that fails does not keep the others from going on."""


class PerRecord(Operator):
    """A step that calls its function with every record, once, in order."""

    function: Callable[[Any], Any]

    def apply(self, batch: Batch) -> Stepped:
        """Call the function with every record, then look at all results at once."""
        rows = batch.rows()
        results, failures = call_each(self.calls, rows)
        kept = _without(len(rows), failures)
        if not self.holds(results):
            faults = list(map(self.fault, results))
            wrong = [index for index, fault in enumerate(faults) if fault]
            origins = range(len(rows)) if kept is None else kept.tolist()
            failures += [Failure(origins[index], rows[origins[index]], str(faults[index])) for index in wrong]
            failures.sort(key=lambda failure: failure.index)
            results = [result for result, fault in zip(results, faults, strict=True) if not fault]
            kept = _without(len(rows), failures)
        return Stepped(self.collect(batch if kept is None else batch.take(kept), results), failures)

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
        """Make the step's batch of one result per record."""


def call_each(calls: Callable[[Iterator[Any]], Iterator[Any]], rows: Sequence[Any]) -> tuple[list[Any], list[Failure]]:
    """Call a function with every row once; the results of those that did not raise, and the failures of the others.

    `extend` keeps what came before an exception, so the number of results tells which row raised, and the iterator
    goes on behind it. A StopIteration from the user's function ends `map` without an exception: the number tells too.
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


def _without(count: int, failures: Sequence[Failure]) -> Any:
    if not failures:
        return None
    return np.delete(np.arange(count), [failure.index for failure in failures])


def said_type(value: object) -> str:
    """The type of a value for a message."""
    return "None" if value is None else type(value).__qualname__
