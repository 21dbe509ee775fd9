"""The parts of `lowtide bench calls` without a job: the service and its account, the flow, the figures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lowtide_bench import calling_report
from lowtide_bench.called import Connections, Service, called
from lowtide_bench.calling import summary
from lowtide_bench.record import Sample
from lowtide_bench.tables import markdown

SERVICE_MS = 5.0


def test_the_flow_asks_the_service_about_each_record_and_passes_it_on() -> None:
    samples = [Sample(f"k{number % 3}", number, number, "") for number in range(20)]
    with Service(SERVICE_MS) as service:
        flow = called("called", "in", "out", port=service.port)
        assert flow.run_locally(source=samples)["sink"] == samples
        counts = service.counts()
    assert (counts.keys, counts.twice) == (20, 0)
    assert counts.p50_ms >= SERVICE_MS


def test_the_service_counts_keys_that_it_is_asked_about_twice() -> None:
    async def ask(port: int) -> None:
        connections = Connections(port)
        await asyncio.gather(*map(connections.ask, ("a", "b", "c")))
        await connections.ask("b")

    with Service(0) as service:
        asyncio.run(ask(service.port))
        counts = service.counts()
    assert (counts.keys, counts.twice) == (3, 1)


def test_work_that_is_done_under_two_keys_is_counted_and_a_repeated_question_is_not() -> None:
    async def ask(port: int) -> None:
        connections = Connections(port)
        for key, record in (("a", "one"), ("a", "one"), ("b", "two"), ("c", "two")):
            await connections.ask(key, record)

    with Service(0) as service:
        asyncio.run(ask(service.port))
        counts = service.counts()
    assert (counts.keys, counts.twice, counts.records, counts.records_twice) == (3, 1, 2, 1)


def test_a_service_that_is_away_breaks_connections_and_comes_back_to_the_same_place() -> None:
    async def ask(service: Service) -> None:
        connections = Connections(service.port)
        open_ = asyncio.create_task(connections.ask("a", "one"))
        while not service.counts().keys:
            await asyncio.sleep(0.01)
        service.away(away=True)
        with pytest.raises(OSError, match=r"no answer|reset"):
            await open_
        with pytest.raises(ConnectionRefusedError):
            await connections.ask("a", "one")
        service.away(away=False)
        await connections.ask("b", "two")

    with Service(200) as service:
        asyncio.run(ask(service))
        assert service.counts().keys == 2


def turn(p50_ms: float, **more: Any) -> dict[str, Any]:
    noise = {"p90_ms": p50_ms, "p99_ms": p50_ms, "lost": 0, "marked": False, "host_turn_p99_ms": p50_ms / 10}
    return {"calls": bool(more), "p50_ms": p50_ms, **noise, **more}


def test_a_call_costs_what_its_turns_take_beyond_the_others_and_the_service() -> None:
    turns = [
        turn(10.0),
        turn(18.0, service_p50_ms=5.5, keys_called_twice=0),
        turn(12.0),
        turn(20.0, service_p50_ms=5.5, keys_called_twice=1),
    ]
    backlog = {"calls_per_s": 6_000.0, "lost": 2, "keys_called_twice": 1}
    found = summary(turns, backlog)
    costs = {"p50_over_service_ms": 2.5, "host_turn_p99_moved_ms": 0.8, "calls_per_s": 6_000.0}
    assert found == {**costs, "keys_called_twice": 2, "kills": 0, "lost": 2}
    uncounted = summary([{**each, "host_turn_p99_ms": None} for each in turns], backlog)
    assert uncounted["host_turn_p99_moved_ms"] is None
    assert summary(turns, None)["calls_per_s"] is None
    killed = {"kills": [{}, {}], "lost": 1, "keys_called_twice": 3}
    assert [summary(turns, backlog, killed)[name] for name in ("kills", "lost", "keys_called_twice")] == [2, 3, 5]
    shown = markdown(calling_report.tables({"rate": 1_000, "turns": turns, **found}), "")
    assert "| with a call | 18.0 |" in shown
    assert "| p50 beyond the service's, ms | 2.5 |" in shown
    assert "with a call less without, ms | 0.8 |" in shown


@pytest.mark.parametrize("window", [(0, 1), (1 << 61, 1 << 62)])
def test_no_question_has_no_p50(window: tuple[int, int]) -> None:
    with Service(0) as service:
        asyncio.run(Connections(service.port).ask("a"))
        assert service.counts(*window).p50_ms != service.counts(*window).p50_ms
