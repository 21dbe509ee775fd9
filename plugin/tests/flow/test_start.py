"""Where a source is read from: what may be said, and that it is said in one way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import lowtide as lt
from lowtide.connectors.topics import Topic
from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.driver.starts import _refuse_to_come, refuse_other_starts
from lowtide.errors import FlowError
from lowtide.flow.check import check_flow
from lowtide.flow.compiler import compile_flow
from lowtide.flow.start import Start, start_of


def flow_from(start: Any) -> lt.Flow:
    flow = lt.Flow("starts")
    flow.read("in", lt.kafka("in", lt.raw(), start=start)).write("out", lt.kafka("out", lt.raw()))
    return flow


def test_a_start_is_said_in_one_way() -> None:
    there = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    said = [str(start_of(each)) for each in ("earliest", "latest", there, {1: 7, 0: 5})]
    assert said == ["earliest", "latest", "2026-03-01T10:00:00+00:00", "offsets 0: 5, 1: 7"]
    assert start_of(there) == start_of(there.astimezone(UTC))
    assert start_of("earliest") == Start()


@pytest.mark.parametrize("start", ["newest", 5, None, {}, {"0": 1}, {0: -1}, {0: True}, datetime(2026, 3, 1)])
def test_what_is_no_start_is_refused(start: Any) -> None:
    with pytest.raises(FlowError, match=r"is no start|has no time zone"):
        flow_from(start)


def test_a_sink_has_no_start() -> None:
    flow = lt.Flow("starts")
    stream = flow.read("in", lt.kafka("in", lt.raw()))
    with pytest.raises(FlowError, match="write has no start=, found latest"):
        stream.write("out", lt.kafka("out", lt.raw(), start="latest"))


def test_two_sources_of_one_topic_begin_in_one_place() -> None:
    flow = flow_from("latest")
    flow.read("again", lt.kafka("in", lt.raw())).write("more", lt.kafka("more", lt.raw()))
    (finding,) = check_flow(flow)
    assert finding.message.startswith("topic 'in' is read from start=latest at ")
    assert finding.message.endswith("and here from earliest; say the same in both places")


def test_a_later_start_that_says_otherwise_is_refused_with_both() -> None:
    register, entry = FrontRegister().opened(Partition("in", "x", 0), offset=5, above=NO_TICK, start="latest")
    again = FrontRegister.from_json(register.to_json())
    assert (again, again.entries[0].start, entry.offset) == (register, "latest", 5)
    refuse_other_starts(compile_flow(flow_from("latest"), parallelism=1), again)
    refuse_other_starts(compile_flow(flow_from("earliest"), parallelism=1), FrontRegister())
    with pytest.raises(FlowError, match=r'topic "in" is now to be read from start=offsets 0: 3, .* from latest on'):
        refuse_other_starts(compile_flow(flow_from({0: 3}), parallelism=1), again)
    before, _ = FrontRegister().opened(Partition("in", "x", 0), offset=0, above=NO_TICK)
    assert "start" not in before.to_json()[0], "entries of jobs that began before there was a choice are as they were"
    with pytest.raises(FlowError, match="start=latest, and the job has read it from earliest on"):
        refuse_other_starts(compile_flow(flow_from("latest"), parallelism=1), before)


def test_a_moment_that_is_still_to_come_is_refused() -> None:
    now, topic = datetime(2026, 3, 1, tzinfo=UTC), Topic("in", 1, "CreateTime", "delete", "")
    _refuse_to_come(topic, now + timedelta(seconds=30), now)  # A broker's clock may be so far ahead.
    with pytest.raises(FlowError, match=r'"in" is to be read from start=2026-03-02.* and it is 2026-03-01') as refused:
        _refuse_to_come(topic, now + timedelta(days=1), now)
    assert 'start="latest"' in refused.value.way_out
