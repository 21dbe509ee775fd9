"""`lowtide doctor`: is everything there that a flow needs?"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide.doctor import CHECKS, Answer, Surroundings, Verdict, ask
from lowtide.errors import ServiceUnavailable
from lowtide.flow.check import load_flow

COLOURS: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
NAME_WIDTH = max(len(check.name) for check in CHECKS)


@click.command()
@click.argument("flow", required=False)
@click.option("--probe", is_flag=True, help="Make a scratch topic to compare the clocks, and delete it again.")
@with_conf
@as_json
def doctor(conf: Conf, flow: str | None, probe: bool, as_json: bool) -> int:
    """Look whether everything is there that a flow needs; with FLOW (flow.py), that this one needs.

    Ends with 4 if a check fails.
    """
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


def _say(name: str, answer: Answer) -> None:
    verdict = click.style(answer.verdict.ljust(4), COLOURS[answer.verdict])
    click.echo(f"{verdict}  {name.ljust(NAME_WIDTH)}  {answer.found}")
    if answer.way_out:
        click.echo(f"{' ' * (NAME_WIDTH + 8)}-> {answer.way_out}")
