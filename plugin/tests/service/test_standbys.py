"""What the service knows of the programs that wait for its job's lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lowtide.service.standbys import KEPT_S, NoStandby, Standbys, refuse_without
from lowtide_snapshots.errors import ZooKeeperUnavailable
from lowtide_snapshots.job.standbys import Standby

ONE = Standby("2026-01-01T00:00:00+00:00", "process 7 on there", True)


def test_they_are_read_every_few_seconds_and_kept_while_zookeeper_is_away() -> None:
    async def looks() -> tuple[int, list[Sequence[Standby]]]:
        count, found = 0, []

        async def read() -> Sequence[Standby]:
            nonlocal count
            count += 1
            if count == 2:
                raise ZooKeeperUnavailable("ZooKeeper did not answer", where="there", way_out="start it")
            return [ONE] if count == 1 else []

        standbys = Standbys(read)
        for now_s in (100.0, 101.0, 100.0 + KEPT_S, 100.0 + 2 * KEPT_S):
            standbys.look(now_s)
            await standbys.close()
            found.append(standbys.found)
        return count, found

    assert asyncio.run(looks()) == (3, [[ONE], [ONE], [ONE], []])


@pytest.mark.parametrize(
    ("waiting", "says"),
    [((), "no standby waits"), ((replace(ONE, ready=False),), "its standby still starts: process 7 on there")],
)
def test_a_job_is_handed_over_to_a_standby_that_is_ready_and_to_no_other(waiting: Sequence[Standby], says: str) -> None:
    async def read() -> Sequence[Standby]:
        return waiting

    standbys = Standbys(read)
    with pytest.raises(NoStandby, match=says):
        asyncio.run(standbys.ready("index"))
    refuse_without("index", [*waiting, ONE])
