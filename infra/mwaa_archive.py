"""Files for Amazon MWAA: `make mwaa-archive` makes and tries them, in `build/aws/airflow`.

They belong into `software/airflow/` of the bucket. MWAA installs without the internet: `plugins.zip` holds wheels,
`requirements.txt` has pip look there and nowhere else, `startup.sh` names the jobs file, and `dags/` has the DAG files.
Only what MWAA's images lack is packed, so that nothing of their own changes. It is tried with the packages of each
image in infra/mwaa.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import click
from software import wheels
from terraform_tools import ROOT, python_tool, run

OUTPUT = ROOT / "build/aws/airflow"
IMAGES = ROOT / "infra/mwaa"
PLUGINS = "/usr/local/airflow/plugins"
"""Where MWAA unpacks plugins.zip."""
DISTRIBUTION = "lowtide-airflow"
STARTUP = """\
export LOWTIDE_AIRFLOW_CONF=/usr/local/airflow/dags/airflow.toml
"""
"""MWAA takes over what its startup script exports; it has no folder for the jobs file but that of the DAG files."""
REQUIREMENTS = f"""\
# Instead of MWAA's own --constraint file, which would have to have Lowtide's packages.
--no-index
--find-links {PLUGINS}
{DISTRIBUTION}
"""
TRIED = """
from airflow.providers_manager import ProvidersManager
from lowtide_airflow import decorators, notifications, operators, sensors, triggers
assert ProvidersManager().hooks["lowtide"] is not None
"""


class NotInstalled(click.ClickException):
    """The archive does not fit beside the packages of an image."""


@click.command(help=__doc__)
@click.option("--python", default="3.12", show_default=True, help="MWAA's Python: its version, or the path of one.")
def main(python: str) -> None:
    """Make the files, and try them with each image.

    Raises:
        NotInstalled: a package of an image would be replaced.
    """
    wheels()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=OUTPUT) as folder:
        packed = Path(folder, "packed")
        packed.mkdir()
        images = {file.stem: image(file, python, Path(folder, file.stem)) for file in sorted(IMAGES.glob("*.txt"))}
        for interpreter in images.values():
            pack(interpreter, packed)
        with zipfile.ZipFile(OUTPUT / "plugins.zip", "w") as archive:
            for wheel in sorted(packed.iterdir()):
                archive.write(wheel, wheel.name)
        (OUTPUT / "requirements.txt").write_text(REQUIREMENTS)
        (OUTPUT / "startup.sh").write_text(STARTUP)
        for version, interpreter in images.items():
            try_out(interpreter, Path(folder, f"plugins-{version}"))
            click.echo(f"tried out with the packages of MWAA's image of Airflow {version}")
        run(interpreter, "-m", "lowtide_airflow", "install-dags", OUTPUT / "dags")
    click.echo(
        f"{(OUTPUT / 'plugins.zip').relative_to(ROOT)}: {(OUTPUT / 'plugins.zip').stat().st_size / 2**20:.0f} MiB"
    )


def image(packages: Path, python: str, folder: Path) -> Path:
    """Make an environment with the packages of an image; return its interpreter."""
    python_tool("venv", "--seed", "--python", python, folder)
    interpreter = folder / "bin/python"
    python_tool("pip", "install", "--no-deps", "--python", interpreter, "-r", packages)
    return interpreter


def pack(interpreter: Path, folder: Path) -> None:
    """Put the wheels into a folder that an image lacks: Lowtide's, and what they need that it does not have."""
    found = ("--find-links", ROOT / "dist", "--only-binary", ":all:")
    there = installed(interpreter)
    tested = [
        line for line in (ROOT / "dist/constraints.txt").read_text().splitlines() if line.split("==")[0] not in there
    ]
    constraints = interpreter.parents[1] / "constraints.txt"
    constraints.write_text("\n".join(tested))
    report = interpreter.parents[1] / "report.json"
    pip(interpreter, "install", *found, "-c", constraints, "--dry-run", "--report", report, DISTRIBUTION)
    missing = [
        f"{each['metadata']['name']}=={each['metadata']['version']}"
        for each in json.loads(report.read_text())["install"]
    ]
    pip(interpreter, "download", *found, "--no-deps", "--dest", folder, *missing)


def try_out(interpreter: Path, folder: Path) -> None:
    """Install what was packed as MWAA does, and have Airflow load the provider.

    Raises:
        NotInstalled: a package of the image was replaced.
    """
    with zipfile.ZipFile(OUTPUT / "plugins.zip") as archive:
        archive.extractall(folder)
    requirements = folder / "requirements.txt"
    requirements.write_text((OUTPUT / "requirements.txt").read_text().replace(PLUGINS, str(folder)))
    before = installed(interpreter)
    pip(interpreter, "install", "-r", requirements)
    replaced = sorted(name for name, version in installed(interpreter).items() if before.get(name, version) != version)
    if replaced:
        raise NotInstalled(f"packages of MWAA's image would be replaced: {', '.join(replaced)}")
    known = {**os.environ, "AIRFLOW_HOME": str(folder / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    run(interpreter, "-c", TRIED, environment=known)


def installed(interpreter: Path) -> dict[str, str]:
    """Return the version of each package of an environment, by name."""
    listed = json.loads(pip(interpreter, "list", "--format", "json"))
    return {each["name"].lower().replace("_", "-"): each["version"] for each in listed}


def pip(interpreter: Path, *arguments: object) -> str:
    """Call an environment's pip, as MWAA does; return its output."""
    return run(interpreter, "-m", "pip", "--disable-pip-version-check", *arguments)


if __name__ == "__main__":
    main()
