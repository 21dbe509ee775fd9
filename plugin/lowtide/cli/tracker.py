"""`lowtide tracker`: the tracker of several jobs that are connected by topics, and its state."""

from __future__ import annotations

import asyncio
import json
import logging
import signal

import click
import msgspec

from lowtide.cli.graph_question import ask_graph, graph_address
from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import table, time_of
from lowtide.conf import Conf
from lowtide.conf.graph_secret import graph_secret
from lowtide.errors import PortTaken
from lowtide.process.credentials import plain, secured
from lowtide.service.graph.messages import Forget, Look, Whole
from lowtide.service.graph_server import GraphServer
from lowtide_tracker.job_graph import JobKnown

HEADINGS = ("job", "life", "runs", "delivered before (UTC)", "min time (UTC)", "reads", "writes")


@click.group(invoke_without_command=True)
@with_conf
@click.pass_context
def tracker(context: click.Context, conf: Conf) -> None:
    """Run the tracker that jobs connected by topics share, at [tracker].graph, until it is stopped.

    It keeps nothing on disk: after a restart, the jobs report everything again.
    """
    if context.invoked_subcommand is None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        asyncio.run(_serve(graph_address(conf), graph_secret(conf.tracker)))


@tracker.command("status")
@with_conf
@as_json
def status(conf: Conf, as_json: bool) -> None:
    """Show all jobs of the graph: the progress of each, and the chain of jobs that hold it."""
    whole = ask_graph(conf, Look())
    assert isinstance(whole, Whole), "a look is answered so"
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(whole), indent=2))
        return
    click.echo(f"all jobs have delivered everything before {time_of(whole.delivered_ms)}")
    click.echo(table(HEADINGS, [_row(known) for known in whole.jobs]))
    for lines in whole.chains.values():
        click.echo("\n" + "\n  ".join(lines))


@tracker.command("forget")
@click.argument("job")
@with_conf
def forget(conf: Conf, job: str) -> None:
    """Remove the retired JOB from the graph: no job waits for it any more."""
    ask_graph(conf, Forget(job))
    click.echo(f'job "{job}" is forgotten', err=True)


async def _serve(address: str, secret: str) -> None:
    host, _, port = plain(address).rpartition(":")
    server = GraphServer(secret.encode(), tls=secured(address))
    try:
        server.serve(host, int(port))
    except OSError as error:
        raise PortTaken(
            f"the graph's tracker cannot listen at {address}: {error.strerror or error}",
            where="[tracker].graph",
            way_out="stop the process that listens there, or set a free address of this machine",
        ) from error
    click.echo(f"the graph's tracker listens at {address}", err=True)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await server.close()


def _row(known: JobKnown) -> tuple[str, ...]:
    topics = (", ".join(sorted(known.reads)) or "-", ", ".join(sorted(known.writes)) or "-")
    times = (time_of(known.delivered_ms), time_of(known.min_time_ms))
    return known.job, str(known.life), "yes" if known.runs else "no", *times, *topics
