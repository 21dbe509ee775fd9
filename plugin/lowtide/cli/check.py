"""`lowtide check`: faults of a flow, found without Spark and without services."""

from __future__ import annotations

import json

import click

from lowtide.check import check_flow, load_flow, render
from lowtide.cli.options import as_json, with_conf
from lowtide.compiler import compile_job
from lowtide.conf import Conf
from lowtide.errors import FlowError
from lowtide.explain import explain as explain_plan


@click.command()
@click.argument("flow")
@click.option("--explain", is_flag=True, help="Show what runs where.")
@with_conf
@as_json
def check(conf: Conf, flow: str, explain: bool, as_json: bool) -> int:
    """Look for faults in FLOW (flow.py, or flow.py:name) without running it; ends with 3 if there are any."""
    loaded = load_flow(flow)
    findings = check_flow(loaded)
    plan = None
    if explain and not findings:
        plan = compile_job(loaded, conf)
    if as_json:
        listed = [
            {"site": str(finding.site) if finding.site else None, "step": finding.step, "message": finding.message}
            for finding in findings
        ]
        said = {"flow": loaded.name, "sound": not findings, "findings": listed}
        click.echo(json.dumps(said | ({"plan": explain_plan(plan)} if plan else {}), indent=2))
    else:
        click.echo(render(loaded, findings))
        if plan:
            click.echo(f"\n{explain_plan(plan)}")
    return FlowError.exit_code if findings else 0
