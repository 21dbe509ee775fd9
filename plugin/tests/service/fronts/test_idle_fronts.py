"""Fronts that nobody reads yet: the service speaks for them, with a real tracker, until their worker comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from stage_rig import INCARNATION, LIMIT_S, PARTITIONS, SECRET, Served, deployment, gauges_of_front, stage_of, tick

from lowtide.assignment.messages import Grant
from lowtide.assignment.welcome import FrontStart
from lowtide.core.fronts.end import end_tick
from lowtide.process.tracker_line import TrackerLine
from lowtide.service.fronts.idle_fronts import SERVICE_WORKER, IdleFronts
from lowtide_snapshots.cause import Cause
from lowtide_tracker import Floor, LocalTracker, TrackerClient

END = end_tick(1)


@pytest.fixture
def tracker() -> Iterator[Served]:
    with Served() as served:
        yield served
        assert served.faults == []


class Speaking:
    """The service's part, in the loop of the test."""

    def __init__(self, tracker: Served, stop: int | None = None) -> None:
        self.lost: list[Cause] = []
        self.min_times: list[int] = []
        local = LocalTracker(SERVICE_WORKER, INCARNATION, start=0)
        line = TrackerLine(tracker.address, secret=SECRET, incarnation=INCARNATION, local=local, name="service")
        self.idle = IdleFronts(line, local, on_min_time=self.min_times.append, on_lost=self.lost.append, end=END)
        self.idle.connect()
        for number in range(PARTITIONS):
            start = FrontStart(number=number, topic="orders", partition=number, offset=7, opening=0, stop=stop)
            self.idle.add(start)

    def grant(self, *ticks: int, offset: int = 7) -> None:
        for front, to in enumerate(ticks):
            self.idle.grant(front, offset, to)
        self.idle.flush()

    async def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.002)

    @property
    def min_time(self) -> int:
        """As the service's own line has heard it (R5)."""
        return self.idle._local.global_min


def test_promises_let_min_time_go_on_with_their_floors(tracker: Served) -> None:
    async def speak() -> None:
        speaking = Speaking(tracker)
        listener = TrackerClient(tracker.address, secret=SECRET, incarnation=INCARNATION)
        await asyncio.to_thread(listener.connect)
        speaking.grant(20, 30)
        await speaking.until(lambda: speaking.min_time == 20)
        speaking.idle.close()
        floors = [floor for notice in listener.receive(1.0) for floor in notice.floors]
        assert Floor(0, 7, 20) in floors, "R2: what min time rests on travels with it"

    asyncio.run(speak())


def test_a_front_at_its_stop_is_closed_without_a_floor_and_stays_so_with_its_worker(tracker: Served) -> None:
    async def speak() -> None:
        speaking = Speaking(tracker, stop=9)
        speaking.grant(END, END)
        await speaking.until(lambda: speaking.min_time == END)
        start = await asyncio.wait_for(speaking.idle.hand_over(0), LIMIT_S)
        assert (start.offset, start.opening, start.floors) == (9, 0, [])
        speaking.idle.close()

    asyncio.run(speak())


def test_a_grant_counts_only_at_the_offset_that_is_expected_and_never_falls(tracker: Served) -> None:
    """R2."""

    async def speak() -> None:
        speaking = Speaking(tracker)
        speaking.grant(20, 20, offset=8)
        assert {each.heartbeat for each in speaking.idle.promised().values()} == {0}
        speaking.grant(20, 20)
        speaking.grant(10, 10)
        assert {each.heartbeat for each in speaking.idle.promised().values()} == {20}
        speaking.idle.close()

    asyncio.run(speak())


def test_a_front_is_handed_over_once_the_tracker_knows_all_promises(tracker: Served) -> None:
    """Of two heartbeats of one front, the worker's must not come before the service's."""

    async def speak() -> None:
        speaking = Speaking(tracker)
        speaking.grant(20, 20)
        await speaking.until(lambda: not speaking.idle._local.unacknowledged())
        tracker.stop()
        speaking.grant(40, 40)
        handing = asyncio.create_task(speaking.idle.hand_over(0))
        await asyncio.sleep(0.2)
        assert not handing.done(), "nobody has said that the promise has come"
        speaking.grant(90)
        tracker.start([SERVICE_WORKER])
        start = await asyncio.wait_for(handing, LIMIT_S)
        assert (start.opening, start.floors) == (40, [(7, 40)]), "nothing was promised after that"
        assert 0 not in speaking.idle
        speaking.grant(0, 60)
        await speaking.until(lambda: speaking.min_time == 40)
        stage = stage_of(deployment(), "0/orders-0", 0, tracker.address, None, **kept_of(start))
        tick(stage, time.monotonic())
        assert gauges_of_front(stage).heartbeat == 40, "its worker begins above the promise"
        stage.follow(Grant(0, 7, 50, 0))
        tick(stage, time.monotonic() + 1)
        await speaking.until(lambda: speaking.min_time == 50)
        speaking.idle.close()

    asyncio.run(speak())


def kept_of(start: FrontStart) -> dict[str, object]:
    return {"offset": start.offset, "opening": start.opening, "floors": start.floors}


def test_a_front_that_was_not_there_opens_at_or_above_min_time(tracker: Served) -> None:
    """R3."""

    async def speak() -> None:
        speaking = Speaking(tracker)
        speaking.grant(20, 30)
        await speaking.until(lambda: speaking.min_time == 20)
        assert speaking.idle.open(2, 5) >= 20
        assert speaking.idle.open(3, 70) == 70
        speaking.grant(60, 60)
        await asyncio.sleep(0.1)
        assert speaking.min_time < 60, "it counts from then on"
        speaking.idle.close()

    asyncio.run(speak())
