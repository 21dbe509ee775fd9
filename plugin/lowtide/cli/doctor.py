"""`lowtide doctor`: checks that everything a flow needs is there."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
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
@click.option("--lateness", is_flag=True, help="Show how late the newest records come to FLOW's windows and joins.")
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
    """Show what `wait` of each window and join of event time must cover, by each partition's newest messages."""
    from lowtide.local.lateness import QUANTILES, lateness_of
    from lowtide.local.oracle import read_newest

    plan = compile_job(flow, conf)
    found = lateness_of(plan, read_newest(conf.kafka, plan, NEWEST))
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return 0
    if not found:
        click.echo("no window or join of this flow uses event time")
    for each in found:
        click.echo(f"{each.step}: {each.records:,} records, log time less {each.time}:")
        shown = [f"p{of * 100:g} {ms:,.0f} ms" for of, ms in zip(QUANTILES, each.behind_ms, strict=False)]
        click.echo(f"  {', '.join(shown) or 'no records'}; {each.late:,} came after the wait of {each.wait_ms:g} ms")
    return 0


def _say(name: str, answer: Answer) -> None:
    verdict = click.style(answer.verdict.ljust(4), COLOURS[answer.verdict])
    click.echo(f"{verdict}  {name.ljust(NAME_WIDTH)}  {answer.found}")
    if answer.way_out:
        click.echo(f"{' ' * (NAME_WIDTH + 8)}-> {answer.way_out}")
