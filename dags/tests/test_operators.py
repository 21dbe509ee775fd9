"""Operators in outages, failures and odd states: on a real ZooKeeper, with jobs that no program runs."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lowtide_airflow.errors import SubmitFailed
from lowtide_airflow.job.program import Start
from lowtide_snapshots.cause import Cause

if TYPE_CHECKING:
    from seen_job import Job

pytestmark = [pytest.mark.airflow, pytest.mark.zookeeper, pytest.mark.usefixtures("airflow_home")]

LAST_TRY = 3
NEVER_S = 0.0


class Kept(dict[str, Any]):
    """Stands for what Airflow keeps of a task over its tries."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


def context(try_number: int = 1, **more: Any) -> dict[str, Any]:
    """A task's, as far as operators look at it."""
    instance = SimpleNamespace(
        dag_id="dag", run_id="run", task_id="task", map_index=-1, try_number=try_number, max_tries=LAST_TRY - 1,
        xcom_push=lambda **_: None,
    )  # fmt: skip
    return {"ti": instance, "task_state_store": Kept(), **more}


class Submitting:
    """Does what the test says where a program would be started."""

    def __init__(self, act: Callable[[str], Any]) -> None:
        self.act = act
        self.starts: list[Start] = []

    def submit(self, start: Start, key: str, log: Any) -> None:
        self.starts.append(start)
        self.act(key)

    def preview(self, start: Start, log: Any) -> None:
        self.starts.append(start)


def logged(said: list[str]) -> SimpleNamespace:
    """A task's log, whose lines are kept."""

    def say(text: str, *values: object) -> None:
        said.append(text % values if values else text)

    return SimpleNamespace(info=say, warning=lambda *_: None, error=say)


def refuse(code: int) -> Callable[[str], None]:
    def refusing(_key: str) -> None:
        raise SubmitFailed("it refuses", code=code)

    return refusing


@pytest.fixture(name="recover")
def _recover(connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Submitting]]:
    """Makes a RecoverFlowOperator of the job, and what stands for its program."""
    from lowtide_airflow.operators import RecoverFlowOperator

    monkeypatch.setattr("lowtide_airflow.job.submission.SURROUNDINGS", -1)  # It is not waited 30 s for them here.

    def make(act: Callable[[str], Any], **given: Any) -> tuple[Any, Submitting]:
        submit = Submitting(act)
        task = RecoverFlowOperator(task_id="task", flow="flow.py", **{**connected, **given})
        monkeypatch.setattr(RecoverFlowOperator, "launcher", lambda _: submit)
        return task, submit

    return make


def died(job: Job, cause: Cause | str = "worker 1/0 died", **more: Any) -> dict[str, Any]:
    """Let the job die; what a watcher tells of it."""
    life = job.runs()
    job.ends("failed", cause, again=False, **more)
    return {"job": job.name, "incarnation": life, "cause": str(cause), "delivered_at_death_ms": None}


def deferral(run: Callable[[], Any]) -> Any:
    from lowtide_airflow.compat import TaskDeferred

    with pytest.raises(TaskDeferred) as deferred:
        run()
    return deferred.value


def test_a_start_that_its_surroundings_refuse_is_tried_again_later_without_a_worker(job: Job, recover: Any) -> None:
    death = died(job)
    task, submit = recover(refuse(4), death=death)
    first = deferral(lambda: task.execute(context()))
    assert (first.method_name, first.kwargs["death"], first.kwargs["pause_s"]) == ("again", death, 20.0)
    later = deferral(lambda: task.again(context(), {}, **first.kwargs))
    assert (later.kwargs["pause_s"], later.kwargs["since"]) == (40.0, first.kwargs["since"])
    submit.act = job.runs
    assert deferral(lambda: task.again(context(), {}, **later.kwargs)).method_name == "recovered"
    assert len(submit.starts) == 3


