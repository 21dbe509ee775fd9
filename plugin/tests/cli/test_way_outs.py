"""Every way out in the code: the commands, options and keys of the configuration that it names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from lowtide.cli.main import LazyCommands
from lowtide.conf import Conf
from lowtide.conf.conf import NAMED

ROOT = Path(__file__).parents[3]
FOLDERS = ("plugin/lowtide", "snapshots/lowtide_snapshots", "tracker/lowtide_tracker", "dags/lowtide_airflow")
ADVICE = ("plugin/lowtide/status/advice.py", "plugin/lowtide/status/troubles.py")
"""Files that say what to do in many texts."""
GAP = "\0"
"""Stands for what is filled in."""
OTHERS_OPTIONS = {"--jars", "--packages", "--py-files", "--archives", "--conf", "--master", "--force-reinstall"}
"""Of spark-submit and pip."""
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
"""Of the Makefile, which only a clone has."""
NO_KEYS = {"spark.plugins", "job.spark"}
"""Of Spark, and of Airflow's."""
NO_COMMANDS = {"here", "with"}
"""The words after the name of the package, "install lowtide here"."""


def texts(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may give, as far as they stand there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from (left + right for left in texts(node.left) for right in texts(node.right))
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from texts(value)


def way_outs() -> list[tuple[str, str]]:
    """The place of each, and its text."""
    found = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                targets = node.targets if isinstance(node, ast.Assign) else []
                names = [target.id.lower() for target in targets if isinstance(target, ast.Name)]
                if not (isinstance(node, ast.keyword) and node.arg == "way_out") and "way_out" not in names:
                    continue
                assert isinstance(node, ast.keyword | ast.Assign)
                said = texts(node.value)
                found += [(f"{file.relative_to(ROOT)}:{node.lineno}", text) for text in said]
    for name in ADVICE:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append((f"{name}:{node.lineno}", node.value))
    return found


def commands() -> dict[str, click.Command]:
    """All commands by what is written after `lowtide`, those of other distributions among them."""
    found: dict[str, click.Command] = {}
    group, context = LazyCommands(), click.Context(click.Command("lowtide"))
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {each}": inner for each, inner in command.commands.items()}
    return found


def wrong_in(text: str) -> list[str]:
    """Names in a way out that do not exist."""
    known = commands()
    options = {option for each in known.values() for parameter in each.params for option in parameter.opts}
    options |= {option for each in known.values() for parameter in each.params for option in parameter.secondary_opts}
    tables = {
        table.name: {key.name for key in fields(getattr(Conf(), table.name))}
        for table in fields(Conf)
        if table.name not in NAMED
    }
    tables |= {name: {"default"} for name in NAMED}  # Their keys are tables, named by users.
    wrong = []
    for name, inner in re.findall(r"(?<![\w/.-])lowtide (?!and |or )([a-z-]+)(?: ([a-z-]+))?", text):
        if name in NO_COMMANDS:
            continue
        if name not in known or (isinstance(known[name], click.Group) and inner and f"{name} {inner}" not in known):
            wrong.append(f"lowtide {name} {inner}".strip())
    wrong += [each for each in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text) if each not in options | OTHERS_OPTIONS]
    for table, key in re.findall(r"(?<![\w./])([a-z]+)\.([a-z_]+)\b(?![\w(/.])", text):
        if table in tables and key not in tables[table] and f"{table}.{key}" not in NO_KEYS:
            wrong.append(f"{table}.{key}")
    wrong += [
        f"make {target}"
        for before, target in re.findall(r"(in a clone: )?\bmake ([a-z-]+)\b", text)
        if (target in TARGETS) != bool(before)
    ]
    wrong += [
        f"[{table}]"
        for table in re.findall(r"(?<!lowtide)(?<!-snapshots)\[([a-z]+)\](?!\()", text)
        if table not in tables
    ]
    wrong += [
        f"[{table}].{key}"
        for table, key in re.findall(r"\[([a-z]+)\]\.([a-z_]+)", text)
        if key not in tables.get(table, {key})
    ]
    return wrong


def test_every_way_out_names_what_there_is() -> None:
    found = way_outs()
    assert len(found) > 150, "this no longer finds the way-outs"
    wrong = [f"{place}: {', '.join(names)}" for place, text in found if (names := wrong_in(text))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("lowtide snapshots drop x --dry-run", []),
        ("lowtide snapshots close x", ["lowtide snapshots close"]),
        ("lowtide close-front 3", ["lowtide close-front"]),
        ("set --set job.parallelism=2, or [job].lanes", []),
        ("raise tracking.table or job.table_capacity_ticks", ["job.table_capacity_ticks"]),
        ("see [trackers]", ["[trackers]"]),
        ("lowtide airflow install-dags --replace", []),
        ("lowtide airflow install-flows", ["lowtide airflow install-flows"]),
        ("give [job].paralelism", ["[job].paralelism"]),
        ("use --no-such", ["--no-such"]),
        ("build it: python -m lowtide.jars.build (in a clone: make jar)", []),
        ("make the record smaller", []),
        ("build it: make jar", ["make jar"]),
        ("build it (in a clone: make jam)", ["make jam"]),
    ],
)
def test_what_does_not_exist_is_found(text: str, wrong: list[str]) -> None:
    assert wrong_in(text) == wrong
