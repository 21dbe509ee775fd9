"""Hosts of an executor with one connection to the tracker: real service, fork server, tracker, relay (R10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import cloudpickle
import psutil
import pytest
from idle_stage import IdleHost, IdleStage, StageDeployment

from lowtide.assignment.birth import Birth
from lowtide.assignment.welcome import Welcome
from lowtide.process.tracker_line import TrackerLine
from lowtide.process.wire import Kind
from lowtide.worker.protocol import Frames
from lowtide_tracker import LocalTracker
from lowtide_tracker.unix import UNIX

if TYPE_CHECKING:
    from process_life import Life

pytestmark = pytest.mark.zookeeper
Until = Callable[[Callable[[], object]], object]


class Lined(IdleStage):
    """A stage with a line to where it was told that the tracker is; it answers frames with that line's state."""

    def __init__(self, birth: Birth, welcome: Welcome) -> None:
        self._local = LocalTracker(birth.host, birth.incarnation, start=0)
        self._line = TrackerLine(
            welcome.tracker, secret=birth.secret, incarnation=birth.incarnation, local=self._local, name=birth.name
        )
        self._line.connect()

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        era, whole = self._local.min_times.era, self._line.fileno() >= 0
        return [(0, f"{self._line.address} {era if whole else 0}".encode()) for _ in messages]

    def tick(self, now_s: float) -> Frames:
        if self._line.mend(now_s):
            for notice in self._line.receive():
                self._local.hear(notice)
        return []

    def due_s(self, now_s: float) -> float:
        return 0.01


class Relayed(StageDeployment):
    """Hosts that ask for a relay."""

    relay = True

    def __init__(self) -> None:
        super().__init__(IdleStage)

    def stage(self, birth: Birth, welcome: Welcome, host: IdleHost) -> IdleStage:
        stage = host.stages[birth.name] = Lined(birth, welcome)
        return stage


cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Lined"]))


def test_hosts_of_an_executor_have_one_relay_which_is_replaced_and_goes_with_the_life(
    life: Life, until: Until, kill: Callable[[int], None]
) -> None:
    life.processes = 2
    life.begin(Relayed())
    tasks = [life.attach(worker, 0) for worker in ("1/0", "1/1")]

    def lines() -> list[tuple[str, int]]:
        found = []
        for task in tasks:
            assert not isinstance(task, str), task
            task.send(Kind.FRAME, b"x")
            at, _, era = task.receive()[1][4:].decode().rpartition(" ")
            found.append((at, int(era)))
        return found

    def whole(era: int) -> bool:
        return [found for _, found in lines()] == [era, era]

    def relay() -> int | None:
        """The one child of the fork server that is no host."""
        children = {each.pid for each in psutil.Process(life.executors["0"].pid).children()}
        left = children - set(life.pids().values())
        return left.pop() if len(left) == 1 else None

    assert until(lambda: whole(1))
    (at,) = {at for at, _ in lines()}
    assert at.startswith(UNIX)
    first = relay()
    assert first is not None
    kill(first)
    assert until(lambda: relay() not in (None, first))
    assert until(lambda: whole(1))
    of_service = psutil.Process(life.service.pid).children()
    kill(next(each.pid for each in of_service if "lowtide.service.tracker.main" in each.cmdline()))
    assert until(lambda: whole(2))
    last = relay()
    assert last is not None
    life.finish()
    assert until(lambda: not psutil.pid_exists(last))
