"""Compiles a flow into its plan: a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

from lowtide.conf import Conf
from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import Sink
from lowtide.flow.plan.plan import Grouping, Plan, Vertex
from lowtide.flow.plan.segments import segments_of, uncertain_before
from lowtide.flow.site import Site
from lowtide.flow.steps.calls import Call
from lowtide.flow.steps.clocks import Sighted
from lowtide.flow.steps.graph import FlowGraph
from lowtide.flow.steps.steps import (
    Again,
    Answers,
    Ask,
    Begun,
    Clock,
    Deduplicate,
    Feedback,
    KeyBy,
    Late,
    Loop,
    Merge,
    Relay,
    Sign,
    Step,
    Substream,
    Through,
    WhenDone,
    Write,
)
from lowtide.flow.steps.when_done import ENDED, ended_of
from lowtide.flow.types.findings import Finding, FlowRefused
from lowtide.flow.types.inference import Inference

ANSWERS = "answers"
"""Stands behind the name of a call in that of what keeps its answers."""
DEFAULT_UNITS = 128
DEFAULT_SLACK_MS = 2

PATH_LIMIT_ELEMENTS = 256
"""The longest child path; every record carries its own, and loops multiply what their bodies append to it."""


DEFAULT_LANES = 32
"""Of a job that names no lanes: room to grow, which costs nothing, as a worker delivers its lanes as one strand."""
EARLY_KEYS_UP_TO = 64
"""Workers of a level: so many have early keys if the configuration says nothing.

