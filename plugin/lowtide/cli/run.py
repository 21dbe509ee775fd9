"""`lowtide run`: runs a flow, here or detached; `python flow.py` and spark-submit come here too."""

from __future__ import annotations

import click

from lowtide.cli.job_start import Running, flow_of, refuse_detaching, run_flow, with_running
from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide.driver.recovery import StartFrom


@click.command()
@click.argument("flow", required=False)
@click.option(
    "--allow-no-state", is_flag=True, help="Ignore commits: start without state, from the beginning of the sources."
)
@click.option("--require-state", is_flag=True, help="Refuse to start a job that has no commit.")
@click.option("--floors-from", metavar="JOB", help="At a first start: order records as JOB did.")
@click.option("--standby", is_flag=True, help="Wait, with Spark up, until no other program runs the job; then run it.")
@with_running
@with_conf
@as_json
@click.pass_context
def run(
    context: click.Context,
    *,
    conf: Conf,
    flow: str | None,
    allow_no_state: bool,
    require_state: bool,
    floors_from: str | None,
    standby: bool,
    running: Running,
    as_json: bool,
) -> int:
    """Run FLOW (flow.py, or flow.py:name) until it is stopped or fails.

    It begins from its last commit, if it has one; with --require-state a job without one is refused. With --floors-from
    a new job delivers, of what JOB has read so far, the same bytes as JOB: start a new version beside the old one, and
    compare. With --standby it waits until the program that runs the job is gone, and takes over within seconds; it ends
    when the job is stopped or has finished. SIGINT and SIGTERM stop it cleanly; a second SIGINT stops it at once.
    """
    if require_state and (allow_no_state or floors_from is not None):
        other = "--allow-no-state" if allow_no_state else "--floors-from"
        raise click.UsageError(f"{other} begins without state, which --require-state refuses; give one of them")
    if standby and (allow_no_state or floors_from is not None):
        other = "--allow-no-state" if allow_no_state else "--floors-from"
        raise click.UsageError(f"{other} begins a job, but a standby continues one; give one of them")
    loaded = flow_of(context, flow)
    if running.detach:
        refuse_detaching(context)
    start = StartFrom(no_state=allow_no_state, require_state=require_state, floors_from=floors_from)
    return run_flow(context, loaded, conf, start, running, as_json=as_json, standby=standby)
