"""`lowtide check`: faults of a flow, found without Spark and without services."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.conf import Conf
from lowtide.driver.state import explain_state
from lowtide.errors import FlowError
from lowtide.flow.parameters import unasked
from lowtide.flow.plan.check import advice, check_flow, load_flow, render
from lowtide.flow.plan.compiler import compile_flow, compile_job
from lowtide.flow.plan.explain import explain as explain_plan
from lowtide.flow.types.findings import Finding
from lowtide.local.trial import try_flow
from lowtide.process.pandas_later import leave_pandas_for_later


@click.command()
@click.argument("flow")
@click.option("--explain", is_flag=True, help="Show what runs where.")
@click.option("--calls/--no-calls", default=True, help="Call the functions; by default they are called.")
@click.option("--samples", multiple=True, metavar="SOURCE=FILE", help="Call them with messages of FILE, one per line.")
@with_conf
@as_json
def check(*, conf: Conf, flow: str, explain: bool, calls: bool, samples: tuple[str, ...], as_json: bool) -> int:
    """Check FLOW (flow.py, or flow.py:name) for faults without starting it; exits with 3 if there are any.

    Its functions are called twice under each of two hash seeds, with some records made from the schemas of the sources,
    or with messages of your own: one that does not give the same each time is named. Samples that cannot be read, and
    steps that fail with all of them, are faults too; a sample that a step fails with is noted.
    """
    given = dict(_pair(each) for each in samples)
    leave_pandas_for_later()
    loaded = load_flow(flow)
    findings = check_flow(loaded)
    tried = None
    if calls and not findings:
        tried = try_flow(loaded, flow, given)
        findings = tried.findings
    notes = [Finding(None, loaded.name, each) for each in unasked(loaded.parameters)]
    notes += tried.notes if tried else []
    notes += [] if findings else advice(compile_flow(loaded, parallelism=1))
    plan = compile_job(loaded, conf) if explain and not findings else None
    where = explain_state(plan, conf) if plan else ""
    if as_json:
        said = {
            "flow": loaded.name,
            "called": tried is not None,
            "sound": not findings,
            "findings": _listed(findings),
            "notes": _listed(notes),
            "failing": [{"step": step.step, "error": step.error} for step in tried.failing] if tried else [],
        }
        click.echo(json.dumps(said | ({"plan": explain_plan(plan), "state": where} if plan else {}), indent=2))
    else:
        click.echo(render(loaded, findings))
        for note in notes:
            click.echo(f"note: {note}")
        for step in tried.failing if tried else ():
            click.echo(f'"{step.step}" failed with every sample record: {step.error}')
            click.echo("  pass your own records: --samples SOURCE=FILE")
        if plan:
            click.echo(f"\n{explain_plan(plan)}")
            if where:
                click.echo(f"\n{where}")
    return FlowError.exit_code if findings else 0


def _listed(findings: Sequence[Finding]) -> list[dict[str, str | None]]:
    return [
        {"site": str(finding.site) if finding.site else None, "step": finding.step, "message": finding.message}
        for finding in findings
    ]


def _pair(text: str) -> tuple[str, Path]:
    """A source's name and a file."""
    name, equals, file = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not SOURCE=FILE", param_hint="--samples")
    return name, Path(file)
