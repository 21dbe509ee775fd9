"""Calls a flow's functions twice under two hash seeds: one that does not give the same each time is named.

A function that is not deterministic gives other results when a record is replayed, after a repair or in another life:
what was delivered and what is then made of it do not fit together. Under one seed runs
`python -m lowtide.local.trial FLOW OUT [SOURCE=FILE ...]`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

from lowtide.core.operators.failure import UserError, shortened
from lowtide.core.operators.watch import shown_function
from lowtide.errors import FlowError
from lowtide.flow.compiler import compile_flow
from lowtide.flow.endpoints import KafkaSink
from lowtide.flow.findings import Finding
from lowtide.flow.flow_file import load_flow
from lowtide.flow.formats import raw
from lowtide.flow.graph import FlowGraph
from lowtide.flow.kinds import Choice, Kind, Nullable, Scalar
from lowtide.flow.nested_kinds import Mapping as MappingKind
from lowtide.flow.nested_kinds import Sequenced, Struct
from lowtide.flow.plain_kinds import Fixed, Identifier
from lowtide.flow.plan import Plan, Vertex
from lowtide.flow.schema import schema_of
from lowtide.flow.steps import Function, Step, WindowBy, functions_of
from lowtide.local.run import run_plan
from lowtide.local.timers import Endless
from lowtide.process.pandas_later import leave_pandas_for_later

__all__ = ["Tried", "samples_of", "try_flow"]


SEEDS = ("0", "1")
"""Workers run under the first."""
CALLED_WITHIN_S = 60.0
SAMPLES_LIMIT = 1_000
"""Lines of a file that are tried."""

Calls = dict[str, list[list[str]]]
"""By step each call's record and results, in order, as text; of results that it failed in the step, no more."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of calling a flow's functions.

    Attributes:
        findings: Functions that are not deterministic, or change in place what they are given.
        failing: Steps that failed with each record they were called with.
    """

    findings: list[Finding]
    failing: list[str]


def try_flow(flow: FlowGraph, path: str, samples: Mapping[str, Path]) -> Tried:
    """Call all functions of a sound flow twice in each of two processes.

    Args:
        flow: The flow.
        path: Where the processes load it from, as `load_flow` takes it.
        samples: By source a file with a message's value per line; other sources get records made from their schemas.

    Raises:
        FlowError: there is no such source or file, or a process did not come to an end.
    """
    plan = compile_flow(flow, parallelism=1)
    sources = [vertex.name for vertex in plan.sources()]
    for name, file in samples.items():
        if name not in sources:
            raise FlowError(f"no source is named {name}; the flow reads {', '.join(sources)}")
        if not file.is_file():
            raise FlowError(f"there is no file {file}", way_out="name a file with a message's value per line")
    given = [f"{name}={file}" for name, file in samples.items()]
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder, seed) for seed in SEEDS]
        children = [_child(seed, [path, str(out), *given]) for seed, out in zip(SEEDS, outs, strict=True)]
        for child in children:
            _ended(child)
        runs = [run for out in outs for run in json.loads(out.read_text())]
    return _judged(plan, runs)


def _child(seed: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "lowtide.local.trial", *arguments],
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _ended(child: subprocess.Popen[bytes]) -> None:
    try:
        _, said = child.communicate(timeout=CALLED_WITHIN_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise FlowError(
            f"the flow's functions took more than {CALLED_WITHIN_S:g} s with some records",
            way_out="see whether one waits for something, or leave this out: lowtide check --no-calls",
        ) from None
    if child.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or [f"it ended with {child.returncode}"]
        raise FlowError(
            f"the flow's functions could not be called: {lines[-1]}",
            way_out="correct the flow's file, or leave this out: lowtide check --no-calls",
        )


def _judged(plan: Plan, runs: Sequence[dict[str, Any]]) -> Tried:
    findings = []
    for vertex in plan.vertices:
        fault = next(filter(None, _faults(vertex, runs)), None)
        if fault is not None:
            # What comes of it differs too, so the steps after it are not to blame.
            findings.append(Finding(vertex.site, vertex.name, fault))
            break
    for step, what in {tuple(run["ended"]): None for run in runs if run["ended"]}:
        site = next((vertex.site for vertex in plan.vertices if vertex.name == step), None)
        findings.append(Finding(site, step, what))
    calls: Calls = runs[0]["calls"]
    failing = [name for name, made in calls.items() if made and all(results == "failed" for _, results in made)]
    return Tried(findings, failing)


def _faults(vertex: Vertex, runs: Sequence[dict[str, Any]]) -> Iterator[str | None]:
    """What is wrong with each of a step's functions that were called."""
    for word, function in functions_of(vertex.step).items():
        name = _name_of(vertex, word) if word in _apart(vertex.step) else vertex.name
        yield _fault(function, [run["calls"].get(name, []) for run in runs])


def _apart(step: Step) -> dict[str, Function]:
    """The functions of a step that are told of by themselves: all of a window's, and those of a timer."""
    if isinstance(step, WindowBy):
        return functions_of(step)
    return {word: function for word, function in functions_of(step).items() if word != "function"}


def _name_of(vertex: Vertex, word: str) -> str:
    return f"{vertex.name} ({word})"


def _fault(function: Function, calls: Sequence[list[list[str]]]) -> str | None:
    """What is wrong with a step that did not give the same each time it was called with the same record."""
    first, *others = calls
    for number, other in enumerate(others, 1):
        for (record, results), (again, others_results) in zip(first, other, strict=False):
            if record == again and results != others_results:
                when = "called again" if number == 1 else "under another hash seed"
                return (
                    f"{shown_function(function)} is not deterministic: with {record} it gave {results}, "
                    f"{when} {others_results}; "
                    "use no clock, no random numbers, no order of sets, and nothing that it changes itself"
                )
    return None


