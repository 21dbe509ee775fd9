"""Watchers' events, and the numbers that Airflow stores, over restarts, outages, false alarms; the job is a script."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hanging import HANGS_S

from lowtide_airflow.job.services import Services
from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.job.life import Life

if TYPE_CHECKING:
    from pydantic import JsonValue

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]


class Kept:
    """Airflow's store of an asset's state, as a watcher has it."""

    def __init__(self) -> None:
        self.values: dict[str, JsonValue] = {}
        self.refuses = 0
        """Number of calls that it answers with an error."""
        self.error: Exception = RuntimeError("API_SERVER_ERROR")

    def _answer(self) -> None:
        if self.refuses:
            self.refuses -= 1
            raise self.error

    async def aget(self, key: str, default: JsonValue = None) -> JsonValue:
        self._answer()
        return self.values.get(key, default)

    async def aset(self, key: str, value: JsonValue) -> None:
        self._answer()
        assert value is not None, "Airflow takes no None"
        self.values[key] = value


class Scene:
    """A job, Airflow's store and a clock, and a watcher among them."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.now_s = 1_000.0
        self.job: JobStatus | None = None
        self.looks = 0

    def client(self, services: Services, job: str, _connection: object = None) -> Any:
        def status() -> JobStatus:
            self.looks += 1
            assert self.job is not None
            return self.job

        nothing = SimpleNamespace(services=services, open=lambda: None, close=lambda: None)
        return SimpleNamespace(**vars(nothing), status=status, delivered_ms=lambda: status().delivered_ms)

    def is_(
        self,
        incarnation: int,
        *,
        held: bool = True,
        delivered_ms: int | None = None,
        phase: str = "running",
        **said: Any,
    ) -> None:
        life = Life(incarnation, phase, None, "", "process 1", "", **said)
        self.job = JobStatus("orders", True, "process 1" if held else None, incarnation, life, delivered_ms, 10, 1)

    def deaths(self) -> Any:
        from lowtide_airflow.triggers import JobDiedTrigger

        return self._given(JobDiedTrigger(job="orders", lowtide_conn_id="there", poll_interval=0.001, gone_s=0.0))

    def hours(self) -> Any:
        from lowtide_airflow.triggers import DeliveredTimePassedTrigger

        return self._given(
            DeliveredTimePassedTrigger(job="orders", lowtide_conn_id="there", poll_interval=0.001, every_s=1)
        )

    def _given(self, trigger: Any) -> Any:
        trigger.asset_state_store = self.kept
        return trigger


class Watched:
    """The events of a watcher while it is in the triggerer."""

    def __init__(self, scene: Scene, trigger: Any) -> None:
        self.reported: list[Any] = []
        self._scene = scene
        self._trigger = trigger

    async def __aenter__(self) -> Watched:
        async def hear() -> None:
            async for event in self._trigger.run():
                self.reported.append(event.payload.get("incarnation", event.payload.get("to_ms")))

        self._hearing = asyncio.create_task(hear())
        return self

    async def looks(self) -> Watched:
        """Some more looks are over, with all that follows from them."""
        wanted = self._scene.looks + 3
        async with asyncio.timeout(HANGS_S):
            while self._scene.looks < wanted:
                assert not self._hearing.done(), self._hearing
                await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)


@pytest.fixture(name="scene")
def _scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    from lowtide_airflow.triggers import shared, watcher

    scene = Scene()
    monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "lowtide", "host": "zk-1"}))
    monkeypatch.setattr(shared, "SeenJob", scene.client)
    monkeypatch.setattr(Services, "connection", lambda _: SimpleNamespace(open=lambda: None, close=lambda: None))
    monkeypatch.setattr(watcher, "time", SimpleNamespace(monotonic=lambda: scene.now_s))
    return scene


