"""Judges trial calls of a flow's functions: which are not deterministic, and which samples are refused where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.core.operators.faults.watch import shown_function
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.site import Function, Site
from lowtide.flow.steps.steps import Step, WindowBy
from lowtide.flow.types.findings import Finding

LISTED = 20
"""The samples listed for a step that refuses them."""

Calls = dict[str, list[list[str]]]
"""By step, each call's record and results as text, in order; for a record that failed, only that it did."""


@dataclass(frozen=True, slots=True)
class Failing:
    """A step that failed with every record it was called with, some of which were made from a schema.

    Attributes:
        step: Its name.
        error: The error of the first one, from its dead letter; empty if there is none.
    """

    step: str
    error: str


@dataclass(frozen=True, slots=True)
class Tried:
    """Judges the results of calling a flow's functions.

    Attributes:
        findings: Functions that are not deterministic, or change their arguments in place; samples that cannot be read,
            and steps that failed with every sample.
        failing: Steps that failed with every record they were called with, which may not be records they expect.
        notes: Samples with which a step failed.
    """

    findings: list[Finding]
    failing: list[Failing]
    notes: list[Finding]


def judged(plan: Plan, runs: Sequence[dict[str, Any]], samples: Mapping[str, Path]) -> Tried:
    """Judge all runs of both seeds, each with its calls, its dead letters, and the error that ended it."""
    findings, notes = _refused(plan, runs[0]["dead"], samples)
    for vertex in plan.vertices:
        fault = next(filter(None, _faults(vertex, runs)), None)
        if fault is not None:
            # Its output differs too, so the steps after it are not to blame.
            findings.append(Finding(vertex.site, vertex.name, fault))
            break
    for step, what in {tuple(run["ended"]): None for run in runs if run["ended"]}:
        site = next((vertex.site for vertex in plan.vertices if vertex.name == step), None)
        findings.append(Finding(site, step, what))
    failing = []
    for vertex, each in _failing(plan, runs[0]):
        if _sources_of(plan, vertex) <= set(samples):
            findings.append(Finding(vertex.site, each.step, f"it failed with every sample: {each.error}"))
        else:
            failing.append(each)
    return Tried(findings, failing, notes)


def _refused(
    plan: Plan, dead: Sequence[tuple[str, str | None, int, str]], samples: Mapping[str, Path]
) -> tuple[list[Finding], list[Finding]]:
    """Return the samples that cannot be read, and those with which a step failed, each with its dead letter's text."""
    sources = {vertex.name for vertex in plan.sources()}
    unreadable: dict[str, list[Finding]] = {}
    failed: dict[str, list[Finding]] = {}
    for step, source, line, error in dead:
        if source is not None and source in samples:
            site = Site(str(samples[source]), line)
            (unreadable if step in sources else failed).setdefault(step, []).append(Finding(site, step, error))
    return _listed(unreadable), _listed(failed)


def _listed(found: Mapping[str, list[Finding]]) -> list[Finding]:
    listed = []
    for step, all_ in found.items():
        listed += all_[:LISTED]
        if len(all_) > LISTED:
            listed.append(Finding(None, step, f"and {len(all_) - LISTED} more samples"))
    return listed


def _failing(plan: Plan, run: Mapping[str, Any]) -> Iterator[tuple[Vertex, Failing]]:
    """Yield the steps that failed with every record they were called with."""
    errors: dict[str, str] = {}
    for step, _, _, error in run["dead"]:
        errors.setdefault(step, error)
    for vertex in plan.vertices:
        for name in (vertex.name, *(name_of(vertex, word) for word in apart(vertex.step))):
            made = run["calls"].get(name)
            if made and all(results == "failed" for _, results in made):
                yield vertex, Failing(name, errors.get(vertex.name, ""))


def _sources_of(plan: Plan, vertex: Vertex) -> set[str]:
    """Return the names of the sources of a vertex's records."""
    seen, ways = set[int](), [vertex.id]
    while ways:
        id_ = ways.pop()
        if id_ not in seen:
            seen.add(id_)
            ways += plan.vertices[id_].parents
    return {source.name for source in plan.sources() if source.id in seen}


def _faults(vertex: Vertex, runs: Sequence[dict[str, Any]]) -> Iterator[str | None]:
    """Yield the faults of a step's functions that were called."""
    for word, function in vertex.step.functions.items():
        name = name_of(vertex, word) if word in apart(vertex.step) else vertex.name
        yield _fault(function, [run["calls"].get(name, []) for run in runs])


def apart(step: Step) -> dict[str, Function]:
    """Return the functions of a step that are reported separately: all of a window's, and those of a timer."""
    if isinstance(step, WindowBy):
        return step.functions
    return {word: function for word, function in step.functions.items() if word != "function"}


def name_of(vertex: Vertex, word: str) -> str:
    """Return the name under which one of a step's functions is reported."""
    return f"{vertex.name} ({word})"


def _fault(function: Function, calls: Sequence[list[list[str]]]) -> str | None:
    """Return the fault of a step that gave different results for the same record."""
    first, *others = calls
    for number, other in enumerate(others, 1):
        for (record, results), (again, others_results) in zip(first, other, strict=False):
            if record == again and results != others_results:
                when = "called again" if number == 1 else "under another hash seed"
                return (
                    f"{shown_function(function)} is not deterministic: with {record} it gave {results}, "
                    f"{when} {others_results}; "
                    "do not use clocks, random numbers, the order of sets, or state that it changes itself"
                )
    return None
