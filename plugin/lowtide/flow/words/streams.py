"""Streams: what the steps of a flow are written on. Each method writes one step down; nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, TypeVar, get_args, overload

from lowtide.errors import FlowError
from lowtide.flow import other_words as words
from lowtide.flow.formats.endpoints import Kafka, Sink
from lowtide.flow.site import Site, check_text, count_of, function_of, name_of, user_site, written
from lowtide.flow.steps import steps
from lowtide.flow.steps.calls import sink_elsewhere, sink_of
from lowtide.flow.steps.hooks import Hook, hook_of
from lowtide.flow.steps.steps import Step
from lowtide.flow.steps.timers import flat_scan_of
from lowtide.flow.steps.windows import Windows
from lowtide.flow.time.durations import duration_of
from lowtide.flow.time.event_time import EVENT_TIME
from lowtide.flow.time.moments import ZERO

if TYPE_CHECKING:
    import pyarrow as pa

    from lowtide.flow.steps.agg import Aggregate
    from lowtide.flow.steps.ask import CallFailed
    from lowtide.flow.steps.graph import FlowGraph
    from lowtide.flow.steps.window_by import Order
    from lowtide.flow.time.event_time import EventTime, EventTimes
    from lowtide.flow.words.joins import Joined, Table
    from lowtide.flow.words.substreams import Substream
    from lowtide.flow.words.windowed import Windowed

T = TypeVar("T")
U = TypeVar("U")
S = TypeVar("S")
B = TypeVar("B")
R = TypeVar("R")

_KEYED = (
    "last",
    "scan",
    "flat_scan",
    "reduce",
    "aggregate",
    "deduplicate",
    "substream",
    "window",
    "table",
    "join_table",
    "join",
    "join_asof",
    "connect",
)


def _failed(failed: Any, otherwise: object, batch: object, within: object) -> steps.Failed:
    """Return what becomes of records whose call has failed; refuse arguments that do not fit each other."""
    what = ""
    if failed not in get_args(steps.Failed):
        what = f'call takes failed="raise", "value" or "letter", found {failed!r}'
    elif (failed == "value") != (otherwise is not None):
        what = 'call takes failed="value" and otherwise= together: that function gives the value'
    elif otherwise is not None and not callable(otherwise):
        what = f"call takes a function as otherwise=, found {otherwise!r}"
    elif within is not None and batch is None:
        what = "call takes within= with batch= only: it is how long a batch waits"
    if what:
        raise FlowError(what, where=str(user_site()))
    found: steps.Failed = failed
    return found


def _ordered(order: Any, repeatable: object) -> steps.Ordered:
    """Return the order of a call's answers; refuse what does not fit."""
    what = ""
    if order not in get_args(steps.Ordered):
        what = f'call takes order="record" or "answer", found {order!r}'
    elif order == "answer" and repeatable:
        what = (
            'call takes order="answer" without repeatable=True: the order of the answers is kept with them, '
            "and repeatable=True keeps none"
        )
    if what:
        raise FlowError(what, where=str(user_site()))
    found: steps.Ordered = order
    return found


