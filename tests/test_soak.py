"""Parts of `make soak`: its comparison, and its eye for what grows."""

from __future__ import annotations

import os

import pytest
from tests.shop import Shop
from tests.soak.flow import SOURCES
from tests.soak.load import DISORDER_MS, USERS, click
from tests.soak.memory import MIB, Sample, grown, resident_bytes, table
from tests.soak.run import kill_moments

from lowtide.flow.plan.check import check_flow


def samples(worker: float, late: float) -> list[Sample]:
    """Of 600 s: a worker of 100 MiB that grows each 100 s by a share, late by another; a service that is replaced."""
    found = []
    for at_s in range(0, 600, 2):
        size = 100 * (1 + worker * at_s / 100 + (late * (at_s - 300) / 100 if at_s > 300 else 0))
        roles = {"worker": round(size * MIB), "service": (50 if at_s < 450 else 48) * MIB}
        found.append(Sample(at_s, {} if 440 < at_s < 450 else roles))
    return found


def test_what_stays_as_it_is_is_right_and_so_is_what_shrinks() -> None:
    service, worker = grown(samples(0, 0), 200, 600, 60)
    assert (worker.role, worker.settled, worker.end, worker.most) == ("worker", 100 * MIB, 100 * MIB, 100 * MIB)
    assert worker.right
    assert service.right
    assert service.share < 1


@pytest.mark.parametrize(("worker", "late"), [(0.05, 0.0), (0.0, 0.04)])
def test_what_grows_by_more_than_a_tenth_is_seen(worker: float, late: float) -> None:
    service, found = grown(samples(worker, late), 200, 600, 60)
    assert not found.right
    assert service.right
    assert "grown" in table([service, found], 200).splitlines()[2]


def test_a_peak_is_reported_and_is_no_growth() -> None:
    peak = [*samples(0, 0), Sample(400, {"worker": 300 * MIB})]
    (worker,) = [each for each in grown(peak, 200, 600, 60) if each.role == "worker"]
    assert worker.right
    assert worker.most == 300 * MIB


def test_a_role_that_is_gone_in_the_end_is_no_figure() -> None:
    with pytest.raises(ValueError, match="no tracker was seen in the end"):
        grown([Sample(210, {"tracker": 1, "worker": 1}), Sample(590, {"worker": 1})], 200, 600, 60)


def test_a_process_takes_memory_and_one_that_is_gone_takes_none() -> None:
    assert resident_bytes(os.getpid()) > MIB
    assert resident_bytes(1 << 30) == 0


def test_its_flow_has_no_findings() -> None:
    shop = Shop("soak", tuple(SOURCES), "out", "", written_by="tests.soak.flow:flow")
    assert check_flow(shop.flow()) == []


def test_clicks_are_of_many_users_and_somewhat_out_of_order() -> None:
    found = [click(number, 10_000) for number in range(2 * USERS)]
    assert len({each.split(b'"')[3] for each in found}) == USERS
    times = [int(each.rpartition(b":")[2][:-1]) for each in found]
    assert 10_000 - DISORDER_MS < min(times) < max(times) <= 10_000


def test_one_is_killed_while_the_job_settles_and_the_others_when_it_has_been_looked_at() -> None:
    assert kill_moments(6, 300, 60, 1_800) == [100, 360, 600, 840, 1_080, 1_320]
    assert kill_moments(2, 80, 24, 240) == [80 / 3, 104]
    assert kill_moments(1, 300, 60, 1_800) == [100]
    assert kill_moments(0, 300, 60, 1_800) == []