def test_a_store_that_is_away_is_waited_for_as_well(job: Job, recover: Any) -> None:
    death = died(job)
    job.start()
    job.commit(job.seal(5))
    job.leave()
    store = Path(job.services.snapshots_url)
    store.rename(store.with_name("aside"))
    task, submit = recover(job.runs, death={**death, "incarnation": 2})
    assert deferral(lambda: task.execute(context())).method_name == "again"
    assert submit.starts == []


def test_an_outage_that_takes_too_long_is_put_to_a_person(job: Job, recover: Any) -> None:
    task, _ = recover(refuse(4), death=died(job), outage_s=NEVER_S)
    asked = task.execute(context())
    assert (asked["recovered"], asked["why"], asked["says"]) == (False, "not_begun", "it refuses")


def test_a_start_that_fails_is_tried_again_and_in_the_end_put_to_a_person(job: Job, recover: Any) -> None:
    task, _ = recover(refuse(5), death=died(job))
    with pytest.raises(SubmitFailed):
        task.execute(context())
    assert task.execute(context(LAST_TRY))["why"] == "not_begun"
    asked = task.recovered(context(LAST_TRY), {"error": "life 2, which was to recover the job, has ended: so"})
    assert (asked["why"], asked["dead"]) == ("not_begun", 1)


def test_a_start_that_is_wrong_is_put_to_a_person_at_once(job: Job, recover: Any) -> None:
    task, _ = recover(refuse(3), death=died(job))
    assert task.execute(context())["why"] == "not_begun"


def test_what_a_person_has_approved_fails_where_it_does_not_start(job: Job, recover: Any) -> None:
    from lowtide_airflow.compat import AirflowFailException

    task, _ = recover(refuse(3), death=died(job), forced=True)
    with pytest.raises(AirflowFailException, match="it refuses"):
        task.execute(context())


def test_an_approval_to_begin_without_state_takes_a_good_commit_if_there_is_one_by_then(job: Job, recover: Any) -> None:
    job.runs()
    manifest = job.seal(5)
    job.commit(manifest)
    job.ends("failed", again=False)
    death = {"job": job.name, "incarnation": 1, "cause": "", "delivered_at_death_ms": None}
    task, submit = recover(lambda _key: None, death=death, forced=True, no_state="True")
    deferral(lambda: task.execute(context()))
    job.damage(manifest)
    task, other = recover(lambda _key: None, death=death, forced=True, no_state="True")
    deferral(lambda: task.execute(context()))
    assert [start.no_state for start in (*submit.starts, *other.starts)] == [False, True]


