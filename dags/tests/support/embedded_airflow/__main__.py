"""Runs an Airflow in a folder until Ctrl-C or SIGTERM: ``python -m embedded_airflow --help``."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from embedded_airflow.airflow import EmbeddedAirflow
from embedded_airflow.errors import EmbeddedError
from embedded_airflow.home import ROLES, Settings

LOOK_EVERY_S = 1.0


def main() -> int:
    """Run it; returns the exit status: 0 after Ctrl-C, 4 if Airflow does not start or one of its processes ends."""
    parser = argparse.ArgumentParser(prog="python -m embedded_airflow", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="its folder: configuration, passwords, database, logs")
    parser.add_argument("--dags", type=Path, required=True, help="the folder of the DAG files")
    parser.add_argument("--port", type=int, default=0, help="the port of its pages (a free one)")
    parser.add_argument("--workers", type=int, default=2, help="how many tasks run at once (2)")
    parser.add_argument("--unpaused", action="store_true", help="do not pause new DAGs")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    settings = Settings(dags=given.dags, workers=given.workers, paused=not given.unpaused)
    try:
        with EmbeddedAirflow(given.home, settings, port=given.port, say=_say) as airflow:
            _say(f"Airflow is at {airflow.url}")
            _say(f"passwords of {', '.join(ROLES)}: {airflow.home.passwords_file}; logs: {airflow.home.logs}")
            _say("Ctrl-C stops it")
            while not (ended := airflow.ended()):
                time.sleep(LOOK_EVERY_S)
            _say(f"error: Airflow's {ended[0].name} has ended; its log: {ended[0].log}")
            return EmbeddedError.exit_code
    except EmbeddedError as error:
        _say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return 0


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
