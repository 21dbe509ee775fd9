"""Infers the types of records between the steps of a flow, and finds everything that does not fit."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, get_origin

from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import KafkaSink, KafkaSource
from lowtide.flow.formats.formats import RawFormat
from lowtide.flow.schema.columns import columns_of
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.site import Site
from lowtide.flow.steps.calls import Call
from lowtide.flow.steps.graph import DEAD_LETTERS, NAME, NAME_RULE, FlowGraph
from lowtide.flow.steps.signature import NOTHING, Unreadable, accepts, element_of, said, signature_of
from lowtide.flow.steps.steps import (
    SILENT,
    WORD,
    Again,
    Broadcast,
    Clock,
    Connect,
    Deduplicate,
    Filter,
    FlatMap,
    FlatScan,
    Join,
    JoinTable,
    KeyBy,
    Last,
    Late,
    Loop,
    Map,
    MapBatches,
    Merge,
    Read,
    Reduce,
    Running,
    Scan,
    Side,
    Split,
    Step,
    Table,
    TimedScan,
    WhenDone,
    WindowBy,
    Write,
)
from lowtide.flow.steps.timers import timer_fault
from lowtide.flow.steps.when_done import done_fault, typed_done
from lowtide.flow.time.moments import said_duration
from lowtide.flow.types.findings import Finding
from lowtide.flow.types.join_types import Keyed, connect_faults, deleted_fault, join_faults, key_fault, typed_pairing
from lowtide.flow.types.loops import Loops
from lowtide.flow.types.stateful import aggregated, typed_broadcast, typed_reduce, typed_scan
from lowtide.flow.types.table_sources import source_faults
from lowtide.flow.types.window_types import time_fault, typed_window

_KEY_KINDS = {"str", "int", "bytes", "UUID"}


class Inference:
    """The types and names of a flow's steps, by the index of its calls.

    Attributes:
        names: The name of every step; where the user need not give one, made of other steps' names and its own columns.
        gives: The type of the records that come out of a step (of a write: that go in; of a `last`: `tuple[T, ...]`);
            None where a fault hides it.
        steps: The steps, with the types of their states.
        findings: All faults, in the order of the calls.
        loops: Where its loops are.
    """

    def __init__(self, flow: FlowGraph, slack_ms: int = 1) -> None:
        self._flow = flow
        self._slack_ms = slack_ms
        self.names: list[str] = []
        self.gives: list[Any] = []
        self.steps: list[Step] = [call.step for call in flow.calls]
        self.findings: list[Finding] = []
        self._steps: dict[str, Site] = {}
        self._sinks: dict[str, Site] = {DEAD_LETTERS: flow.site}
        self.loops = Loops(flow)
        self._check_flow()
        for index, call in enumerate(flow.calls):
            self._check_name(index, call)
            for message in self.loops.enter(index, call):
                self._fault(call, message)
            self._check_durations(call)
            self.gives.append(self._infer(index, call))
        self._check_ends()
        for call, message in source_faults(flow.calls, self.names):
            self._fault(call, message)

    def _fault(self, call: Call, message: str) -> None:
        name = call.name or WORD[type(call.step)]
        self.findings.append(Finding(call.site, name, message))

    def _check_flow(self) -> None:
        flow = self._flow
        if not any(isinstance(call.step, Read) for call in flow.calls):
            self.findings.append(Finding(flow.site, flow.name, "the flow reads nothing; add flow.read(...)"))
        letters = flow.dead_letters
        if letters is not None and not (isinstance(letters.format, RawFormat) and letters.key is None):
            message = "dead letters keep the bytes of the failed message: use kafka(topic, raw()) without key="
            self.findings.append(Finding(flow.site, DEAD_LETTERS, message))

    def _check_name(self, index: int, call: Call) -> None:
        word, name = WORD[type(call.step)], call.name
        if name is None:
            name = self._made_name(index, call)
        elif not isinstance(name, str) or not NAME.fullmatch(name):
            self._fault(call, f"not a step's name: {NAME_RULE}")
        if name is None:
            self._fault(call, f"{word} needs a name, as its function has none: add name=")
        if isinstance(call.step, Table) and isinstance(name, str):
            name = f"{name}/{word}"  # It may well be called as its source is.
        self.names.append(name or word)
        if name is None:
            return
        # What is delivered goes by the sink's name, state and traces by the step's: those two may be the same.
        is_sink = isinstance(call.step, Write)
        for names in [self._steps] * (not is_sink) + [self._sinks] * (is_sink or isinstance(call.step, Read)):
            if name in names:
                self._fault(call, f"this name is taken at {names[name]}; give one of the two another: name=")
                return
            names[name] = call.site

    def _check_durations(self, call: Call) -> None:
        step = call.step
        argument, duration = "ttl", getattr(step, "ttl", None)
        if isinstance(step, Deduplicate):
            argument, duration = "within", step.within
        elif isinstance(step, Clock) and step.striking is not None:
            argument, duration = "every", step.striking.every.duration
        elif isinstance(step, WhenDone) and step.label is not None:
            argument, duration = "keep", step.keep
        if duration is not None and duration < timedelta(milliseconds=self._slack_ms):
            self._fault(
                call,
                f"{argument}={said_duration(duration)} is shorter than a tick, which is {self._slack_ms} ms (slack_ms)",
            )

    def _made_name(self, index: int, call: Call) -> str | None:
        if isinstance(call.step, KeyBy):
            return f"{self.names[call.parents[0]]}/by-{'-'.join(call.step.columns)}"
        if isinstance(call.step, Last | Late):
            other = "-other" if isinstance(call.step, Late) and call.step.port else ""
            return f"{self.names[call.parents[0]]}/{WORD[type(call.step)]}{other}"
        if isinstance(call.step, Connect):
            return f"{'+'.join(self.names[parent] for parent in call.parents)}/connect"
        if isinstance(call.step, Side):
            return f"{self.names[call.parents[0]]}/{str(call.step.says).lower()}"
        return f"{self.loops.name_of(index)}/head" if isinstance(call.step, Loop) else None

    def _infer(self, index: int, call: Call) -> Any:
        try:
            if isinstance(call.step, Read):
                columns_of(call.step.source.format.record)
                self._check_bounds(call, call.step.source)
                return schema_of(call.step.source.format.record).record
            if isinstance(call.step, Clock | Late):
                return self._infer_apart(call, call.step)
            takes = self.gives[call.parents[0]]
            if not isinstance(call.step, Map | FlatMap | Filter | Split | Side) and self._takes_windows(call):
                return None
            if self._takes_connected(call):
                return None
            return self._infer_after(index, call, takes)
        except Unreadable as problem:
            self._fault(call, f"{_called(call)} {problem}")
        except FlowError as error:
            prefix = f"{_called(call)}: " if _function(call.step) is not None else ""
            self._fault(call, prefix + error.what + (f"; {error.way_out}" if error.way_out else ""))
        return None

    def _infer_apart(self, call: Call, step: Clock | Late) -> Any:
        """What comes of no records, and what comes out beside a step's own."""
        if isinstance(step, Clock):
            return step.returns
        return self.gives[self._flow.calls[call.parents[0]].parents[step.port]]

    def _check_bounds(self, call: Call, source: KafkaSource) -> None:
        """Sources of one topic have the same fronts, which begin in one place and end in one."""
        for other in self._flow.calls:
            if other is call:
                return
            if isinstance(other.step, Read) and other.step.source.topic == source.topic:
                known = other.step.source.start
                said = (other.step.source.preload, other.step.source.compacted)
                if said != (source.preload, source.compacted):
                    message = f"topic {source.topic!r} is read with another preload= or compacted= at {other.site}"
                    self._fault(call, f"{message}; say the same in both places")
                if known != source.start:
                    message = f"topic {source.topic!r} is read from start={known} at {other.site}, and here from"
                    self._fault(call, f"{message} {source.start}; say the same in both places")
                ends = other.step.source.stop
                if ends != source.stop:
                    message = f"topic {source.topic!r} is read to stop={ends} at {other.site}, and here to"
                    self._fault(call, f"{message} {source.stop}; say the same in both places")
                return

    def _takes_windows(self, call: Call) -> bool:
        for parent in call.parents:
            if get_origin(self.gives[parent]) is tuple:
                windows = f"the windows of {self.names[parent]!r}, {said(self.gives[parent])}"
                self._fault(call, f"{WORD[type(call.step)]} cannot take {windows}; make records of them first, by map")
                return True
        return False

    def _takes_connected(self, call: Call) -> bool:
        found = [parent for parent in call.parents if isinstance(self.steps[parent], Connect)]
        if not found or type(call.step) in (Scan, FlatScan, TimedScan):
            return False
        after = WORD[type(call.step)]
        self._fault(
            call, f"connect brings streams together for scan and flat_scan, not for {after}; map each, then merge them"
        )
        return True

    def _infer_after(self, index: int, call: Call, takes: Any) -> Any:  # noqa: PLR0911 - one line per kind of step
        step = call.step
        if isinstance(step, Map | FlatMap):
            return self._infer_function(call, step, takes)
        if isinstance(step, MapBatches):
            signature_of(step.function, "batch")
            return schema_of(step.returns).record
        if isinstance(step, Last | Scan | Running):
            return self._infer_state(index, call, step, takes)
        if isinstance(step, Again):
            return self._infer_loop(call, step, takes)
        if isinstance(step, WindowBy):
            infer = self._infer_done if isinstance(step, WhenDone) else self._infer_window
            return infer(index, call, step, takes)
        if isinstance(step, Connect | JoinTable | Join):
            return self._infer_ports(index, call, step)
        if isinstance(step, Broadcast):
            self.steps[index] = typed_broadcast(step, takes)
        elif isinstance(step, Filter | Split):
            self._check_predicate(call, step, takes)
        elif isinstance(step, Merge):
            self._check_merge(call)
        else:
            self._check_ends_of_level(call, step, takes)
        return takes

    def _infer_state(self, index: int, call: Call, step: Last | Scan | Running, takes: Any) -> Any:
        if isinstance(step, Last):
            return None if takes is None else tuple[takes, ...]
        if isinstance(step, Running | Reduce) and takes is None:
            return step.returns
        scan: Scan
        if isinstance(step, Running):
            scan = aggregated(step, takes, self._key(call))
        elif isinstance(step, Reduce):
            scan = typed_reduce(step, takes)
        else:
            scan = typed_scan(step, takes, self._beside(call))
            fault = timer_fault(scan) if isinstance(scan, TimedScan) else None
            if fault is not None:
                self._fault(call, fault)
        self.steps[index] = scan
        return scan.returns

    def _infer_window(self, index: int, call: Call, step: WindowBy, takes: Any) -> Any:
        fault = time_fault(step, takes)
        if fault is not None:
            self._fault(call, fault)
        if step.result is None:
            self._fault(
                call, "nothing is made of its windows; add .aggregate(...), .reduce(...), .fold(...) or .apply(...)"
            )
            return None
        taken = bool(self._lates(index))
        if step.time is None and (taken or step.late is not None):
            self._fault(call, "its windows go by log time, for which nothing is late; leave out .late and late=")
        elif step.time is not None and not taken and step.late is None:
            self._fault(call, 'nobody takes its late records; write .late somewhere, or drop them by late="drop"')
        elif taken and step.late is not None:
            self._fault(call, 'late="drop" drops what .late takes; leave out one of the two')
        self.steps[index], gives = typed_window(step, takes, self._key(call))
        return gives

    def _infer_done(self, index: int, call: Call, step: WindowBy, takes: Any) -> Any:
        assert isinstance(step, WhenDone)
        fault = done_fault(self._flow.calls, index, self.names, takes)
        if fault is not None:
            self._fault(call, fault)
        self.steps[index] = typed_done(step, takes, self._slack_ms)
        return takes

    def _infer_ports(self, index: int, call: Call, step: Connect | JoinTable | Join) -> Any:
        sides = [self._side(parent) for parent in call.parents]
        if isinstance(step, Join):
            return self._infer_join(index, call, step, sides)
        types = [record for record, _ in sides]
        if isinstance(step, Connect):
            if len(set(call.parents)) < len(call.parents):
                self._fault(call, "a stream is connected with itself, so each of its records would come twice")
            for message in connect_faults(sides):
                self._fault(call, message)
            return None if None in types else reduce(or_, types)
        fault = key_fault(sides)
        if fault is not None:
            self._fault(call, fault)
        if step.how == "left" and types[1] is not None:
            types[1] |= None
        return typed_pairing(step.function, step.returns, types)

    def _infer_join(self, index: int, call: Call, step: Join, sides: list[Keyed]) -> Any:
        for message in join_faults(step, sides, self._lates(index)):
            self._fault(call, message)
        types = [record for record, _ in sides]
        for port, outer in enumerate(reversed(step.outer)):
            if outer and types[port] is not None:
                types[port] |= None
        return typed_pairing(step.function, step.returns, types)

    def _lates(self, index: int) -> set[int]:
        """The ports of a call whose late records are taken."""
        found = (each for each in self._flow.calls if each.parents == (index,))
        return {each.step.port for each in found if isinstance(each.step, Late)}

    def _side(self, index: int) -> Keyed:
        """The records of a keyed stream, or a table."""
        return self.gives[index], self._key(self._flow.calls[index])

    def _key(self, call: Call) -> tuple[str, ...]:
        """The columns by which the records are keyed that a call takes."""
        while not isinstance(call.step, KeyBy):
            call = self._flow.calls[call.parents[0]]
        return call.step.columns

    def _check_ends_of_level(self, call: Call, step: Step, takes: Any) -> None:
        if isinstance(step, KeyBy):
            self._check_columns(call, step.columns, takes)
            self._check_keys(call, step.columns, takes)
        elif isinstance(step, Table):
            fault = deleted_fault(step.deleted, takes)
            if fault is not None:
                self._fault(call, fault)
        elif isinstance(step, Write):
            self._check_sink(call, step.sink, takes)

    def _infer_function(self, call: Call, step: Map | FlatMap, takes: Any) -> Any:
        returns = self._returns(call, step, takes)
        if isinstance(step, FlatMap) and returns is not NOTHING:
            returns = element_of(returns)
        if returns is NOTHING or returns is Any:
            if step.returns is None:
                how = "a lambda cannot, so add" if _called(call) == "<lambda>" else "annotate it, or add"
                raise Unreadable(f"does not say what it returns: {how} returns=Type")
            returns = step.returns
        elif step.returns not in (None, returns):
            raise Unreadable(f"returns {said(returns)}, but returns= says {said(step.returns)}")
        return schema_of(returns).record

    def _check_predicate(self, call: Call, step: Filter | Split | Again, takes: Any) -> None:
        returns = self._returns(call, step, takes)
        if returns not in (NOTHING, bool):
            self._fault(call, f"{_called(call)} must return bool, its annotation says {said(returns)}")

    def _returns(self, call: Call, step: Map | FlatMap | Filter | Split | Again, takes: Any) -> Any:
        signature = signature_of(step.function, "the record")
        if takes is not None and not accepts(signature.takes[0], takes):
            self._fault(call, f"{_called(call)} takes {said(signature.takes[0])}, but {said(takes)} arrives")
        return signature.returns

    def _infer_loop(self, call: Call, step: Again, takes: Any) -> Any:
        """What goes round a loop, and comes out of it, is what goes in."""
        assert call.back is not None, "a loop's tail knows its head"
        enters = self.gives[call.back]
        self._check_predicate(call, step, enters)
        if None not in (enters, takes) and enters is not takes:
            self._fault(call, f"{said(enters)} goes into the loop, but {said(takes)} comes out of its body")
        return enters

    def _beside(self, call: Call) -> Broadcast | None:
        if len(call.parents) == 1:
            return None
        step = self.steps[call.parents[1]]
        assert isinstance(step, Broadcast), "streams see to it"
        return step

    def _check_merge(self, call: Call) -> None:
        if len(set(call.parents)) < len(call.parents):
            self._fault(call, "a stream is merged with itself, so each of its records would come twice; leave it out")
        types = {said(self.gives[parent]): None for parent in call.parents if self.gives[parent] is not None}
        if len(types) > 1:
            self._fault(call, f"merge takes streams of one type, found {' and '.join(types)}; use map before it")

    def _check_columns(self, call: Call, columns: tuple[str, ...], takes: type | None) -> None:
        if takes is None:
            return
        known = schema_of(takes).kinds
        for column in columns:
            if column not in known:
                self._fault(call, f"{said(takes)} has no column {column!r}; it has {', '.join(known)}")
        if len(set(columns)) < len(columns):
            self._fault(call, f"a column is named twice: {', '.join(columns)}")

    def _check_keys(self, call: Call, columns: tuple[str, ...], takes: type | None) -> None:
        kinds = {} if takes is None else schema_of(takes).kinds
        for column in columns:
            if column in kinds and not kinds[column].can_be_key:
                message = f"{column!r} is {kinds[column].name}, which cannot be a key"
                self._fault(call, f"{message}; use str, int, bool, bytes, date, datetime, UUID, Enum or Literal")

    def _check_sink(self, call: Call, sink: KafkaSink, takes: type | None) -> None:
        if takes is None:
            return
        if sink.format.record is not takes:
            self._fault(call, f"the sink takes {said(sink.format.record)}, but {said(takes)} arrives")
            return
        for what in sink.format.writable.never:
            self._fault(call, f"cannot be written as {sink.format}: {what}")
        if sink.key is not None and isinstance(sink.format, RawFormat):
            self._fault(call, "records of raw() bring their own key; leave out key=")
        elif sink.key is not None and (marked := columns_of(takes).key) is not None:
            self._fault(call, f"{said(takes)} has its key marked: {marked!r} is lt.Key(); leave out key={sink.key!r}")
        elif sink.key is not None:
            self._check_columns(call, (sink.key,), takes)
            kind = schema_of(takes).kinds.get(sink.key)
            if kind is not None and kind.name.removesuffix(" | None") not in _KEY_KINDS:
                self._fault(call, f"a message's key is str, int, bytes or UUID, but {sink.key!r} is {kind.name}")

    def _check_ends(self) -> None:
        calls = self._flow.calls
        parents: set[int] = set()
        for call in calls:
            if not isinstance(call.step, SILENT):  # Of what a `when_done` waits for it takes no record.
                parents.update(call.parents[:1] if isinstance(call.step, WhenDone) else call.parents)
        for index, call in enumerate(calls):
            if index in parents or isinstance(call.step, Write):
                continue
            if isinstance(call.step, WhenDone) and call.step.label is not None:
                continue  # Who asks for its labels needs nothing of it.
            if isinstance(call.step, Broadcast):
                self._fault(
                    call, "no scan looks at this broadcast; use it with .scan(..., broadcast=...), or remove it"
                )
            elif isinstance(call.step, Table):
                self._fault(call, "nothing joins this table; use it with .join_table(...), or remove it")
            elif isinstance(call.step, Connect):
                self._fault(call, "nothing takes what is connected; add .scan(...) or .flat_scan(...), or remove it")
            elif isinstance(call.step, Side):
                whose = f"the records for which {self.names[call.parents[0]]} returns {call.step.says}"
                self._fault(call, f"nothing takes {whose}; end their stream with .write(...), or use filter instead")
            else:
                self._fault(call, "nothing takes these records; end the stream with .write(...), or remove the step")


def _called(call: Call) -> str:
    function = _function(call.step)
    return str(getattr(function, "__name__", None) or repr(function))


def _function(step: Step) -> object:
    """The function that a message about a step names, None for none."""
    return getattr(step.result if isinstance(step, WindowBy) else step, "function", None)


def key_column(sink: KafkaSink) -> str | None:
    """The column that becomes the message's key, None for none."""
    return "key" if isinstance(sink.format, RawFormat) else sink.key_column
