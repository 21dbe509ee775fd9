"""`lowtide state`: the state of keys of a running job, as of min time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import table, time_of
from lowtide.cli.running_jobs import control_of
from lowtide.conf import Conf
from lowtide.status.control_client import MOST_KEYS
from lowtide.status.key_state import KeyState, states_around, states_of
from lowtide.wording import count_of


@click.command()
@click.argument("job")
@click.argument("step")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--unit", type=click.IntRange(min=0), metavar="NUMBER", help="Show the keys of this hash unit.")
@click.option("--all", "around", is_flag=True, help="Show the first keys, of any hash unit.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_KEYS), default=100, show_default=True, help="Of how many keys at most."
)
@with_conf
@as_json
def state(
    *, conf: Conf, job: str, step: str, keys: tuple[str, ...], unit: int | None, around: bool, limit: int, as_json: bool
) -> None:
    """Show the state that STEP of the running JOB keeps of each KEY, as of min time.

    A KEY is the value of the step's key, `COLUMN=VALUE,COLUMN=VALUE`, or a JSON object. Without one, show the state of
    a broadcast. The job goes on meanwhile.
    """
    if keys and (around or unit is not None):
        raise click.UsageError("give keys, or --unit or --all")
    client, more = control_of(conf, job), False
    if around or unit is not None:
        found, more = states_around(client, step, unit, limit)
    else:
        found = states_of(client, step, [key_of(text) for text in keys] or [{}])
    if as_json:
        click.echo(json.dumps([_plain(each) for each in found], indent=2))
        return
    click.echo(_shown(found) if found else "no key has a state")
    if more:
        click.echo(f"\nand more than these {count_of(len(found), 'key')}: see --limit, or name a key")


def key_of(text: str) -> str | dict[str, Any]:
    """Return a key as it is written on a command line."""
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise click.BadParameter(f"{text} is no JSON object: {error}") from error
        return {str(name): value for name, value in found.items()}
    if "=" not in text:
        return text
    columns: list[str] = []
    for piece in text.split(","):
        if "=" in piece or not columns:
            columns.append(piece)
        else:
            columns[-1] += f",{piece}"
    return {name: value for name, _, value in (column.partition("=") for column in columns)}


def _shown(found: Sequence[KeyState]) -> str:
    lines = []
    for each in found:
        key = ", ".join(f"{name}={value}" for name, value in each.key.items()) or "-"
        moment = time_of(int(each.min_time.timestamp() * 1000))
        lines += [(key, _text(row), moment) for row in each.rows or [{}]]
    return table(("key", "state", "as of (UTC)"), lines)


def _text(row: dict[str, Any]) -> str:
    """Return a row without its key; of most steps that is one column."""
    rest = {name: value for name, value in row.items() if name != "key"}
    return json.dumps(rest["state"] if rest.keys() == {"state"} else rest) if rest else "none"


def _plain(found: KeyState) -> dict[str, Any]:
    return {"key": found.key, "min_time_ms": round(found.min_time.timestamp() * 1000), "rows": found.rows}
