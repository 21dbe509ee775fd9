"""Story of operations without hands: Airflow submits, snapshots and recovers the job, and every byte is compared."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from demo.comparing import compare_job
from demo.corpus import read_corpus
from demo.feeding import Feeder
from demo.reading import Reader, caught_up
from demo.showing import Show
from embedded_airflow import DagRun
from inverted_index import flow

from airflow_demo.killing import kill_driver
from airflow_demo.scene import FOLDER, PARTITIONS, Scene
from lowtide.jobs.figures import ask_view, headline
from lowtide.local.oracle import Verdict

SNAPSHOT_EVERY = "20 seconds"
SNAPSHOTS_WANTED = 2
FEED_S = 120.0
GATE_SHARE = 0.75
"""Share to send first; the last quarter is sent when the recovered job has caught up."""
SUBMIT_LIMIT_S = 120.0
SNAPSHOTS_LIMIT_S = 120.0
RECOVER_LIMIT_S = 120.0
ARRIVE_LIMIT_S = 90.0
REST_LIMIT_S = 40.0
"""Limit on a run that is under way when no new ones begin."""
LINGER_S = 1.0
"""Time to wait after the last awaited change: a surplus one may still come."""
LOOK_EVERY_S = 0.5

MEANING = """
detect_s is from the kill to the recover DAG's run, recover_s to the first delivered change of a document that was sent
when all of the job's processes had gone. Airflow's logs and the job's are in {folder} until the next time."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery from the kill: seconds until Airflow's run, and until output of documents sent after the kill."""

    detect_s: float
    recover_s: float


class Story:
    """One run of the story; the scene exists and ends with it."""

    def __init__(self, scene: Scene, show: Show) -> None:
        self._scene = scene
        self._show = show
        given = os.environ.get("DOCUMENTS")
        corpus = read_corpus(Path(given).expanduser() if given else None, PARTITIONS)
        show.step(corpus.said)
        self._due = corpus.changes()
        kafka = scene.services.kafka
        self._feeder = Feeder(kafka, "documents", corpus.texts, PARTITIONS, seconds=FEED_S, gate_share=GATE_SHARE)
        self._reader = Reader(kafka, "index", PARTITIONS)
        self._doing = ""

    def run(self) -> dict[str, object]:
        """Tell it; return the content of the last line."""
        try:
            self._reader.start()
            self._submit()
            self._feeder.start()
            self._snapshots()
            recovery = self._recovery()
            self._end_of_load()
            said = self._runs()
        finally:
            self._feeder.end()
            self._reader.end()
            self._scene.end_airflow()
            self._scene.job.stop()
        verdict = self._compare()
        counts = {"lost": verdict.lost, "duplicated": verdict.duplicated, "out_of_order": verdict.out_of_order}
        times = {"detect_s": round(recovery.detect_s, 1), "recover_s": round(recovery.recover_s, 1)}
        return {**said, **times, **counts}

    # -- its parts ---------------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        scene, dag = self._scene, self._scene.dag("submit")
        self._show.step(f"the DAG {dag} is to start the job")
        scene.watch_for_deaths()
        scene.api.unpause(dag)
        run = scene.api.trigger(dag)
        self._watch("submitting", lambda: scene.api.run(dag, run.id).over, SUBMIT_LIMIT_S)
        run = scene.api.wait(dag, run.id, REST_LIMIT_S)
        self._show.step(f"the job runs, {_lasted(run):.1f} s after the DAG was asked; the DAG has ended")

    def _snapshots(self) -> None:
        scene, dag = self._scene, self._scene.dag("snapshot")
        self._show.step(f"two producers send {self._feeder.total:,} documents; {dag} is due every {SNAPSHOT_EVERY}")
        scene.api.unpause(dag)
        self._watch("waiting for snapshots", lambda: self._commits() >= SNAPSHOTS_WANTED, SNAPSHOTS_LIMIT_S)
        self._must(self._commits() >= SNAPSHOTS_WANTED, f"{SNAPSHOTS_WANTED} snapshots were not committed in time")
        self._show.step(f"{self._commits()} snapshots are committed")

    def _recovery(self) -> Recovery:
        scene, dag = self._scene, self._scene.dag("recover")
        before = {run.id for run in scene.api.runs(dag)}
        pid, killed_ms = kill_driver(scene.folder)
        dead_ms = time.time() * 1e3
        self._show.step(f"driver {pid} is dead, and so are its supervisor and Spark; the producers do not know")

        def noticed() -> list[DagRun]:
            return [run for run in scene.api.runs(dag) if run.id not in before]

        self._watch("waiting for Airflow to notice", lambda: bool(noticed()), RECOVER_LIMIT_S)
        self._must(bool(noticed()), f"Airflow began no run of {dag}")
        run = noticed()[0]
        assert run.queued is not None
        detect_s = run.queued.timestamp() - killed_ms / 1e3
        self._show.step(f"Airflow has noticed: run {run.id}, {detect_s:.1f} s after the kill")
        self._watch("recovering", lambda: self._first_after(dead_ms) is not None, RECOVER_LIMIT_S)
        first_ms = self._first_after(dead_ms)
        if first_ms is None:
            raise SystemExit(f"airflow-demo: no output came again\n{self._tasks(run)}\n{scene.job.log()}")
        recover_s = (first_ms - killed_ms) / 1e3
        self._show.step(f"output flows again, {recover_s:.1f} s after the kill")
        self._watch("catching up", lambda: self._caught_up(dead_ms), RECOVER_LIMIT_S)
        self._watch("the DAG looks on", lambda: scene.api.run(dag, run.id).over, RECOVER_LIMIT_S)
        run = scene.api.wait(dag, run.id, REST_LIMIT_S)
        self._show.step(f"run {run.id} is a success, after {_lasted(run):.1f} s")
        self._show.say(self._tasks(run))
        return Recovery(detect_s, recover_s)

    def _end_of_load(self) -> None:
        self._show.step("the last documents are sent")
        self._feeder.open_gate()

        def arrived() -> bool:
            return self._feeder.done and len(self._reader) >= self._due

        self._watch("the last documents", arrived, FEED_S + ARRIVE_LIMIT_S)
        self._watch("looking for one change too many", lambda: False, LINGER_S)
        api = self._scene.api
        dags = [self._scene.dag(purpose) for purpose in ("snapshot", "recover")]
        self._watch("the last runs end", lambda: all(map(api.pause_between_runs, dags)), REST_LIMIT_S)

    def _runs(self) -> dict[str, object]:
        """Count the runs, the committed snapshots and the recoveries that succeeded."""
        # A run that was due when its DAG was paused has not begun.
        runs = [run for run in self._scene.api.runs() if run.state != "queued"]
        for run in runs:
            if run.state == "failed":
                self._show.say(f"run {run.id} of {run.dag} is {run.state}\n{self._tasks(run)}")
        with self._scene.client() as job:
            lives = len(job.lives())
        self._must(lives == 2, f"the job had {lives} lives and not 2")
        return {
            "dag_runs": len(runs),
            "snapshots": self._done(runs, "snapshot", "commit"),
            "recoveries": self._done(runs, "recover", "recover"),
        }

    def _done(self, runs: Sequence[DagRun], purpose: str, task: str) -> int:
        """Count a DAG's runs in which a task succeeded; a task with nothing to do is skipped."""
        ours = [run for run in runs if run.dag == self._scene.dag(purpose)]
        return sum(
            each.state == "success"
            for run in ours
            for each in self._scene.api.tasks(run.dag, run.id)
            if each.id == task
        )

    def _compare(self) -> Verdict:
        self._show.step("the same log through run_locally's interpreter, one record after the other")
        verdict, _ = compare_job(flow, self._scene.conf, "index")
        self._show.say(f"{verdict}\n{MEANING.format(folder=FOLDER)}")
        return verdict

    # -- what they look at -------------------------------------------------------------------------------------------

    def _commits(self) -> int:
        with self._scene.client() as job:
            return len(job.commits())

    def _first_after(self, dead_ms: float) -> float | None:
        """Return when the first change of a document sent after the driver's death came, in ms; None before that.

        Documents sent just before may have been delivered by workers that had not noticed the death yet.
        """
        stamps, times = self._reader.seen()
        found = np.flatnonzero(stamps > dead_ms)
        return float(times[found[0]]) if len(found) else None

    def _caught_up(self, dead_ms: float) -> bool:
        """Return whether a young change has come again, or the output of everything sent is there."""
        all_there = len(self._reader) >= self._feeder.changes
        return all_there or caught_up(*self._reader.seen(), dead_ms) is not None

    def _watch(self, doing: str, done: Callable[[], bool], limit_s: float) -> None:
        """Show progress until it is done, or until the time is over."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not done():
            state = self._scene.folder.state()
            view = ask_view(self._scene.folder, state) if state is not None and not state.seen().ended else None
            status = headline(view) if view is not None else "no job runs"
            self._show.progress(
                f"{doing}: {self._feeder.sent:,} of {self._feeder.total:,} documents sent, "
                f"{len(self._reader):,} of {self._due:,} changes delivered; {status}"
            )
            time.sleep(LOOK_EVERY_S)
        self._show.hide()

    def _must(self, so: bool, otherwise: str) -> None:
        if not so:
            where = f"Airflow's logs: {self._scene.airflow.home.logs}"
            raise SystemExit(f"airflow-demo: {otherwise}\n{self._scene.job.log()}\n{where}")

    def _tasks(self, run: DagRun) -> str:
        """Return the course of a run's tasks, in seconds since the run was requested."""
        lines = []
        for task in sorted(self._scene.api.tasks(run.dag, run.id), key=lambda task: (task.began is None, task.began)):
            times = [
                f"{at.timestamp() - run.queued.timestamp():5.1f}" if at and run.queued else "    -"
                for at in (task.began, task.ended)
            ]
            lines.append(f"  {task.id:24} {task.state or 'not due':12} from {times[0]} s to {times[1]} s")
        return "\n".join(lines)


def _lasted(run: DagRun) -> float:
    assert run.queued is not None
    assert run.ended is not None
    return (run.ended - run.queued).total_seconds()


def tell(show: Show) -> int:
    """Play the whole story; return the exit status."""
    with Scene(show, snapshot=SNAPSHOT_EVERY, hour_complete=False) as scene:
        said = Story(scene, show).run()
    show.say(json.dumps(said))
    right = said["recoveries"] == 1 and not (said["lost"] or said["duplicated"] or said["out_of_order"])
    return 0 if right else 1
