"""Triggers: their arguments survive Airflow's store, and each yields one event of a job on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import io
import json
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest
from hanging import HANGS_S

if TYPE_CHECKING:
    from seen_job import Job

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

GIVEN: dict[str, Any] = {
    "job": "orders",
    "lowtide_conn_id": "somewhere",
    "end_time": 1_800_000_000.5,
    "poll_interval": 0.25,
    "key": "airflow:dag/run/task",
    "stop_key": "airflow:dag/run/other",
    "incarnation": 4,
    "dead": 7,
    "delivered_at_death_ms": 5_000,
    "cause": "worker 1/0 died",
    "step": "indexed",
    "substream": "document-7",
    "snapshot": "000007-0001",
    "wanted": "committed",
    "at_ms": 6_000,
    "every_s": 60,
    "sink": "archive",
    "gone_s": 1.5,
    "failed_s": 2.5,
}

PLACE = {
    "folders": "/lake/{tick:%Y-%m-%d}/{tick:%H}/",
    "unit": "hour",
    "files": "archive-[0-9]*.parquet",
    "done": "_lowtide/archive.done.json",
}


def kinds() -> list[Any]:
    from lowtide_airflow import triggers

    return [getattr(triggers, name) for name in triggers.__all__]


def test_every_argument_of_a_trigger_survives_being_stored() -> None:
    assert len(kinds()) == 11
    for kind in kinds():
        names = set(inspect.signature(kind.__init__).parameters) - {"self"}
        trigger = kind(**{name: GIVEN[name] for name in names})
        path, arguments = trigger.serialize()
        assert set(arguments) == names, kind
        again = resolve_name(path)(**json.loads(json.dumps(arguments)))
        assert {name: getattr(again, name) for name in names} == {name: GIVEN[name] for name in names}
        assert again.serialize() == trigger.serialize()


def test_no_trigger_is_given_a_secret() -> None:
    for kind in kinds():
        assert not {"token", "password", "services"} & set(inspect.signature(kind.__init__).parameters)


@pytest.fixture(name="connected")
def _connected(connected: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a trigger for the test's job."""
    return {"job": connected["job"], "lowtide_conn_id": connected["lowtide_conn_id"], "poll_interval": 0.05}


def events(trigger: Any, acts: Sequence[Callable[[], Any]], count: int = 1, after_s: float = 0.4) -> list[Any]:
    """The events of a trigger, `count` at most, while things are done to the job one after the other."""

    async def run() -> list[Any]:
        found: list[Any] = []

        async def hear() -> None:
            async for event in trigger.run():
                # One by one: what comes is looked at meanwhile.
                found.append(event.payload)  # noqa: PERF401

        hearing = asyncio.create_task(hear())
        for act in acts:
            await asyncio.sleep(after_s)
            assert not (hearing.done() and count), found
            await asyncio.to_thread(act)
        deadline = time.monotonic() + HANGS_S
        while len(found) < count and not hearing.done() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        if hearing.done():
            hearing.result()
        hearing.cancel()
        return found

    return asyncio.run(run())


