"""Triggers during outages: their calls, and their log lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_airflow.job.services import Services
from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.errors import ControlUnreachable, TokenRefused, ZooKeeperUnavailable
from lowtide_snapshots.job.life import Life

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

AWAY = ZooKeeperUnavailable("ZooKeeper did not answer within 10 s", where="zk", way_out="start it")


class Opened:
    """Clients that were made, in order, each of a place; what is asked of them is a function of that."""

    def __init__(self, look: Callable[[Services], Any]) -> None:
        self.hosts: list[str] = []
        self.closed: list[str] = []
        self._look = look

    def __call__(self, services: Services, job: str, _connection: object = None) -> Any:
        self.hosts.append(services.zookeeper)

        def close() -> None:
            self.closed.append(services.zookeeper)
            raise RuntimeError("Writer still open from prior connection")

        return SimpleNamespace(services=services, open=lambda: None, close=close, status=lambda: self._look(services))


@pytest.fixture(name="correct")
def _correct(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Has the connection lead to a host; None takes it away."""

    def correct(host: str | None) -> None:
        if host is None:
            monkeypatch.delenv("AIRFLOW_CONN_THERE")
        else:
            monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "lowtide", "host": host}))

    correct("old")
    return correct


def opened(monkeypatch: pytest.MonkeyPatch, look: Callable[[Services], Any]) -> Opened:
    from lowtide_airflow.triggers import base, shared

    made = Opened(look)
    monkeypatch.setattr(base, "JobClient", made)
    monkeypatch.setattr(shared, "SeenJob", made)
    monkeypatch.setattr(Services, "connection", lambda _: SimpleNamespace(open=lambda: None, close=lambda: None))
    return made


def only_at(host: str) -> Callable[[Services], str]:
    def look(services: Services) -> str:
        if services.zookeeper != f"{host}:2181":
            raise AWAY
        return "found"

    return look


def look(client: Any) -> Any:
    return client.status()


def test_after_a_look_that_failed_the_connection_is_looked_up_anew(
    monkeypatch: pytest.MonkeyPatch, correct: Callable[[str | None], None]
) -> None:
    from lowtide_airflow.triggers.base import AsyncJob

    made = opened(monkeypatch, only_at("new"))

    async def plays() -> None:
        async with AsyncJob("there", "orders") as job:
            for _ in range(2):
                with pytest.raises(ZooKeeperUnavailable):
                    await job.call(look)
            assert (made.hosts, made.closed) == (["old:2181"] * 2, ["old:2181"] * 2)
            correct("new")
            assert await job.call(look) == "found"
            assert await job.call(look) == "found"
            assert (made.hosts[2:], made.closed[2:]) == (["new:2181"], [])

    asyncio.run(plays())


def test_while_airflow_gives_no_connection_the_last_one_is_used(
    monkeypatch: pytest.MonkeyPatch, correct: Callable[[str | None], None]
) -> None:
    from lowtide_airflow.triggers.base import AsyncJob

    made = opened(monkeypatch, only_at("new"))

    async def plays() -> None:
        async with AsyncJob("there", "orders") as job:
            with pytest.raises(ZooKeeperUnavailable):
                await job.call(look)
            correct(None)
            with pytest.raises(ZooKeeperUnavailable):
                await job.call(look)
        assert made.hosts == ["old:2181"] * 2

    asyncio.run(plays())


def test_trouble_is_said_at_once_every_five_minutes_and_when_it_is_over() -> None:
    from lowtide_airflow.triggers.base import Outage

    outage = Outage()
    assert not outage.is_over()
    said = [second for second in range(1_000, 1_700) if outage.is_news(AWAY, float(second))]
    assert said == [1_000, 1_300, 1_600]
    assert outage.text == str(AWAY)
    assert outage.is_news(TimeoutError(), 1_700.0)
    assert outage.text == "TimeoutError"
    assert [outage.is_over(), outage.is_over(), outage.text] == [True, False, ""]
    assert outage.is_news(TimeoutError(), 1_701.0)


