"""When a tracker's process reports: by a clock that is set, and by a process that has no other reason to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tracker_life import TrackerLife, Worker

from lowtide.service.tracker import process
from lowtide.service.tracker.reports import LEAST_S, QUIET_S, Reports


class Turns(asyncio.SelectorEventLoop):
    """A loop whose clock moves with `pass_s` alone."""

    now_s = 100.0

    def time(self) -> float:
        return self.now_s

    async def pass_s(self, seconds: float) -> None:
        """Let time pass, and everybody whose time has come have a turn."""
        self.now_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)


class Said:
    """What is reported of a number, and whether it is taken."""

    def __init__(self) -> None:
        self.value = 0
        self.values: list[int] = []
        self.takes = True

    def __call__(self) -> bool:
        if self.takes:
            self.values.append(self.value)
        return self.takes


def run(what: Callable[[Turns, Said, Reports], Coroutine[Any, Any, None]]) -> None:
    loop = Turns()

    async def main() -> None:
        said = Said()
        reports = Reports(said)
        await loop.pass_s(0)
        assert said.values == [0], "the first one goes at once"
        await what(loop, said, reports)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_what_moves_is_reported_at_once_and_then_not_too_often() -> None:
    async def what(loop: Turns, said: Said, reports: Reports) -> None:
        await loop.pass_s(2 * LEAST_S)
        for said.value in range(1, 5):
            reports.moved()
            await loop.pass_s(LEAST_S / 8)
        assert said.values == [0, 1]
        await loop.pass_s(LEAST_S)
        assert said.values == [0, 1, 4], "of what has moved meanwhile the newest is reported, and not lost"
        await loop.pass_s(QUIET_S - LEAST_S / 8)
        assert said.values == [0, 1, 4], "nothing moves, and nothing is reported"

    run(what)


def test_while_nothing_moves_a_report_comes_now_and_then() -> None:
    async def what(loop: Turns, said: Said, reports: Reports) -> None:
        for number in range(2, 5):
            await loop.pass_s(QUIET_S)
            assert len(said.values) == number
        reports.close()
        await loop.pass_s(QUIET_S)
        reports.moved()
        await loop.pass_s(QUIET_S)
        assert len(said.values) == 4

    run(what)


def test_what_was_not_taken_is_said_again_as_it_is_then() -> None:
    async def what(loop: Turns, said: Said, reports: Reports) -> None:
        said.takes = False
        await loop.pass_s(LEAST_S)
        said.value = 1
        reports.moved()
        await loop.pass_s(0)
        assert said.values == [0]
        said.value, said.takes = 2, True
        await loop.pass_s(LEAST_S)
        assert said.values == [0, 2]

    run(what)


UNMOVED = """
from lowtide.service.tracker import main, reports

reports.QUIET_S = 3600.0
main.main()
"""


@pytest.fixture
def only_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process report nothing but its first report and what moves."""
    monkeypatch.setattr(process, "PROGRAM", ("-c", UNMOVED))


@pytest.mark.usefixtures("only_what_moves")
def test_min_time_is_reported_as_it_moves_up_to_its_last_step() -> None:
    with TrackerLife() as life:
        life.reported(lambda report: report.global_min == 0)
        one = Worker(life, 1)
        for tick in range(1, 200):
            one.local.heartbeat(0, tick)
            one.turn()
        life.reported(lambda report: report.global_min == 199)
