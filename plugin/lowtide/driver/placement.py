"""Compares lanes and order of the current flow with those of the flow that delivered.

Both depend on the steps a record goes through and on the columns it is keyed by. If they differ, a lane's `last` says
nothing about what was delivered: records would come twice, or never. So ZooKeeper keeps the steps of the flow that
delivers, next to the id of the topic that keeps `last`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.recovery import refuse_shorter_lasts
from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan, Vertex
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.steps.steps import Ask, Write
from lowtide.sinks.contract import LaneName
from lowtide_snapshots.format.manifest import Manifest

START = 0
"""The first tick: records from before 1970 count as of 1970."""
EVER = 0
"""Since when steps deliver where no others did before."""


def steps_of(plan: Plan) -> list[list[Any]]:
    """Of each step, in the order of the plan: name, kind, parents, loop's head, depth, columns and types of its key."""
    return [[v.name, _kind(v), list(v.parents), v.back, v.depth, _keys(v)] for v in plan.vertices]


def text_of(plan: Plan) -> str:
    """A SHA-256 in hex; the same for two plans that give every record the same lane and order key."""
    return _digest(steps_of(plan))


def refuse_forgotten(plan: Plan, last: Collection[LaneName]) -> None:
    """Refuse a flow without a sink that has delivered: under another name everything would be delivered again."""
    sinks = {vertex.name for vertex in plan.sinks()}
    # The answers of a call that has gone are not output; a sink's name has no slash.
    gone = sorted({lane.sink for lane in last if lane.sink and "/" not in lane.sink} - sinks)
    if gone:
        raise FlowError(
            f'the job has delivered to sink "{gone[0]}", which the flow no longer has; its sinks are '
            f"{', '.join(sorted(sinks))}",
            where=f'job "{plan.name}"',
            way_out="give the sink its old name; or give the flow another name: a new job reads its sources from their "
            "beginning",
        )


def refuse_other_delivery(
    plan: Plan,
    delivered: Mapping[str, Any] | None,
    manifest: Manifest | None,
    last: Mapping[LaneName, OrderKey],
    *,
    begins: int,
    generation: int,
) -> None:
    """Refuse a start that does not fit the delivered output, if it continues from there.

    Arguments as of `refuse_other_steps`, and the output's generation.

    Raises:
        FlowError: see there.
        LifeEnded: the lasts topic has lost something.
    """
    if manifest is not None:
        refuse_shorter_lasts(manifest, last, generation)
    refuse_other_steps(plan, delivered, manifest, last, begins)


def refuse_other_steps(
    plan: Plan,
    delivered: Mapping[str, Any] | None,
    manifest: Manifest | None,
    last: Mapping[LaneName, OrderKey],
    begins: int,
) -> None:
    """Refuse a flow whose steps have changed, where something it would read again was delivered by the old ones.

    Args:
        plan: The current flow.
        delivered: The result of `kept_steps` for the life before; None if that kept nothing.
        manifest: Of the commit that the life begins from, if it begins from one.
        last: What is durable, by lane.
        begins: The tick at which the life begins.

    Raises:
        FlowError: something was, or may have been.
    """
    after = [key.tick for key in last.values() if key.tick >= begins]
    if not after:
        return
    what = ""
    if delivered is not None and delivered["steps"] != steps_of(plan):
        what = f"the flow is not the one that delivered: {_difference(delivered['steps'], steps_of(plan))}"
    elif delivered is not None and begins < delivered["since"]:
        what = f"the flow had other steps before {delivered['since'] * plan.slack_ms} ms"
    elif manifest is not None and manifest.steps not in ("", text_of(plan), _digest(_without_keys(plan))):
        what = f"steps of the flow were added, removed, renamed, rekeyed or rejoined since commit {manifest.id}"
    if what:
        again = "redeliver everything after the commit: lowtide recover --redeliver"
        raise FlowError(
            f"{what}; this start begins at {begins * plan.slack_ms} ms, but output is delivered up to "
            f"{max(after) * plan.slack_ms} ms: some of it could come twice, or be missing",
            where=f"job {plan.name!r}",
            way_out="run the old flow, pause its sources until everything is delivered, take a snapshot and stop it; "
            "then start the new flow from that snapshot. "
            f"Or {again if manifest is not None else 'give the flow another name and other output topics'}",
        )


def kept_steps(
    plan: Plan, delivered: Mapping[str, Any] | None, last: Collection[LaneName], begins: int
) -> dict[str, Any]:
    """Return the record of the flow that delivers from now on: its steps, and their first tick.

    Arguments as of `refuse_other_steps`, which has accepted the plan.
    """
    steps, since = steps_of(plan), EVER
    if last and delivered is not None:
        since = delivered["since"] if delivered["steps"] == steps else begins
    return {"steps": steps, "since": since}


def _kind(vertex: Vertex) -> str:
    """A step's kind; of a call with answers in their own order another one, as its order keys are others."""
    kind = type(vertex.step).__name__
    return f"{kind} by answer" if isinstance(vertex.step, Ask) and vertex.step.order == "answer" else kind


def _keys(vertex: Vertex) -> list[list[str]]:
    """The columns that say where a record goes, each with its type, as another type has other hash units."""
    columns = vertex.step.by if vertex.back is None else ()
    if isinstance(vertex.step, Write) and (key := vertex.step.sink.key_column) is not None:
        columns = (key,)
    kinds = schema_of(vertex.takes).kinds if columns else {}
    return [[column, str(kinds[column].arrow)] for column in columns]


def _difference(was: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]) -> str:
    """Return the difference between two flows' steps as text."""
    old = {(step[0], step[1]): step for step in was}
    new = {(step[0], step[1]): step for step in now}
    found = [f'"{name}" is new' for name, kind in new if (name, kind) not in old]
    found += [f'"{name}" is gone' for name, kind in old if (name, kind) not in new]
    for key in old.keys() & new.keys():
        if old[key][-1] != new[key][-1]:
            found.append(f'"{key[0]}" is keyed by {_said(new[key][-1])}, but was keyed by {_said(old[key][-1])}')
    return "; ".join(sorted(found)) or "steps of the flow are joined differently"


def _said(keys: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{column} ({kind})" for column, kind in keys) or "nothing"


def _without_keys(plan: Plan) -> list[list[Any]]:
    """As manifests had it whose flows' keys were not compared."""
    return [step[:-1] for step in steps_of(plan)]


def _digest(steps: Sequence[Sequence[Any]]) -> str:
    return hashlib.sha256(json.dumps(steps).encode()).hexdigest()
