"""`lowtide recover`: says what a start begins from, then runs the flow from there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from lowtide.cli.graph_question import refuse_readers
from lowtide.cli.job_start import flow_of, refuse_detaching, run_detached, run_here, with_running
from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import IsoTime, bar
from lowtide.cli.recovery import look
from lowtide.conf import Conf
from lowtide.driver.preflight import sink_topics
from lowtide.driver.recovery import StartFrom
from lowtide.jobs.folder import JobFolder


@click.command()
@click.argument("flow", required=False)
@click.option("--commit", metavar="ID-OR-NAME", help="Begin from this commit, instead of the newest that is whole.")
@click.option("--time", "before_ms", type=IsoTime(), metavar="ISO", help="From the newest that ends at or before this.")
@click.option(
    "--allow-no-state", is_flag=True, help="Ignore commits: start without state, from the beginning of the sources."
)
@click.option("--redeliver", is_flag=True, help="Deliver everything from there on again, as a new output generation.")
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
    commit: str | None,
    before_ms: int | None,
    allow_no_state: bool,
    redeliver: bool,
    despite_readers: bool,
    dry_run: bool,
    detach: bool,
    verbose: bool,
    supervised: str | None,
    as_json: bool,
) -> int:
    """Say from which commit FLOW (flow.py, or flow.py:name) begins and what it reads again, then run it.

    Without options it begins as `lowtide run` does: from the newest commit that is whole. A commit is verified before
    anything is started. What was delivered after it is worked out again and not delivered again, unless --redeliver
    asks for that: after a fault of the flow that was corrected. Commits above are dropped then. A redelivery into
    a topic that other jobs of the graph read is refused, with their names, unless --despite-readers says otherwise.
    """
    if (commit is not None) + (before_ms is not None) + allow_no_state > 1:
        raise click.UsageError("--commit, --time and --allow-no-state name different beginnings; give one")
    if redeliver and allow_no_state:
        raise click.UsageError("--redeliver begins from a commit; to have everything anew, give the flow another name")
    loaded = flow_of(context, flow)
    start = StartFrom(commit, before_ms, allow_no_state, redeliver)
    if not supervised:
        if detach:
            refuse_detaching(context)
        if not dry_run:
            # To be refused at the end of a long verification helps nobody.
            os.close(JobFolder(Path(conf.job.folder), loaded.name).lock())
        with bar("verifying") as told:
            recovery = look(loaded, conf, start, told)
        if dry_run and as_json:
            click.echo(json.dumps(recovery.as_object(), indent=2))
        else:
            click.echo(recovery.page(), err=not dry_run)
        recovery.refuse()
        if redeliver and not despite_readers:
            refuse_readers(conf, loaded.name, sink_topics(recovery.plan))
        if dry_run:
            return 0
        start = recovery.start
    if detach:
        options = ["--allow-no-state"] if start.no_state else ["--commit", str(start.commit)]
        options += ["--redeliver", "--despite-readers"] if start.redeliver else []
        return run_detached(context, loaded, conf, command="recover", options=options, as_json=as_json)
    return run_here(loaded, conf, start=start, supervised=supervised, verbose=verbose, as_json=as_json)
