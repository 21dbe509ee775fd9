"""What is refused before a job starts."""

from __future__ import annotations

import pytest
from stage_rig import deployment

from lowtide import Flow, kafka, raw
from lowtide.connectors.topics import Topic
from lowtide.driver.preflight import _refuse_compacted, _refuse_dated, _refuse_narrow, sink_topics
from lowtide.errors import FlowError
from lowtide.flow.compiler import compile_flow

TOPIC = Topic("out", 1, "CreateTime", "delete", "id of out")


def test_a_sink_with_fewer_partitions_than_lanes_is_refused() -> None:
    """R12: each lane owns a partition, else the order of its records would be nobody's."""
    plan = deployment(parallelism=2).plan
    with pytest.raises(FlowError, match='"out" has 1 partition, and the job 2 lanes') as caught:
        _refuse_narrow(plan, {"out": TOPIC})
    assert 'sink "out"' in str(caught.value)
    _refuse_narrow(deployment(parallelism=1).plan, {"out": TOPIC})


@pytest.mark.parametrize("cleanup", ["compact", "compact,delete"])
def test_a_compacted_source_is_refused(cleanup: str) -> None:
    """R3: read again, it would not give the same records."""
    with pytest.raises(FlowError, match="is compacted"):
        _refuse_compacted([TOPIC, Topic("in", 1, "CreateTime", cleanup, "id of in")])
    _refuse_compacted([TOPIC])


def test_dead_letters_count_as_written_and_a_topic_once() -> None:
    flow = Flow("twice", dead_letters=kafka("out", raw()))
    stream = flow.read("in", kafka("in", raw())).key_by("key")
    stream.write("one", kafka("out", raw()))
    stream.write("two", kafka("other", raw()))
    assert sink_topics(compile_flow(flow, parallelism=1)) == ["out", "other"]


def test_a_sink_whose_broker_dates_the_records_is_refused() -> None:
    """R13: a delivered record's timestamp is its tick's, the same in every life."""
    with pytest.raises(FlowError, match='"late" is written, and the broker gives its records timestamps') as caught:
        _refuse_dated([TOPIC, Topic("late", 1, "LogAppendTime", "delete", "id of late")])
    assert "set message.timestamp.type=CreateTime" in str(caught.value)
    _refuse_dated([TOPIC])
