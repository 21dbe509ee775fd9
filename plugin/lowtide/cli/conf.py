"""`lowtide conf`: the files of conf/, which every wheel has."""

from __future__ import annotations

from pathlib import Path

import click

FILES = {
    "embedded": "embedded.toml",
    "cluster": "cluster.toml",
    "airflow": "airflow.toml",
    "alerts": "alerts.yml",
    "grafana": "grafana.json",
}
TEMPLATES = Path(__file__).parents[1] / "templates"


@click.command()
@click.argument("name", type=click.Choice(tuple(FILES)), default="embedded")
def conf(name: str) -> None:
    """Print a file to begin with: `lowtide conf cluster > lowtide.toml`.

    embedded: every key with its default, for everything on this machine; cluster: a pattern for a cluster;
    airflow: the jobs file of Airflow; alerts: rules for Prometheus; grafana: a board for Grafana, to be imported.
    """
    click.echo((TEMPLATES / FILES[name]).read_text(encoding="utf-8"), nl=False)
