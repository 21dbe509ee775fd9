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
@click.option("--floors-from", metavar="JOB", help="At a first start: order records as JOB did.")
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
    floors_from: str | None,
    running: Running,
    as_json: bool,
) -> int:
    """Run FLOW (flow.py, or flow.py:name) until it is stopped or fails.

    It begins from its last commit, if it has one. With --floors-from a new job delivers, of what JOB has read so far,
    the same bytes as JOB: start a new version beside the old one, and compare. SIGINT and SIGTERM stop it cleanly; a
    second SIGINT stops it at once.
    """
    loaded = flow_of(context, flow)
    if running.detach:
        refuse_detaching(context)
    start = StartFrom(no_state=allow_no_state, floors_from=floors_from)
    return run_flow(context, loaded, conf, start, running, as_json=as_json)