def run(plays: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(plays())


def test_airflows_store_is_asked_as_it_can_be() -> None:
    context = pytest.importorskip("airflow.sdk.execution_time.context")
    if not hasattr(context, "AssetStateStoreAccessors"):
        pytest.skip("before Airflow 3.3 there is no such store")
    for name in ("aget", "aset"):
        ours, airflows = (inspect.signature(getattr(kind, name)) for kind in (Kept, context.AssetStateStoreAccessors))
        assert str(ours) == str(airflows)


def test_what_was_reported_is_kept_a_minute_later_and_reported_once(scene: Scene) -> None:
    async def plays() -> None:
        scene.is_(5, held=False)
        async with Watched(scene, scene.deaths()) as watcher:
            await watcher.looks()
            scene.now_s += 59.0
            await watcher.looks()
            assert scene.kept.values == {}
            scene.now_s += 1.0
            await watcher.looks()
            assert scene.kept.values == {"lowtide_reported_incarnation": 5}
            assert watcher.reported == [5]

    run(plays)


def test_what_was_reported_just_before_the_triggerer_ended_is_reported_once_more(scene: Scene) -> None:
    async def plays() -> None:
        scene.is_(5, held=False)
        for _ in range(2):
            async with Watched(scene, scene.deaths()) as watcher:
                assert (await watcher.looks()).reported == [5]
            assert scene.kept.values == {}
        async with Watched(scene, scene.deaths()) as watcher:
            await watcher.looks()
            scene.now_s += 60.0
            await watcher.looks()
        async with Watched(scene, scene.deaths()) as watcher:
            assert (await watcher.looks()).reported == []

    run(plays)


def test_each_number_is_kept_when_it_is_old_enough(scene: Scene) -> None:
    async def plays() -> None:
        scene.kept.values["lowtide_reported_ms"] = 10_000
        scene.is_(1, delivered_ms=12_100)
        async with Watched(scene, scene.hours()) as watcher:
            await watcher.looks()
            scene.now_s += 30.0
            scene.is_(1, delivered_ms=13_100)
            assert (await watcher.looks()).reported == [11_000, 12_000, 13_000]
            scene.now_s += 30.0
            await watcher.looks()
            assert scene.kept.values == {"lowtide_reported_ms": 12_000}
            scene.now_s += 30.0
            await watcher.looks()
            assert scene.kept.values == {"lowtide_reported_ms": 13_000}

    run(plays)


def test_what_airflow_did_not_keep_it_is_given_again(scene: Scene) -> None:
    async def plays() -> None:
        scene.is_(5, held=False)
        async with Watched(scene, scene.deaths()) as watcher:
            await watcher.looks()
            scene.kept.refuses = 2
            scene.now_s += 60.0
            await watcher.looks()
            await watcher.looks()
            assert scene.kept.values == {"lowtide_reported_incarnation": 5}
            assert watcher.reported == [5]

    run(plays)


def test_where_the_hours_begin_is_kept_at_once(scene: Scene) -> None:
    async def plays() -> None:
        scene.is_(1, delivered_ms=11_500)
        async with Watched(scene, scene.hours()) as watcher:
            assert (await watcher.looks()).reported == []
            assert scene.kept.values == {"lowtide_reported_ms": 11_000}
        scene.is_(1, delivered_ms=13_500)
        async with Watched(scene, scene.hours()) as watcher:
            assert (await watcher.looks()).reported == [12_000, 13_000]

    run(plays)


def test_no_hour_is_skipped_as_airflow_did_not_say_at_first_which_was_reported_last(scene: Scene) -> None:
    async def plays() -> None:
        scene.kept.values["lowtide_reported_ms"] = 11_000
        scene.kept.refuses = 3
        scene.is_(1, delivered_ms=13_500)
        async with Watched(scene, scene.hours()) as watcher:
            assert (await watcher.looks()).reported == [12_000, 13_000]

    run(plays)


def test_a_watcher_that_never_learns_which_was_reported_last_begins_all_the_same(scene: Scene) -> None:
    async def plays() -> None:
        scene.kept.refuses = 1_000_000
        scene.is_(5, held=False)
        async with Watched(scene, scene.deaths()) as watcher:
            await asyncio.sleep(0.05)
            assert (scene.looks, watcher.reported) == (0, [])
            scene.now_s += 61.0
            assert (await watcher.looks()).reported == [5]
        # It is for good where several assets have one trigger: which of them is meant is not said.
        scene.kept.error = ValueError("Task has 2 concrete inlets and outlets")
        async with Watched(scene, scene.deaths()) as watcher:
            assert (await watcher.looks()).reported == [5]

    run(plays)


def test_the_death_of_a_life_that_was_only_cut_off_before_is_reported_when_it_comes(scene: Scene) -> None:
    async def plays() -> None:
        scene.is_(4, held=False)
        async with Watched(scene, scene.deaths()) as watcher:
            await watcher.looks()
            scene.now_s += 15.0
            scene.is_(5, held=False)
            await watcher.looks()
            scene.now_s += 15.0
            scene.is_(5)
            await watcher.looks()
            assert scene.kept.values == {"lowtide_reported_incarnation": 4}
            scene.now_s += 60.0
            await watcher.looks()
            assert scene.kept.values == {"lowtide_reported_incarnation": 4}
            scene.is_(5, held=False)
            assert (await watcher.looks()).reported == [4, 5, 5]

    run(plays)


def test_a_start_by_a_task_that_failed_is_reported_by_the_task_and_not_as_a_death(scene: Scene) -> None:
    async def plays() -> None:
        of_a_task: dict[str, Any] = {"submission": "airflow:lowtide_recover__orders/run/recover", "again": False}
        async with Watched(scene, scene.deaths()) as watcher:
            scene.is_(4, held=False, phase="failed", ran=False, **of_a_task)
            await watcher.looks()
            scene.is_(5, held=False, phase="failed", ran=True, **of_a_task)
            await watcher.looks()
            scene.is_(6, held=False, phase="failed", ran=False, again=False)
            assert (await watcher.looks()).reported == [5, 6]

    run(plays)


@pytest.mark.parametrize(("incarnation", "kept"), [(5, 4), (2, 1)])
def test_what_is_taken_back_is_kept_at_once(scene: Scene, incarnation: int, kept: int) -> None:
    async def plays() -> None:
        scene.kept.values["lowtide_reported_incarnation"] = 5
        scene.is_(incarnation)
        async with Watched(scene, scene.deaths()) as watcher:
            assert (await watcher.looks()).reported == []
        assert scene.kept.values == {"lowtide_reported_incarnation": kept}
        # It dies while no triggerer runs.
        scene.is_(incarnation, held=False)
        async with Watched(scene, scene.deaths()) as watcher:
            assert (await watcher.looks()).reported == [incarnation]

    run(plays)


def test_the_memory_by_itself(scene: Scene) -> None:
    async def plays() -> None:
        trigger, kept = scene.deaths(), scene.kept
        assert await trigger._remembered() is None
        assert await trigger._remember(7)
        assert (kept.values, await trigger._remembered()) == ({"lowtide_reported_incarnation": 7}, 7)
        kept.refuses = 1
        assert not await trigger._remember(8)
        kept.values["lowtide_reported_incarnation"] = "a word"
        assert await trigger._remembered() is None
        trigger.asset_state_store = None
        assert (await trigger._remember(8), await trigger._remembered()) == (True, None)

    run(plays)
