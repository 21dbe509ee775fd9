"""The end of a source: what may be said, and that it is said in one way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import lowtide as lt
from lowtide.connectors.topics import Topic
from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.driver.bounds import has_an_end, refuse_other_stops, refuse_to_come
from lowtide.errors import FlowError
from lowtide.flow.formats.bounds import NOW, stop_of
from lowtide.flow.plan.check import check_flow
from lowtide.flow.plan.compiler import compile_flow


def flow_to(stop: Any) -> lt.Flow:
    flow = lt.Flow("stops")
    flow.read("in", lt.kafka("in", lt.raw(), stop=stop)).write("out", lt.kafka("out", lt.raw()))
    return flow


def test_a_stop_is_said_in_one_way() -> None:
    there = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    said = [str(stop_of(each)) for each in ("now", there, {1: 7, 0: 5})]
    assert said == ["now", "2026-03-01T10:00:00+00:00", "offsets 0: 5, 1: 7"]
    assert stop_of(there) == stop_of(there.astimezone(UTC))
    assert (stop_of("now"), stop_of(None)) == (NOW, None)


@pytest.mark.parametrize("stop", ["latest", 5, {}, {"0": 1}, {0: -1}, {0: True}, datetime(2026, 3, 1)])
def test_what_is_no_stop_is_refused(stop: Any) -> None:
    with pytest.raises(FlowError, match=r"is not a position to stop at|has no time zone"):
        flow_to(stop)


def test_a_sink_has_no_stop() -> None:
    flow = lt.Flow("stops")
    stream = flow.read("in", lt.kafka("in", lt.raw()))
    with pytest.raises(FlowError, match="write has no stop=, found now"):
        stream.write("out", lt.kafka("out", lt.raw(), stop="now"))


def test_two_sources_of_one_topic_end_in_one_place() -> None:
    flow = flow_to("now")
    flow.read("again", lt.kafka("in", lt.raw())).write("more", lt.kafka("more", lt.raw()))
    (finding,) = check_flow(flow)
    assert finding.message.startswith("topic 'in' is read to stop=now at ")
    assert finding.message.endswith("but here to None; use the same in both places")


def test_a_job_ends_if_all_its_sources_do() -> None:
    flow = flow_to("now")
    assert has_an_end(compile_flow(flow, parallelism=1))
    flow.read("live", lt.kafka("live", lt.raw())).write("more", lt.kafka("more", lt.raw()))
    assert not has_an_end(compile_flow(flow, parallelism=1))


def test_a_later_start_that_says_otherwise_is_refused_with_both() -> None:
    opened = FrontRegister().opened(Partition("in", "x", 0), offset=5, above=NO_TICK, stop=9, ends="now")
    again = FrontRegister.from_json(opened[0].to_json())
    assert again == opened[0]
    refuse_other_stops(compile_flow(flow_to("now"), parallelism=1), again)
    with pytest.raises(FlowError, match=r'"in" is now to be read to stop=offsets 0: 8, .* to stop=now') as refused:
        refuse_other_stops(compile_flow(flow_to({0: 8}), parallelism=1), again)
    assert refused.value.way_out.startswith("set stop=now again, or give the job another name")
    with pytest.raises(FlowError, match="is now to be read without stop=, but the job began to read it to stop=now"):
        refuse_other_stops(compile_flow(flow_to(None), parallelism=1), again)
    before, _ = FrontRegister().opened(Partition("in", "x", 0), offset=0, above=NO_TICK)
    assert "stop" not in before.to_json()[0], "entries of jobs without an end are as they were"
    with pytest.raises(FlowError, match=r"to stop=now, but the job began to read it without stop=") as refused:
        refuse_other_stops(compile_flow(flow_to("now"), parallelism=1), before)
    assert refused.value.way_out.startswith("leave stop= out, or give the job another name")


def test_a_moment_that_is_still_to_come_is_refused() -> None:
    now, topic = datetime(2026, 3, 1, tzinfo=UTC), Topic("in", 1, "CreateTime", "delete", "")
    with pytest.raises(FlowError, match=r'"in" is to be read to stop=2026-03-02.* only 2026-03-01') as refused:
        refuse_to_come(topic, now + timedelta(days=1), now, word="stop")
    assert 'stop="now"' in refused.value.way_out
