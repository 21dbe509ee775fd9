"""Which records pass between the steps of a flow, and everything about it that does not fit."""

from __future__ import annotations

from typing import Any

from lowtide.connectors.spec import KafkaSink
from lowtide.errors import FlowError
from lowtide.findings import Finding
from lowtide.flow import DEAD_LETTERS, NAME, NAME_RULE, Call, Flow
from lowtide.formats import Raw, RawFormat
from lowtide.schema import Schema, schema_of
from lowtide.signature import NOTHING, Unreadable, element_of, said, signature_of
from lowtide.steps import WORD, Filter, FlatMap, KeyBy, Map, MapBatches, Read, Site, Write

_KEY_KINDS = {"str", "int", "bytes"}


class Inference:
    """The types and names of a flow's steps, by the index of its calls.

    Attributes:
        names: The name of every step; of a `key_by` without one, made of its parent's and its columns.
        gives: The type of the records that come out of a step (of a write: that go in); None where a fault hides it.
        findings: All faults, in the order of the calls.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self.names: list[str] = []
        self.gives: list[type | None] = []
        self.findings: list[Finding] = []
        self._sites: dict[str, Site] = {DEAD_LETTERS: flow.site}
        self._check_flow()
        for call in flow.calls:
            self._check_name(call)
            self.gives.append(self._infer(call))
        self._check_ends()

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

    def _check_name(self, call: Call) -> None:
        word, name = WORD[type(call.step)], call.name
        if name is None and isinstance(call.step, KeyBy) and call.parent is not None:
            name = f"{self.names[call.parent]}/by-{'-'.join(call.step.columns)}"
        elif name is None:
            self._fault(call, f"{word} needs a name, as its function has none: add name=")
        elif not NAME.fullmatch(name):
            self._fault(call, f"not a step's name: {NAME_RULE}")
        self.names.append(name or word)
        if name is None:
            return
        if name in self._sites:
            self._fault(call, f"this name is taken at {self._sites[name]}; give one of the two another: name=")
        self._sites.setdefault(name, call.site)

    def _infer(self, call: Call) -> type | None:
        try:
            if isinstance(call.step, Read):
                return self._schema(call.step.source.format.record).record
            takes = None if call.parent is None else self.gives[call.parent]
            return self._infer_after(call, takes)
        except Unreadable as problem:
            self._fault(call, f"{_called(call)} {problem}")
        except FlowError as error:
            prefix = f"{_called(call)}: " if hasattr(call.step, "function") else ""
            self._fault(call, prefix + error.what + (f"; {error.way_out}" if error.way_out else ""))
        return None

    def _infer_after(self, call: Call, takes: type | None) -> type | None:
        step = call.step
        if isinstance(step, Map | FlatMap):
            return self._infer_function(call, step, takes)
        if isinstance(step, Filter):
            returns = self._signature(call, takes).returns
            if returns not in (NOTHING, bool):
                self._fault(call, f"{_called(call)} must return bool, its annotation says {said(returns)}")
            return takes
        if isinstance(step, MapBatches):
            signature_of(step.function)
            return self._schema(step.returns).record
        if isinstance(step, KeyBy):
            self._check_columns(call, step.columns, takes)
            self._check_keys(call, step.columns, takes)
            return takes
        if isinstance(step, Write):
            self._check_sink(call, step.sink, takes)
        return takes

    def _infer_function(self, call: Call, step: Map | FlatMap, takes: type | None) -> type | None:
        returns = self._signature(call, takes).returns
        if isinstance(step, FlatMap) and returns is not NOTHING:
            returns = element_of(returns)
        if returns is NOTHING or returns is Any:
            if step.returns is None:
                raise Unreadable("does not say what it returns: annotate it, or add returns=Type")
            returns = step.returns
        elif step.returns not in (None, returns):
            raise Unreadable(f"returns {said(returns)}, but returns= says {said(step.returns)}")
        return self._schema(returns).record

    def _signature(self, call: Call, takes: type | None) -> Any:
        assert isinstance(call.step, Map | FlatMap | Filter)
        signature = signature_of(call.step.function)
        if takes is not None and not signature.accepts(takes):
            self._fault(call, f"{_called(call)} takes {said(signature.takes)}, but {said(takes)} arrives")
        return signature

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
                self._fault(call, f"{message}; use str, int, bool, bytes, date, datetime, Enum or Literal")

    def _check_sink(self, call: Call, sink: KafkaSink, takes: type | None) -> None:
        if takes is None:
            return
        if sink.format.record is not takes:
            self._fault(call, f"the sink takes {said(sink.format.record)}, but {said(takes)} arrives")
        elif sink.key is not None and isinstance(sink.format, RawFormat):
            self._fault(call, "records of raw() bring their own key; leave out key=")
        elif sink.key is not None:
            self._check_columns(call, (sink.key,), takes)
            kind = schema_of(takes).kinds.get(sink.key)
            if kind is not None and kind.name.removesuffix(" | None") not in _KEY_KINDS:
                self._fault(call, f"a message's key is str, int or bytes, but {sink.key!r} is {kind.name}")

    def _check_ends(self) -> None:
        parents = {call.parent for call in self._flow.calls}
        for index, call in enumerate(self._flow.calls):
            if index not in parents and not isinstance(call.step, Write):
                self._fault(call, "nothing takes these records; end the stream with .write(...), or remove the step")

    @staticmethod
    def _schema(record: Any) -> Schema:
        return schema_of(record)


def _called(call: Call) -> str:
    function = getattr(call.step, "function", None)
    return str(getattr(function, "__name__", None) or repr(function))


def key_column(sink: KafkaSink) -> str | None:
    """The column that becomes the message's key, None for none."""
    return "key" if sink.format.record is Raw else sink.key
