"""A program that runs DAGs without a scheduler: ``python -m tests.dag_runs.dag_program``, with its environment set.

It makes Airflow's database, then answers lines: {"dag": id, "conf": {...}, "at": ISO, "mark": pattern} runs a DAG with
`dag.test()`, whose tasks named by the pattern are marked successful instead of being run, and says {"state", "tasks",
"results"}. A run that is asked for with the same `at` again is the same run, tried again. The last line it says is the
answer; what Airflow logs goes to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.waiting import HANGS_S

ROOT = Path(__file__).parents[2]
ANSWER_WITHIN_S = 300.0
READY_WITHIN_S = 120.0


@dataclass(frozen=True)
class Done:
    """A DAG run: its state, those of its tasks, and what they returned, by task."""

    state: str
    tasks: dict[str, str]
    results: dict[str, Any]


class DagProgram:
    """The program below, running, with the DAG files of a folder."""

    def __init__(self, home: Path, environment: Mapping[str, str], dags: Path = ROOT / "dags") -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = home / f"program-{len(list(home.glob('program-*')))}.log"
        airflow = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'dags/tests/support'}",
        }
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.dag_runs.dag_program"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=home,
                env={**os.environ, **airflow, **environment},
            )  # fmt: skip
        self._rest = b""
        assert self._hear(READY_WITHIN_S) == {"ready": True}

    def run(self, dag: str, conf: Mapping[str, Any] | None = None, *, at: str = "", mark: str = "") -> Done:
        """Run a DAG to its end."""
        self.begin(dag, conf, at=at, mark=mark)
        return Done(**self._hear(ANSWER_WITHIN_S))

    def begin(self, dag: str, conf: Mapping[str, Any] | None = None, *, at: str = "", mark: str = "") -> None:
        """Begin to run a DAG."""
        assert self.process.stdin is not None
        asked = {"dag": dag, "conf": dict(conf or {}), "at": at, "mark": mark}
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL to the process that runs the tasks, and to no other."""
        self.process.kill()
        self.process.wait(HANGS_S)

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def log(self, last: int = 8_000) -> str:
        return self._log.read_text(errors="replace")[-last:]

    def _hear(self, within_s: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([descriptor], [], [], within_s)
            some = os.read(descriptor, 1 << 16) if ready else b""
            assert some, f"nothing was said within {within_s:g} s, or the program has ended\n{self.log()}"
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said


def results_of(dag: str, run: str) -> dict[str, Any]:
    """Results of the tasks of a DAG run."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select as query

    asked = query(XComModel).where(XComModel.dag_id == dag, XComModel.run_id == run, XComModel.key == "return_value")
    with create_session() as session:
        return {found.task_id: XComModel.deserialize_value(found) for found in session.scalars(asked)}


def activate_assets(dag: Any) -> None:
    """Activate a DAG's assets as a DAG processor does: in Airflow 3.0 a task of `dag.test()` fails without it."""
    from airflow import __version__

    if not __version__.startswith("3.0."):
        return
    from airflow.dag_processing.collection import AssetModelOperation
    from airflow.utils.session import create_session
    from airflow_names import DagSerialization

    stored: Any = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    found = AssetModelOperation.collect({dag.dag_id: stored})
    with create_session() as session:
        models = found.sync_assets(session=session)
        session.flush()
        found.activate_assets_if_possible(models.values(), session=session)


def answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Run a DAG."""
    from airflow_names import DagBag

    dag = DagBag(dag_folder=os.environ["AIRFLOW__CORE__DAGS_FOLDER"]).dags[asked["dag"]]
    activate_assets(dag)
    at: dict[str, Any] = {}
    if asked["at"]:
        at = {"run_after": (when := datetime.fromisoformat(asked["at"])), "logical_date": when}
    run = dag.test(run_conf=dict(asked["conf"]), mark_success_pattern=asked["mark"] or None, **at)
    tasks = {task.task_id: str(task.state) for task in run.get_task_instances()}
    return {"state": str(run.state), "tasks": tasks, "results": results_of(dag.dag_id, run.run_id)}


def main() -> None:
    """Answer until nobody asks any more."""
    # Tasks and Airflow write to standard output too: only answers go where the other end listens.
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from airflow.utils.db import initdb

    initdb()
    said.write(json.dumps({"ready": True}) + "\n")
    said.flush()
    for line in sys.stdin:
        said.write(json.dumps(answer(json.loads(line))) + "\n")
        said.flush()


if __name__ == "__main__":
    main()
