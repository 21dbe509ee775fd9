"""Calls a flow's functions twice under two hash seeds, and names those that give different results.

A function that is not deterministic gives other results when a record is replayed, after a repair or in another life:
they no longer fit what was delivered. `python -m lowtide.local.trial FLOW OUT [SOURCE=FILE ...]` runs under one seed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any
from zlib import crc32

from lowtide.core.operators.faults.failure import Dead, UserError, shortened
from lowtide.core.operators.order.order import CLOCK
from lowtide.errors import FlowError
from lowtide.flow import parameters
from lowtide.flow.formats.endpoints import KafkaSink
from lowtide.flow.formats.formats import raw
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.site import Function
from lowtide.flow.steps.graph import FlowGraph
from lowtide.flow.steps.steps import WindowBy
from lowtide.local.judging import Calls, Tried, apart, judged, name_of
from lowtide.local.run import by_front, run_plan
from lowtide.local.samples import samples_of
from lowtide.local.timers import Endless
from lowtide.process.pandas_later import leave_pandas_for_later

SEEDS = ("0", "1")
"""Two hash seeds; workers run under the first."""
CALLED_WITHIN_S = 60.0
SAMPLES_LIMIT = 1_000
"""The number of lines of a file that are tried."""


def try_flow(flow: FlowGraph, path: str, samples: Mapping[str, Path]) -> Tried:
    """Call all functions of a sound flow twice in each of two processes.

    Args:
        flow: The flow.
        path: Its path, as `load_flow` takes it.
        samples: By source a file with a message's value per line; other sources get records made from their schemas.

    Raises:
        FlowError: a source or file does not exist, or a process did not end.
    """
    plan = compile_flow(flow, parallelism=1)
    sources = [vertex.name for vertex in plan.sources()]
    for name, file in samples.items():
        if name not in sources:
            raise FlowError(f"the flow has no source {name}; it reads {', '.join(sources)}")
        if not file.is_file():
            raise FlowError(f"{file} does not exist", way_out="name a file with a message's value per line")
        if not file.stat().st_size:
            raise FlowError(f"{file} has no messages", way_out="name a file with a message's value per line")
    given = [f"{name}={file}" for name, file in samples.items()]
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder, seed) for seed in SEEDS]
        children = [
            _child(seed, [path, str(out), json.dumps(parameters.given()), *given])
            for seed, out in zip(SEEDS, outs, strict=True)
        ]
        for child in children:
            _ended(child)
        runs = [run for out in outs for run in json.loads(out.read_text())]
    return judged(plan, runs, samples)


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
            f"the flow's functions took more than {CALLED_WITHIN_S:g} s for a few records",
            way_out="check whether one of them waits for something, or skip the calls: lowtide check --no-calls",
        ) from None
    if child.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or [f"it ended with {child.returncode}"]
        raise FlowError(
            f"the flow's functions could not be called: {lines[-1]}",
            way_out="correct the flow's file, or skip the calls: lowtide check --no-calls",
        )


class Recorder:
    """Records the calls of functions and their results."""

    def __init__(self) -> None:
        self.calls: Calls = {}

    def watching(self, plan: Plan) -> Plan:
        """Return the plan with functions that report their calls where time calls them and not a record."""
        return replace(plan, vertices=tuple(map(self._watching, plan.vertices)))

    def _watching(self, vertex: Vertex) -> Vertex:
        words = apart(vertex.step)
        if not words:
            return vertex
        recorded: dict[str, Any] = {
            word: self._recorded(name_of(vertex, word), function) for word, function in words.items()
        }
        if isinstance(vertex.step, WindowBy):
            assert vertex.step.result is not None, "a plan's windows have a result"
            return replace(vertex, step=replace(vertex.step, result=replace(vertex.step.result, **recorded)))
        return replace(vertex, step=replace(vertex.step, **recorded))

    def _recorded(self, name: str, function: Function) -> Function:
        @wraps(function)
        def recorded(*arguments: Any) -> Any:
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

        return recorded

    @staticmethod
    def _note(made: list[list[str]], given: str, result_text: str) -> None:
        if len(made) < SAMPLES_LIMIT:
            made.append([given, result_text])

    def __call__(self, vertex: Vertex, record: object, results: object) -> None:
        """Note one call."""
        result_text = "failed" if results is None else _text(results)
        self.calls.setdefault(vertex.name, []).append([_text(record), result_text])


def _text(value: object) -> str:
    """Write all of a value if it is short, else its beginning and a digest."""
    text = repr(value)
    return (
        text
        if len(text) <= 200
        else f"{shortened(value)} ({len(text)} characters, {crc32(text.encode('utf-8', 'replace')):08x})"
    )


def _run(plan: Plan, inputs: Mapping[str, list[Any]]) -> dict[str, Any]:
    recorder, ended, dead = Recorder(), None, list[Dead]()
    try:
        run_plan(recorder.watching(plan), inputs, recorder, dead=dead)
    except Endless:
        pass  # Endless timers have been called often enough.
    except UserError as error:  # It ends any run, even with dead letters.
        ended = [error.vertex, error.what]
    sources = [vertex.name for vertex in by_front(plan)]
    return {"calls": recorder.calls, "ended": ended, "dead": [_placed(sources, each) for each in dead]}


def _placed(sources: Sequence[str], dead: Dead) -> tuple[str, str | None, int, str]:
    """Return a dead letter's step, its message's source and line, and its error; no source if a clock made it."""
    front, sequence = dead.position.front, dead.position.sequence
    return dead.vertex, None if front == CLOCK else sources[front], sequence + 1, dead.error


def main() -> None:
    """Run a flow twice in this process, and write down the results of its functions."""
    path, out, known, *given = sys.argv[1:]
    leave_pandas_for_later()
    parameters.give(json.loads(known))
    plan = compile_flow(load_flow(path), parallelism=1)
    # The functions may not expect made-up records, so failures do not end the run.
    plan = replace(plan, dead_letters=KafkaSink("dead-letters", raw(), None))
    files = dict(each.split("=", 1) for each in given)
    inputs = {
        vertex.name: Path(files[vertex.name]).read_bytes().splitlines()[:SAMPLES_LIMIT]
        if vertex.name in files
        else samples_of(vertex.gives)
        for vertex in plan.sources()
    }
    try:
        runs = [_run(plan, inputs) for _ in range(2)]
    except FlowError as error:
        # In one line: the last one is shown.
        sys.exit(f"{error.what}, at {error.where}" if error.where else error.what)
    Path(out).write_text(json.dumps(runs))


if __name__ == "__main__":
    main()