class Log:
    """The notes of a trigger."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warning(self, text: str, *given: object) -> None:
        self.lines.append(text % given)

    info = warning


def died() -> Any:
    from lowtide_airflow.triggers import JobDiedTrigger

    return JobDiedTrigger(job="orders", lowtide_conn_id="there", poll_interval=0.001)


def ended() -> Any:
    from lowtide_airflow.triggers import JobEndedTrigger

    return JobEndedTrigger(job="orders", lowtide_conn_id="there", poll_interval=0.001)


@pytest.mark.parametrize("kind", [died, ended])
@pytest.mark.usefixtures("correct")
def test_what_goes_on_is_written_down_again_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[[], Any]
) -> None:
    from lowtide_airflow.triggers import base, watcher

    # Each look takes a minute, by this clock.
    clock = SimpleNamespace(looks=0)
    clock.monotonic = lambda: 60.0 * clock.looks
    for module in (base, watcher):
        monkeypatch.setattr(module, "time", clock)

    def look(_: Services) -> JobStatus:
        clock.looks += 1
        if clock.looks <= 6:
            raise AWAY
        return JobStatus("orders", True, "process 1", 1, None, None, 10, 1)

    opened(monkeypatch, look)
    trigger, log = kind(), Log()
    trigger._log = log

    async def plays() -> None:
        watching = asyncio.create_task(anext(trigger.run()))
        async with asyncio.timeout(HANGS_S):
            while clock.looks < 9:
                await asyncio.sleep(0.001)
        watching.cancel()

    asyncio.run(plays())
    assert log.lines == [f'cannot poll job "orders", trying again: {AWAY}'] * 2 + ['job "orders" can be polled again']


NO_TOKEN = TokenRefused("it asks for a token, and none is known", way_out="give the Airflow connection its content")


def recovering(delivery: str, delivered_ms: int | None, status: Any) -> Any:
    """The report of life 2, which was begun after life 1 had died."""

    def asked() -> dict[str, Any]:
        if isinstance(status, Exception):
            raise status
        return dict(status)

    life = Life(2, "running", None, "127.0.0.1:1", "process 1", "", delivery=delivery)
    look = JobStatus("orders", True, "process 1", 2, life, delivered_ms, 10, 1)
    control = SimpleNamespace(status=asked)
    return SimpleNamespace(status=lambda: look, control=lambda: control, services=Services("zk"))


def recovered(**given: Any) -> Any:
    from lowtide_airflow.triggers import RecoveredTrigger

    return RecoveredTrigger(job="orders", lowtide_conn_id="there", dead=1, **({"delivered_at_death_ms": None} | given))


def test_that_a_job_is_recovered_is_known_without_its_token() -> None:
    assert recovered().poll(recovering("exactly_once", None, NO_TOKEN)) is None
    assert recovered(delivered_at_death_ms=500).poll(recovering("exactly_once", 500, NO_TOKEN)) is None
    assert recovered(delivered_at_death_ms=500).poll(recovering("exactly_once", 510, NO_TOKEN))["delivered_ms"] == 510
    assert recovered().poll(recovering("", 510, NO_TOKEN))["delivered_ms"] == 510


def test_that_one_which_delivers_at_least_once_is_recovered_it_says_itself() -> None:
    says = {"sinks": [{"delivery": "at_least_once"}], "min_time_ms": 700}
    for delivery in ("at_least_once", ""):
        assert recovered().poll(recovering(delivery, None, says))["delivered_ms"] == 700
    with pytest.raises(TokenRefused):
        recovered().poll(recovering("at_least_once", None, NO_TOKEN))


@pytest.mark.parametrize("refused", [NO_TOKEN, ControlUnreachable("it does not answer")])
@pytest.mark.usefixtures("correct")
def test_what_a_recovery_was_waiting_for_in_the_end_is_named(
    monkeypatch: pytest.MonkeyPatch, refused: Exception
) -> None:
    def look(_: Services) -> Any:
        raise refused

    opened(monkeypatch, look)

    async def reported() -> Any:
        return (await anext(recovered(end_time=1.0, poll_interval=0.001).run())).payload

    assert asyncio.run(reported()) == {
        "job": "orders",
        "error": f'timed out waiting for output beyond the point of failure of job "orders": {refused}',
    }
