"""Runs Airflow beside Kafka, ZooKeeper and a folder for snapshots, with the demo's job under it.

    make airflow         # until Ctrl-C, to look at
    make airflow-demo    # a story without hands: submitted, snapshotted, killed, recovered, every byte compared

Everything that was started ends with it; logs stay in .lowtide/airflow until the next time. The story's last line is
one JSON object, and its exit status is 0 only if nothing was lost, doubled or out of order, with one recovery.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType

from demo.showing import Show

from airflow_demo.scene import ROOT
from airflow_demo.staying import stay
from airflow_demo.story import tell
from lowtide.errors import LowtideError


def main() -> int:
    parser = argparse.ArgumentParser(prog="airflow_demo", description=__doc__)
    parser.add_argument("--story", action="store_true", help="the story without hands")
    given = parser.parse_args()
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, _interrupt)
    show = Show()
    try:
        return tell(show) if given.story else stay(show)
    except LowtideError as error:
        show.say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return 130 if given.story else 0
    finally:
        show.hide()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
