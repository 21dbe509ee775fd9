"""A call's setting: the function that asks a service, and how often and how patiently it does."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.steps.steps import Ask, passes_keys

_MSGSPEC_CACHE = "__msgspec_cache__"


@dataclass(frozen=True, slots=True)
class CallSetting:
    """A call.

    Attributes:
        name: The step's name.
        function: Asks the service: `async def`, or a plain `def`, which runs in a thread. It takes the record, then
            the resource if there is one, then the call key if `pass_keys`; with `batch` a list of records, the
            resource and a list of keys, and it gives a list of as many results.
        takes: The records' dataclass.
        gives: The results' dataclass.
        concurrency: The function's calls at one time, in one caller process.
        timeout_s: The longest time for one try; a batch is one try.
        retries: So many more tries after the first.
        resource: Makes what the function uses: a context manager, also an async one, or any value. It is entered
            once in each caller process, and exited at that one's end. For a plain function it is made in a thread.
        batch: The largest number of records in one call; None if the function takes one record and no list.
        within_s: The longest time that a record waits for others of its batch.
        pass_keys: True if the function takes the call keys, see `passes_keys`.
    """

    name: str
    function: Callable[..., Any]
    takes: type
    gives: type
    concurrency: int
    timeout_s: float
    retries: int = 0
    resource: Callable[[], Any] | None = None
    batch: int | None = None
    within_s: float = 0.005
    pass_keys: bool = False

    @property
    def is_async(self) -> bool:
        """True if the function is an `async def`, or an object with an async `__call__`."""
        function = self.function
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

    @property
    def most_open(self) -> int:
        """The number of records that can be under way at one time."""
        return self.concurrency * (self.batch or 1)

    def faked(self, function: Callable[..., Any]) -> CallSetting:
        """Return the same call of a fake, which takes a record, and the key if it asks for it, and gives a result."""
        pass_keys = passes_keys(function, resource=False)
        return replace(self, function=function, resource=None, batch=None, pass_keys=pass_keys)


def dump_settings(settings: Sequence[CallSetting]) -> bytes:
    """Return settings pickled, for a caller process.

    A dataclass that records were read into carries msgspec's cache, which cannot be pickled and is rebuilt on use: it
    is removed.
    """
    for known in _classes(object):
        if _MSGSPEC_CACHE in vars(known) and dataclasses.is_dataclass(known):
            delattr(known, _MSGSPEC_CACHE)
    return bytes(cloudpickle.dumps(tuple(settings)))


def _classes(base: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(base)
    for each in subclasses:
        yield each
        yield from _classes(each)


def settings_of(plan: Plan) -> list[CallSetting]:
    """Return the settings of a plan's calls."""
    return [setting_of(ask) for ask in plan.those(Ask)]


def setting_of(ask: Vertex[Ask]) -> CallSetting:
    """Return the setting of a call of a plan."""
    step = ask.step
    return CallSetting(
        name=ask.name,
        function=step.function,
        takes=ask.takes,
        gives=ask.gives,
        concurrency=step.concurrency,
        timeout_s=step.timeout.total_seconds(),
        retries=step.retries,
        resource=step.resource,
        batch=step.batch,
        within_s=0.0 if step.within is None else step.within.total_seconds(),
        pass_keys=passes_keys(step.function, resource=step.resource is not None),
    )
