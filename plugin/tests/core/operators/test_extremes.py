"""The edges of all types, wherever a value means something: workers, the oracle and `run_locally` answer alike."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from math import inf, nan
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest
from programs import Programs, by_lane

import lowtide as lt
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.headers import pack_headers, unpack_headers
from lowtide.local.run import Message, run_log, run_plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST = lt.days(36_525)
"""The longest size of a window and wait."""
STAMP = 1_772_323_200_000
STAMPS = [0, STAMP, 253_402_300_799_000 - 86_400_000]
"""The beginning of a log: in 1970, now, or on the day before the last one of all."""
SLACK_MS = 2
FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
FLOATS = [0.0, -0.0, nan, inf, -inf, 5e-324, 1.7976931348623157e308, 2.0**53]


NO_ID = UUID(int=0)


class Mood(Enum):
    NONE = ""
    SOME = "some"


@dataclass(frozen=True)
class Edge:
    number: Annotated[int | None, lt.Key()]
    header: Annotated[str | None, lt.Header("text")]
    blob: Annotated[bytes | None, lt.Header("blob")]
    stamped: Annotated[datetime, lt.Timestamp()]
    whole: int = 0
    text: str = ""
    flag: bool | None = None
    day: date = date(2026, 3, 1)
    at: datetime = datetime(2026, 3, 1, tzinfo=UTC)
    clock: time = time()
    id: UUID = NO_ID
    mood: Mood = Mood.NONE
    amount: Annotated[Decimal, lt.Precision(38, 2)] = Decimal("0.00")
    float: int = 0


EDGES: dict[str, list[Any]] = {
    "whole": [-(2**63), 2**63 - 1, 0, 2**63, -(2**63) - 1],
    "text": ["", "\0", "\U0010ffff", "e\u0301", "\u00e9", " "],
    "flag": [None, False, True],
    "day": ["0001-01-01", "9999-12-31", "1970-01-01", "1969-12-31"],
    "at": [FIRST, LAST, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59.999999Z",
           "0001-01-02T00:00:00+14:00", "9999-12-31T00:00:00-14:00", "2026-03-01T00:00:00Z"],
    "clock": ["00:00:00", "23:59:59.999999"],
    "id": [str(UUID(int=0)), str(UUID(int=2**128 - 1))],
    "mood": ["", "some"],
    "amount": ["0.00", "-0.00", f"{'9' * 36}.99", f"-{'9' * 36}.99", f"{'9' * 37}.00"],
    "float": list(range(len(FLOATS))),
}  # fmt: skip
"""By field what a message may say; some of it is of no record, which is a dead letter."""
KEYS = ("number", "header", "blob", "whole", "text", "flag", "day", "at", "id", "mood")
NUMBERS = [None, b"0", b"-0", b"00", b"", b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808",
           b"99999999999999999999"]  # fmt: skip
HEADERS: list[list[tuple[str, bytes | None]]] = [
    [], [("text", None)], [("text", b"")], [("text", b"\xff")], [("blob", b"")], [("blob", b"\xff"), ("text", b"\0")],
]  # fmt: skip


@dataclass(frozen=True)
class Said:
    said: str


@dataclass(frozen=True)
class Floats:
    said: str
    float: float


@dataclass(frozen=True)
class Least:
    least: float | None
    most: float | None
    total: float | None
    mean: float | None
    first: float
    latest: float


@dataclass(frozen=True)
class Sunk:
    whole: int
    text: str
    id: UUID


SINK_KEYS = ("whole", "text", "id")


def sunk(edge: Edge) -> Sunk:
    return Sunk(edge.whole, edge.text, edge.id)


def counted(count: int, edge: Edge) -> tuple[int, Said]:
    return count + 1, Said(f"{count} {edge}")


def said(edge: Edge) -> Said:
    return Said(repr(edge))


def both(left: Edge, right: Edge | None) -> Said:
    return Said(f"{left.at} {left.whole} {None if right is None else (right.at, right.whole)}")


def in_window(window: lt.Window, edges: tuple[Edge, ...]) -> list[Said]:
    return [Said(f"{window.start} {window.end} {[edge.at for edge in edges]}")]


def floated(edge: Edge) -> Floats:
    return Floats(edge.text, FLOATS[edge.float])


def trail(state: float, floats: Floats) -> tuple[float, Said]:
    """A state that goes through all floats."""
    return floats.float, Said(f"{state} {floats.float}")


def unfloated(least: Least) -> Said:
    return Said(repr(least))


@dataclass(frozen=True)
class Asked:
    at: datetime | None = None
    west: int = 0


def asking(asked: Asked, edge: Edge) -> tuple[Asked, list[Said]]:
    return Asked(edge.at, edge.float % 3 - 1), []


def asks(asked: Asked) -> datetime | None:
    return None if asked.at is None else asked.at.replace(tzinfo=timezone(timedelta(hours=14 * asked.west)))


def called(asked: Asked, moment: datetime) -> tuple[Asked, list[Said]]:
    return Asked(), [Said(f"{asked} {moment}")]


def out(stream: Any, name: str, record: type = Said, key: str | None = None) -> None:
    stream.write(name, lt.kafka(name, lt.json(record), key=key))


def keyed_flow(column: str) -> lt.Flow:
    flow = lt.Flow("keyed", dead_letters=lt.kafka("dead", lt.raw()))
    edges = flow.read("edges", lt.kafka("edges", lt.json(Edge)))
    keyed = edges.key_by(column)
    out(keyed.scan("count", counted, 0, ttl=timedelta.max), "counts")
    out(keyed.deduplicate("once", within=timedelta.max).map(said), "once")
    table = edges.key_by(column, name="rows").table("table")
    out(keyed.join_table("with-row", table, both, how="left"), "rows")
    out(keyed.window("w", lt.tumbling(lt.seconds(1))).apply(in_window), "windows")
    again = keyed.scan("again", counted, 0)
    out(again, "again-out")
    done = edges.when_done("done", through=again, label=column)
    out(done.map(said, name="said-done"), "done-out")
    if column in SINK_KEYS:
        out(edges.map(sunk), "sunk-out", Sunk, key=column)
    return flow


def floating_flow() -> lt.Flow:
    flow = lt.Flow("floating", dead_letters=lt.kafka("dead", lt.raw()))
    floats = flow.read("edges", lt.kafka("edges", lt.json(Edge))).map(floated).key_by("said")
    out(floats.scan("trail", trail, nan), "trails")
    columns = {name: getattr(lt.agg, word)("float") for name, word in
               (("least", "min"), ("most", "max"), ("total", "sum"), ("mean", "mean"), ("first", "first"),
                ("latest", "latest"))}  # fmt: skip
    cut = lt.session(lt.seconds(1))
    out(floats.window("w", cut).aggregate(Least, **columns).map(unfloated), "windows")
    return flow


@dataclass(frozen=True)
class Sums:
    total: int | None
    mean: float | None
    amount: Annotated[Decimal, lt.Precision(38, 2)] | None
    most: Annotated[Decimal, lt.Precision(38, 2)] | None
    least: datetime | None
    day: date | None
    clock: time | None
    id: UUID | None
    flag: bool | None
    kinds: int
    latest: str
    first: str


def summed(sums: Sums) -> Said:
    return Said(repr(sums))


def aggregating_flow() -> lt.Flow:
    """Sums that no 64 bits, or no 38 digits, can hold among them."""
    flow, agg = lt.Flow("aggregating", dead_letters=lt.kafka("dead", lt.raw())), lt.agg
    edges = flow.read("edges", lt.kafka("edges", lt.json(Edge))).key_by("mood")
    columns: dict[str, Any] = {
        "total": agg.sum("whole"),
        "mean": agg.mean("whole"),
        "amount": agg.sum("amount"),
        "most": agg.max("amount"),
        "least": agg.min("at"),
        "day": agg.max("day"),
        "clock": agg.min("clock"),
        "id": agg.max("id"),
        "flag": agg.min("flag"),
        "kinds": agg.count_distinct("whole"),
        "latest": agg.latest("text"),
        "first": agg.max_by("text", by="at"),
    }
    cuts: list[Any] = [lt.session(lt.seconds(1)), lt.tumbling(lt.seconds(1))]
    for number, cut in enumerate(cuts):
        sums = edges.window(f"w{number}", cut).aggregate(Sums, **columns)
        out(sums.map(summed, name=f"summed{number}"), f"out{number}")
    out(edges.aggregate("running", Sums, ttl=timedelta.max, **columns).map(summed, name="summed"), "out")
    return flow


CUTS: list[Any] = [lt.tumbling(lt.days(1)), lt.tumbling(LONGEST), lt.sliding(lt.days(2), lt.days(1)),
        lt.session(lt.hours(1)), lt.calendar("day", "America/New_York"), lt.calendar("week", "Pacific/Kiritimati"),
        lt.calendar("month", "UTC")]  # fmt: skip


def timed_flow(wait: timedelta, ahead: timedelta) -> lt.Flow:
    """Every step that has event time, and a timer that asks for the edges of time."""
    flow = lt.Flow("timed", dead_letters=lt.kafka("dead", lt.raw()))
    edges = flow.read("edges", lt.kafka("edges", lt.json(Edge))).key_by("text")
    clock = lt.event_time("at", wait=wait, ahead=ahead)
    for number, cut in enumerate(CUTS):
        windowed = edges.window(f"w{number}", cut, time=clock)
        out(windowed.late.map(said, name=f"late{number}"), f"late-{number}")
        out(windowed.apply(in_window), f"windows-{number}")
    updates = edges.window("updates", lt.calendar("day", "Asia/Tokyo"), time=clock, emit="update")
    out(updates.late.map(said, name="late-updates"), "late-updates-out")
    out(updates.apply(in_window), "updates-out")
    rest: dict[str, Any] = {"time": replace(clock, late="drop"), "how": "left"}
    out(edges.join("join", edges, both, after=lt.days(1), **rest), "pairs")
    out(edges.join_asof("asof", edges, both, back=LONGEST, **rest), "newest")
    out(edges.flat_scan("asking", asking, Asked(), timer=asks, on_timer=called), "called")
    return flow


def a_log(dice: random.Random, fields: Sequence[str], stamp: int = STAMP) -> list[Message]:
    found = []
    for offset in range(40):
        stamp += dice.choice([0, 1, 400, 1_500])
        value = {field: dice.choice(EDGES[field]) for field in fields if field in EDGES and dice.random() < 0.8}
        key, headers = dice.choice(NUMBERS), pack_headers(dice.choice(HEADERS))
        found.append(Message(Position(0, offset), stamp, key, msgspec.json.encode(value), headers))
    return found


def as_given(messages: Sequence[Message]) -> list[lt.Message]:
    """Messages as a test gives them to `run_locally`."""
    return [
        lt.Message(
            each.key,
            each.value,
            headers=[(name, value) for name, value in unpack_headers(each.headers) if not isinstance(value, str)],
            timestamp=EPOCH + timedelta(milliseconds=each.timestamp),
        )
        for each in messages
    ]


def check(flow: lt.Flow, log: list[Message], dice: random.Random) -> tuple[Plan, Mapping[str, Any], int]:
    """The delivered records and the number of dead letters: the same in every runtime."""
    plan = compile_flow(flow, units=8, lanes=2, parallelism=2, slack_ms=SLACK_MS)
    written, dead = run_log(plan, {"edges": log})
    programs = Programs(plan, dice.randrange)
    programs.feed("edges", log)
    programs.finish()
    assert programs.delivered == by_lane(written)
    assert Counter(programs.dead) == Counter(dead)
    local = run_plan(plan, {"edges": as_given(log)})
    for vertex, sink in plan.kafka_sinks():
        values = [sink.format.encode([record])[0] for record in local[vertex.name]]
        assert values == [each.value for each in written[vertex.name]], vertex.name
    assert [letter.error for letter in local["dead-letters"]] == [letter.error for letter in dead]  # type: ignore[attr-defined]
    return plan, written, len(dead)


@pytest.mark.parametrize("column", KEYS)
def test_every_edge_is_a_key(column: str) -> None:
    dice = random.Random(column)
    _, written, dead = check(keyed_flow(column), a_log(dice, [column, *dice.sample(list(EDGES), 3)]), dice)
    assert len(written["counts"]) > 10
    assert dead > 0 or column not in ("number", "header", "blob", "whole", "at")


def test_every_float_is_a_state_and_is_aggregated() -> None:
    for seed in range(5):
        dice = random.Random(seed)
        _, written, _ = check(floating_flow(), a_log(dice, ["text", "float"]), dice)
        assert len(written["trails"]) > 10
        assert written["windows"]


def test_every_edge_is_aggregated() -> None:
    for seed in range(5):
        dice = random.Random(seed)
        _, written, _ = check(aggregating_flow(), a_log(dice, list(EDGES)), dice)
        assert written["out"]
        assert written["out0"]


@pytest.mark.parametrize("wait", [timedelta(0), lt.days(1), LONGEST])
@pytest.mark.parametrize("ahead", [lt.days(1), LONGEST])
@pytest.mark.parametrize("stamp", STAMPS)
def test_every_edge_is_an_event_time_and_a_timer(wait: timedelta, ahead: timedelta, stamp: int) -> None:
    dice = random.Random(f"{wait} {ahead} {stamp}")
    check(timed_flow(wait, ahead), a_log(dice, ["at", "text", "whole", "float"], stamp), dice)


def test_a_window_beyond_what_a_datetime_can_say_is_its_records_failure() -> None:
    dice = random.Random(0)
    flow = timed_flow(LONGEST, LONGEST)
    log = [
        Message(Position(0, offset), STAMPS[-1], None, msgspec.json.encode({"at": at, "text": "a"}), b"")
        for offset, at in enumerate(["9999-12-30T12:00:00Z", LAST])
    ]
    plan = compile_flow(flow, units=8, lanes=2, parallelism=2, slack_ms=SLACK_MS)
    check(flow, log, dice)
    _, dead = run_log(plan, {"edges": log})
    failed = {
        letter.vertex for letter in dead if "begins before the year 1 or ends after the year 9999" in letter.error
    }
    assert failed >= {f"w{number}" for number in range(len(CUTS))} | {"updates"}