class Recorder:
    """Notes what functions are called with, and what they give."""

    def __init__(self) -> None:
        self.calls: Calls = {}

    def watching(self, plan: Plan) -> Plan:
        """The plan with functions that tell what they are called with, where time calls them and not a record."""
        return replace(plan, vertices=tuple(map(self._watching, plan.vertices)))

    def _watching(self, vertex: Vertex) -> Vertex:
        words = _apart(vertex.step)
        if not words:
            return vertex
        told: dict[str, Any] = {
            word: self._telling(_name_of(vertex, word), function) for word, function in words.items()
        }
        if isinstance(vertex.step, WindowBy):
            assert vertex.step.result is not None, "a plan's windows have a result"
            return replace(vertex, step=replace(vertex.step, result=replace(vertex.step.result, **told)))
        return replace(vertex, step=replace(vertex.step, **told))

    def _telling(self, name: str, function: Function) -> Function:
        @wraps(function)
        def telling(*arguments: Any) -> Any:
            made = self.calls.setdefault(name, [])
            given = _text(arguments)
            try:
                result = function(*arguments)
                if isinstance(result, Iterator):
                    result = list(result)
                elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Iterator):
                    result = result[0], list(result[1])
            except BaseException:
                self._note(made, given, "failed")
                raise
            self._note(made, given, _text(result))
            return result

        return telling

    @staticmethod
    def _note(made: list[list[str]], given: str, told: str) -> None:
        if len(made) < SAMPLES_LIMIT:
            made.append([given, told])

    def __call__(self, vertex: Vertex, record: object, results: object) -> None:
        """Note one call."""
        told = "failed" if results is None else _text(results)
        self.calls.setdefault(vertex.name, []).append([_text(record), told])


def _text(value: object) -> str:
    """All of a value if it is short, else its beginning and what tells it from others."""
    text = repr(value)
    return (
        text
        if len(text) <= 200
        else f"{shortened(value)} ({len(text)} characters, {crc32(text.encode('utf-8', 'replace')):08x})"
    )


def _run(plan: Plan, inputs: Mapping[str, list[Any]]) -> dict[str, Any]:
    recorder, ended = Recorder(), None
    try:
        run_plan(recorder.watching(plan), inputs, recorder)
    except Endless:
        pass  # Timers that never end have been tried often enough.
    except UserError as error:  # It ends any run, in spite of the dead letters.
        ended = [error.vertex, error.what]
    return {"calls": recorder.calls, "ended": ended}


def main() -> None:
    """Run a flow twice in this process, and write down what its functions gave."""
    path, out, *given = sys.argv[1:]
    leave_pandas_for_later()
    plan = compile_flow(load_flow(path), parallelism=1)
    # What fails is no matter here: records made up may be none that the functions were written for.
    plan = replace(plan, dead_letters=KafkaSink("dead-letters", raw(), None))
    files = dict(each.split("=", 1) for each in given)
    inputs = {
        vertex.name: Path(files[vertex.name]).read_bytes().splitlines()[:SAMPLES_LIMIT]
        if vertex.name in files
        else samples_of(vertex.gives)
        for vertex in plan.sources()
    }
    Path(out).write_text(json.dumps([_run(plan, inputs) for _ in range(2)]))


SAMPLES = 24

_SCALARS: dict[type, list[Any]] = {
    str: ["a", "b", "tea", "to be or not to be", ""],
    bytes: [b"a", b"b", b"tea", b"\x00\xff", b""],
    int: [1, 2, 0, -1, 7, 1_000_000],
    float: [1.0, 0.5, 0.0, -1.5, 1e9],
    bool: [True, False],
    date: [date(2026, 1, 31) + timedelta(days) for days in range(3)],
    datetime: [datetime(2026, 1, 31, 23, 59, tzinfo=UTC) + timedelta(hours) for hours in range(3)],
    time: [time(hour, 59) for hour in (0, 12, 23)],
}


def samples_of(record: type) -> list[Any]:
    """Some records of a type, the same each time; none that its constructor refuses."""
    struct, made = schema_of(record).struct, []
    for number in range(SAMPLES):
        try:
            made.append(_value(struct, number))
        except (Exception, SystemExit):  # noqa: BLE001, S112 - whatever the user's __post_init__ raises
            continue
    return made


def _value(kind: Kind, number: int) -> Any:
    """The value of a number: values of neighbouring numbers differ, and come again after some."""
    if isinstance(kind, Nullable):
        return None if number % 4 == 3 else _value(kind.inner, number)
    if isinstance(kind, Scalar):
        values = _SCALARS[kind.python]
    elif isinstance(kind, Fixed):
        values = [Decimal(each).scaleb(-kind.scale) for each in (0, 1, 5, 9, -3)]
    elif isinstance(kind, Identifier):
        values = [UUID(int=each) for each in range(5)]
    elif isinstance(kind, Choice):
        values = sorted(kind.members, key=repr)
    elif isinstance(kind, Sequenced):
        return kind.python([_value(kind.item, number + place) for place in range(number % 3 + 1)])
    elif isinstance(kind, MappingKind):
        names = _SCALARS[str]
        return {names[place]: _value(kind.value, number + place) for place in range(number % 3 + 1)}
    else:
        assert isinstance(kind, Struct), f"no sample of {kind.name}"
        fields = enumerate(kind.fields)
        return kind.record(**{name: _value(inner, number // (place + 1) + place) for place, (name, inner) in fields})
    return values[number % len(values)]


if __name__ == "__main__":
    main()
