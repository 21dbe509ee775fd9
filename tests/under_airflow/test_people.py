"""People in Airflow: they follow a task's button, rewind a job, and answer when a person has to decide."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from airflow_demo.killing import kill_driver
from tests.waiting import wait_until

from .conftest import JOB

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.spark, pytest.mark.slow]

WITHIN_S = 150.0
ORDERS = 20
READING_S = 30.0
"""A round of Airflow's scheduler, which takes 5 s when it is idle, and as much again."""


def delivered(stage: Stage, count: int) -> list[str]:
    """Whose totals have come, once there are so many."""
    return [each["customer"] for each in stage.kafka.records(stage.totals, count)]


def snapshot(stage: Stage, name: str) -> str:
    """Have Airflow take and commit a snapshot by hand; returns the run."""
    dag = stage.dag("snapshot")
    stage.api.unpause(dag)
    run = stage.api.trigger(dag, {"name": name})
    wait_until(lambda: stage.api.run(dag, run.id).over, WITHIN_S, "the end of the run")
    wait_until(lambda: stage.api.pause_between_runs(dag), WITHIN_S, "the end of the last run")
    return run.id


def signed_in(stage: Stage, user: str) -> dict[str, str]:
    """The headers of somebody's requests."""
    body = {"username": user, "password": stage.airflow.home.passwords()[user]}
    token = httpx.post(f"{stage.airflow.url}/auth/token", json=body).json()["access_token"]
    return {"Authorization": f"Bearer {token}"}


def test_a_tasks_button_leads_to_the_snapshot_that_it_took(stage: Stage) -> None:
    stage.submit()
    stage.order()
    dag, run = stage.dag("snapshot"), snapshot(stage, "by-hand")
    taken = stage.api.result(dag, run, "commit")["snapshot"]
    for task in ("take", "verify", "commit"):
        (address,) = stage.api.links(dag, run, task).values()
        if not address:
            pytest.skip("this Airflow shows no pages of plugins, so no button leads to one")
        url = urlsplit(address)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        assert asked == {"job": JOB, "connection": "lowtide_default", "snapshot": taken}
        assert url.path.startswith("/plugin/lowtide/")
        # The frame behind the route shows the page itself, and the page asks for what it draws.
        frame = f"{stage.airflow.url}{url.path.removeprefix('/plugin/lowtide')}"
        assert httpx.get(frame).status_code == 401, "nobody has signed in"
        page = httpx.get(frame, headers=signed_in(stage, "viewer"))
        assert page.status_code == 200
        assert "<html" in page.text


@pytest.mark.nightly
def test_a_job_is_rewound_and_all_from_there_on_is_delivered_again(stage: Stage) -> None:
    stage.submit()
    stage.order(ORDERS)
    before = len(delivered(stage, ORDERS))
    snapshot(stage, "before-the-mistake")
    before = len(delivered(stage, before))
    stage.order(ORDERS)
    wrong = delivered(stage, before + ORDERS)
    assert len(wrong) == before + ORDERS
    with stage.client() as job:
        lives = job.status().incarnation
        dag = stage.dag("rewind")
        stage.api.unpause(dag)
        run = stage.api.trigger(dag, {"commit": "before-the-mistake", "redeliver": True})
        stage.api.wait(dag, run.id, WITHIN_S)
        ahead = stage.api.result(dag, run.id, "look_ahead")
        assert ahead["records"] >= ORDERS
        done = stage.api.result(dag, run.id, "run")
        assert done["incarnation"] == job.status().incarnation == lives + 1
        assert done["commit"] == ahead["commit"]["id"]
    again = delivered(stage, before + 2 * ORDERS)
    assert len(again) == before + 2 * ORDERS
    twice = Counter(again) - Counter(wrong)
    assert twice == {f"c{number}": ORDERS // 5 for number in range(5)}, "those after the commit, and no others"


@pytest.mark.nightly
def test_where_no_commit_is_good_the_job_waits_for_a_persons_answer(stage: Stage) -> None:
    stage.submit()
    stage.order()
    snapshot(stage, "soon-damaged")
    dag = stage.dag("recover")
    before = {run.id for run in stage.api.runs(dag)}
    with stage.client() as job:
        dead = job.status().incarnation
        for manifest in (stage.folder / "snapshots").rglob("manifests/*.json"):
            manifest.unlink()
        kill_driver(stage.jobs)
        wait_until(lambda: len(stage.api.runs(dag)) > len(before), WITHIN_S, "a run of the recover DAG")
        (run,) = (run for run in stage.api.runs(dag) if run.id not in before)

        def state(task: str) -> str | None:
            return next(each.state for each in stage.api.tasks(dag, run.id) if each.id == task)

        # An Airflow without questions fails the task with it.
        asked = ("awaiting_input", "failed")
        wait_until(lambda: state("ask_a_person") in asked, WITHIN_S, "a question")
        assert stage.api.result(dag, run.id, "recover")["why"] == "no_good_commit"
        assert job.status().incarnation == dead, "nobody has answered yet"

        if state("ask_a_person") == "failed":
            wait_until(lambda: stage.api.run(dag, run.id).over, WITHIN_S, "the end of the run")
            assert "To approve, clear the task ask_a_person" in stage.api.log(dag, run.id, "ask_a_person")
            stage.api.clear(dag, run.id, "ask_a_person")
            wait_until(lambda: not stage.api.run(dag, run.id).over, WITHIN_S, "the run again")
        else:
            # Airflow takes an answer for a fault of the task that asks until its scheduler has seen that task end.
            time.sleep(READING_S)
            stage.api.answer(dag, run.id, "ask_a_person", "Approve")
        stage.api.wait(dag, run.id, WITHIN_S)
        done = stage.api.result(dag, run.id, "recover_as_approved")
        assert (done["recovered"], done["incarnation"], done["commit"]) == (True, dead + 1, None)
        assert job.status().state == "running"
