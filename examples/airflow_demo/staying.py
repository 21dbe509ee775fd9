"""Airflow with the demo's job under it, to try by hand, until Ctrl-C."""

from __future__ import annotations

import os
import time
from pathlib import Path

from demo.corpus import read_corpus
from demo.feeding import Feeder
from demo.showing import Show

from airflow_demo.scene import PARTITIONS, Scene
from lowtide.jobs.figures import ask_view, headline

SNAPSHOT_EVERY = "1 minutes"
FEED_S = 600.0
"""Seconds for sending all documents once; then they are sent again."""
LOOK_EVERY_S = 1.0

WELCOME = """
Airflow:    {url}
passwords:  {passwords}    # admin, op, viewer
logs:       {logs}, the job's in {job}

To see a recovery, kill the driver with its supervisor:
    PYTHONPATH=examples .venv/bin/python -m airflow_demo.killing

Ctrl-C stops everything."""


def stay(show: Show) -> int:
    """Run it until Ctrl-C; return the exit status."""
    given = os.environ.get("DOCUMENTS")
    corpus = read_corpus(Path(given).expanduser() if given else None, PARTITIONS)
    show.step(corpus.said)
    with Scene(show, snapshot=SNAPSHOT_EVERY, hour_complete=True) as scene:
        for dag in scene.api.dags():
            scene.api.unpause(dag.id)
        scene.watch_for_deaths()
        scene.api.trigger(scene.dag("submit"))
        home, folder = scene.airflow.home, scene.folder
        show.say(
            WELCOME.format(
                url=scene.airflow.url,
                passwords=home.passwords_file,
                logs=home.logs,
                job=folder.path,
            )
        )
        while True:
            feeder = Feeder(scene.services.kafka, "documents", corpus.texts, PARTITIONS, seconds=FEED_S, gate_share=1.0)
            try:
                feeder.start()
                _watch(scene, feeder, show)
            finally:
                feeder.end()
            if ended := scene.airflow.ended():
                show.say(f"error: Airflow's {ended[0].name} has ended; its log: {ended[0].log}")
                return 4


def _watch(scene: Scene, feeder: Feeder, show: Show) -> None:
    """Show progress until all documents are sent, or Airflow has ended."""
    while not feeder.done and not scene.airflow.ended():
        state = scene.folder.state()
        view = ask_view(scene.folder, state) if state is not None and not state.seen().ended else None
        status = headline(view) if view is not None else "the job does not run"
        show.progress(f"{feeder.sent:,} of {feeder.total:,} documents sent; {status}")
        time.sleep(LOOK_EVERY_S)
    show.hide()
