"""`lowtide recover`: says what a start begins from, then runs the flow from there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from lowtide.cli.graph_readers import refuse_readers
from lowtide.cli.job_start import Running, flow_of, refuse_detaching, run_flow, with_running
from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import IsoTime, bar
from lowtide.cli.recovery import look
from lowtide.conf import Conf
from lowtide.driver.preflight import sink_topics
from lowtide.driver.recovery import StartFrom
from lowtide.jobs.folder import JobFolder


def with_start(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where a start begins, and what its preview has verified.

    It gets them as `start`; UsageError if they contradict each other.
    """

    @click.option("--commit", metavar="ID-OR-NAME", help="Begin from this commit, instead of the newest that is whole.")
    @click.option(
        "--time", "before_ms", type=IsoTime(), metavar="ISO", help="From the newest that ends at or before this."
    )
    @click.option(
        "--allow-no-state", is_flag=True, help="Ignore commits: start without state, from the beginning of the sources."
    )
    @click.option("--require-state", is_flag=True, help="Refuse to start a job that has no commit.")
    @click.option(
        "--redeliver", is_flag=True, help="Deliver everything from there on again, as a new output generation."
    )
    @click.option("--verified", default="", hidden=True, metavar="SHA256")
    @wraps(command)
    def starting(
        *args: Any,
        commit: str | None,
        before_ms: int | None,
        allow_no_state: bool,
        require_state: bool,
        redeliver: bool,
        verified: str,
        **kwargs: Any,
    ) -> Any:
        if (commit is not None) + (before_ms is not None) + allow_no_state > 1:
            raise click.UsageError("--commit, --time and --allow-no-state name different beginnings; give one")
        if require_state and allow_no_state:
            raise click.UsageError("--allow-no-state begins without state, which --require-state refuses; give one")
        if redeliver and allow_no_state:
            raise click.UsageError(
                "--redeliver begins from a commit; to deliver everything again, give the flow another name"
            )
        start = StartFrom(commit, before_ms, allow_no_state, require_state, redeliver, verified=verified)
        return command(*args, start=start, **kwargs)

    return starting


@click.command()
@click.argument("flow", required=False)
@with_start
@click.option(
    "--despite-readers", is_flag=True, help="Redeliver even if other jobs of the graph read it a second time."
)
@click.option("--dry-run", is_flag=True, help="Show what it would do, and do nothing.")
@with_running
@with_conf
@as_json
@click.pass_context
def recover(
    context: click.Context,
    *,
    conf: Conf,
    flow: str | None,
    start: StartFrom,
    despite_readers: bool,
    dry_run: bool,
    running: Running,
    as_json: bool,
) -> int:
    """Show from which commit FLOW (flow.py, or flow.py:name) begins and what it reads again, then run it.

    Without options it begins as `lowtide run` does: from the newest commit that is whole. A commit is verified before
    anything is started. Output after it is recomputed but not delivered again, unless you pass --redeliver, for
    instance after correcting a fault of the flow; that drops later commits. Other jobs of the graph that read what
    the job writes are named, with what they will see. A redelivery that they would read is refused, unless you pass
    --despite-readers.
    """
    loaded = flow_of(context, flow)
    if running.supervised:
        return run_flow(context, loaded, conf, start, running, as_json=as_json)
    if running.detach:
        refuse_detaching(context)
    if not dry_run:
        # Better refused now than at the end of a long verification.
        os.close(JobFolder(Path(conf.job.folder), loaded.name).lock())
    with bar("verifying") as progress:
        recovery = look(loaded, conf, start, progress)
    if dry_run and as_json:
        click.echo(json.dumps(recovery.as_object(), indent=2))
    else:
        click.echo(recovery.page(), err=not dry_run)
    recovery.refuse()
    if start.redeliver and not despite_readers:
        refuse_readers(conf, loaded.name, sink_topics(recovery.plan), recovery.readers)
    if dry_run:
        return 0
    return run_flow(context, recovery.plan, conf, recovery.start, running, as_json=as_json)
