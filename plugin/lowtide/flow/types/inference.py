"""Infers the types of records between the steps of a flow, and finds everything that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any, get_origin

from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import KafkaSource, Sink
from lowtide.flow.formats.formats import RawFormat
from lowtide.flow.schema.columns import columns_of
from lowtide.flow.schema.kinds import Kind
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.site import Site
from lowtide.flow.steps.calls import Call, calls_of
from lowtide.flow.steps.graph import DEAD_LETTERS, NAME, NAME_RULE, FlowGraph
from lowtide.flow.steps.signature import Unreadable, said
from lowtide.flow.steps.steps import (
    Again,
    Ask,
    Asked,
    Begun,
    Broadcast,
    Clock,
    Connect,
    FlatScan,
    Join,
    JoinAsof,
    JoinTable,
    Late,
    Read,
    Reduce,
    Running,
    Scan,
    Step,
    Substream,
    Table,
    TimedScan,
    WhenDone,
    WindowBy,
    Write,
    called,
    check_columns,
    check_predicate,
)
from lowtide.flow.steps.timers import timer_fault
from lowtide.flow.steps.when_done import delay_of, typed_done
from lowtide.flow.time.moments import said_duration
from lowtide.flow.types.findings import Finding
from lowtide.flow.types.join_types import Keyed, connect_faults, deleted_fault, join_faults, key_fault, typed_pairing
from lowtide.flow.types.loops import Loops
from lowtide.flow.types.sink_places import place_faults
from lowtide.flow.types.stateful import aggregated, typed_broadcast, typed_reduce, typed_scan
from lowtide.flow.types.substream_types import typed_substream
from lowtide.flow.types.table_sources import source_faults
from lowtide.flow.types.window_types import time_fault, typed_window


class Inference:
    """The types and names of a flow's steps, by the index of its calls.

    Attributes:
        names: The name of every step; if the user gave none, made of other steps' names and its own columns.
        gives: The type of the records that come out of a step (for a write: that go in; for a `last`: `tuple[T, ...]`);
            None if a fault hides it.
        steps: The steps, with the types of their states.
        findings: All faults, in the order of the calls.
        loops: Its loops.
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
        for call, message in place_faults(flow, self.names):
            self._fault(call, message)

    def _fault(self, call: Call, message: str) -> None:
        name = call.name or call.step.word
        self.findings.append(Finding(call.site, name, message))

    def _check_flow(self) -> None:
        flow = self._flow
        if not any(call.step.reads for call in flow.calls):
            self.findings.append(Finding(flow.site, flow.name, "the flow reads nothing; add flow.read(...)"))
        letters = flow.dead_letters
        if letters is not None and not (isinstance(letters.format, RawFormat) and letters.key is None):
            message = "dead letters hold the failed message's bytes: use kafka(topic, raw()) without key="
            self.findings.append(Finding(flow.site, DEAD_LETTERS, message))

    def _check_name(self, index: int, call: Call) -> None:
        word, name = call.step.word, call.name
        if name is None:
            name = self.loops.made_name(index) or call.step.made_name(self._parents(call))
        elif not isinstance(name, str) or not NAME.fullmatch(name):
            self._fault(call, f"not a valid step name: {NAME_RULE}")
        if name is None:
            self._fault(call, f"{word} needs a name, because its function has none: add name=")
        if isinstance(name, str):
            name += call.step.suffix
        self.names.append(name or word)
        if name is None:
            return
        # Deliveries use the sink's name, state and traces the step's: those two may be equal.
        step = call.step
        for names in [self._steps] * (not step.writes) + [self._sinks] * (step.writes or step.reads):
            if name in names:
                self._fault(call, f"this name is already used at {names[name]}; rename one of the two with name=")
                return
            names[name] = call.site

    def _check_durations(self, call: Call) -> None:
        for argument, duration in call.step.durations.items():
            if duration < timedelta(milliseconds=self._slack_ms):
                short = f"{argument}={said_duration(duration)} is shorter than a tick"
                self._fault(call, f"{short}, which is {self._slack_ms} ms (slack_ms)")

    def _parents(self, call: Call) -> list[str]:
        return [self.names[parent] for parent in call.parents]

    def _infer(self, index: int, call: Call) -> Any:
        function = call.step.functions.get("function")
        try:
            if self._takes_windows(call) or self._takes_connected(call):
                return None
            infer = TYPES.get(type(call.step))
            return call.step.gives(self._asked(call)) if infer is None else infer(self, index, call)
        except Unreadable as problem:
            self._fault(call, f"{called(function)} {problem}")
        except FlowError as error:
            prefix = "" if function is None else f"{called(function)}: "
            self._fault(call, prefix + error.what + (f"; {error.way_out}" if error.way_out else ""))
        return None

    def _asked(self, call: Call) -> Asked:
        takes = [self.gives[parent] for parent in call.parents]
        return Asked(takes, self._parents(call), lambda message: self._fault(call, message), _record, _kinds)

    def _takes(self, call: Call) -> Any:
        return self.gives[call.parents[0]]

    def _infer_read(self, _index: int, call: Call[Read]) -> Any:
        record = call.step.source.format.record
        columns_of(record)
        self._check_bounds(call, call.step.source)
        return schema_of(record).record

    def _infer_clock(self, _index: int, call: Call[Clock]) -> Any:
        return call.step.returns

    def _infer_late(self, _index: int, call: Call[Late]) -> Any:
        return self.gives[self._flow.calls[call.parents[0]].parents[call.step.port]]

    def _check_bounds(self, call: Call, source: KafkaSource) -> None:
        """Check that sources of one topic begin and end at the same positions: they share their fronts."""
        for other in calls_of(self._flow.calls, Read):
            if other is call:
                return
            if other.step.source.topic == source.topic:
                known = other.step.source.start
                said = (other.step.source.preload, other.step.source.compacted)
                if said != (source.preload, source.compacted):
                    message = f"topic {source.topic!r} is read with a different preload= or compacted= at {other.site}"
                    self._fault(call, f"{message}; use the same in both places")
                if other.step.source.timestamps != source.timestamps:
                    message = f"topic {source.topic!r} is read with a different timestamps= at {other.site}"
                    self._fault(call, f"{message}; use the same in both places")
                if known != source.start:
                    message = f"topic {source.topic!r} is read from start={known} at {other.site}, but here from"
                    self._fault(call, f"{message} {source.start}; use the same in both places")
                ends = other.step.source.stop
                if ends != source.stop:
                    message = f"topic {source.topic!r} is read to stop={ends} at {other.site}, but here to"
                    self._fault(call, f"{message} {source.stop}; use the same in both places")
                return

    def _takes_windows(self, call: Call) -> bool:
        for parent in () if call.step.takes_windows else call.parents:
            if get_origin(self.gives[parent]) is tuple:
                windows = f"the windows of {self.names[parent]!r}, {said(self.gives[parent])}"
                self._fault(call, f"{call.step.word} cannot take {windows}; map them to records first")
                return True
        return False

    def _takes_connected(self, call: Call) -> bool:
        if call.step.takes_connected or not any(self.steps[parent].mixed for parent in call.parents):
            return False
        message = f"connect brings streams together for scan and flat_scan, not for {call.step.word}"
        self._fault(call, f"{message}; map each, then merge them")
        return True

    def _infer_scan(self, index: int, call: Call[Scan]) -> Any:
        self.steps[index] = scan = typed_scan(call.step, self._takes(call), self._beside(call))
        return scan.returns

    def _infer_timed(self, index: int, call: Call[TimedScan]) -> Any:
        self.steps[index] = scan = typed_scan(call.step, self._takes(call), self._beside(call))
        fault = timer_fault(scan)
        if fault is not None:
            self._fault(call, fault)
        return scan.returns

    def _infer_substream(self, index: int, call: Call[Substream]) -> Any:
        self.steps[index] = step = typed_substream(call.step, self._asked(call), self._key(call))
        return step.returns

    def _infer_reduce(self, index: int, call: Call[Reduce]) -> Any:
        takes = self._takes(call)
        if takes is None:
            return call.step.returns
        self.steps[index] = scan = typed_reduce(call.step, takes)
        return scan.returns

    def _infer_running(self, index: int, call: Call[Running]) -> Any:
        takes = self._takes(call)
        if takes is None:
            return call.step.returns
        self.steps[index] = scan = aggregated(call.step, takes, self._key(call))
        return scan.returns

    def _infer_broadcast(self, index: int, call: Call[Broadcast]) -> Any:
        self.steps[index] = typed_broadcast(call.step, self._takes(call))
        return self._takes(call)

    def _infer_table(self, _index: int, call: Call[Table]) -> Any:
        fault = deleted_fault(call.step.deleted, self._takes(call))
        if fault is not None:
            self._fault(call, fault)
        return self._takes(call)

    def _infer_window(self, index: int, call: Call[WindowBy]) -> Any:
        step, takes = call.step, self._takes(call)
        fault = time_fault(step, takes)
        if fault is not None:
            self._fault(call, fault)
        if step.result is None:
            self._fault(
                call, "its windows have no result; add .aggregate(...), .reduce(...), .fold(...) or .apply(...)"
            )
            return None
        taken = bool(self._lates(index))
        if step.time is None and taken:
            self._fault(call, "its windows use log time, for which nothing is late; leave out .late")
        elif step.time is not None and not taken and step.late is None:
            self._fault(call, 'nothing takes its late records; use .late, or give its event time late="drop"')
        elif taken and step.late is not None:
            self._fault(call, 'late="drop" drops the records that .late takes; leave out one of the two')
        self.steps[index], gives = typed_window(step, takes, self._key(call))
        return gives

    def _infer_done(self, index: int, call: Call[WhenDone]) -> Any:
        takes, delay = self._takes(call), None
        try:
            delay = delay_of(self._flow.calls, self.steps, index, self.names, takes)
        except FlowError as error:
            self._fault(call, error.what + (f"; {error.way_out}" if error.way_out else ""))
        self.steps[index] = typed_done(call.step, takes, self._slack_ms, delay)
        return takes

    def _infer_connect(self, _index: int, call: Call[Connect]) -> Any:
        sides = self._sides(call)
        if len(set(call.parents)) < len(call.parents):
            self._fault(call, "a stream is connected with itself, so each record would come twice; leave it out")
        for message in connect_faults(sides):
            self._fault(call, message)
        types = [record for record, _ in sides]
        return None if None in types else reduce(or_, types)

    def _infer_join_table(self, _index: int, call: Call[JoinTable]) -> Any:
        sides, step = self._sides(call), call.step
        fault = key_fault(sides)
        if fault is not None:
            self._fault(call, fault)
        types = [record for record, _ in sides]
        if step.how == "left" and types[1] is not None:
            types[1] |= None
        return typed_pairing(step.function, step.returns, types)

    def _infer_join(self, index: int, call: Call[Join]) -> Any:
        sides, step = self._sides(call), call.step
        for message in join_faults(step, sides, self._lates(index)):
            self._fault(call, message)
        types = [record for record, _ in sides]
        for port, outer in enumerate(reversed(step.outer)):
            if outer and types[port] is not None:
                types[port] |= None
        return typed_pairing(step.function, step.returns, types)

    def _infer_ask(self, index: int, call: Call[Ask]) -> Any:
        if call.step.failed == "letter" and self._flow.dead_letters is None:
            self._fault(call, 'failed="letter" needs Flow(..., dead_letters=kafka(topic, raw()))')
        gives = call.step.answers(self._asked(call))
        self.steps[index] = replace(call.step, returns=gives)
        return gives

    def _infer_write(self, _index: int, call: Call[Write]) -> Any:
        takes = self._takes(call)
        if takes is not None:
            self._check_sink(call, call.step.sink, takes)
        return takes

    def _check_sink(self, call: Call, sink: Sink, takes: type) -> None:
        if sink.record is not takes:
            self._fault(call, f"the sink takes {said(sink.record)}, but {said(takes)} arrives")
            return
        for what in sink.writable.never:
            self._fault(call, f"cannot be written as {sink.form}: {what}")
        if faults := sink.faults():
            for fault in faults:
                self._fault(call, fault)
        elif sink.key_column is not None:
            check_columns((sink.key_column,), self._asked(call))

    def _infer_again(self, _index: int, call: Call[Again]) -> Any:
        """Check that a loop's body gives back the type that enters it."""
        assert call.back is not None, "a loop's tail knows its head"
        enters, takes = self.gives[call.back], self._takes(call)
        check_predicate(call.step.function, self._asked(call), enters)
        if None not in (enters, takes) and enters is not takes:
            self._fault(call, f"{said(enters)} goes into the loop, but {said(takes)} comes out of its body")
        return enters

    def _lates(self, index: int) -> set[int]:
        """Return the ports of a call whose late records are taken."""
        return {each.step.port for each in calls_of(self._flow.calls, Late) if each.parents == (index,)}

    def _sides(self, call: Call) -> list[Keyed]:
        """Return the records of keyed streams and tables, with their keys."""
        return [(self.gives[parent], self._key(self._flow.calls[parent])) for parent in call.parents]

    def _key(self, call: Call) -> tuple[str, ...]:
        """Return the columns that key the records of a call."""
        while not call.step.by:
            call = self._flow.calls[call.parents[0]]
        return call.step.by

    def _beside(self, call: Call) -> Broadcast | None:
        if len(call.parents) == 1:
            return None
        step = self.steps[call.parents[1]]
        assert isinstance(step, Broadcast), "streams check it"
        return step

    def _check_ends(self) -> None:
        calls = self._flow.calls
        parents: set[int] = set()
        for call in calls:
            parents.update(call.step.taken(call.parents))
        for index, call in enumerate(calls):
            fault = None if index in parents else call.step.unused(self._parents(call))
            if fault is not None:
                self._fault(call, fault)


def _record(returns: Any) -> type:
    return schema_of(returns).record


def _kinds(record: type) -> Mapping[str, Kind]:
    return schema_of(record).kinds


TYPES: dict[type[Step], Callable[[Inference, int, Call[Any]], Any]] = {
    Read: Inference._infer_read,
    Clock: Inference._infer_clock,
    Late: Inference._infer_late,
    Scan: Inference._infer_scan,
    FlatScan: Inference._infer_scan,
    TimedScan: Inference._infer_timed,
    Substream: Inference._infer_substream,
    Begun: Inference._infer_late,
    Reduce: Inference._infer_reduce,
    Running: Inference._infer_running,
    Broadcast: Inference._infer_broadcast,
    Table: Inference._infer_table,
    WindowBy: Inference._infer_window,
    WhenDone: Inference._infer_done,
    Connect: Inference._infer_connect,
    JoinTable: Inference._infer_join_table,
    Join: Inference._infer_join,
    JoinAsof: Inference._infer_join,
    Again: Inference._infer_again,
    Write: Inference._infer_write,
    Ask: Inference._infer_ask,
}
"""The inference for steps whose type depends on more of the flow than what arrives; the others infer their own."""