Each of them gets two to three times as many notices as without, and a tracker has too many of these first: with so many
workers they take a third of a core."""


def compile_flow(
    flow: FlowGraph,
    *,
    units: int = DEFAULT_UNITS,
    parallelism: int,
    lanes: int | None = None,
    slack_ms: int = DEFAULT_SLACK_MS,
    grouping: Grouping = "optimistic",
    early_keys: bool = False,
) -> Plan:
    """Lay a flow out in levels, with an exchange before every sink that has none, and relays where levels meet.

    A vertex is on its parent's level, an exchange one further. Where a merge, or a scan with a broadcast, takes streams
    of several levels, relays "<name>/relay-<level>-<port>" bring them to the last of these, so that every exchange has
    senders of one level. The tail of a loop with a `key_by` in its body sends records back by an exchange
    "<loop>/feedback" (see `_Layout._entered`). A lane is a function of the last exchange's hash unit (R12), so a write
    without an exchange before it gets one of its own, "<write>/exchange": by the sink's key column if it has one, else
    by source front.

    Args:
        flow: The flow.
        units: Number of hash units; frozen with the job's first start.
        parallelism: Number of workers at each level from 1 up, at most `lanes`.
        lanes: Number of lanes, frozen with the job's first start; by default as many as workers.
        slack_ms: Length of a tick in ms; frozen with the job's first start.
        grouping: The way stateful steps come to the right order.
        early_keys: Whether the workers of a last level have a min time each.

    Raises:
        FlowRefused: names everything that does not fit.
    """
    lanes = parallelism if lanes is None else lanes
    if not 1 <= parallelism <= lanes <= units:
        raise FlowError(
            f"parallelism {parallelism}, lanes {lanes} and hash units {units} do not fit",
            way_out="choose 1 <= parallelism <= lanes <= units: a lane has one worker, a hash unit has one lane",
        )
    if slack_ms < 1:
        raise FlowError(f"a slack of {slack_ms} ms is too short", way_out="set slack_ms to 1 or more")
    if grouping not in get_args(Grouping):
        raise FlowError(f"unknown grouping {grouping!r}", way_out=f"use one of {', '.join(get_args(Grouping))}")
    inference = Inference(flow, slack_ms)
    if inference.findings:
        raise FlowRefused(flow.name, inference.findings)
    vertices = tuple(_Layout(flow, inference).vertices())
    levels = 1 + max(vertex.level for vertex in vertices)
    size = levels, units, lanes, parallelism
    plan = Plan(
        flow.name, vertices, *size, flow.dead_letters, slack_ms, grouping, dict(flow.parameters), flow.hooks, early_keys
    )
    if findings := _unordered(plan):
        raise FlowRefused(flow.name, findings)
    return _with_depths(plan)


def compile_job(flow: FlowGraph, conf: Conf) -> Plan:
    """Lay a flow out by a configuration; see `compile_flow`. Where it names no lanes they are many."""
    job = conf.job
    plan = compile_flow(
        flow,
        units=conf.exchange.units,
        parallelism=job.parallelism,
        lanes=job.lanes,
        slack_ms=job.slack_ms,
        grouping=job.grouping,
        early_keys=1 < job.parallelism <= EARLY_KEYS_UP_TO if job.early_keys is None else job.early_keys,
    )
    if job.lanes is not None:
        return plan
    return replace(plan, lanes=max(plan.parallelism, min(DEFAULT_LANES, plan.units)))


class _Layout:
    """Numbers the calls of a sound flow, and adds the exchanges and relays they imply."""

    def __init__(self, flow: FlowGraph, inference: Inference) -> None:
        self._flow = flow
        self._inference = inference
        self._vertices: list[Vertex] = []
        self._vertex_of_call: dict[int, Vertex] = {}
        self._hoisted: set[int] = set()
        """The `key_by` calls placed before the head of the loop in which they were written."""

    def vertices(self) -> list[Vertex]:
        for index in range(len(self._flow.calls)):
            if index not in self._vertex_of_call:
                self._lay_out(index)
        return _without_idle(self._vertices)

    def _lay_out(self, index: int) -> None:
        name, step, gives = self._inference.names[index], self._inference.steps[index], self._inference.gives[index]
        call = replace(self._flow.calls[index], name=name, step=step)
        parents = MEETS.get(type(step), _Layout._met)(self, call, [self._vertex_of_call[each] for each in call.parents])
        if self._inference.loops.crosses(index):
            parents = [self._entered(index, parents[0])]
        if index in self._hoisted:
            self._vertex_of_call[index] = parents[0]
            return
        back = None if call.back is None else self._vertex_of_call[call.back].id
        vertex = self._vertex_of_call[index] = self._add(name, step, parents, gives, call.site, back=back)
        follow = FOLLOWS.get(type(step))
        if follow is not None:
            follow(self, call, vertex)

    def _signed(self, call: Call[Clock], _parents: list[Vertex]) -> list[Vertex]:
        """Return the exchange before a clock: it takes signs from all sources, also those read later in the flow."""
        sources = [number for number, each in enumerate(self._flow.calls) if each.step.reads]
        for number in sources:
            if number not in self._vertex_of_call:
                self._lay_out(number)
        assert call.step.striking is not None, "a clock has its functions"
        sources_of = [self._vertex_of_call[number] for number in sources]
        sign = self._add(f"{call.name}/sign", Sign(call.step.striking), sources_of, Sighted, call.site)
        return [self._add(f"{call.name}/by-clock", KeyBy(("clock",)), [sign], Sighted, call.site)]

    def _awaited(self, call: Call[WhenDone], parents: list[Vertex]) -> list[Vertex]:
        """Bring the parents of a `when_done`, two or its stream alone, to one level, that of the lower one.

        The stream waited for sends no records: its exchanges are there for the segments that they feed.
        """
        stream, *others = parents
        label = call.step.label
        if label and not self._is_keyed(stream, label):
            stream = self._add(f"{call.name}/by-{'-'.join(label)}", KeyBy(label), [stream], stream.gives, call.site)
        throughs = [self._add(f"{call.name}/through", Through(), [each], each.gives, call.site) for each in others]
        level = max(1, *[each.level for each in (stream, *throughs)])
        return [self._lifted(call, port, each, level) for port, each in enumerate((stream, *throughs))]

    def _is_keyed(self, vertex: Vertex, columns: tuple[str, ...]) -> bool:
        """Return whether records come by these columns: from their `key_by`, or what is kept of each key."""
        while isinstance(vertex.step, Deduplicate | Substream | Begun):
            vertex = self._vertices[vertex.parents[0]]
        return vertex.step == KeyBy(columns)

    def _ended(self, call: Call[WhenDone], vertex: Vertex) -> None:
        """Add what keeps the labels that a `when_done` has ended."""
        if call.step.label:
            ended = ended_of(call.step, vertex.gives)
            self._add(f"{call.name}/{ENDED}", ended, [vertex], vertex.gives, call.site)

    def _written(self, call: Call[Write], parents: list[Vertex]) -> list[Vertex]:
        """Put an exchange before a write that has none, or that takes the records of one key by one lane only."""
        if parents[0].level and not self._scatters(call.step.sink, parents[0]):
            return parents
        key = call.step.sink.key_column
        by = KeyBy(() if key is None else (key,))
        return [self._add(f"{call.name}/exchange", by, parents, parents[0].gives, call.site)]

    def _asked(self, call: Call[Ask], parents: list[Vertex]) -> list[Vertex]:
        """Put an exchange before a call that has none: it waits for min time, and its answers go to a lane."""
        if parents[0].level:
            return parents
        return [self._add(f"{call.name}/exchange", KeyBy(()), parents, parents[0].gives, call.site)]

    def _answered(self, call: Call[Ask], vertex: Vertex) -> None:
        """Add what keeps the answers of a call."""
        if not call.step.repeatable:
            self._add(f"{call.name}/{ANSWERS}", Answers(), [vertex], vertex.gives, call.site)

    def _entered(self, head: int, parent: Vertex) -> Vertex:
        """Return the vertex before the head of a loop with a `key_by` in its body: an exchange, or a vertex after one.

        A body that begins with a `key_by` begins before the head, so records that go round take only that exchange.
        Nothing is sent to the workers of level 0, one per front; a head there moves one level on.
        """
        first = [index for index, call in enumerate(self._flow.calls) if head in call.parents]
        if len(first) == 1 and self._flow.calls[first[0]].step.by:
            (index,) = first
            self._hoisted.add(index)
            name, step, site = self._inference.names[index], self._inference.steps[index], self._flow.calls[index].site
            return self._add(name, step, [parent], self._inference.gives[index], site)
        if parent.level:
            return parent
        call = self._flow.calls[head]
        return self._add(f"{self._inference.names[head]}/relay-1-0", Relay(), [parent], parent.gives, call.site)

    def _fed_back(self, call: Call[Again], tail: Vertex) -> None:
        """Add the exchange by which a loop's tail sends records back, if they may change their key in its body."""
        assert call.back is not None, "a loop's tail knows its head"
        if not self._inference.loops.crosses(call.back):
            return
        head = self._vertex_of_call[call.back]
        entry = self._vertices[head.parents[0]]
        hoisted = any(self._vertex_of_call[index].id == head.id for index in self._hoisted)
        assert isinstance(head.step, Loop)
        columns: tuple[str, ...] = ()
        if hoisted or head.step.keyed:
            while not entry.step.by:
                entry = self._vertices[entry.parents[0]]
            columns = entry.step.by
        name, step = f"{tail.name}/feedback", Feedback(columns)
        self._vertices.append(
            Vertex(
                len(self._vertices), name, head.level, (tail.id,), step, tail.gives, tail.gives, tail.site, 0, head.id
            )
        )

    def _met(self, call: Call, parents: list[Vertex]) -> list[Vertex]:
        """Bring the parents of a call to one level."""
        level = max((parent.level for parent in parents), default=0)
        if parents and parents[0].step.mixed and parents[0].level < level:
            parents[0] = self._connected(call, parents[0], level)
        lifted = [self._lifted(call, port, parent, level) for port, parent in enumerate(parents)]
        if len({parent.id for parent in lifted}) == len(lifted):
            return lifted
        # A stream joined with itself takes two ways, so that the two copies of a record have an order.
        return [
            self._add(f"{call.name}/port-{port}", Merge(), [parent], parent.gives, call.site)
            for port, parent in enumerate(lifted)
        ]

    def _scatters(self, sink: Sink, vertex: Vertex) -> bool:
        """Return whether a sink needs an exchange of its own, so that one key's records come by one lane (R12)."""
        while not vertex.is_exchange:
            vertex = self._vertices[vertex.parents[0]]
        if vertex.step == KeyBy(()):  # Of a call; without that the write would have one by its key.
            return sink.key_column is not None
        return sink.by_key and vertex.step.by != (sink.key_column,)

    def _connected(self, call: Call, connect: Vertex, level: int) -> Vertex:
        """Streams connected at a higher level, beside a broadcast there: no exchange carries several types."""
        parents = [self._vertices[each] for each in connect.parents]
        lifted = [self._lifted(call, port, parent, level, "connect-") for port, parent in enumerate(parents)]
        return self._add(f"{call.name}/connect", connect.step, lifted, connect.gives, connect.site)

    def _lifted(self, call: Call, port: int, vertex: Vertex, level: int, word: str = "") -> Vertex:
        """Return the vertex, or the last of the relays that bring its records to the level."""
        gives = vertex.gives
        while vertex.level < level:
            name = f"{call.name}/{word}relay-{vertex.level + 1}-{port}"
            vertex = self._add(name, Relay(), [vertex], gives, call.site)
        return vertex

    def _add(
        self, name: str, step: Step, parents: list[Vertex], gives: Any, site: Site, *, back: int | None = None
    ) -> Vertex:
        assert gives is not None, "a flow without findings has a type at every step"
        level = max((parent.level for parent in parents), default=0) + step.exchange
        takes = gives if not parents or isinstance(step, Late) else parents[0].gives
        ids = tuple(parent.id for parent in parents)
        vertex = Vertex(len(self._vertices), name, level, ids, step, takes, gives, site, back=back)
        self._vertices.append(vertex)
        return vertex


