"""Joins here and now: the delicate cases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lowtide as lt
from lowtide.errors import UserCodeFailed

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def t(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Event:
    key: str
    number: int


@dataclass
class Row:
    id: str
    value: int
    gone: bool = False


@dataclass(frozen=True)
class Pair:
    number: int
    value: int | None


def stamped(*records: tuple[float, Any]) -> list[lt.Stamped[Any]]:
    return [lt.Stamped(record, t(seconds)) for seconds, record in records]


def pair(event: Event, row: Row | None) -> Pair:
    return Pair(event.number, None if row is None else row.value)


def spoiled(event: Event, row: Row | None) -> Pair:
    if row is not None:
        row.value += 1
    return pair(event, row)


def run(how: Any = "left", function: Any = pair, ttl: Any = None, **inputs: Any) -> list[Any]:
    flow = lt.Flow("joins", dead_letters=lt.kafka("dead", lt.raw()))
    events = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    rows = flow.read("rows", lt.kafka("rows", lt.json(Row))).key_by("id")
    table = rows.table("rows", deleted="gone", ttl=ttl)
    events.join_table("pairs", table, function, how=how).write("pairs", lt.kafka("pairs", lt.json(Pair)))
    out = flow.run_locally(inputs)
    assert out["dead-letters"] == []
    return out["pairs"]


ROWS = stamped((1, Row("a", 1)), (3, Row("a", 2)), (5, Row("a", 0, gone=True)))


def test_each_record_sees_the_row_as_of_its_place() -> None:
    events = stamped(*((second, Event("a", second)) for second in (0, 2, 4, 6)))
    assert run(events=events, rows=ROWS) == [Pair(0, None), Pair(2, 1), Pair(4, 2), Pair(6, None)]
    assert run("inner", events=events, rows=ROWS) == [Pair(2, 1), Pair(4, 2)]


def test_a_row_exactly_ttl_old_is_gone() -> None:
    events = stamped(*((second, Event("a", number)) for number, second in enumerate([3.998, 4, 9.998, 10])))
    rows = stamped((2, Row("a", 1)), (8, Row("a", 2)))
    pairs = run(ttl=lt.seconds(2), events=events, rows=rows)
    assert pairs == [Pair(0, 1), Pair(1, None), Pair(2, 2), Pair(3, None)]


def test_a_row_is_not_to_be_changed_in_place() -> None:
    assert run(function=spoiled, events=[Event("a", 1)]) == [Pair(1, None)]  # No row: nothing to change.
    with pytest.raises(UserCodeFailed, match="changed its record in place"):
        run(function=spoiled, events=stamped((2, Event("a", 1))), rows=ROWS)


def test_a_table_may_be_joined_with_its_own_stream_and_what_was_written_first_comes_first() -> None:
    flow = lt.Flow("own")
    events = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    table = events.table("events")

    def grown(event: Event, before: Event | None) -> Event:
        return replace(event, number=event.number - (before.number if before else 0))

    events.join_table("grown", table, grown, how="left").write("grown", lt.kafka("grown", lt.json(Event)))
    out = flow.run_locally(events=[Event("a", 1), Event("a", 4), Event("b", 2), Event("a", 9)])
    assert [event.number for event in out["grown"]] == [0, 0, 0, 0]
