"""The tracker of several jobs, with jobs' lines on real sockets: it is replaced, and jobs die and are retired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hanging import HANGS_S

from lowtide.assignment.setting import GraphSetting
from lowtide.service.graph.line import GraphLine
from lowtide.service.graph_server import GraphServer
from lowtide_snapshots.cause import Cause

SECRET = "a secret that two jobs have"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS_S):
        while not true():
            await asyncio.sleep(0.005)


class Jobs:
    """Lines of several jobs to one address."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.lines: list[GraphLine] = []
        self.refused: list[str] = []

    def line(self, job: str, reads: str = "", writes: str = "", *, life: int = 1, after: str = "") -> GraphLine:
        setting = GraphSetting(
            address=f"127.0.0.1:{self.port}",
            secret=SECRET,
            reads=tuple(reads.split()),
            writes=tuple(writes.split()),
            after=tuple(after.split()),
        )
        line = GraphLine(setting, job=job, life=life, on_refused=self._refuse)
        line.start()
        self.lines.append(line)
        return line

    def _refuse(self, cause: Cause) -> None:
        self.refused.append(str(cause))


def say(line: GraphLine, delivered_ms: int, held_topic: str = "") -> None:
    line.say(delivered_ms=delivered_ms, min_time_ms=delivered_ms, holder="front x", held_topic=held_topic)


@asynccontextmanager
async def graph() -> AsyncIterator[tuple[GraphServer, Jobs]]:
    server = GraphServer(SECRET.encode(), settle_s=0)
    jobs = Jobs(server.serve("127.0.0.1")[1])
    try:
        yield server, jobs
    finally:
        for line in jobs.lines:
            await line.close()
        await server.close()


def test_a_job_hears_how_far_the_one_before_it_is_and_nothing_before_that_is_known() -> None:
    async def scene() -> None:
        async with graph() as (_, jobs):
            last = jobs.line("b", "orders clicks", "sums", after="a")
            assert last.promises == {"orders": None, "clicks": None}
            await until(lambda: "job a ([tracker] after) has not reported" in last.trouble)
            assert last.promises == {"orders": None, "clicks": None}
            first = jobs.line("a", "", "orders")
            await until(lambda: last.promises == {"orders": None})
            say(first, 40)
            await until(lambda: last.promises == {"orders": 40})
            await until(lambda: last.through_ms == 40 and not last.trouble)
            say(last, 30, "orders")
            await until(lambda: last.chain == ["job b waits for job a: front x", "job a is held by front x"])

    asyncio.run(scene())


def test_a_tracker_that_takes_a_dead_ones_place_gets_everything_of_dead_jobs_too() -> None:
    async def scene() -> None:
        async with graph() as (server, jobs):
            first, last = jobs.line("a", "", "orders"), jobs.line("b", "orders", "sums")
            say(first, 40)
            await until(lambda: last.promises == {"orders": 40})
            await first.close()
            await until(lambda: "job a" in last.trouble and "not running" in last.trouble)
            await server.close()
            await until(lambda: "does not answer" in last.trouble)
            assert last.promises == {"orders": 40}, "what was reported stays true"
            again = GraphServer(SECRET.encode(), settle_s=0)
            again.serve("127.0.0.1", jobs.port)
            await until(lambda: "not running" in last.trouble)
            assert last.promises == {"orders": 40}
            say(jobs.line("a", "", "orders", life=2), 50)
            await until(lambda: last.promises == {"orders": 50} and not last.trouble)
            await again.close()

    asyncio.run(scene())


def test_a_retired_job_is_forgotten_and_its_topic_is_as_any_other() -> None:
    async def scene() -> None:
        async with graph() as (server, jobs):
            first, last = jobs.line("a", "", "orders"), jobs.line("b", "orders", "sums")
            await until(lambda: bool(last.chain) and len(server.graph.jobs) == 2)
            await first.close()
            await until(lambda: "not running" in last.trouble)
            server.graph.forget("a")
            say(last, 1)
            await until(lambda: last.promises == {})
            assert last.through_ms is not None
            assert not last.trouble

    asyncio.run(scene())


def test_an_older_life_and_a_cycle_are_refused_with_the_reason() -> None:
    async def scene() -> None:
        async with graph() as (_, jobs):
            newer = jobs.line("a", "", "orders", life=2)
            await until(lambda: newer.through_ms is not None)
            jobs.line("a", "", "orders", life=1)
            await until(lambda: len(jobs.refused) == 1)
            jobs.line("b", "orders sums", "sums")
            await until(lambda: len(jobs.refused) == 2)
            assert "life 1 reported after life 2" in jobs.refused[0]
            assert 'job "b" would wait for itself for ever' in jobs.refused[1]

    asyncio.run(scene())


def test_one_without_the_secret_is_not_let_in() -> None:
    async def scene() -> None:
        async with graph() as (server, jobs):
            setting = GraphSetting(
                address=f"127.0.0.1:{jobs.port}", secret="another secret, as long", reads=("orders",), writes=()
            )
            line = GraphLine(setting, job="c", life=1, on_refused=lambda cause: None)
            line.start()
            await until(lambda: "does not answer" in line.trouble)
            assert "refuses this job's secret" in line.trouble
            assert "[tracker].secret_file" in line.trouble
            await line.close()
            assert server.graph.jobs == ()

    asyncio.run(scene())
