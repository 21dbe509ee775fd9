"""Every DAG, run with `dag.test()` on one real job, whose output is compared with the oracle's at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import pytest
from pyarrow import parquet
from tests.dag_runs.dag_program import DagProgram
from tests.judging import committed
from tests.shop import Load
from tests.waiting import HANGS_S, wait_until

from .conftest import LANES

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]

AWAY_S = 30.0
KEEPS_ARGUMENTS = not version("apache-airflow").startswith("3.0.")
"""In Airflow 3.0 `dag.test()` resumes a task without the arguments that it deferred with; a scheduler keeps them."""
BATCH = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

parts, output = sys.argv[1:]
session = SparkSession.builder.getOrCreate()
Path(output).write_text(str(session.read.parquet(parts).count()))
session.stop()
"""
BATCH_DAG = """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG
from lowtide_airflow.operators import TakeSnapshotOperator, VerifySnapshotOperator

with DAG("batch_beside"):
    take = TakeSnapshotOperator(task_id="take", job="{job}")
    batch = SparkSubmitOperator(
        task_id="batch", application="{folder}/batch.py", driver_memory="512m",
        application_args=["{parts}/*/*.parquet", "{folder}/rows"],
    )
    verify = VerifySnapshotOperator(task_id="verify", job="{job}", snapshot=take.output["snapshot"])
    take >> batch >> verify
"""


def order(stage: Stage, first: int, count: int = 300) -> None:
    """Orders, all of which are delivered when this returns."""
    before = committed(stage.shop.conf, stage.shop.sink)
    stage.shop.produce(range(first, first + count))
    wait_until(lambda: committed(stage.shop.conf, stage.shop.sink) >= before + count, HANGS_S, "output")


@contextmanager
def store_away(stage: Stage) -> Iterator[None]:
    """The store's folder is not there for a while."""
    store = Path(stage.services.snapshots_url)
    aside = store.rename(store.with_name("unmounted"))
    back = Timer(AWAY_S, aside.rename, (store,))
    back.start()
    try:
        yield
    finally:
        back.join()


def test_a_job_is_begun_once_for_a_dag_run_and_left_by_another(stage: Stage) -> None:
    at = datetime.now(UTC).isoformat()
    first = stage.program.run(stage.dag("submit"), at=at)
    assert first.state == "success", stage.program.log()
    begun = first.results["run"]
    assert (begun["incarnation"], begun["adopted"], begun["commit"]) == (1, False, None)
    assert begun["submission"].startswith(f"airflow:{stage.dag('submit')}/manual__")
    order(stage, 0)
    again = stage.program.run(stage.dag("submit"), at=at)
    assert again.results["run"] == {**begun, "adopted": True}
    other = stage.program.run(stage.dag("submit"))
    assert other.state == "failed"
    left = stage.run("submit", if_running="leave", no_state=False)
    assert left.results["run"]["incarnation"] == 1
    with stage.client() as job:
        assert len(job.lives()) == 1


def test_a_snapshot_is_taken_verified_committed_and_pruned(stage: Stage) -> None:
    stage.running()
    for number in range(4):
        order(stage, 1_000 * (number + 1))
        done = stage.run("snapshot", name="first" if number == 0 else None, keep=2, if_down="fail")
        assert done.results["verify"]["rows"] > 0
    with stage.client() as job, job.snapshots() as snapshots:
        names = [(each.name, each.phase) for each in snapshots.all()]
        assert names == [("first", "committed"), (None, "committed"), (None, "committed")]
        last = job.last_commit()
        assert last is not None
        assert last.id == done.results["commit"]["snapshot"] == done.results["take"]["snapshot"]
    assert len(done.results["prune"]["dropped"]) == 1


def test_a_job_is_rescaled_and_keeps_its_parallelism(stage: Stage) -> None:
    stage.running()
    refused = stage.program.run(stage.dag("rescale"), {"parallelism": LANES + 1})
    assert (refused.state, refused.tasks["check"], refused.tasks["stop"]) == ("failed", "failed", "upstream_failed")
    with Load(stage.shop, first=10_000, per_s=100):
        stage.run("rescale", parallelism=1)
    with stage.client() as job:

        def levels() -> list[int]:
            """Of the workers that have registered: a life that runs may still wait for them."""
            return [worker["level"] for worker in job.control().status()["workers"]]

        wait_until(lambda: 1 in levels(), HANGS_S, "a worker of level 1")
        assert levels().count(1) == 1
    order(stage, 20_000)
    assert stage.shop.judge.right()


