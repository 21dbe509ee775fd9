"""True if the sources still reach back to the last commit, as the job itself sees it (R17)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from lowtide.service.fronts.reach import Reach, earliest
from lowtide_snapshots.commits.log import utc
from lowtide_snapshots.format.manifest import FrontAt, Manifest
from lowtide_snapshots.job.record import JobRecord

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = pytest.mark.kafka


def manifest(topic: str, offset: int) -> Manifest:
    record = JobRecord("job", 2, 128, 2, "log", 1, (f"in={topic}",))
    fronts = tuple(FrontAt(number, topic, "id", number, offset, 1) for number in range(2))
    return Manifest(
        job="job",
        id="000001-0001",
        name=None,
        tick=1,
        incarnation=1,
        created=utc(datetime.now(UTC)),
        base=None,
        record=record,
        flow=(),
        fronts=fronts,
        floors=(),
        lasts=(),
        parts=(),
    )


def test_r17_a_source_that_is_cut_behind_the_last_commit_is_reported(kafka: Kafka) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = kafka.topic("reach", 2)
    kafka.produce(topic, [b"%d" % number for number in range(10)])
    settings: dict[str, Any] = {"bootstrap.servers": kafka.address}
    admin = AdminClient(settings)
    for future in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(30)
    assert earliest(settings, [(topic, 0), (topic, 1), ("no-such-topic", 0)]) == {(topic, 0): 6, (topic, 1): 0}

    async def looked(offset: int | None) -> tuple[dict[int, int], str]:
        commit = None if offset is None else manifest(topic, offset)
        reach = Reach(settings, lambda: commit)
        reach.look(0.0)
        await reach.close()
        return reach.spare(), reach.trouble

    assert asyncio.run(looked(None)) == ({}, "")
    assert asyncio.run(looked(6)) == ({0: 0, 1: 6}, "")
    spare, trouble = asyncio.run(looked(5))
    assert spare == {0: -1, 1: 5}
    assert f"deleted from {topic}-0; take a snapshot now" in trouble


def test_what_kafka_does_not_tell_is_not_known() -> None:
    assert earliest({"bootstrap.servers": "127.0.0.1:1"}, [("in", 0)], limit_s=0.5) == {}
