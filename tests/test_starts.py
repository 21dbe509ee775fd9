"""Where a job's first start begins to read, on real Kafka: offsets are resolved once, and kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.judging import Judge, produce

from lowtide import Flow, kafka, raw
from lowtide.connectors.topics import Topics
from lowtide.driver.bounds import first_offsets
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.kafka]
BEGAN_MS = 1_772_359_200_000
LANES = 2


def flow_from(name: str, source: str, start: Any, sink: str = "out") -> Flow:
    flow = Flow(name)
    flow.read("in", kafka(source, raw(), start=start)).write("out", kafka(sink, raw()))
    return flow


@pytest.mark.spark
@pytest.mark.zookeeper
def test_a_job_begins_where_its_first_start_said_and_goes_on_from_there(
    spark: Spark, unique: Callable[[str], str]
) -> None:
    source, sink, name = spark.kafka.topic("in", 2), spark.kafka.topic("out", LANES), unique("starts")
    conf = spark.conf()
    old = [(b"old-%d" % number, BEGAN_MS + number * 1_000) for number in range(20)]
    produce(conf, source, {0: old, 1: old})
    start = datetime.fromtimestamp(BEGAN_MS / 1000 + 15, UTC)
    flow = flow_from(name, source, start, sink)
    topics = Topics(conf.kafka)
    topic = topics.describe(source)
    plan = compile_flow(flow, parallelism=1)
    found = first_offsets(plan, conf, (topic,), topics.earliest([topic]))
    assert found == {(source, 0): 15, (source, 1): 15}
    for asked, offsets in (("latest", (20, 20)), ({1: 7}, (0, 7)), ("earliest", (0, 0))):
        other = compile_flow(flow_from(name, source, asked), parallelism=1)
        firsts = first_offsets(other, conf, (topic,), topics.earliest([topic]))
        assert (firsts[source, 0], firsts[source, 1]) == offsets
    for wrong in ({2: 0}, {0: 21}):
        with pytest.raises(FlowError, match="start= names offset"):
            first_offsets(
                compile_flow(flow_from(name, source, wrong), parallelism=1), conf, (topic,), topics.earliest([topic])
            )
    to_come = compile_flow(flow_from(name, source, datetime.now(UTC) + timedelta(days=1)), parallelism=1)
    with pytest.raises(FlowError, match=r"but it is only .* now"):
        first_offsets(to_come, conf, (topic,), topics.earliest([topic]))
    with spark.job(flow):
        assert Judge(flow, conf).right()
    assert sorted(each.value() for each in spark.kafka.messages(sink, 10)) == sorted(value for value, _ in old[15:] * 2)
    with pytest.raises(FlowError, match="has read it from 2026"), spark.job(flow_from(name, source, "latest", sink)):
        pass
    produce(conf, source, {0: [(b"new", None)]})
    with spark.job(flow):
        assert Judge(flow, conf).right()
    assert [each.value() for each in spark.kafka.messages(sink, 11)].count(b"new") == 1
