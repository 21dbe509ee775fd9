"""Says where readers find a flow's files: each life keeps it in ZooKeeper, where Airflow reads it."""

from __future__ import annotations

from lowtide.flow.plan.plan import Plan
from lowtide.sinks.files.done import done_name
from lowtide.sinks.files.endpoint import Files
from lowtide.sinks.files.parts import escaped
from lowtide.sinks.files.pattern import Pattern


def places_of(plan: Plan) -> dict[str, dict[str, str]]:
    """Return by sink of files what the node `places` has, as `snapshots/README.md` says."""
    sinks = {vertex.name: vertex.step.sink for vertex in plan.sinks()}
    return {name: _place(name, sink) for name, sink in sinks.items() if isinstance(sink, Files)}


def _place(name: str, sink: Files) -> dict[str, str]:
    parts = "".join(f"{column}=*/" for column in sink.partition_by)
    return {
        "folders": sink.pattern.rstrip("/") + "/",
        "unit": Pattern(sink.pattern).unit,
        # A digit, as the files of another sink may begin with this one's name.
        "files": f"{parts}{escaped(name)}-[0-9]*.{sink.format.suffix}",
        "done": done_name("", escaped(name)),
    }
