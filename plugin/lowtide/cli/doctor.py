"""`lowtide doctor`: checks that everything a flow needs is there."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.doctor import CHECKS, Answer, Surroundings, Verdict, ask
from lowtide.errors import ServiceUnavailable
from lowtide.flow.plan.check import load_flow
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.steps.graph import FlowGraph

COLOURS: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
NEWEST = 10_000
"""Messages of each partition that are read for their lateness."""
NAME_WIDTH = max(len(check.name) for check in CHECKS)


@click.command()
@click.argument("flow", required=False)
@click.option(
    "--probe", is_flag=True, help="Make a scratch topic to compare the clocks, try stores with a put, and delete both."
)
@click.option(
    "--lateness",
    is_flag=True,
    help="Show how late the newest records come to FLOW's windows and joins, and how producers' clocks differ.",
)
@with_conf
@as_json
def doctor(conf: Conf, flow: str | None, probe: bool, lateness: bool, as_json: bool) -> int:
    """Check that everything a flow needs is there; with FLOW (flow.py), everything that this flow needs.

    Exits with 4 if a check fails.
    """
    if lateness:
        if flow is None:
            raise click.UsageError("--lateness needs a flow: lowtide doctor flow.py --lateness")
        return show_lateness(conf, load_flow(flow), as_json)
    surroundings = Surroundings(conf, load_flow(flow) if flow else None, probe)
    answers = {}
    for check in CHECKS:
        answers[check.name] = ask(check, surroundings)
        if not as_json:
            _say(check.name, answers[check.name])
    verdicts = Counter(answer.verdict for answer in answers.values())
    if as_json:
        click.echo(json.dumps([{"check": name, **asdict(answer)} for name, answer in answers.items()], indent=2))
    else:
        click.echo(", ".join(f"{verdicts[verdict]} {verdict}" for verdict in COLOURS))
    return ServiceUnavailable.exit_code if verdicts["fail"] else 0


def show_lateness(conf: Conf, flow: FlowGraph, as_json: bool) -> int:
    """Show what `wait` of windows and joins must cover, and how timestamps go back, by the newest messages."""
    from lowtide.local.lateness import datings_of, lateness_of
    from lowtide.local.oracle import read_newest

    plan = compile_job(flow, conf)
    log = read_newest(conf.kafka, plan, NEWEST)
    described = Topics(conf.kafka).describe_all(list(dict.fromkeys(each.step.source.topic for each in plan.sources())))
    datings = datings_of(log, {topic.name: topic.dated_by for topic in described}, int(time.time() * 1000))
    found = lateness_of(plan, log)
    if as_json:
        shown = {"steps": [asdict(each) for each in found], "partitions": [asdict(each) for each in datings]}
        click.echo(json.dumps(shown, indent=2))
        return 0
    if not found:
        click.echo("no window or join of this flow uses event time")
    for each in found:
        click.echo(f"{each.step}: {each.records:,} records, log time less {each.time}:")
        click.echo(f"  {_shown(each.behind_ms)}; {each.late:,} came after the wait of {each.wait_ms:g} ms")
    for dating in datings:
        click.echo(f"{dating.partition}: {dating.records:,} records, dated by the {dating.dated_by}:")
        ahead = f"; the newest is {dating.ahead_ms:,} ms ahead of this machine's clock" if dating.ahead_ms else ""
        click.echo(f"  {dating.older:,} older than one before them, by {_shown(dating.back_ms)}{ahead}")
    return 0


def _shown(ms: Sequence[float]) -> str:
    from lowtide.local.lateness import QUANTILES

    return ", ".join(f"p{of * 100:g} {each:,.0f} ms" for of, each in zip(QUANTILES, ms, strict=False)) or "no records"


def _say(name: str, answer: Answer) -> None:
    verdict = click.style(answer.verdict.ljust(4), COLOURS[answer.verdict])
    click.echo(f"{verdict}  {name.ljust(NAME_WIDTH)}  {answer.found}")
    if answer.way_out:
        click.echo(f"{' ' * (NAME_WIDTH + 8)}-> {answer.way_out}")
