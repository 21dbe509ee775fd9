"""A driver program's settings for its service, for lives in tests."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from hanging import HANGS_S

from lowtide.assignment.setting import ControlSetting, LifeSetting
from lowtide.assignment.welcome import FrontStart
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.status.moment import JobShape


def setting(zookeeper: str = "", incarnation: int = 7, **others: Any) -> LifeSetting:
    """A life of two levels with one source partition; `others` are fields that differ."""
    plain = LifeSetting(
        levels=2,
        graph={1: []},
        parallelism=1,
        processes=1,
        dead_letters=False,
        shape=JobShape(
            job="test",
            incarnation=incarnation,
            started_ms=0,
            slack_ms=1,
            segments={1: "key_by"},
            sinks={"out": (1, 1)},
        ),
        driver_pid=os.getpid(),
        start=0,
        relied_on=0,
        published=None,
        capacity_ticks=1024,
        allowed_skew_ms=10,
        stall_limit_ms=60_000,
        fronts=[FrontStart(number=0, topic="in", partition=0, offset=0, opening=0)],
        topic_ids={"in": "the id of in"},
        kafka={"bootstrap.servers": "127.0.0.1:9"},
        zookeeper=ZooKeeperAccess(hosts=zookeeper, root="lowtide", session_timeout_s=20.0, reach_limit_s=HANGS_S),
        control=ControlSetting(host="127.0.0.1", port=0, token="a token of a test"),
    )
    return msgspec.structs.replace(plain, **others)
