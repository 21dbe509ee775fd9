"""The start of a user's file: `Flow`, and `main` to run it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import Kafka, KafkaSource
from lowtide.flow.other_words import OF_FLOWS
from lowtide.flow.parameters import check_room, value_of
from lowtide.flow.site import user_site
from lowtide.flow.steps.graph import FlowGraph
from lowtide.flow.steps.steps import Read
from lowtide.flow.words.streams import Stream
from lowtide_snapshots.job.news import DONE, step_of_labels

if TYPE_CHECKING:
    from lowtide.flow.steps.clocks import Moment
    from lowtide.status.key_state import Asked, KeyState
    from lowtide_snapshots.job.news import News

__all__ = ["Flow", "Subject", "begun", "committed", "delivered", "done", "main", "min_time", "state", "subscribe"]

_TAKEN = frozenset({"self", "inputs", "until", "states", "answers"})
"""Names that would be taken for arguments of `run_locally`."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

T = TypeVar("T")
P = TypeVar("P", str, int, float, bool)


class Flow(FlowGraph):
    """A flow from sources to sinks.

    Attributes:
        name: The flow's name, which is also the job's.
        dead_letters: The sink for records that cannot be parsed or whose step raised; without one they stop the job.
        hooks: By sink the function that hears of commits, `on_commit=` of its `write`; under "" that of the flow.

    Example:
        >>> flow = lt.Flow("shop", dead_letters=lt.kafka("shop.dead-letters", lt.raw()))
        >>> orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
        >>> flow
        Flow('shop')
    """

    def read(self, name: str, source: Kafka[T]) -> Stream[T]:
        """Read records from a source, e.g. `kafka("orders", json(Order))`.

        Args:
            name: The source's name, by which `run_locally` takes its records.
            source: What `lt.kafka(topic, format)` returned.

        Raises:
            FlowError: the source cannot be read so, or its name is an argument of `run_locally`.

        Example:
            >>> flow = lt.Flow("shop")
            >>> flow.read("orders", lt.kafka("orders", lt.json(Order)))
            Stream('shop', 'orders')
        """
        site = user_site()
        if name in _TAKEN:
            raise FlowError(
                f'a source cannot be called "{name}": run_locally has an argument of that name',
                where=str(site),
                way_out="give it another name; its topic may be called so",
            )
        if not isinstance(source, Kafka):
            raise FlowError(f"read takes kafka(topic, format), found {source!r}", where=str(site))
        if source.key is not None:
            raise FlowError(
                "a source has no key=",
                where=str(site),
                way_out="leave it out; a field that is the message's key is marked: Annotated[str, lt.Key()]",
            )
        return Stream(self, self.add(_read_of(source), name, (), site))

    def parameter(self, name: str, default: P) -> P:
        """Give the value that this start has for a parameter: `[job.parameters]` of the conf, or `--set` for once.

        Ask where the flow is written down: the plan keeps the value, and all workers and restarts have the same. A
        change from one life to the next is said like any other change of the flow, and refused nowhere.

        Args:
            name: Its name there, an identifier.
            default: Its value where the conf has none, in tests for example. The parameter is of its type: str, int,
                float or bool.

        Raises:
            FlowError: the value in the conf is of another type, or too large; the flow has asked for this name with
                another default; or a function asks.

        Example:
            >>> limit = flow.parameter("limit", 5)  # lowtide run flow.py --set job.parameters.limit=7
            >>> orders.filter(lambda order: order.amount > limit, name="large").write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("bob", 7)])["chosen"]
            [Order(user='bob', amount=7)]
        """
        if sys._getframe(1).f_globals.get("__name__") == "__main__" and not self.parameters:
            from lowtide.cli.options import give_from_arguments

            give_from_arguments(sys.argv[1:])
        value, site = value_of(name, default), user_site()
        before, place = self.defaults.get(name, (default, site))
        if (type(before), before) != (type(default), default):
            raise FlowError(
                f"parameter {name} has the default {default!r} here, and {before!r} at {place}",
                where=str(site),
                way_out="ask for it once, and use its value in both places",
            )
        check_room({**self.parameters, name: value})
        self.parameters[name], self.defaults[name] = value, (default, place)
        return value

    def clock(self, name: str, every: timedelta, *, tz: str | None = None) -> Stream[Moment]:
        """One record whenever log time has come to a multiple of `every`: before it, all of earlier times.

        It starts with the flow's first message and strikes on quiet topics, too; after a leap of time it strikes each
        multiple. When all sources have ended it strikes once more, at the end of the span of the last message.

        Args:
            name: The clock's name.
            every: From one moment to the next; multiples are counted from 1970 in UTC.
            tz: A time zone, on whose clocks multiples are counted from midnight: then a part of a day, or whole days.

        Example:
            >>> def at(moment: lt.Moment) -> Total:
            ...     return Total(moment.clock, moment.at.minute)
            >>> flow.clock("minutes", lt.minutes(1)).map(at).write("totals", to_totals)
            >>> clicks.write("copies", lt.kafka("copies", lt.json(Click)))
            >>> flow.run_locally(clicks=two_clicks)["totals"]
            [Total(user='minutes', amount=1), Total(user='minutes', amount=2)]
        """
        from lowtide.flow.steps.clocks import clock_of

        return Stream(self, self.add(clock_of(name, every, tz), name, (), user_site()))

    def run_locally(
        self,
        inputs: Mapping[str, Iterable[Any] | Mapping[int, Iterable[Any]]] | None = None,
        *,
        until: datetime | None = None,
        states: Mapping[str, Mapping[Any, Any]] | None = None,
        answers: Mapping[str, Callable[..., Any]] | None = None,
        **named: Iterable[Any] | Mapping[int, Iterable[Any]],
    ) -> dict[str, list[Any]]:
        """Run the flow here and now on lists of records, one per source, in order; no Spark, no services.

        Args:
            inputs: The records of each source by its name: objects of the source's type, the bytes of messages' values,
                or `Message(key, value, headers, timestamp)`; as `Stamped` where log time matters. A source that is not
                named has no records. A mapping gives the records of each partition: each has an order of its own.
            until: Where time stops after the last record; by default it goes on, so that every window closes.
            states: By step and key the state that a scan begins with, as from a snapshot; a key of several columns is a
                tuple.
            answers: By the name of a call the function that answers instead of its own.
            **named: More inputs, by names that are identifiers.

        Returns:
            The records written to each sink by its name, in order; those that failed under "dead-letters".

        Example:
            >>> orders.write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("bob", 7)])
            {'chosen': [Order(user='ada', amount=5), Order(user='bob', amount=7)]}
        """
        from lowtide.local.run import run_records

        return run_records(self, {**(inputs or {}), **named}, until, states, answers)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if (ours := OF_FLOWS.get(name)) is not None:
                raise FlowError(f"{self!r} has no {name}", where=str(user_site()), way_out=ours)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)