MEETS: dict[type[Step], Callable[[_Layout, Call[Any], list[Vertex]], list[Vertex]]] = {
    Clock: _Layout._signed,
    WhenDone: _Layout._awaited,
    Write: _Layout._written,
    Ask: _Layout._asked,
}
"""Ways to bring a call's parents to where it can take their records, beyond one level."""

FOLLOWS: dict[type[Step], Callable[[_Layout, Call[Any], Vertex], None]] = {
    WhenDone: _Layout._ended,
    Again: _Layout._fed_back,
    Ask: _Layout._answered,
}
"""Vertices added after a call."""


def _unordered(plan: Plan) -> list[Finding]:
    """Find the calls with `order="answer"` that ask about what other records may change, each with a reason."""
    found = []
    for ask in plan.those(Ask):
        if ask.step.order == "answer" and ask.id not in segments_of(plan).certain:
            step = plan.vertices[uncertain_before(plan, ask)[0]]
            what = (
                f'order="answer" asks about each record as it comes, but what {step.step.word} "{step.name}" gives '
                'depends on more than one record; leave order="answer" out, or put the call before that step'
            )
            found.append(Finding(ask.site, ask.name, what))
    return found


def _without_idle(vertices: Sequence[Vertex]) -> list[Vertex]:
    """Leave out the connects whose takers all have their streams connected at a higher level."""
    taken = {parent for vertex in vertices for parent in vertex.parents}
    kept = [vertex for vertex in vertices if vertex.id in taken or not vertex.step.mixed]
    ids = {vertex.id: number for number, vertex in enumerate(kept)}
    return [
        replace(
            vertex,
            id=ids[vertex.id],
            parents=tuple(ids[parent] for parent in vertex.parents),
            back=None if vertex.back is None else ids[vertex.back],
        )
        for vertex in kept
    ]


