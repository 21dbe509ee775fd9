"""The start of a source: what may be said, and that it is said in one way."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import lowtide as lt
from lowtide.connectors.topics import Topic
from lowtide.core.fronts.floors import NO_TICK
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.driver.bounds import refuse_other_starts, refuse_to_come
from lowtide.errors import FlowError
from lowtide.flow.formats.bounds import EARLIEST, start_of
from lowtide.flow.plan.check import check_flow
from lowtide.flow.plan.compiler import compile_flow


def flow_from(start: Any) -> lt.Flow:
    flow = lt.Flow("starts")
    flow.read("in", lt.kafka("in", lt.raw(), start=start)).write("out", lt.kafka("out", lt.raw()))
    return flow


def test_a_start_is_said_in_one_way() -> None:
    there = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    said = [str(start_of(each)) for each in ("earliest", "latest", there, {1: 7, 0: 5})]
    assert said == ["earliest", "latest", "2026-03-01T10:00:00+00:00", "offsets 0: 5, 1: 7"]
    assert start_of(there) == start_of(there.astimezone(UTC))
    assert start_of("earliest") == EARLIEST


@pytest.mark.parametrize("start", ["newest", 5, None, {}, {"0": 1}, {0: -1}, {0: True}, datetime(2026, 3, 1)])
def test_what_is_no_start_is_refused(start: Any) -> None:
    with pytest.raises(FlowError, match=r"is not a position to start from|has no time zone"):
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
    assert finding.message.endswith("but here from earliest; use the same in both places")


def test_a_later_start_that_says_otherwise_is_refused_with_both() -> None:
    register, entry = FrontRegister().opened(Partition("in", "x", 0), offset=5, above=NO_TICK, start="latest")
    again = FrontRegister.from_json(register.to_json())
    assert (again, again.entries[0].start, entry.offset) == (register, "latest", 5)
    refuse_other_starts(compile_flow(flow_from("latest"), parallelism=1), again)
    refuse_other_starts(compile_flow(flow_from("earliest"), parallelism=1), FrontRegister())
    with pytest.raises(FlowError, match=r'topic "in" has start=offsets 0: 3 now, .* from latest'):
        refuse_other_starts(compile_flow(flow_from({0: 3}), parallelism=1), again)
    before, _ = FrontRegister().opened(Partition("in", "x", 0), offset=0, above=NO_TICK)
    assert "start" not in before.to_json()[0], "entries of jobs that began before there was a choice are as they were"
    with pytest.raises(FlowError, match="start=latest now, but the job has read it from earliest"):
        refuse_other_starts(compile_flow(flow_from("latest"), parallelism=1), before)


def test_a_moment_that_is_still_to_come_is_refused() -> None:
    now, topic = datetime(2026, 3, 1, tzinfo=UTC), Topic("in", 1, "CreateTime", "delete", "")
    refuse_to_come(topic, now + timedelta(seconds=30), now)  # A broker's clock may be so far ahead.
    with pytest.raises(
        FlowError, match=r'"in" is to be read from start=2026-03-02.* but it is only 2026-03-01'
    ) as refused:
        refuse_to_come(topic, now + timedelta(days=1), now)
    assert 'start="latest"' in refused.value.way_out


def tables(**source: Any) -> lt.Flow:
    flow = lt.Flow("tables")
    rows = flow.read("rows", lt.kafka("rows", lt.json(Row), **source))
    stream = flow.read("stream", lt.kafka("stream", lt.json(Row))).key_by("id")
    joined = stream.join_table("joined", rows.filter(there).key_by("id").table("table"), row_of, how="left")
    joined.write("out", lt.kafka("out", lt.json(Row)))
    return flow


@dataclass(frozen=True)
class Row:
    id: str
    value: int = 0


def there(row: Row) -> bool:
    return row.value >= 0


def row_of(record: Row, row: Row | None) -> Row:
    return replace(record, value=-1 if row is None else row.value)


def test_preloaded_rows_stand_before_all_other_records() -> None:
    """In the order given, also those of another source that are written down before them."""
    stream = [lt.Stamped(Row("a"), datetime(2026, 3, 1, tzinfo=UTC))]
    rows = [Row("a", 1), Row("a", 2), lt.Stamped(Row("a", 3), datetime(2026, 3, 2, tzinfo=UTC))]
    assert tables(preload=True).run_locally(rows=rows, stream=stream)["out"] == [Row("a", 2)]
    assert tables(preload=True).run_locally(rows=rows[:2], stream=[Row("a")])["out"] == [Row("a", 2)]
    later = lt.Flow("later")
    keyed = later.read("stream", lt.kafka("stream", lt.json(Row))).key_by("id")
    table = later.read("rows", lt.kafka("rows", lt.json(Row), preload=True)).key_by("id").table("table")
    keyed.join_table("joined", table, row_of, how="left").write("out", lt.kafka("out", lt.json(Row)))
    assert later.run_locally(rows=[Row("a", 2)], stream=[Row("a")])["out"] == [Row("a", 2)]
    assert check_flow(tables(preload=True, compacted=True)) == []


def refusals() -> dict[str, tuple[lt.Flow, str]]:
    read_twice = tables(preload=True)
    read_twice.read("more", lt.kafka("rows", lt.json(Row), preload=True)).write("w", lt.kafka("w", lt.json(Row)))
    scanned = lt.Flow("scanned")
    rows = scanned.read("rows", lt.kafka("rows", lt.json(Row), compacted=True)).key_by("id")
    rows.deduplicate("once", within=lt.days(1)).write("out", lt.kafka("out", lt.json(Row)))
    old = lt.Flow("old")
    stream = old.read("stream", lt.kafka("stream", lt.json(Row))).key_by("id")
    table = old.read("rows", lt.kafka("rows", lt.json(Row), preload=True)).key_by("id").table("t", ttl=lt.days(1))
    stream.join_table("joined", table, row_of, how="left").write("out", lt.kafka("out", lt.json(Row)))
    otherwise = tables(compacted=True)
    otherwise.read("more", lt.kafka("rows", lt.json(Row))).write("w", lt.kafka("w", lt.json(Row)))
    return {
        "latest": (tables(preload=True, start="latest"), 'start="latest" skips the records that preload=True loads'),
        "written": (read_twice, "preload=True is only for sources of tables, but 'w' takes these records"),
        "scanned": (scanned, "compacted=True is only for sources of tables, but 'once' takes these records"),
        "ttl": (old, "preload=True makes rows older than any record, so ttl= would drop them"),
        "said otherwise": (otherwise, "topic 'rows' is read with a different preload= or compacted= at "),
    }


@pytest.mark.parametrize("case", list(refusals()))
def test_what_is_preloaded_or_compacted_is_for_tables_alone(case: str) -> None:
    flow, message = refusals()[case]
    assert any(message in finding.message for finding in check_flow(flow)), check_flow(flow)


@pytest.mark.parametrize("word", ["preload", "compacted"])
def test_a_sink_is_neither_preloaded_nor_compacted(word: str) -> None:
    stream = lt.Flow("starts").read("in", lt.kafka("in", lt.raw()))
    said: Any = {word: True}
    with pytest.raises(FlowError, match=f"write has no {word}="):
        stream.write("out", lt.kafka("out", lt.raw(), **said))


def test_a_later_start_preloads_as_the_first_one_did() -> None:
    register, entry = FrontRegister().opened(Partition("rows", "x", 0), offset=0, above=0, preloaded=0)
    again = FrontRegister.from_json(register.to_json())
    assert (again, entry.preloaded) == (register, 0), "an empty partition is preloaded, too"
    refuse_other_starts(compile_flow(tables(preload=True), parallelism=1), again)
    with pytest.raises(FlowError, match="without preload=True, but the job has read it with it"):
        refuse_other_starts(compile_flow(tables(), parallelism=1), again)
    before, other = FrontRegister().opened(Partition("rows", "x", 0), offset=0, above=0)
    assert "preloaded" not in other.to_json()
    with pytest.raises(FlowError, match="with preload=True, but the job has read it without it"):
        refuse_other_starts(compile_flow(tables(preload=True), parallelism=1), before)
