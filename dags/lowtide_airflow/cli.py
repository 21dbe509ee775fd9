"""`lowtide airflow`, or `python -m lowtide_airflow` where there is no Lowtide: writes the files that Airflow reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from lowtide_airflow.errors import FileNotWritten
from lowtide_airflow.jobs_file import DEFAULT, VARIABLE

_INSTALLED = Path(__file__).with_name("dag_files")
_CLONE = Path(__file__).parents[1]


@click.group()
def airflow() -> None:
    """Write the files that Airflow reads: DAG files, jobs file."""


@airflow.command("install-dags")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace those that differ, as after an upgrade.")
def install_dags(folder: Path, replace: bool) -> None:
    """Write the DAG files into FOLDER, one of those in which Airflow looks for DAGs."""
    _write({folder / file.name: file.read_bytes() for file in dag_files()}, replace)
    click.echo(f"next: a jobs file, {folder.absolute().parent / DEFAULT} or the one that {VARIABLE} names")


@airflow.command("jobs-file")
@click.argument("file", type=click.Path(path_type=Path))
def jobs_file(file: Path) -> None:
    """Write FILE, a jobs file to begin with: every key with its meaning, as comments."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _CLONE / "conf"
    _write({file: (folder / "airflow.toml").read_bytes()}, replace=False)


def dag_files() -> list[Path]:
    """Return the DAG files: in a wheel inside the package, in a clone next to it."""
    return sorted((_INSTALLED if _INSTALLED.is_dir() else _CLONE).glob("lowtide_*.py"))


def _write(contents: Mapping[Path, bytes], replace: bool) -> None:
    """Write all of the files, or none where one would be lost.

    Raises:
        FileNotWritten: a file is there with another content, or the folder cannot be written.
    """
    try:
        there = {path: path.read_bytes() for path in contents if path.exists()}
        fresh = {path: content for path, content in contents.items() if there.get(path) != content}
        lost = [path.name for path in fresh if path in there]
        if lost and not replace:
            raise FileNotWritten(
                f"these files would be overwritten: {', '.join(lost)}",
                where=str(next(iter(contents)).absolute().parent),
                way_out="name another folder, or move them away; for DAG files of an older version: --replace",
            )
        for path, content in fresh.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Airflow may be reading: it finds the old file or the new one. It takes no file of this ending for a DAG's.
            draft = path.with_suffix(".new")
            draft.write_bytes(content)
            draft.replace(path)
            click.echo(f"wrote {path}")
    except OSError as error:
        raise FileNotWritten(str(error), way_out="name a folder that you may write to") from error
    if not fresh:
        click.echo("nothing to write: all files are up to date")
