"""`python -m lowtide_airflow`: what `lowtide airflow` does, on machines of Airflow that have no Lowtide."""

import sys

import click

from lowtide_airflow.cli import airflow
from lowtide_snapshots.errors import LowtideError

if __name__ == "__main__":
    try:
        airflow(prog_name="python -m lowtide_airflow")
    except LowtideError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