def _read_of(source: Kafka[T]) -> Read:
    said = source.start, source.stop, source.preload, source.compacted, source.timestamps
    return Read(KafkaSource(source.topic, source.format, *said))


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject to subscribe to; `lt.delivered()` and its kin make one.

    Attributes:
        text: As the job's control API takes it.

    Example:
        >>> lt.delivered()
        Subject(text='delivered')
    """

    text: str


def delivered() -> Subject:
    """The time before which everything is durable in the sinks, for ever.

    Example:
        >>> for news in lt.subscribe("shop", lt.delivered()):  # doctest: +SKIP
        ...     print(news.time_ms)
    """
    return Subject("delivered")


def committed() -> Subject:
    """Each snapshot that the job may be recovered from.

    Example:
        >>> for news in lt.subscribe("shop", lt.committed()):  # doctest: +SKIP
        ...     print(news.data["snapshot"])
    """
    return Subject("commit")


def min_time(step: str | None = None) -> Subject:
    """The time before which everything has left the flow, in this life; with a step's name, its segment.

    Example:
        >>> lt.min_time()
        Subject(text='min_time')
        >>> lt.min_time("totals")
        Subject(text='segment:totals')
    """
    return Subject("min_time" if step is None else f"segment:{step}")


def done(step: str, label: Asked) -> Subject:
    """The end of a label's substream, once all that came of it is delivered.

    Args:
        step: The name of the flow's `when_done(step, ..., label=...)`.
        label: The value of its column; of several columns a dict.

    Example:
        >>> lt.done("read", "order-17")
        Subject(text='done:read:order-17')
        >>> lt.done("read", {"shop": "acme", "order": 17})
        Subject(text='done:read:{"order":"17","shop":"acme"}')
    """
    from lowtide.flow.steps.labels import label_text
    from lowtide.status.key_state import texts_of

    return Subject(f"{DONE}:{step}:{label_text(texts_of(label))}")


def begun(step: str, label: Asked) -> Subject:
    """The beginning of a label's substream, once its first record, and what came of its tick, is delivered.

    Args:
        step: The name of the flow's `when_begun(step, label=...)`.
        label: The value of its column; of several columns a dict.

    Example:
        >>> lt.begun("customers", "ada")
        Subject(text='done:customers/begun:ada')
    """
    return done(step_of_labels(step, begun=True), label)


def subscribe(
    job: str,
    *about: Subject,
    at: datetime | None = None,
    last_id: str = "",
    timeout: timedelta | None = None,
    conf: Path | None = None,
) -> Iterator[News]:
    """Give the news of a running job, each once and in order, over its deaths, until it is stopped.

    Args:
        job: Its name.
        *about: One or more of `lt.delivered()`, `lt.committed()`, `lt.min_time()`, `lt.done(step, label)` and
            `lt.begun(step, label)`.
        at: Tell of each of them once, when it has come to this moment, and end when all have; of a label, when it has
            ended at this moment or later.
        last_id: The id of the last news of an earlier subscription to the same, which this one goes on after.
        timeout: How long to wait for all of it.
        conf: The job's conf file; without it, defaults.

    Raises:
        FlowError: `about` is none of these.
        LowtideError: the job cannot be found or tell of that, or has not come so far in time.

    Example:
        >>> for news in lt.subscribe("shop", lt.delivered(), lt.committed()):  # doctest: +SKIP
        ...     print(news.kind, news.time_ms)
    """
    from lowtide.cli.running_jobs import control_of
    from lowtide.conf import Conf
    from lowtide.status.subscriber import follow

    subjects = [_text_of(each) for each in about]
    if at is not None and at.tzinfo is None:
        raise FlowError(f"at={at} has no zone", way_out="give one: datetime(..., tzinfo=UTC)")
    at_ms = None if at is None else -((EPOCH - at) // timedelta(milliseconds=1))
    found, limit_s = Conf.load(conf), None if timeout is None else timeout.total_seconds()
    return follow(lambda: control_of(found, job), subjects, at_ms=at_ms, last_id=last_id, limit_s=limit_s)


def state(
    job: str, step: str, *keys: Asked, unit: int | None = None, limit: int | None = None, conf: Path | None = None
) -> list[KeyState]:
    """Return the state that a step of a running job keeps of keys, as of min time.

    Args:
        job: The job's name.
        step: The name of a step with state: `scan` and its kin, `last`, `aggregate`, `deduplicate`, a window, a
            `join_table`, a side of a join as `JOIN/left`, or a broadcast.
        *keys: Each a value, or a dict of the key's columns. None for a broadcast.
        unit: Give the first keys of this hash unit instead.
        limit: The number of these, 1,000 at most, 100 if a unit alone is given; without a unit, of any unit.
        conf: The job's conf file; without it, defaults.

    Returns:
        For each key its state, in their order; one without rows has none.

    Raises:
        FlowError: keys are given with `unit` or `limit`.
        LowtideError: the job cannot be found, or it has no such step or key.

    Example:
        >>> ann, bob = lt.state("shop", "totals", "ann", "bob")  # doctest: +SKIP
        >>> ann.state, ann.min_time  # doctest: +SKIP
        (17, datetime.datetime(2026, 1, 2, 13, 0, tzinfo=datetime.timezone.utc))
    """
    from lowtide.cli.running_jobs import control_of
    from lowtide.conf import Conf
    from lowtide.status.key_state import states_around, states_of

    around = unit is not None or limit is not None
    if around and keys:
        raise FlowError("state takes keys, or unit and limit", way_out="leave one of both out")
    client = control_of(Conf.load(conf), job)
    if around:
        return states_around(client, step, unit, 100 if limit is None else limit)[0]
    return states_of(client, step, keys or [{}])


def _text_of(subject: object) -> str:
    if not isinstance(subject, Subject):
        way_out = "write lt.delivered(), lt.committed(), lt.min_time() or lt.done(step, label)"
        raise FlowError(f"subscribe takes subjects, found {subject!r}", way_out=way_out)
    return subject.text


def main(flow: Flow) -> None:
    """Run the flow as `lowtide run` does, with the arguments of the command line.

    Example:
        >>> orders.write("chosen", to_chosen)
        >>> if __name__ == "__main__":
        ...     lt.main(flow)
    """
    from lowtide.cli import main_flow

    main_flow(flow)
