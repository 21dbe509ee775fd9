"""`[kafka] report_lag_to`: a consumer group has the offsets of the last commit; real Kafka and ZooKeeper."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.waiting import HANGS_S, wait_until

from lowtide.conf import Conf
from lowtide.driver.lag_group import LagGroup
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.format.manifest import FrontAt, Manifest
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import StoreSetting, open_store

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper]


def consumer(kafka: Kafka, group: str) -> Any:
    return Consumer({"bootstrap.servers": kafka.address, "group.id": group, "enable.auto.commit": False})


def test_the_groups_lag_is_what_a_start_would_read_again(
    kafka: Kafka, zookeeper: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, job, group = kafka.topic("orders", 2), f"lag-{uuid.uuid4().hex[:8]}", f"lag-{uuid.uuid4().hex[:8]}"
    for partition in (0, 1):
        kafka.produce(topic, [{"number": number} for number in range(10)], partition=partition)
    conf = Conf.load(None, {"kafka.bootstrap_servers": kafka.address, "snapshots.url": str(tmp_path)})
    files, record = open_store(StoreSetting(str(tmp_path))), JobRecord(job, 2, 16, 2, "log", 1, (f"orders={topic}",))
    lag = LagGroup(conf, group)
    ours = consumer(kafka, group)

    def committed() -> list[int]:
        asked = ours.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=HANGS_S)
        return [each.offset for each in asked]

    with JobStore(zookeeper, job) as store:
        store.freeze(record)
        store.take_lease("test", 10.0, lambda _: None)
        life, log = store.raise_incarnation(), ZooKeeperCommitLog(store)

        def commit(number: int, *offsets: int) -> None:
            fronts = tuple(FrontAt(at, topic, "id", at, offset, 1) for at, offset in enumerate(offsets))
            manifest = Manifest(
                job=job, id=f"{life:06d}-{number:04d}", name=None, tick=number, incarnation=life,
                created="2026-01-31T12:00:00.000Z", base=None, record=record, flow=(), fronts=fronts, floors=(),
                lasts=(), parts=(),
            )  # fmt: skip
            files.put(manifest.path, manifest.to_json().encode())
            log.commit(manifest, sha256(manifest.to_json().encode()))

        assert lag.follow(log), "there is nothing to report yet"
        commit(1, 4, 7)
        wait_until(lambda: lag.follow(log), HANGS_S, "the broker has loaded what it knows of groups")
        assert committed() == [4, 7]
        commit(2, 9, 10)
        assert lag.follow(log)
        assert lag.follow(log)
        assert committed() == [9, 10]
        member = consumer(kafka, group)
        member.subscribe([topic])
        wait_until(lambda: member.poll(0.1) is not None or bool(member.assignment()), HANGS_S, "it joins")
        commit(3, 10, 10)
        assert not lag.follow(log), "a group with members belongs to them"
        assert f"[kafka] report_lag_to: group {group} does not take offsets" in caplog.text
        member.close()
        wait_until(lambda: lag.follow(log), HANGS_S, "it has left")
        assert committed() == [10, 10]
    ours.close()
    files.close()