@pytest.mark.nightly
def test_a_job_that_was_killed_is_recovered_from_its_last_good_commit(stage: Stage) -> None:
    dead = stage.running()
    order(stage, 30_000)
    good = stage.run("snapshot").results["commit"]["snapshot"]
    order(stage, 31_000)
    bad = stage.run("snapshot").results["commit"]["snapshot"]
    written = sorted(Path(stage.services.snapshots_url).rglob(f"*-{bad}.parquet"))
    assert written
    written[0].unlink()
    stage.kill()
    stage.shop.produce(range(32_000, 32_300))
    with store_away(stage) if KEEPS_ARGUMENTS else nullcontext():
        done = stage.run("recover").results["recover"]
    if KEEPS_ARGUMENTS:
        assert "trying again in" in stage.program.log(last=1_000_000), "the store was away"
    assert (done["recovered"], done["dead"], done["incarnation"], done["commit"]) == (True, dead, dead + 1, good)
    assert done["delivered_ms"] > done["delivered_at_death_ms"]
    with stage.client() as job:
        levels = [worker["level"] for worker in job.control().status()["workers"]]
        assert levels.count(1) == 1, "the parallelism that it was rescaled to"
    assert stage.shop.judge.right()
    waited = stage.run("recover")
    assert waited.results["recover"]["incarnation"] == dead + 1, "it runs again, so nothing else is begun"
    with stage.client() as job:
        assert job.status().incarnation == dead + 1


def test_where_no_commit_is_good_a_person_is_asked_and_it_begins_without_state(stage: Stage) -> None:
    dead = stage.running()
    for manifest in Path(stage.services.snapshots_url).rglob("manifests/*.json"):
        manifest.unlink()
    stage.kill()
    program = stage.program
    with stage.client() as job:
        assert job.status().state == "gone"
        refused = program.run(stage.dag("submit"))
        assert refused.state == "failed"
        status = job.status()
        assert (status.state, status.incarnation) == ("failed", dead + 1)
        assert status.current is not None
        assert "cannot recover from any of these commits" in str(status.current.cause)
        assert (status.current.ran, status.current.again) == (False, False)
    told = program.log(last=1_000_000).partition(f"life {status.incarnation}: its own log is {status.current.log}")[2]
    assert "| " in told, "the last lines of the job's log are in the task's"
    assert status.current.log.endswith(f":{stage.job.log_file}")
    dead += 1
    done = program.run(stage.dag("recover"), mark="ask_a_person")
    assert done.state == "success", program.log()
    asked = done.results["recover"]
    assert (asked["recovered"], asked["why"], asked["dead"]) == (False, "no_good_commit", dead)
    assert "cannot recover from any of these commits" in asked["says"]
    recovered = done.results["recover_as_approved"]
    assert (recovered["recovered"], recovered["incarnation"], recovered["commit"]) == (True, dead + 1, None)
    assert stage.shop.judge.right()


