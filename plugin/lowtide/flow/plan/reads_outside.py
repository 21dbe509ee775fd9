"""Finds functions of a flow that read a clock, random numbers or the environment, which differ from call to call.

The source is examined: a name stands for what the function's module or closure has under it. Functions of the same
module that it calls are examined too.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import random
import secrets
import socket
import textwrap
import time
import uuid
from collections.abc import Iterator
from datetime import date, datetime
from types import FunctionType, ModuleType
from typing import Any

from lowtide.flow.plan.plan import Plan
from lowtide.flow.types.findings import Finding

_DEPTH = 4

_CLOCK = "take a time that the record has, mark a field as lt.Timestamp(), or give flat_scan a timer="
_DICE = "derive it from the record's own fields: hashlib.sha256 of its key, or random.Random(seed) with such a seed"
_SURROUNDINGS = "read it once, where the flow is defined, so that all workers and lives have the same value"

_CLOCKS: tuple[Any, ...] = (datetime.now, datetime.utcnow, datetime.today, date.today, time.localtime, time.gmtime)
_CLOCKS += (time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter, time.perf_counter_ns)
_RANDOM: tuple[Any, ...] = (uuid.uuid1, uuid.uuid4, os.urandom, random.SystemRandom)
_AROUND: tuple[Any, ...] = (os.environ, os.getenv, os.getpid, socket.gethostname)
_NOTHING = object()


def outside_reads(plan: Plan) -> list[Finding]:
    """Make a finding for each function that reads what is not part of its record, with the way out."""
    found = []
    for vertex in plan.vertices:
        if vertex.step.outside:
            continue
        for function in vertex.step.functions.values():
            for what, way_out in dict(_reads(function, _DEPTH)).items():
                name = getattr(function, "__qualname__", None) or repr(function)
                text = f"{name} reads {what}, which gives another value when a record is replayed; {way_out}"
                found.append(Finding(vertex.site, vertex.name, text))
    return found


def _reads(function: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield what a function reads, and what to do instead."""
    function = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or not depth:
        return
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return  # It has no source, or is part of a line: a lambda in a chain of calls.
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    local = set(function.__code__.co_varnames)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        value = _meant(node, known, local)
        way_out = _way_out(value)
        if way_out is not None:
            yield ast.unparse(node), way_out
        elif isinstance(value, FunctionType) and value.__module__ == function.__module__ and value is not function:
            yield from _reads(value, depth - 1)


def _meant(node: ast.expr, known: dict[str, Any], local: set[str]) -> Any:
    """Resolve a dotted name through modules and classes."""
    if isinstance(node, ast.Name):
        return _NOTHING if node.id in local else known.get(node.id, _NOTHING)
    if not isinstance(node, ast.Attribute):
        return _NOTHING
    owner = _meant(node.value, known, local)
    return getattr(owner, node.attr, _NOTHING) if isinstance(owner, ModuleType | type) else _NOTHING


def _way_out(value: Any) -> str | None:
    """Return what to do instead of reading this; None if it may be read."""
    for group, way_out in ((_CLOCKS, _CLOCK), (_RANDOM, _DICE), (_AROUND, _SURROUNDINGS)):
        if any(value is each or (callable(each) and not isinstance(value, type) and value == each) for each in group):
            return way_out
    of_module = getattr(value, "__module__", None) == secrets.__name__ and callable(value)
    shared = getattr(value, "__self__", None) is random._inst  # The generator that its functions share.
    return _DICE if of_module or shared else None