class Stream(Generic[T]):
    """The records that come out of a step; any number of steps may take them.

    Example:
        >>> orders.filter(lambda order: order.amount > 5, name="large").write("chosen", to_chosen)
        >>> flow.run_locally(orders=[Order("ada", 5), Order("bob", 7)])["chosen"]
        [Order(user='bob', amount=7)]
    """

    def __init__(self, flow: FlowGraph, call: int) -> None:
        self._flow = flow
        self._call = call

    def map(self, function: Callable[[T], U], *, name: str | None = None, returns: type[U] | None = None) -> Stream[U]:
        """Turn every record into one other record.

        Args:
            function: Takes a record, returns one; deterministic, and changes neither its record nor anything else.
            name: The step's name; by default the function's.
            returns: The type of the new records if the function's annotations do not say it.

        Example:
            >>> def doubled(order: Order) -> Total:
            ...     return Total(order.user, 2 * order.amount)
            >>> orders.map(doubled).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5)])["totals"]
            [Total(user='ada', amount=10)]
        """
        return self._then(steps.Map(function_of(function), returns), name_of(function, name))

    def flat_map(
        self, function: Callable[[T], Iterable[U]], *, name: str | None = None, returns: type[U] | None = None
    ) -> Stream[U]:
        """Turn every record into any number of records, in the order the function gives them; see `map`.

        Example:
            >>> def coins(order: Order) -> list[Total]:
            ...     return [Total(order.user, 1)] * order.amount
            >>> orders.flat_map(coins).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 2), Order("bob", 0)])["totals"]
            [Total(user='ada', amount=1), Total(user='ada', amount=1)]
        """
        return self._then(steps.FlatMap(function_of(function), returns), name_of(function, name))

    def filter(self, function: Callable[[T], bool], *, name: str | None = None) -> Stream[T]:
        """Keep the records for which the function returns True; see `map`.

        Example:
            >>> def large(order: Order) -> bool:
            ...     return order.amount > 5
            >>> orders.filter(large).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("bob", 7)])["chosen"]
            [Order(user='bob', amount=7)]
        """
        return self._then(steps.Filter(function_of(function)), name_of(function, name))

    @overload
    def call(
        self,
        name: str,
        function: Callable[Concatenate[T, ...], Coroutine[Any, Any, U]],
        *,
        timeout: timedelta,
        concurrency: int = 100,
        retries: int = 0,
        resource: Callable[[], Any] | None = None,
        batch: None = None,
        failed: Literal["raise", "value", "letter"] = "raise",
        otherwise: Callable[[T, CallFailed], Any] | None = None,
        repeatable: bool = False,
        order: Literal["record", "answer"] = "record",
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    @overload
    def call(
        self,
        name: str,
        function: Callable[Concatenate[T, ...], U],
        *,
        timeout: timedelta,
        concurrency: int = 100,
        retries: int = 0,
        resource: Callable[[], Any] | None = None,
        batch: None = None,
        failed: Literal["raise", "value", "letter"] = "raise",
        otherwise: Callable[[T, CallFailed], Any] | None = None,
        repeatable: bool = False,
        order: Literal["record", "answer"] = "record",
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    @overload
    def call(
        self,
        name: str,
        function: Callable[Concatenate[list[T], ...], Coroutine[Any, Any, list[U]]],
        *,
        timeout: timedelta,
        concurrency: int = 100,
        retries: int = 0,
        resource: Callable[[], Any] | None = None,
        batch: int,
        within: timedelta | None = None,
        failed: Literal["raise", "value", "letter"] = "raise",
        otherwise: Callable[[T, CallFailed], Any] | None = None,
        repeatable: bool = False,
        order: Literal["record", "answer"] = "record",
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    @overload
    def call(
        self,
        name: str,
        function: Callable[Concatenate[list[T], ...], list[U]],
        *,
        timeout: timedelta,
        concurrency: int = 100,
        retries: int = 0,
        resource: Callable[[], Any] | None = None,
        batch: int,
        within: timedelta | None = None,
        failed: Literal["raise", "value", "letter"] = "raise",
        otherwise: Callable[[T, CallFailed], Any] | None = None,
        repeatable: bool = False,
        order: Literal["record", "answer"] = "record",
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        timeout: timedelta,
        concurrency: int = 100,
        retries: int = 0,
        resource: Callable[[], Any] | None = None,
        batch: int | None = None,
        within: timedelta | None = None,
        failed: Literal["raise", "value", "letter"] = "raise",
        otherwise: Callable[[T, CallFailed], Any] | None = None,
        repeatable: bool = False,
        order: Literal["record", "answer"] = "record",
        returns: type[U] | None = None,
    ) -> Stream[Any]:
        """Ask an outside service about every record, many at a time; by default answers keep the order of the records.

        A record is asked about once nothing before it can come any more. Its answer is kept in the job's own topic
        `lowtide.<job>.answers.<name>` before anything that rests on it is delivered, and a later life takes it from
        there: so the output stays the same, whatever the service would say now. A process that is killed between a
        call and that moment asks again, with the same key: a service that knows keys (`Idempotency-Key`) does the
        work once.

        Args:
            name: The step's name, under which its answers are kept.
            function: Takes a record and returns the answer, a record: an `async def`, or a plain function, which runs
                in a thread. It may take what `resource` gives as its second argument, and a text in an argument `key`
                that is the same for this record in every life. With `batch` it takes lists of records and `keys`,
                and returns a list of as many answers.
            timeout: How long one try may take.
            concurrency: The number of calls that may be open at once, at each worker. Beyond it records wait.
            retries: Tries after the first one; the pause between them doubles, from 0.1 s to 10 s.
            resource: Makes what all calls of a process share, as a session or a pool; a context manager is entered
                once, and left at the end of the process.
            batch: The number of records that one call takes at most.
            within: How long a batch waits for more records; by default not at all.
            failed: What becomes of a record whose last try has failed: the life ends ("raise"), `otherwise` gives the
                answer ("value"), or it becomes a dead letter ("letter").
            otherwise: Takes the record and the `CallFailed`, and returns the answer.
            repeatable: True if the answer is always the same: none is kept, and every life asks again.
            order: "record" gives answers the places of their records. With "answer" each one goes on as it comes, at
                the log time of that moment, so that a slow call delays no other record; what is kept of the answers
                decides their order in every life. All steps before such a call look at one record alone.
            returns: The type of the answers if the function's annotations do not say it.

        Example:
            >>> async def priced(order: Order) -> Total:
            ...     return Total(order.user, 3 * order.amount)  # Asks a service.
            >>> orders.call("prices", priced, timeout=lt.seconds(2), retries=3).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5)])["totals"]
            [Total(user='ada', amount=15)]
        """
        check_text("call", name)
        step = steps.Ask(
            function_of(function),
            duration_of("call", "timeout", timeout),
            returns,
            count_of("call", "concurrency", concurrency),
            retries if retries == 0 else count_of("call", "retries", retries),
            None if resource is None else function_of(resource),
            None if batch is None else count_of("call", "batch", batch),
            None if within is None else duration_of("call", "within", within),
            _failed(failed, otherwise, batch, within),
            otherwise,
            bool(repeatable),
            _ordered(order, repeatable),
        )
        return self._then(step, name)

    def split(self, function: Callable[[T], bool], *, name: str | None = None) -> tuple[Stream[T], Stream[T]]:
        """Part the records: those for which the function returns True, and the rest; it is called once for each.

        Args:
            function: See `map`.
            name: The step's name; by default the function's.

        Example:
            >>> large, small = orders.split(lambda order: order.amount > 5, name="large")
            >>> large.write("large", to_chosen)
            >>> small.write("small", lt.kafka("small-orders", lt.json(Order), key="user"))
            >>> flow.run_locally(orders=[Order("ada", 5), Order("bob", 7)])
            {'large': [Order(user='bob', amount=7)], 'small': [Order(user='ada', amount=5)]}
        """
        site = user_site()
        parted = self._write_down(steps.Split(function_of(function)), name_of(function, name), site=site)
        yes, no = (self._flow.add(steps.Side(says), None, (parted,), site) for says in (True, False))
        return Stream(self._flow, yes), Stream(self._flow, no)

    def map_batches(
        self, function: Callable[[pa.RecordBatch], pa.RecordBatch], returns: type[U], *, name: str | None = None
    ) -> Stream[U]:
        """Turn Arrow record batches of any length into others, row by row: row i of the result is made of row i.

        How records are cut into batches depends on timing, so a row must not depend on its neighbours.

        Args:
            function: Takes and returns a batch with the columns of the dataclasses, in their order; same length.
            returns: The type of the new records.
            name: The step's name; by default the function's.

        Example:
            >>> import pyarrow as pa, pyarrow.compute as pc
            >>> def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
            ...     return batch.set_column(1, "amount", pc.multiply(batch["amount"], 2))
            >>> orders.map_batches(doubled, Order).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5)])["chosen"]
            [Order(user='ada', amount=10)]
        """
        return self._then(steps.MapBatches(function_of(function), returns), name_of(function, name))

    def key_by(self, *columns: str, name: str | None = None) -> KeyedStream[T]:
        """Bring records with equal values in these columns together, wherever they came from.

        Written again with the same columns, it is the same keyed stream: records are sent once.

        Args:
            *columns: The names of one or more columns.
            name: The step's name; by default made of the names before it and of the columns.

        Example:
            >>> orders.key_by("user").last(2).map(lambda two: Total(two[0].user, len(two)), name="pairs", returns=Total)
            Stream('shop', 'pairs')
        """
        if not columns or not all(isinstance(column, str) for column in columns):
            odd = next((column for column in columns if not isinstance(column, str)), None)
            found = "none" if not columns else "a function" if callable(odd) else repr(odd)
            way_out = 'name them: key_by("user"); for a computed key, map it into a field first'
            raise FlowError(f"key_by takes column names, found {found}", where=str(user_site()), way_out=way_out)
        keyed = self._flow.keyed.get((self._call, columns, name))
        if keyed is None:
            keyed = self._flow.keyed[self._call, columns, name] = self._write_down(steps.KeyBy(columns), name)
        return KeyedStream(self._flow, keyed)

    def merge(self, *others: Stream[T], name: str = "") -> Stream[T]:
        """Put this and other streams of the same type into one; records stand in the order of their sources' labels.

        Args:
            *others: One or more streams of this flow, of the same type.
            name: The step's name, which it needs.

        Example:
            >>> refunds = flow.read("refunds", lt.kafka("refunds", lt.json(Order)))
            >>> orders.merge(refunds, name="both").write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5)], refunds=[Order("ada", -5)])["chosen"]
            [Order(user='ada', amount=5), Order(user='ada', amount=-5)]
        """
        for other in others:
            self._check_ours(other, "merge")
        if not others:
            raise FlowError("merge takes one or more other streams", where=str(user_site()))
        if not name:
            way_out = 'give it one: a.merge(b, name="both")'
            raise FlowError("merge needs a name", where=str(user_site()), way_out=way_out)
        return Stream(self._flow, self._write_down(steps.Merge(), name, also=[other._call for other in others]))

    def broadcast(self, name: str, function: Callable[[B, T], B], initial: B) -> Broadcast[B]:
        """Keep one state of all records, wherever they came from, for scans to look at: `scan(..., broadcast=this)`.

        Args:
            name: The step's name.
            function: Takes the state and a record, returns the new state; see `KeyedStream.scan`.
            initial: The state before the first record.

        Example:
            >>> highest = orders.broadcast("highest", lambda highest, order: max(highest, order.amount), 0)
            >>> def compared(count: int, order: Order, highest: int) -> tuple[int, Total]:
            ...     return count + 1, Total(order.user, highest)
            >>> orders.key_by("user").scan("compared", compared, 0, broadcast=highest).write("totals", to_totals)
            >>> flow.run_locally(orders=three_orders)["totals"]
            [Total(user='ada', amount=5), Total(user='bob', amount=7), Total(user='ada', amount=7)]
        """
        check_text("broadcast", name)
        return Broadcast(self._flow, self._write_down(steps.Broadcast(function_of(function), initial), name))

    def when_done(
        self,
        name: str,
        *,
        through: Stream[Any] | None = None,
        label: str | Sequence[str] | None = None,
        keep: timedelta = timedelta(hours=1),
        order: Order = "before_next",
    ) -> Stream[T]:
        """Give each record again when everything of its tick, and so all that came of it, has left another stream.

        It comes before all records of the next tick, and after all of its own; with windows between, once these have
        closed. With `label`, a subscriber outside of
        the job can wait for the end of one substream: `lt.subscribe(job, lt.done(name, label))`, `lowtide wait`.

        Args:
            name: The step's name.
            through: A stream that is made of these records. Windows, joins within a bound and other `when_done` may be
                between if they go by log time: a record comes again a tick after the last that comes of it there.
            label: The column, or the columns, that name the substream which a record opens: a document, a session, a
                request.
            keep: For so much log time it is known of a label that it has ended.
            order: "stream" waits for no other stream, so give no `through`: a record comes again sooner, and its place
                says that it is after its tick. Steps and sinks that it meets others in get the same.

        Example:
            >>> doubled = orders.map(lambda order: Total(order.user, 2 * order.amount), name="doubled", returns=Total)
            >>> doubled.write("totals", to_totals)
            >>> orders.when_done("through", through=doubled, label="user").write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5)])["chosen"]
            [Order(user='ada', amount=5)]
        """
        from lowtide.flow.steps.when_done import when_done_of

        step = when_done_of(name, label, keep, order, through=through is not None)
        if through is None:
            return Stream(self._flow, self._write_down(step, name))
        self._check_ours(through, "when_done")
        return self._then_beside(step, name, through)

    def when_begun(self, name: str, *, label: str | Sequence[str], keep: timedelta = timedelta(hours=1)) -> Stream[T]:
        """Give the first record of each label, at its own place: a substream has emerged.

        A subscriber outside of the job can wait for that, too: `lt.subscribe(job, lt.begun(name, label))`.

        Args:
            name: The step's name.
            label: The column, or the columns, that name the substream which a record belongs to.
            keep: For so much log time a label is known; one that comes later begins again.

        Example:
            >>> orders.when_begun("customers", label="user", keep=lt.days(1)).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6), Order("bob", 1)])["chosen"]
            [Order(user='ada', amount=5), Order(user='bob', amount=1)]
        """
        from lowtide.flow.steps.when_done import begun_of

        check_text("when_begun", name)
        step = begun_of(label, keep)
        first = self.key_by(*step.label, name=f"{name}.by").deduplicate(name, within=keep)
        first._write_down(step, None)
        return first

    def _then_beside(self, step: Step, name: str, other: Stream[Any]) -> Stream[Any]:
        return Stream(self._flow, self._write_down(step, name, also=[other._call]))

    def loop(
        self,
        name: str,
        body: Callable[[Stream[T]], Stream[T]],
        again: Callable[[T], bool],
        *,
        limit_turns: int,
    ) -> Stream[T]:
        """Take records through the same steps until they have had enough, each by the keys that the body gives it.

        Args:
            name: The loop's name; its records go round through the topic `lowtide.<job>.loop.<name>`.
            body: Is called once, here, with the stream that enters the loop, and returns the stream that comes out of
                its last step. It writes a key_by; but no broadcast, write, window, timer, join or other loop, and takes
                no stream from outside.
            again: Takes a record that came out of the body; True sends it through once more, others leave the loop.
            limit_turns: How often a record, or what it becomes, may pass through; one that had to go again fails.

        Example:
            >>> def half(count: int, order: Order) -> tuple[int, Order]:
            ...     return count + 1, Order(order.user, order.amount // 2)
            >>> def body(entering: lt.Stream[Order]) -> lt.Stream[Order]:
            ...     return entering.key_by("user").scan("half", half, 0)
            >>> orders.loop("halve", body, lambda order: order.amount > 1, limit_turns=10).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 8)])["chosen"]
            [Order(user='ada', amount=1)]
        """
        return self._loop(name, body, again, limit_turns, Stream)

    def _loop(
        self,
        name: str,
        body: Callable[[Any], Stream[T]],
        again: Callable[[T], bool],
        limit_turns: int,
        entering: type[Stream[Any]],
    ) -> Stream[T]:
        site = user_site()
        check_text("loop", name)
        limit = count_of("loop", "limit_turns", limit_turns)
        loop = steps.Loop(keyed=issubclass(entering, KeyedStream))
        head = entering(self._flow, self._write_down(loop, None, site=site))
        tail = function_of(body)(head)
        if not isinstance(tail, Stream) or tail._flow is not self._flow:
            way_out = "return the stream that comes out of the body's last step"
            raise FlowError(f"a loop's body returned {tail!r}, expected a stream", where=str(site), way_out=way_out)
        step = steps.Again(function_of(again), limit)
        return Stream(self._flow, tail._write_down(step, name, site=site, back=head._call))

    def write(self, name: str, sink: Kafka[T] | Sink, *, on_commit: Hook | None = None) -> None:
        """Write the records to a sink, e.g. `kafka("totals", json(Total), key="user")`.

        Args:
            name: The sink's name; a job that runs remembers by it what it has delivered.
            sink: What `lt.kafka(topic, format)` returned, or the sink of another store.
            on_commit: Called in the driver with each commit of the job, at least once, in order and once the commit is
                durable: for what an outside system commits by itself. All that came of records before its `time_ms`,
                in ms of log time, is in the sink for good by then.

        Raises:
            FlowError: it is not a sink, or `on_commit` not a function.

        Example:
            >>> orders.write("chosen", lt.kafka("chosen", lt.json(Order), key="user"))
            >>> flow.run_locally(orders=[Order("ada", 5)])
            {'chosen': [Order(user='ada', amount=5)]}
        """
        taken = sink_of(sink, "write") if isinstance(sink, Kafka) else sink_elsewhere(sink)
        self._write_down(steps.Write(taken), name)
        if on_commit is not None:
            self._flow.hooks[name] = hook_of(on_commit, "write")

    def _then(self, step: Step, name: str | None) -> Stream[Any]:
        return Stream(self._flow, self._write_down(step, name))

    def _write_down(
        self,
        step: Step,
        name: str | None,
        *,
        also: Iterable[int] = (),
        site: Site | None = None,
        back: int | None = None,
    ) -> int:
        return self._flow.add(step, name, (self._call, *also), site or user_site(), back)

    def _check_ours(self, other: object, step: str) -> None:
        if not isinstance(other, Stream):
            raise FlowError(f"{step} takes streams, found {other!r}", where=str(user_site()))
        if other._flow is not self._flow:
            what = f"{step} takes streams of its own flow {self._flow.name!r}, found {other!r}"
            raise FlowError(what, where=str(user_site()), way_out="read that source in this flow too")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name in _KEYED:
                way_out = "write .key_by(...) directly before it"
                raise FlowError(f"{name} works per key, but {self!r} has none", where=str(user_site()), way_out=way_out)
            if (ours := words.OF_STREAMS.get(name)) is not None:
                raise FlowError(f"{self!r} has no {name}", where=str(user_site()), way_out=ours)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        call = self._flow.calls[self._call]
        return f"{type(self).__name__}({self._flow.name!r}, {call.name or call.step.word!r})"


class Broadcast(Generic[B]):
    """The state of all records of a stream, for `scan(..., broadcast=this)`.

    Example:
        >>> orders.broadcast("highest", lambda highest, order: max(highest, order.amount), 0)
        Broadcast('shop', 'highest')
    """

    def __init__(self, flow: FlowGraph, call: int) -> None:
        self._flow = flow
        self._call = call

    def __repr__(self) -> str:
        return f"Broadcast({self._flow.name!r}, {self._flow.calls[self._call].name!r})"


class KeyedStream(Stream[T]):
    """Records that `key_by` has brought together: here stand the steps that work per key.

    Example:
        >>> orders.key_by("user").reduce("newest", lambda _, order: order).write("chosen", to_chosen)
        >>> flow.run_locally(orders=[Order("ada", 5)])["chosen"]
        [Order(user='ada', amount=5)]
    """

    def last(
        self, count: int, *, partial: bool = True, ttl: timedelta | None = None, name: str | None = None
    ) -> Stream[tuple[T, ...]]:
        """Turn every record into a window: the last `count` records of its key up to and with it, oldest first.

        Windows are for functions: `map`, `flat_map` and `filter` may take them, a sink cannot.

        Args:
            count: How many records, at least 1.
            partial: Whether the shorter windows at a key's start come out too.
            ttl: After so much log time without a record a key starts over; see `scan`.
            name: The step's name, under which its state is kept; by default made of the names before it.

        Example:
            >>> def sums(window: tuple[Order, ...]) -> Total:
            ...     return Total(window[-1].user, sum(order.amount for order in window))
            >>> orders.key_by("user").last(2).map(sums).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6), Order("ada", 7)])["totals"]
            [Total(user='ada', amount=5), Total(user='ada', amount=11), Total(user='ada', amount=13)]
        """
        kept = None if ttl is None else duration_of("last", "ttl", ttl)
        return self._then(steps.Last(count_of("last", "a number of records", count), partial, kept), name)

    @overload
    def scan(
        self,
        name: str,
        function: Callable[[S, T], tuple[S, U]],
        initial: S,
        *,
        ttl: timedelta | None = None,
        broadcast: None = None,
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    @overload
    def scan(
        self,
        name: str,
        function: Callable[[S, T, B], tuple[S, U]],
        initial: S,
        *,
        ttl: timedelta | None = None,
        broadcast: Broadcast[B],
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    def scan(
        self,
        name: str,
        function: Callable[..., tuple[Any, Any]],
        initial: Any,
        *,
        ttl: timedelta | None = None,
        broadcast: Broadcast[Any] | None = None,
        returns: type[Any] | None = None,
    ) -> Stream[Any]:
        """Turn every record and its key's state into a new state and an output, per key and in order.

        Args:
            name: The step's name, under which its state is kept.
            function: Takes the state and the record, returns both the new state and the output, annotated
                `-> tuple[State, Output]`. It must be deterministic and must not change the state in place: make a new
                one, as `dataclasses.replace` or `{**state, key: value}` do.
            initial: The state of a key that has none yet. A state is whatever a record's field may be: a dataclass,
                int, str, list[...], dict[str, ...], ... One that is equal to `initial` is not kept.
            ttl: A key whose last record is so old in log time has no state any more; by default it keeps it for ever.
            broadcast: A broadcast whose state, as of the record's place in the order, the function gets as its third
                argument.
            returns: The type of the outputs if the function's annotations do not say it.

        Example:
            >>> def add(total: int, order: Order) -> tuple[int, Total]:
            ...     return total + order.amount, Total(order.user, total + order.amount)
            >>> orders.key_by("user").scan("totals", add, 0).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("bob", 7), Order("ada", 6)])["totals"]
            [Total(user='ada', amount=5), Total(user='bob', amount=7), Total(user='ada', amount=11)]
        """
        return self._scanned(steps.Scan, "scan", name, function, initial, ttl, broadcast, returns)

    @overload
    def flat_scan(
        self,
        name: str,
        function: Callable[[S, T], tuple[S, Iterable[U]]],
        initial: S,
        *,
        timer: Callable[[S], datetime | None] | None = None,
        on_timer: Callable[[S, datetime], tuple[S, Iterable[U]]] | None = None,
        on_forgotten: Callable[[S], Iterable[U]] | None = None,
        ttl: timedelta | None = None,
        broadcast: None = None,
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    @overload
    def flat_scan(
        self,
        name: str,
        function: Callable[[S, T, B], tuple[S, Iterable[U]]],
        initial: S,
        *,
        timer: Callable[[S], datetime | None] | None = None,
        on_timer: Callable[[S, datetime], tuple[S, Iterable[U]]] | None = None,
        on_forgotten: Callable[[S], Iterable[U]] | None = None,
        ttl: timedelta | None = None,
        broadcast: Broadcast[B],
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    def flat_scan(
        self,
        name: str,
        function: Callable[..., tuple[Any, Iterable[Any]]],
        initial: Any,
        *,
        timer: Callable[[Any], datetime | None] | None = None,
        on_timer: Callable[[Any, datetime], tuple[Any, Iterable[Any]]] | None = None,
        on_forgotten: Callable[[Any], Iterable[Any]] | None = None,
        ttl: timedelta | None = None,
        broadcast: Broadcast[Any] | None = None,
        returns: type[Any] | None = None,
    ) -> Stream[Any]:
        """Scan with any number of outputs for each record, and with calls by time: of timers, and at a key's end.

        Args:
            name: See `scan`, as for all arguments that are not said here.
            function: As of `scan`, but the second thing it returns is an iterable of outputs, in their order.
            initial: See `scan`; it has no timer.
            timer: Takes the state after each record and each call of time; returns the moment of log time at which the
                key wants to be called, or None. It takes the place of what was asked before; nothing else is kept of
                it, so it must depend on the state alone.
            on_timer: Takes the state and that moment, returns what `function` does. It is called before all records of
                that moment, on a quiet topic too; where the moment has passed already, one tick later.
            on_forgotten: Takes the last state of a key that `ttl` has forgotten, returns outputs: the end of the key's
                life. It is called when the time is over, before all records of that moment; takes the place of timers.
            ttl: See `scan`; a call of time counts as a record does. What is forgotten is not called by a timer.
            broadcast: See `scan`.
            returns: See `scan`.

        Example:
            >>> def tenth(count: int, order: Order) -> tuple[int, list[Total]]:
            ...     return count + 1, [Total(order.user, count + 1)] if (count + 1) % 10 == 0 else []
            >>> orders.key_by("user").flat_scan("tenths", tenth, 0).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5)] * 25)["totals"]
            [Total(user='ada', amount=10), Total(user='ada', amount=20)]
        """
        also, kept = self._beside(name, "flat_scan", ttl, broadcast)
        step = flat_scan_of(function, initial, returns, kept, timer, on_timer, on_forgotten)
        return Stream(self._flow, self._write_down(step, name, also=also))

    def reduce(self, name: str, function: Callable[[T, T], T], *, ttl: timedelta | None = None) -> Stream[T]:
        """Turn every record into what the function makes of the result before it and the record; the first stays.

        Args:
            name: The step's name, under which its state is kept: the last result.
            function: Takes the result before and the record; deterministic, and changes neither.
            ttl: A key whose last record is so old in log time starts over; see `scan`.

        Example:
            >>> def larger(largest: Order, order: Order) -> Order:
            ...     return max(largest, order, key=lambda order: order.amount)
            >>> orders.key_by("user").reduce("largest", larger).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 6), Order("ada", 5)])["chosen"]
            [Order(user='ada', amount=6), Order(user='ada', amount=6)]
        """
        return self._scanned(steps.Reduce, "reduce", name, function, None, ttl, None, None)

    def aggregate(
        self, name: str, returns: type[U] | None = None, /, *, ttl: timedelta | None = None, **columns: Aggregate
    ) -> Stream[U]:
        """Turn every record into the aggregates of its key so far.

        Args:
            name: The step's name, under which its state is kept.
            returns: A dataclass, each of whose fields is a column of the key or filled by one of the aggregates.
            ttl: A key whose last record is so old in log time starts over; see `scan`.
            **columns: The aggregates by the fields they fill: `amount=lt.agg.sum("amount")`.

        Example:
            >>> spent = orders.key_by("user").aggregate("spent", Total, amount=lt.agg.sum("amount"))
            >>> spent.write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 6)])["totals"]
            [Total(user='ada', amount=5), Total(user='ada', amount=11)]
        """
        check_text("aggregate", name)
        if returns is None:
            way_out = 'give it after the name: aggregate("spent", Spent, amount=lt.agg.sum("amount"))'
            raise FlowError("aggregate takes the dataclass of its results", where=str(user_site()), way_out=way_out)
        kept = None if ttl is None else duration_of("aggregate", "ttl", ttl)
        return self._then(steps.Running(returns, columns, kept), name)

    def deduplicate(self, name: str, *, within: timedelta) -> Stream[T]:
        """Keep the first record of each key; others follow only `within` of log time after the one that was kept.

        Args:
            name: The step's name, under which it is kept which keys it has seen, and when.
            within: How long a key is remembered; records that are left out do not prolong it.

        Example:
            >>> orders.key_by("user", "amount").deduplicate("once", within=lt.hours(1)).write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 5), Order("ada", 5), Order("ada", 6)])["chosen"]
            [Order(user='ada', amount=5), Order(user='ada', amount=6)]
        """
        check_text("deduplicate", name)
        return self._then(steps.Deduplicate(duration_of("deduplicate", "within", within)), name)

    def substream(
        self,
        name: str,
        returns: type[U],
        /,
        *,
        opens: Callable[[T], bool],
        closes: Callable[[T], bool] | None = None,
        idle: timedelta | None = None,
    ) -> Substream[T, U]:
        """Follow substreams of many records, one after the other for each key: a session, a request with its answers.

        A record of which `opens` is true opens one where none is open. It takes all further records of the key, up to
        and with one of which `closes` is true, or until `idle` of log time has passed without a record, on quiet topics
        too. What comes while none is open, and opens none, is left out.

        Args:
            name: The step's name, under which open substreams are kept.
            returns: The dataclass of the ends. Each field is a column of the key, or one of `begun` and `ended` (log
                times as datetime), `count` (int, its records) and `closed_by` (str, "record" or "idle").
            opens: Takes a record; deterministic, and changes nothing. It is asked where none is open.
            closes: Takes a record of an open substream, the first one among them; see `opens`.
            idle: How long a substream goes on without a record.

        Raises:
            FlowError: an argument is none of these, or neither `closes` nor `idle` is given.

        Example:
            >>> def enters(click: Click) -> bool:
            ...     return click.page == "/"
            >>> def buys(click: Click) -> bool:
            ...     return click.page == "/cart"
            >>> by_user = clicks.key_by("user")
            >>> visits = by_user.substream("visits", Visit, opens=enters, closes=buys, idle=lt.minutes(30))
            >>> visits.ended.write("visits", lt.kafka("visits", lt.json(Visit), key="user"))
            >>> (visit,) = flow.run_locally(clicks=two_clicks)["visits"]
            >>> visit.user, visit.count, visit.closed_by
            ('ada', 2, 'record')
        """
        from lowtide.flow.steps.substream import substream_of
        from lowtide.flow.words.substreams import Substream

        return Substream(self._flow, self._write_down(substream_of(name, returns, opens, closes, idle), name))

    def _scanned(
        self,
        kind: type[steps.Scan],
        word: str,
        name: str,
        function: Callable[..., Any],
        initial: Any,
        ttl: timedelta | None,
        broadcast: Broadcast[Any] | None,
        returns: type[Any] | None,
    ) -> Stream[Any]:
        also, kept = self._beside(name, word, ttl, broadcast)
        step = kind(function_of(function), initial, returns=returns, ttl=kept)
        return Stream(self._flow, self._write_down(step, name, also=also))

    def _beside(
        self, name: str, word: str, ttl: timedelta | None, broadcast: Broadcast[Any] | None
    ) -> tuple[list[int], timedelta | None]:
        """Return the broadcast's call, if there is one, and the time for which a scan keeps a key."""
        check_text(word, name)
        also: list[int] = []
        if broadcast is not None:
            if not isinstance(broadcast, Broadcast) or broadcast._flow is not self._flow:
                what = f"broadcast= takes a broadcast of the flow {self._flow.name!r}, found {broadcast!r}"
                raise FlowError(what, where=str(user_site()), way_out="make one: stream.broadcast(name, function, ...)")
            also = [broadcast._call]
        return also, None if ttl is None else duration_of(word, "ttl", ttl)

    @written(f'window("visits", lt.tumbling(lt.minutes(5)), time={EVENT_TIME})')
    def window(
        self,
        name: str,
        windows: Windows,
        *,
        time: EventTime | None = None,
        emit: Literal["close", "update"] = "close",
    ) -> Windowed[T]:
        """Cut each key's records into windows of time; what is made of them is said by the next word.

        A window closes when nothing before its end and `wait` can come any more, on a quiet topic too.

        Args:
            name: The step's name, under which its open windows are kept.
            windows: `tumbling(...)`, `sliding(...)`, `session(...)` or `calendar(...)`.
            time: The event time, `lt.event_time("at", wait=...)`; without it, windows go by log time and nothing is
                late.
            emit: "close" for one result when a window closes, "update" for one with each record instead.

        Raises:
            FlowError: an argument is none of these, or sessions are to give updates.

        Example:
            >>> clock = lt.event_time("at", wait=lt.seconds(1), late="drop")
            >>> visits = clicks.key_by("user").window("visits", lt.session(lt.minutes(30)), time=clock)
            >>> visits.aggregate(Total, amount=lt.agg.count()).write("totals", to_totals)
            >>> flow.run_locally(clicks=two_clicks)["totals"]
            [Total(user='ada', amount=2)]
        """
        from lowtide.flow.words.windowed import Windowed, window_by

        step = window_by(name, windows, time, emit)
        return Windowed(self._flow, self._write_down(step, name))

    def table(self, name: str, *, deleted: str | None = None, ttl: timedelta | None = None) -> Table[T]:
        """Keep the newest record of every key, for `join_table`.

        Args:
            name: The table's name.
            deleted: A column of type bool: a record that has True there takes its key out.
            ttl: A key whose last record is so old in log time has no row any more; by default it keeps it for ever.

        Example:
            >>> payments.key_by("user").table("methods")
            Table('shop', 'methods')
        """
        from lowtide.flow.words.joins import Table, table_of

        return Table(self._flow, self._write_down(table_of(name, deleted, ttl), name))

    @overload
    def join_table(
        self,
        name: str,
        table: Table[R],
        function: Callable[[T, R], U],
        *,
        how: Literal["inner"] = "inner",
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    @overload
    def join_table(
        self,
        name: str,
        table: Table[R],
        function: Callable[[T, R | None], U],
        *,
        how: Literal["left"],
        returns: type[U] | None = None,
    ) -> Stream[U]: ...

    def join_table(
        self,
        name: str,
        table: Table[Any],
        function: Callable[..., Any],
        *,
        how: Literal["inner", "left"] = "inner",
        returns: type[Any] | None = None,
    ) -> Stream[Any]:
        """Turn every record and its key's row of the table, as of the record's place in the order, into one.

        A change of the table gives nothing by itself.

        Args:
            name: The step's name, under which its rows are kept.
            table: What `.key_by(...).table(...)` returned; keyed by as many columns of the same types.
            function: Takes the record and the row; deterministic, and changes neither.
            how: "inner" leaves out records without a row; with "left" the function gets None for it.
            returns: The type of the results if the function's annotations do not say it.

        Example:
            >>> def paid(order: Order, payment: Payment) -> Total:
            ...     return Total(f"{order.user} by {payment.method}", order.amount)
            >>> methods = payments.key_by("user").table("methods")
            >>> orders.key_by("user").join_table("paid", methods, paid).write("totals", to_totals)
            >>> inputs = {"payments": [Payment("ada", "card")], "orders": lt.stamped([Order("ada", 5)], lambda _: noon)}
            >>> flow.run_locally(inputs)["totals"]
            [Total(user='ada by card', amount=5)]
        """
        from lowtide.flow.words.joins import join_table_of

        also, step = join_table_of(self._flow, name, table, function, how, returns)
        return Stream(self._flow, self._write_down(step, name, also=also))

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[R],
        function: Callable[[T, R], U],
        *,
        before: timedelta = ZERO,
        after: timedelta = ZERO,
        time: EventTimes | None = None,
        how: Literal["inner"] = "inner",
        returns: type[U] | None = None,
    ) -> Joined[T, R, U]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[R],
        function: Callable[[T, R | None], U],
        *,
        before: timedelta = ZERO,
        after: timedelta = ZERO,
        time: EventTimes | None = None,
        how: Literal["left"],
        returns: type[U] | None = None,
    ) -> Joined[T, R, U]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[R],
        function: Callable[[T | None, R], U],
        *,
        before: timedelta = ZERO,
        after: timedelta = ZERO,
        time: EventTimes | None = None,
        how: Literal["right"],
        returns: type[U] | None = None,
    ) -> Joined[T, R, U]: ...

    @overload
    def join(
        self,
        name: str,
        other: KeyedStream[R],
        function: Callable[[T | None, R | None], U],
        *,
        before: timedelta = ZERO,
        after: timedelta = ZERO,
        time: EventTimes | None = None,
        how: Literal["outer"],
        returns: type[U] | None = None,
    ) -> Joined[T, R, U]: ...

    @written(f'join("sales", payments, function, after=lt.hours(1), time={EVENT_TIME})')
    def join(
        self,
        name: str,
        other: KeyedStream[Any],
        function: Callable[..., Any],
        *,
        before: timedelta = ZERO,
        after: timedelta = ZERO,
        time: EventTimes | None = None,
        how: Literal["inner", "left", "right", "outer"] = "inner",
        returns: type[Any] | None = None,
    ) -> Joined[Any, Any, Any]:
        """Pair every record with those of the other stream's same key from `before` before it to `after` after it.

        A pair stands at the place of whichever record came later. What comes out unpaired does so once, when no partner
        can come any more.

        Args:
            name: The step's name, under which the records are kept that partners may come for.
            other: The other stream, keyed by as many columns of the same types; it may be the same one.
            function: Takes a record and one of the other stream's; deterministic, and changes neither.
            before: How far before a record's time the other one's may lie, both ends in.
            after: How far after it.
            time: The event time of both streams, `lt.event_time("at", wait=...)`, or a pair, one for each, alike in
                `ahead` and `late`; without it, the join goes by log time. Late records are not joined.
            how: Of which stream records come out that found no partner: the function gets None for it.
            returns: The type of the results if the function's annotations do not say it.

        Raises:
            FlowError: an argument is none of these, or the other stream has no key or is another flow's.

        Example:
            >>> def paid(order: Order, payment: Payment) -> Total:
            ...     return Total(f"{order.user} by {payment.method}", order.amount)
            >>> joined = orders.key_by("user").join("paid", payments.key_by("user"), paid, after=lt.hours(1))
            >>> joined.write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5)], payments=[Payment("ada", "card")])["totals"]
            [Total(user='ada by card', amount=5)]
        """
        from lowtide.flow.words.joins import Joined, join_of

        self._check_keyed(other, "join")
        step = join_of(name, function, (before, after), time, how, returns)
        return Joined(self._flow, self._write_down(step, name, also=[other._call]))

    @overload
    def join_asof(
        self,
        name: str,
        other: KeyedStream[R],
        function: Callable[[T, R | None], U],
        *,
        time: EventTimes,
        back: timedelta,
        how: Literal["left"] = "left",
        returns: type[U] | None = None,
    ) -> Joined[T, R, U]: ...

    @overload
    def join_asof(
        self,
        name: str,
        other: KeyedStream[R],
        function: Callable[[T, R], U],
        *,
        time: EventTimes,
        back: timedelta,
        how: Literal["inner"],
        returns: type[U] | None = None,
    ) -> Joined[T, R, U]: ...

    @written(f'join_asof("priced", prices, function, time={EVENT_TIME}, back=lt.hours(1))')
    def join_asof(
        self,
        name: str,
        other: KeyedStream[Any],
        function: Callable[..., Any],
        *,
        time: EventTimes,
        back: timedelta,
        how: Literal["inner", "left"] = "left",
        returns: type[Any] | None = None,
    ) -> Joined[Any, Any, Any]:
        """Pair every record with the newest of the other stream's same key that is not younger, by event time.

        Of several equally new ones it is the last in Lowtide's order. The result comes once log time has waited for the
        record's event time, as no other partner can come then; it stands there in the order.

        Args:
            name: The step's name, under which the records are kept that wait, and those that may be waited for.
            other: The other stream, keyed by as many columns of the same types.
            function: Takes a record and its partner; deterministic, and changes neither.
            time: The event time of both streams, `lt.event_time("at", wait=...)`, or a pair, one for each, that differ
                in nothing but the column.
            back: How much older than the record its partner may be.
            how: With "left" the function gets None where there is no partner; "inner" leaves such records out.
            returns: The type of the results if the function's annotations do not say it.

        Raises:
            FlowError: as of `join`.

        Example:
            >>> def came_from(cart: Click, other: Click | None) -> Total:
            ...     return Total(f"{cart.user} came from {other.page if other else None}", 1)
            >>> carts, others = clicks.split(lambda click: click.page == "/cart", name="carts")
            >>> clock = lt.event_time("at", wait=lt.seconds(1), late="drop")
            >>> carts, others = carts.key_by("user"), others.key_by("user")
            >>> paths = carts.join_asof("paths", others, came_from, time=clock, back=lt.hours(1))
            >>> paths.write("totals", to_totals)
            >>> flow.run_locally(clicks=two_clicks)["totals"]
            [Total(user='ada came from /', amount=1)]
        """
        from lowtide.flow.words.joins import Joined, join_asof_of

        self._check_keyed(other, "join_asof")
        step = join_asof_of(name, function, back, time, how, returns)
        return Joined(self._flow, self._write_down(step, name, also=[other._call]))

    def connect(self, *others: KeyedStream[R]) -> KeyedStream[T | R]:
        """Bring the records of keyed streams of any types together, for `scan` and `flat_scan`, in Lowtide's order.

        The function gets whichever record comes, and tells them apart by `match`.

        Args:
            others: Streams keyed by as many columns, of the same types.

        Example:
            >>> def paid(total: int, record: Order | Payment) -> tuple[int, Total]:
            ...     total = 0 if isinstance(record, Payment) else total + record.amount
            ...     return total, Total(record.user, total)
            >>> orders.key_by("user").connect(payments.key_by("user")).scan("open", paid, 0).write("totals", to_totals)
            >>> flow.run_locally(orders=[Order("ada", 5)], payments=[Payment("ada", "card")])["totals"]
            [Total(user='ada', amount=5), Total(user='ada', amount=0)]
        """
        for other in others:
            self._check_keyed(other, "connect")
        if not others:
            raise FlowError("connect takes one or more other streams", where=str(user_site()))
        return KeyedStream(self._flow, self._write_down(steps.Connect(), None, also=[other._call for other in others]))

    def _check_keyed(self, other: object, step: str) -> None:
        self._check_ours(other, step)
        if not isinstance(other, KeyedStream):
            way_out = "write .key_by(...) directly before it"
            raise FlowError(f"{step} takes keyed streams, found {other!r}", where=str(user_site()), way_out=way_out)

    def loop(
        self,
        name: str,
        body: Callable[[KeyedStream[T]], Stream[T]],
        again: Callable[[T], bool],
        *,
        limit_turns: int,
    ) -> Stream[T]:
        """Take records through the same steps until they have had enough.

        Each keeps its key meanwhile, and stays with its worker; unless the body writes a key_by, see `Stream.loop`.

        Args:
            name: The loop's name.
            body: Is called once, here, with the stream that enters the loop, and returns the stream that comes out of
                its last step; writes no broadcast, write, window, timer, join or other loop, and takes no stream from
                outside.
            again: Takes a record that came out of the body; True sends it through once more, others leave the loop.
            limit_turns: How often a record, or what it becomes, may pass through; one that had to go again fails.

        Example:
            >>> def half(order: Order) -> Order:
            ...     return Order(order.user, order.amount // 2)
            >>> def large(order: Order) -> bool:
            ...     return order.amount > 1
            >>> halves = orders.key_by("user").loop("halve", lambda each: each.map(half), large, limit_turns=10)
            >>> halves.write("chosen", to_chosen)
            >>> flow.run_locally(orders=[Order("ada", 8)])["chosen"]
            [Order(user='ada', amount=1)]
        """
        return self._loop(name, body, again, limit_turns, KeyedStream)
