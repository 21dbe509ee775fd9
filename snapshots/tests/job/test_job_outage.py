"""A ZooKeeper that restarts, hangs, is away, or whose answers are lost."""

import logging
import os
import re
import signal
import time
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_snapshots.errors import ZooKeeperUnavailable
from lowtide_snapshots.job.borrowed import Borrowed

pytestmark = pytest.mark.zookeeper

LONG_S = 10.0
ENTRY = {"number": 0, "source": "documents", "topic_id": "x", "partition": 0, "offset": 0, "opening": 0}
WRITES = (
    "add_fronts",
    "add_sink_ids",
    "set_lasts",
    "set_steps",
    "set_records",
    "set_places",
    "set_partitions",
    "set_borrowed",
    "publish",
    "set_life",
)


@pytest.mark.slow
def test_a_restart_of_zookeeper_within_the_time_out_changes_nothing(place: Any, zookeeper_services: Any) -> None:
    mine = place.open(session_timeout_s=LONG_S)
    life = place.living(mine, "the same")
    mine.publish(life, 5)
    session = mine._zk.session
    zookeeper_services.stop("zookeeper", grace_s=0)
    try:
        for _ in range(20):
            mine.keep_lease()
            time.sleep(0.05)
    finally:
        zookeeper_services.start("zookeeper")
    assert place.eventually(lambda: mine._zk.connected)
    mine.keep_lease()
    mine.publish(life, 6)
    assert (mine._zk.session, mine.holder(), mine.incarnation(), mine.published()) == (session, "the same", 1, 6)


@pytest.mark.slow
def test_keeping_the_lease_does_not_wait_for_a_zookeeper_that_hangs(place: Any, zookeeper_services: Any) -> None:
    mine = place.open(session_timeout_s=3.0)
    life = place.living(mine)
    time.sleep(1.1)
    os.kill(zookeeper_services.pid("zookeeper"), signal.SIGSTOP)
    try:
        started = time.monotonic()
        mine.keep_lease()
        assert 0.5 < time.monotonic() - started < HANGS_S / 2
    finally:
        os.kill(zookeeper_services.pid("zookeeper"), signal.SIGCONT)
    mine.keep_lease()
    mine.publish(life, 1)


@pytest.mark.parametrize("drop", ["request", "answer"])
def test_a_write_whose_answer_is_lost_is_done_once(place: Any, drop: str) -> None:
    with place.proxy() as proxy:
        mine = place.open(hosts=proxy.hosts, session_timeout_s=LONG_S)
        proxy.drop = drop
        mine.take_lease("me", 0, place.nobody)
        proxy.drop = drop
        assert mine.raise_incarnation() == 1
        assert proxy.dropped == 2
        for write in WRITES:
            proxy.drop = drop
            place.write(write, mine, 1)
        proxy.drop = drop
        mine.publish(1, 10**9 + 1)
        assert proxy.dropped == 2 + len(WRITES) + 1
        versions = [mine._zk.get(path) for path in (mine._paths.incarnation, mine._paths.published, mine._paths.life)]
        assert [node and node.version for node in versions] == [0, 1, 0]
        assert place.content(place.open()) == (
            [ENTRY],
            {"late"},
            ("late", 0),
            Borrowed("late", 10**9),
            {"steps": ["late"], "since": 0},
            {"source": {}, "sink": {"late": {}}},
            {"late": {}},
            {"late": 1},
            10**9 + 1,
            {"phase": "late"},
        )


@pytest.mark.slow
def test_without_zookeeper_every_call_ends_in_time_and_says_where(
    place: Any, zookeeper_services: Any, caplog: pytest.LogCaptureFixture
) -> None:
    mine = place.open()
    life = place.living(mine)
    place.waits(mine, 0.5)
    zookeeper_services.stop("zookeeper")
    try:
        with caplog.at_level(logging.DEBUG):
            for call in (mine.incarnation, mine.fronts, lambda: mine.publish(life, 1), mine.raise_incarnation):
                with pytest.raises(ZooKeeperUnavailable, match=rf"(?s){re.escape(place.hosts)}.*start or repair"):
                    call()
            mine.keep_lease()
        said = [record for record in caplog.records if record.name == "lowtide_snapshots.kazoo"]
        assert {record.levelno for record in said} <= {logging.WARNING}
        assert len(said) == len({record.msg for record in said})
        with pytest.raises(ZooKeeperUnavailable):
            place.open(limit_s=0.5)
        mine.close()
    finally:
        zookeeper_services.start("zookeeper")