def test_a_job_is_rewound_to_a_chosen_commit(stage: Stage) -> None:
    stage.running()
    order(stage, 40_000)
    chosen = stage.run("snapshot", name="here").results["commit"]["snapshot"]
    order(stage, 41_000)
    stage.run("snapshot")
    both = stage.program.run(stage.dag("rewind"), {"commit": "here", "time": "2026-01-01T00:00:00+00:00"})
    assert (both.tasks["choose"], both.tasks["stop"]) == ("failed", "upstream_failed")
    missing = stage.program.run(stage.dag("rewind"), {"commit": "nowhere"})
    assert (missing.tasks["look_ahead"], missing.tasks["stop"]) == ("failed", "upstream_failed")
    before = stage.running()
    # What look_ahead would have refused is refused by the start, after the stop.
    failed = stage.program.run(stage.dag("rewind"), {"commit": "nowhere"}, mark="look_ahead")
    assert (failed.tasks["stop"], failed.tasks["run"], failed.tasks["run_as_before"]) == (
        "success",
        "failed",
        "success",
    )
    assert stage.running() == before + 1
    before += 1
    done = stage.run("rewind", commit="here")
    assert done.results["look_ahead"]["commit"]["id"] == chosen
    assert done.results["look_ahead"]["records"] > 0
    assert (done.results["run"]["incarnation"], done.results["run"]["commit"]) == (before + 1, chosen)
    with stage.client() as job:
        begun = next(each.since or "" for each in job.lives() if each.incarnation == before + 1)
    delivered_ms = done.results["delivered"]["delivered_ms"]
    assert delivered_ms > datetime.fromisoformat(begun).timestamp() * 1000, "the new life says so"
    order(stage, 42_000)
    assert stage.shop.judge.right()


def test_an_hour_is_announced_once_all_of_it_is_delivered(stage: Stage) -> None:
    stage.running()
    order(stage, 50_000)
    hour = (datetime.now(UTC) - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    done = stage.run("hour_complete", hour=hour.isoformat())
    assert done.results["find"] == [{"from": hour.isoformat(), "to": (hour + timedelta(hours=1)).isoformat()}]
    assert done.results["wait"]["delivered_ms"] >= (hour + timedelta(hours=1)).timestamp() * 1000
    report = stage.run("hourly_report")
    assert report.results["report"][0]["delivered_ms"] >= done.results["wait"]["delivered_ms"]


@pytest.mark.usefixtures("airflow_home")
def test_a_batch_of_sparks_provider_runs_beside_a_job_and_after_its_snapshot(stage: Stage) -> None:
    pytest.importorskip("airflow.providers.apache.spark", reason="Spark's provider is not installed")
    stage.running()
    order(stage, 55_000)
    folder = stage.folder / "batch"
    folder.mkdir()
    (folder / "batch.py").write_text(BATCH)
    parts = Path(stage.services.snapshots_url, stage.name, "parts", "bought")
    (folder / "dag.py").write_text(BATCH_DAG.format(job=stage.name, folder=folder, parts=parts))
    spark = {"conn_type": "spark", "host": "local[1]", "extra": {"spark-binary": "spark-submit"}}
    environment = {**stage.environment, "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark)}
    program = DagProgram(stage.folder / "home of a batch", environment, folder)
    try:
        done = program.run("batch_beside")
        assert done.state == "success", program.log()
    finally:
        program.close()
    assert int((folder / "rows").read_text()) == parquet.read_table(parts).num_rows > 0
    with stage.client() as job:
        assert job.status().state == "running"


def test_a_submission_whose_process_is_killed_before_it_could_say_so_begins_one_life(stage: Stage) -> None:
    with stage.client() as job:
        before = stage.running()
        job.control().stop()
        wait_until(lambda: job.status().state == "stopped", HANGS_S, "the end of the job")
        missing = stage.program.run(stage.dag("rewind"), {"commit": "nowhere"})
        assert (missing.tasks["look_ahead"], missing.tasks["run_as_before"]) == ("failed", "skipped")
        assert job.status().state == "stopped", "what was refused starts nothing that somebody has stopped"
        at = datetime.now(UTC).isoformat()
        other = DagProgram(stage.folder / "home of another", stage.environment)
        try:
            other.begin(stage.dag("submit"), at=at)
            # The life is begun in ZooKeeper, and the command that begins it has not returned.
            wait_until(lambda: job.status().incarnation > before, HANGS_S * 2, "a life")
            other.kill()
        finally:
            other.close()
        done = stage.program.run(stage.dag("submit"), at=at)
        assert done.state == "success", stage.program.log()
        assert done.results["run"]["incarnation"] == before + 1
        assert [life.incarnation for life in job.lives()][-2:] == [before, before + 1]
        time.sleep(3)
        assert (job.status().state, job.status().incarnation) == ("running", before + 1)
    order(stage, 60_000)
    assert stage.shop.judge.right()
