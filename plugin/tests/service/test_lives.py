"""Lives: what workers say at once to be durable is looked at once for all of them, and as soon as it is said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from life_settings import setting

from lowtide.assignment.messages import Refused, StillRuns
from lowtide.assignment.setting import pack
from lowtide.process.doors import DoorKind, Doors
from lowtide.service.lives import Lives
from lowtide.service.workers.executors import Executors
from lowtide.service.workers.register import Register, Worker
from lowtide.status.gauges import WorkerGauges, WorkerState
from lowtide.status.teller import delivered_time


def test_what_several_workers_have_delivered_is_looked_at_once() -> None:
    seen: list[int | None] = []

    def look(workers: Sequence[WorkerState]) -> None:
        seen.append(delivered_time(workers, 2))

    async def story() -> None:
        lives = Lives(b"", Executors({}), Doors(DoorKind.TCP, "127.0.0.1"))
        names = ("1/0", "1/1")
        lives.register = Register(1, workers={name: Worker(name, place, "0", 0) for place, name in enumerate(names)})
        lives.running = cast("Any", SimpleNamespace(life=SimpleNamespace(look_at_delivered=look)))
        lives.delivered("1/0", 7)
        await asyncio.sleep(0)
        assert seen == [], "it has not said anything of itself yet"
        lives.gauges = {name: WorkerGauges(delivered_time=5) for name in names}
        for name, tick in zip(names, (9, 8), strict=True):
            lives.delivered(name, tick)
        await asyncio.sleep(0)
        assert seen == [8]
        lives.delivered("1/1", 12)
        await asyncio.sleep(0)
        assert seen == [8, 9]

    asyncio.run(story())


def test_a_service_runs_one_life_and_leaves_it_alone_when_another_one_asks() -> None:
    async def story() -> None:
        lives = Lives(b"", Executors({}), Doors(DoorKind.TCP, "127.0.0.1"))
        first = lives.register = Register(4, workers={"1/0": Worker("1/0", 0, "0", 0)})
        later = await lives.begin(pack(setting("host:2181", 5), b""))
        assert later == StillRuns(4)
        assert isinstance(await lives.begin(pack(setting("host:2181", 4), b"")), Refused)
        assert lives.register is first
        assert first.runs

    asyncio.run(story())