def _with_depths(plan: Plan) -> Plan:
    """Set for every vertex how long the child path of a record in or out of it can be.

    Flat maps, flat scans, broadcasts and loops' heads append one element, edges from a vertex with several children
    another, and so do sources that read one topic; a loop appends what one pass through it does once per turn. A join
    numbers its pairs. In a loop with a `key_by` the head appends a second element, the turn, and none in later turns.
    A window's result at its close and a join's unpaired record begin a path of one element.
    """
    vertices = plan.vertices
    children = Counter(parent for each in vertices if not each.step.silent for parent in each.parents)
    numbered = {each.id for each in plan.sources() if plan.branch_of(each)}
    crossing = {each.back for each in plan.feedbacks()}
    turns = {each.id: each.step.limit_turns for each in plan.those(Again)}
    depths: list[int] = []
    for vertex in vertices:
        arriving = max((depths[parent] + (children[parent] > 1) for parent in vertex.parents), default=0)
        depths.append(vertex.step.depth(arriving + (vertex.id in numbered)) + (vertex.id in crossing))
        if vertex.id in turns:
            assert vertex.back is not None, "a loop's tail knows its head"
            entered = depths[vertex.back] - (vertex.back not in crossing)
            growth = (turns[vertex.id] - 1) * (depths[vertex.id] - entered)
            for inside in _loop(vertices, vertex.back, vertex.id):
                depths[inside] += growth
        if depths[vertex.id] > PATH_LIMIT_ELEMENTS:
            raise FlowError(
                f'"{vertex.name}": a record\'s child path can have {depths[vertex.id]} elements, '
                f"the limit is {PATH_LIMIT_ELEMENTS}",
                where=str(vertex.site),
                way_out="give the loop a smaller limit_turns, or fewer flat_maps and branches in its body",
            )
    deep = tuple(replace(vertex, depth=depth) for vertex, depth in zip(vertices, depths, strict=True))
    return replace(plan, vertices=deep)


def _loop(vertices: Sequence[Vertex], head: int, tail: int) -> set[int]:
    """The ids of the vertices of a loop, head and tail included."""
    inside = {head}
    for vertex in vertices[head : tail + 1]:
        if inside.intersection(vertex.parents):
            inside.add(vertex.id)
    return inside
