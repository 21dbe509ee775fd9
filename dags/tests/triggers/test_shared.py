"""Watchers share one session with ZooKeeper, and lose it together; on a real one."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from lowtide_snapshots.zookeeper.connection import Connection

if TYPE_CHECKING:
    from seen_job import Job

pytestmark = [pytest.mark.airflow, pytest.mark.zookeeper, pytest.mark.usefixtures("airflow_home")]


def sessions() -> set[int]:
    """The sessions of this process that are open."""
    return {each.session for each in gc.get_objects() if isinstance(each, Connection) and each.connected}


async def hear(trigger: Any, heard: list[Any]) -> None:
    async for event in trigger.run():
        heard.append(event.payload["incarnation"])  # noqa: PERF401


def watchers(jobs: list[Job], connected: dict[str, Any]) -> list[Any]:
    from lowtide_airflow.triggers import DeliveredTimePassedTrigger, JobDiedTrigger

    given = {"lowtide_conn_id": connected["lowtide_conn_id"], "poll_interval": 0.05}
    kinds = (JobDiedTrigger, DeliveredTimePassedTrigger)
    return [kind(job=job.name, **given) for job in jobs for kind in kinds]


def test_all_watchers_of_a_root_have_one_session_and_read_each_status_once(
    jobs: Callable[[], Job], connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.job.client import JobClient
    from lowtide_airflow.triggers import shared

    read: list[str] = []
    status = JobClient.status

    def counted(client: JobClient) -> Any:
        read.append(client.job)
        return status(client)

    monkeypatch.setattr(JobClient, "status", counted)
    monkeypatch.setattr(shared, "KEPT_S", 3_600.0)
    watched = [jobs() for _ in range(5)]
    for job in watched:
        job.runs()
    before = sessions()

    async def plays() -> None:
        hearing = [asyncio.create_task(hear(each, [])) for each in watchers(watched, connected)]
        async with asyncio.timeout(60.0):
            while len(read) < len(watched):
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert len(sessions() - before) == 1
        for each in hearing:
            each.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)
        async with asyncio.timeout(60.0):
            while sessions() - before:
                await asyncio.sleep(0.05)

    asyncio.run(plays())
    assert sorted(read) == sorted(job.name for job in watched)
    assert shared._ROOTS == {}


def test_each_watcher_hears_of_its_own_job_alone_also_after_a_wrong_connection_was_corrected(
    jobs: Callable[[], Job], connected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide_airflow.triggers import FolderCompleteTrigger, JobDiedTrigger

    good = json.loads(os.environ["AIRFLOW_CONN_LOWTIDE_TEST"])
    monkeypatch.setenv("AIRFLOW_CONN_LOWTIDE_TEST", json.dumps({**good, "extra": {"root": "elsewhere"}}))
    dead, alive = jobs(), jobs()
    dead.runs()
    dead.ends(again=False)
    alive.runs()
    heard: dict[str, list[Any]] = {dead.name: [], alive.name: []}
    given = {"lowtide_conn_id": connected["lowtide_conn_id"], "poll_interval": 0.05}

    async def plays() -> None:
        of_files = FolderCompleteTrigger(job=alive.name, sink="there is none", **given)
        hearing = [
            asyncio.create_task(hear(of_files, [])),
            *(asyncio.create_task(hear(JobDiedTrigger(job=name, **given), told)) for name, told in heard.items()),
        ]
        await asyncio.sleep(1.0)
        assert heard == {dead.name: [], alive.name: []}
        monkeypatch.setenv("AIRFLOW_CONN_LOWTIDE_TEST", json.dumps(good))
        async with asyncio.timeout(60.0):
            while not heard[dead.name]:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        for each in hearing:
            each.cancel()
        await asyncio.gather(*hearing, return_exceptions=True)

    asyncio.run(plays())
    assert heard == {dead.name: [1], alive.name: []}