def test_without_deferring_an_outage_and_the_recovery_are_waited_for_by_the_task(
    job: Job, recover: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    clock = SimpleNamespace(time=time.time, sleep=paused.append)
    monkeypatch.setattr("lowtide_airflow.operators.recover.time", clock)
    death = died(job)

    def begin_once_it_is_back(key: str) -> None:
        if len(paused) < 3:
            refuse(4)(key)
        job.runs(key)
        job.publish(7)

    task, submit = recover(begin_once_it_is_back, death=death, deferrable=False, poll_interval=0.05)
    done = task.execute(context())
    assert (done["recovered"], done["incarnation"], done["delivered_ms"]) == (True, 2, 70)
    assert (paused, len(submit.starts)) == ([10.0, 20.0, 40.0], 4)


def test_without_deferring_a_task_fails_if_the_event_does_not_come_in_time(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.operators import StopFlowOperator
    from lowtide_snapshots.errors import LowtideError

    job.start()
    given = {**connected, "deferrable": False, "poll_interval": 0.05, "timeout": timedelta(seconds=0.3)}
    task = StopFlowOperator(task_id="task", **given)
    with pytest.raises(LowtideError, match="timed out waiting for the end or the next life"):
        task.execute(context())
    end = threading.Timer(0.5, job.ends, ("stopped",))
    end.start()
    task.timeout = 20.0
    assert task.execute(context())["state"] == "stopped"
    end.join()


def test_a_job_that_there_never_was_is_a_mistake(recover: Any) -> None:
    from lowtide_airflow.compat import AirflowFailException

    task, _ = recover(refuse(3))
    with pytest.raises(AirflowFailException, match="was never started"):
        task.execute(context())


def test_what_a_cluster_has_taken_is_known_to_every_later_try(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.operators import RunFlowOperator

    submit = Submitting(lambda _key: None)
    monkeypatch.setattr(RunFlowOperator, "launcher", lambda _: submit)
    task = RunFlowOperator(task_id="task", flow="local:///flow.py", master="spark://m:7077", **connected)
    tried = context()
    for _ in range(2):
        assert deferral(lambda: task.execute(tried)).method_name == "running"
    assert len(submit.starts) == 1
    job.runs("airflow:dag/run/task")
    assert task.execute(tried)["incarnation"] == 1


def test_a_job_that_has_come_to_its_end_was_submitted_with_success(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.operators import RunFlowOperator

    submit = Submitting(lambda _key: None)
    monkeypatch.setattr(RunFlowOperator, "launcher", lambda _: submit)
    task = RunFlowOperator(task_id="task", flow="local:///flow.py", **connected)
    job.runs("airflow:dag/run/task")
    job.say("stopped", finished=True)
    job.leave()
    done = task.execute(context())
    assert (done["incarnation"], done["adopted"], submit.starts) == (1, True, [])


@pytest.mark.parametrize("finished", [False, True])
def test_a_task_that_waits_for_completion_ends_with_the_job(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    from lowtide_airflow.compat import AirflowFailException
    from lowtide_airflow.operators import RunFlowOperator
    from lowtide_snapshots.errors import LowtideError

    submit = Submitting(job.runs)
    monkeypatch.setattr(RunFlowOperator, "launcher", lambda _: submit)
    task = RunFlowOperator(task_id="task", flow="flow.py", wait_for_completion=True, **connected)
    deferred = deferral(lambda: task.execute(context()))
    assert (deferred.method_name, deferred.trigger.incarnation, deferred.trigger.end_time) == ("completed", 1, None)
    with job.services.job_store(job.name) as store:
        assert store.submission("airflow:dag/run/task") == 1

    def poll() -> Any:
        with task.hook.job(job.name) as client:
            return deferred.trigger.poll(client)

    assert poll() is None
    job.say("stopped", finished=finished)
    job.leave()
    event = {"error": None, **poll()}
    assert len(submit.starts) == 1
    if finished:
        assert task.completed(context(), event)["incarnation"] == 1
        return
    with pytest.raises(LowtideError, match="was stopped before its sources had ended"):
        task.completed(context(), event)
    with pytest.raises(AirflowFailException, match="was stopped"):
        task.execute(context())


def test_a_task_whose_job_has_died_ends_with_the_last_lines_of_the_jobs_log(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lowtide_airflow.operators import RunFlowOperator
    from lowtide_snapshots.errors import LowtideError

    said: list[str] = []
    log = logged(said)
    monkeypatch.setattr(RunFlowOperator, "log", log)
    masked: list[str] = []
    monkeypatch.setattr("lowtide_airflow.operators.job.mask_secret", masked.append)
    file = tmp_path / "job.log"
    file.write_text("reading\nValueError: 7\n")
    place = f"{socket.gethostname()}:{file}"
    monkeypatch.setattr(RunFlowOperator, "launcher", lambda _: Submitting(lambda key: job.runs(key, log=place)))
    settings = {"kafka.password": "of the broker"}
    task = RunFlowOperator(task_id="task", flow="flow.py", wait_for_completion=True, settings=settings, **connected)
    deferral(lambda: task.execute(context()))
    line = f'job "{job.name}", life 1: its own log is {place}'
    assert [each for each in said if "own log" in each or "| " in each] == [line]
    said.clear()
    job.ends("failed", "worker 1/0 died", again=False, log=place)
    with pytest.raises(LowtideError, match="life 1 has died"):
        task.completed(context(), {"error": "life 1 has died: worker 1/0 died"})
    assert said == [line, "| reading", "| ValueError: 7"]
    assert "of the broker" in masked, "a task that resumes is another process"


def test_a_start_that_fails_ends_with_the_last_lines_of_the_log_of_the_life_that_it_began(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from lowtide_airflow.operators import RunFlowOperator

    said: list[str] = []
    log = logged(said)
    monkeypatch.setattr(RunFlowOperator, "log", log)
    file = tmp_path / "job.log"
    file.write_text("no room\n")
    place = f"{socket.gethostname()}:{file}"

    def fails(key: str) -> None:
        job.start(key)
        job.ends("failed", "it was not ready", again=False, ran=False, submission=key, log=place)
        refuse(5)(key)

    monkeypatch.setattr(RunFlowOperator, "launcher", lambda _: Submitting(fails))
    task = RunFlowOperator(task_id="task", flow="flow.py", **connected)
    with pytest.raises(SubmitFailed):
        task.execute(context())
    assert said[-2:] == [f'job "{job.name}", life 1: its own log is {place}', "| no room"]
    said.clear()
    monkeypatch.setattr(RunFlowOperator, "launcher", lambda _: Submitting(refuse(5)))
    other = RunFlowOperator(task_id="other", flow="flow.py", **connected)
    elsewhere = context()
    elsewhere["ti"].task_id = "other"
    with pytest.raises(SubmitFailed):
        other.execute(elsewhere)
    assert "| no room" not in said, "it began no life"


@pytest.mark.parametrize("stop_on_kill", [False, True])
def test_a_task_that_is_killed_stops_its_job_only_if_that_is_wanted(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, stop_on_kill: bool
) -> None:
    from lowtide_airflow.job.control import Control
    from lowtide_airflow.operators import RunFlowOperator, StopFlowOperator

    stopped: list[bool] = []
    monkeypatch.setattr(Control, "stop", lambda _: stopped.append(True))
    monkeypatch.setattr(RunFlowOperator, "launcher", lambda _: Submitting(job.runs))
    task = RunFlowOperator(task_id="task", flow="flow.py", stop_on_kill=stop_on_kill, **connected)
    task.on_kill()
    assert stopped == [], "it has begun nothing"
    assert task.execute(context())["incarnation"] == 1
    task.on_kill()
    StopFlowOperator(task_id="stop", **connected).on_kill()
    assert stopped == [True] * stop_on_kill


def test_a_life_that_another_task_began_is_not_stopped_with_this_one(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.job.control import Control
    from lowtide_airflow.job.submission import stop_begun
    from lowtide_airflow.triggers import JobFinishedTrigger

    stopped: list[bool] = []
    monkeypatch.setattr(Control, "stop", lambda _: stopped.append(True))
    job.runs("airflow:dag/run/other")
    with job.client() as client:
        assert "this task did not begin its life 1" in stop_begun(client, "airflow:dag/run/task")
        assert "asked to stop" in stop_begun(client, "airflow:dag/run/other")
    given = {name: connected[name] for name in ("job", "lowtide_conn_id")}
    for key in ("", "airflow:dag/run/other"):
        asyncio.run(JobFinishedTrigger(incarnation=1, stop_key=key, **given).on_kill())
    assert stopped == [True, True]
    job.ends()
    job.runs()
    with job.client() as client:
        assert "asked to stop" in stop_begun(client, "airflow:dag/run/other"), "a life that its program began after it"
    job.leave()
    with job.client() as client:
        assert "does not run" in stop_begun(client, "airflow:dag/run/other")
        assert "does not run yet" in stop_begun(client, "airflow:dag/run/task", within_s=0.1, pause_s=0.02)


def test_ahead_of_a_start_on_a_cluster_its_commit_is_verified(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.operators import PreviewFlowOperator
    from lowtide_snapshots.errors import NoGoodCommit, NoSuchCommit

    monkeypatch.setattr(PreviewFlowOperator, "launcher", lambda _: Submitting(refuse(1)))
    job.runs()
    manifest = job.seal(5, name="here")
    job.commit(manifest)

    def ahead(**given: Any) -> Any:
        return PreviewFlowOperator(task_id="task", flow="local:///flow.py", **connected, **given).execute(context())

    assert ahead(commit="here") == ahead(time="2026-01-01T00:00:00") == ahead() == {"commit": {"id": manifest.id}}
    assert ahead(no_state=True) == {"commit": None}
    for asked in ({"commit": "nowhere"}, {"time": "1969-01-01T00:00:00"}):
        with pytest.raises(NoSuchCommit):
            ahead(**asked)
    job.damage(manifest)
    with pytest.raises(NoGoodCommit):
        ahead(commit="here")


def test_a_job_that_its_program_may_begin_again_is_not_taken_for_stopped(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.operators import StopFlowOperator

    task = StopFlowOperator(task_id="task", **connected)
    job.runs()
    job.ends("failed", again=True)
    assert deferral(lambda: task.execute(context())).method_name == "settled"
    found = task.settled(context(), {"error": None, "death": {"incarnation": 1}})
    assert (found["state"], found["incarnation"]) == ("failed", 1)
    job.runs()
    job.ends("stopped")
    assert task.execute(context())["state"] == "stopped"


def test_a_snapshot_that_a_newer_commit_holds_is_no_failure(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.compat import AirflowSkipException
    from lowtide_airflow.operators import CommitSnapshotOperator

    job.runs()
    older, newer = job.seal(5), job.seal(9)
    job.commit(newer)
    with pytest.raises(AirflowSkipException, match=f"a newer one is committed: {newer.id}"):
        CommitSnapshotOperator(task_id="task", snapshot=older.id, **connected).execute(context())
    assert (
        CommitSnapshotOperator(task_id="task", snapshot=newer.id, **connected).execute(context())["snapshot"]
        == newer.id
    )


@pytest.mark.parametrize("if_at_least_once", ["fail", "skip"])
def test_nobody_waits_for_the_delivered_time_of_a_job_that_tells_none(
    job: Job, connected: dict[str, Any], if_at_least_once: str
) -> None:
    from lowtide_airflow.compat import AirflowFailException, AirflowSkipException
    from lowtide_airflow.sensors import DeliveredTimeSensor

    job.runs()
    task = DeliveredTimeSensor(task_id="task", at="2026-01-01", if_at_least_once=if_at_least_once, **connected)
    assert deferral(lambda: task.execute(context())).method_name == "delivered"
    job.say("running", delivery="at_least_once")
    expected = AirflowSkipException if if_at_least_once == "skip" else AirflowFailException
    with pytest.raises(expected, match="delivers at least once"):
        task.execute(context())


def test_the_end_of_a_label_is_waited_for_in_the_triggerer_or_by_asking(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.compat import AirflowFailException
    from lowtide_airflow.sensors import LabelEndedSensor
    from lowtide_snapshots.errors import LowtideError

    task = LabelEndedSensor(task_id="task", step="indexed", substream="a:b", at="1970-01-01T00:00:05", **connected)
    deferred = deferral(lambda: task.execute(context()))
    _, given = deferred.trigger.serialize()
    assert (given["step"], given["substream"], given["at_ms"]) == ("indexed", "a:b", 5_000)
    opening = LabelEndedSensor(task_id="opening", step="seen", substream="a:b", begun="True", **connected)
    _, begun = deferral(lambda: opening.execute(context())).trigger.serialize()
    assert begun["step"] == "seen/begun"
    event = {"job": job.name, "error": None, "ended_ms": 5_000}
    assert task.ended(context(), event) == {"job": job.name, "ended_ms": 5_000}
    with pytest.raises(LowtideError, match="timed out"):
        task.ended(context(), {"error": "timed out"})
    assert task.poke(context()) is False, "a job that does not run cannot be asked"
    job.runs()
    assert task.poke(context()) is False, "its control API does not answer"
    wrong = LabelEndedSensor(task_id="wrong", step="indexed", substream="a", at="noon", **connected)
    with pytest.raises(AirflowFailException, match="give ISO"):
        wrong.execute(context())
