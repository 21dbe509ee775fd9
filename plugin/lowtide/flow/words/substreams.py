"""Substreams that a predicate opens: what `substream(...)` gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from lowtide.flow.site import user_site
from lowtide.flow.steps import steps
from lowtide.flow.words.streams import Stream

if TYPE_CHECKING:
    from lowtide.flow.steps.graph import FlowGraph

T = TypeVar("T")
U = TypeVar("U")


class Substream(Generic[T, U]):
    """The substreams of a keyed stream, one after the other for each key: their beginnings and their ends.

    Example:
        >>> def enters(click: Click) -> bool:
        ...     return click.page == "/"
        >>> clicks.key_by("user").substream("visits", Visit, opens=enters, idle=lt.minutes(30))
        Substream('shop', 'visits')
    """

    def __init__(self, flow: FlowGraph, call: int) -> None:
        self._flow = flow
        self._call = call
        self._begun: Stream[T] | None = None

    @property
    def begun(self) -> Stream[T]:
        """The records that open a substream, unchanged and each at its own place.

        Example:
            >>> def enters(click: Click) -> bool:
            ...     return click.page == "/"
            >>> visits = clicks.key_by("user").substream("visits", Visit, opens=enters, idle=lt.minutes(30))
            >>> visits.begun.write("entries", lt.kafka("entries", lt.json(Click), key="user"))
            >>> [click.page for click in flow.run_locally(clicks=two_clicks)["entries"]]
            ['/']
        """
        if self._begun is None:
            self._begun = Stream(self._flow, self._flow.add(steps.Begun(), None, (self._call,), user_site()))
        return self._begun

    @property
    def ended(self) -> Stream[U]:
        """One record for each substream that has ended: at the place of the record that closes it, or of its timer.

        All records of the substream lie before it. So `ended.when_done(..., through=stream)` says when all that came of
        them has left a stream that is made of them.

        Example:
            >>> def enters(click: Click) -> bool:
            ...     return click.page == "/"
            >>> visits = clicks.key_by("user").substream("visits", Visit, opens=enters, idle=lt.minutes(30))
            >>> visits.ended.write("visits", lt.kafka("visits", lt.json(Visit), key="user"))
            >>> (visit,) = flow.run_locally(clicks=two_clicks)["visits"]
            >>> visit.count, visit.closed_by, visit.ended - visit.begun
            (2, 'idle', datetime.timedelta(seconds=1860))
        """
        return Stream(self._flow, self._call)

    def __repr__(self) -> str:
        return f"Substream({self._flow.name!r}, {self._flow.calls[self._call].name!r})"