@pytest.mark.zookeeper
def test_a_life_that_was_submitted_is_reported_once_it_runs(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import JobRunningTrigger

    trigger = JobRunningTrigger(key="k", **connected)
    (event,) = events(trigger, [lambda: job.start("k"), lambda: job.say("running", commit="000001-0001")])
    assert event == {
        "job": job.name, "error": None, "incarnation": 1, "commit": "000001-0001", "control": "127.0.0.1:1",
    }  # fmt: skip


@pytest.mark.zookeeper
def test_a_life_that_is_stopped_before_it_runs_is_an_error(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import JobRunningTrigger

    (event,) = events(JobRunningTrigger(key="k", **connected), [lambda: job.start("k"), lambda: job.ends("stopped")])
    assert "was stopped before it ran" in event["error"]


@pytest.mark.zookeeper
def test_a_life_that_has_come_to_its_end_is_as_good_as_one_that_runs(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import JobRunningTrigger

    trigger = JobRunningTrigger(key="k", **connected)
    (event,) = events(trigger, [lambda: job.start("k"), lambda: job.ends("stopped", finished=True)])
    assert (event["error"], event["incarnation"]) == (None, 1)


@pytest.mark.zookeeper
def test_what_does_not_come_in_time_is_an_error_of_its_own(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import JobRunningTrigger

    (event,) = events(JobRunningTrigger(key="k", end_time=time.time() + 0.3, **connected), [])
    assert event["error"] == f'timed out waiting for the submitted life of job "{job.name}"'


@pytest.mark.zookeeper
def test_the_end_of_a_job_is_reported_when_nobody_runs_it(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import JobEndedTrigger

    job.runs()
    (event,) = events(JobEndedTrigger(**connected), [lambda: job.say("stopped"), job.leave])
    assert event == {"job": job.name, "error": None, "state": "stopped", "incarnation": 1, "cause": ""}


@pytest.mark.zookeeper
def test_a_recovery_is_over_when_a_later_life_has_delivered_more(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import RecoveredTrigger

    job.runs()
    job.publish(100)
    job.ends()
    trigger = RecoveredTrigger(dead=1, delivered_at_death_ms=1_000, cause="c", **connected)
    (event,) = events(trigger, [job.runs, lambda: job.publish(100), lambda: job.publish(101)])
    assert event == {
        "job": job.name, "error": None, "dead": 1, "delivered_at_death_ms": 1_000, "cause": "c",
        "incarnation": 2, "commit": None, "delivered_ms": 1_010,
    }  # fmt: skip


@pytest.mark.zookeeper
def test_a_snapshot_whose_job_is_silent_is_found_in_the_store(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import SnapshotTrigger

    life = job.runs()
    trigger = SnapshotTrigger(snapshot=f"{life:06d}-0001", wanted="sealed", **connected)
    (event,) = events(trigger, [lambda: job.seal(100)])
    assert (event["error"], event["snapshot"]["id"], event["snapshot"]["rows"]) == (None, "000001-0001", 2)


@pytest.mark.zookeeper
def test_a_snapshot_whose_life_ended_came_to_nothing(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import SnapshotTrigger

    job.runs()
    (event,) = events(SnapshotTrigger(snapshot="000001-0001", **connected), [job.ends])
    assert "was abandoned: its life ended before it was sealed" in event["error"]


@pytest.mark.zookeeper
def test_a_delivered_time_is_waited_for_over_a_death(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import DeliveredTimeTrigger

    job.runs()
    trigger = DeliveredTimeTrigger(at_ms=5_000, **connected)
    (event,) = events(trigger, [lambda: job.publish(499), job.ends, job.runs, lambda: job.publish(500)])
    assert event == {"job": job.name, "error": None, "delivered_ms": 5_000}


def served(job: Job, monkeypatch: pytest.MonkeyPatch, life: int = 1, **shape: Any) -> Any:
    """A real control API that the job's next life publishes."""
    support = pytest.importorskip("controlled")
    monkeypatch.setattr(support, "TOKEN", job.services.token)
    made = dataclasses.replace(pytest.importorskip("seen").SHAPE, job=job.name, incarnation=life, **shape)
    return support.controlled(made, import_module("lowtide.events").EventLog(job.name, life, io.StringIO()))


@pytest.mark.zookeeper
def test_a_delivered_time_is_reported_without_a_poll(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.triggers import DeliveredTimeTrigger

    with served(job, monkeypatch) as api:
        job.runs(**api.at.fields())
        job.publish(499)
        trigger = DeliveredTimeTrigger(at_ms=5_000, **connected | {"poll_interval": 600.0})

        def comes() -> None:
            job.publish(500)
            api.tell(lambda hub: hub.reached("delivered", 2_500))

        (event,) = events(trigger, [lambda: subscribed(api), comes])
    assert event == {"job": job.name, "error": None, "delivered_ms": 5_000}


@pytest.mark.zookeeper
def test_the_end_of_a_label_is_reported_without_a_poll_over_a_death(
    job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.triggers import LabelEndedTrigger

    trigger = LabelEndedTrigger(step="indexed", substream="a:b", **connected | {"poll_interval": 0.2})
    with contextlib.ExitStack() as opened:

        def begins(life: int) -> Any:
            api = opened.enter_context(served(job, monkeypatch, life, labels={"indexed": {"name": "str"}}))
            job.runs(**api.at.fields())
            return api

        first = begins(1)

        def dies() -> None:
            subscribed(first)
            first.tell(lambda hub: hub.end(import_module("lowtide_snapshots.cause").Cause("loss", "worker 1/0 died")))
            job.ends()

        def ends() -> None:
            api = begins(2)
            subscribed(api)
            trigger.poll_interval = 600.0
            api.ended["indexed", "a:b"] = 5_000
            api.tell(lambda hub: hub.reached("done:indexed:a:b", 2_500))

        (event,) = events(trigger, [dies, ends])
    assert event == {"job": job.name, "error": None, "ended_ms": 5_000}


@pytest.mark.zookeeper
@pytest.mark.parametrize(("step", "error"), [("index", "no when_done with labels"), ("paid", "is not a label of")])
def test_a_label_that_there_cannot_be_fails_at_once(
    step: str, error: str, job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.triggers import LabelEndedTrigger

    with served(job, monkeypatch, labels={"paid": {"order": "int"}}) as api:
        job.runs(**api.at.fields())
        (event,) = events(LabelEndedTrigger(step=step, substream="a", **connected), [])
    assert error in event["error"]


@pytest.mark.zookeeper
@pytest.mark.parametrize("how", ["the life ends", "the connection is lost"])
def test_without_its_subscription_a_trigger_polls(
    how: str, job: Job, connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.triggers import DeliveredTimeTrigger

    with contextlib.ExitStack() as opened:
        api = opened.enter_context(served(job, monkeypatch))
        job.runs(**api.at.fields())
        trigger = DeliveredTimeTrigger(at_ms=5_000, **connected)

        def goes() -> None:
            subscribed(api)
            if how == "the life ends":
                cause = import_module("lowtide_snapshots.cause").Cause("loss", "worker 1/0 died")
                api.tell(lambda hub: hub.end(cause))
                job.ends()
                job.runs()
            opened.close()

        (event,) = events(trigger, [goes, lambda: job.publish(500)])
    assert event == {"job": job.name, "error": None, "delivered_ms": 5_000}


def subscribed(api: Any) -> None:
    """Waits until somebody has subscribed."""
    found: list[int] = []
    for _ in range(200):
        api.tell(lambda hub: found.append(len(hub)))
        if found[-1]:
            return
        time.sleep(0.05)
    raise AssertionError("nobody has subscribed")


@pytest.mark.zookeeper
def test_each_complete_slot_is_reported_once_and_in_order(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import DeliveredTimePassedTrigger

    job.runs()
    job.publish(1_150)
    trigger = DeliveredTimePassedTrigger(every_s=1, **connected)
    acts = [lambda: job.publish(1_199), lambda: job.publish(1_200), lambda: job.publish(1_420)]
    reported = events(trigger, acts, count=3)
    assert [(event["from_ms"], event["to_ms"]) for event in reported] == [
        (11_000, 12_000),
        (12_000, 13_000),
        (13_000, 14_000),
    ]


@pytest.mark.zookeeper
def test_each_complete_folder_of_a_sink_is_reported_once_and_in_order(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import FolderCompleteTrigger

    life = job.runs()
    assert job.driver is not None
    job.driver.set_places(life, {"archive": PLACE})
    hour = 360_000
    job.publish(400_000 * hour + 1)
    trigger = FolderCompleteTrigger(sink="archive", **connected)
    acts = [lambda: job.publish(400_001 * hour - 1), lambda: job.publish(400_003 * hour)]
    reported = events(trigger, acts, count=3)
    assert [event["from"] for event in reported] == [
        "2015-08-19T16:00:00+00:00",
        "2015-08-19T17:00:00+00:00",
        "2015-08-19T18:00:00+00:00",
    ]
    assert reported[0] == {
        "job": job.name,
        "sink": "archive",
        "from": "2015-08-19T16:00:00+00:00",
        "to": "2015-08-19T17:00:00+00:00",
        "folder": "/lake/2015-08-19/16/",
        "files": "/lake/2015-08-19/16/archive-[0-9]*.parquet",
        "done": "/lake/2015-08-19/16/_lowtide/archive.done.json",
    }


@pytest.mark.zookeeper
def test_a_death_is_reported_once_and_a_stop_never(job: Job, connected: dict[str, Any]) -> None:
    from lowtide_airflow.triggers import JobDiedTrigger

    job.runs()
    job.publish(100)
    trigger = JobDiedTrigger(gone_s=0.2, failed_s=0.2, **connected)
    acts: list[Callable[[], Any]] = [job.ends, lambda: time.sleep(0.5), job.runs]
    acts += [lambda: job.ends("stopped"), job.runs, job.leave]
    reported = events(trigger, acts, count=2)
    assert reported == [
        {"job": job.name, "incarnation": 1, "cause": "worker 1/0 died", "delivered_at_death_ms": 1_000},
        {
            "job": job.name,
            "incarnation": 3,
            "cause": "it was killed, or its machine went down",
            "delivered_at_death_ms": 1_000,
        },
    ]


@pytest.mark.zookeeper
def test_a_connection_that_is_not_there_yet_fails_a_trigger_and_no_loop(job: Job) -> None:
    from lowtide_airflow.triggers import JobEndedTrigger

    with pytest.raises(Exception, match="isn't defined"):
        events(JobEndedTrigger(job=job.name, lowtide_conn_id="nowhere"), [])
