"""Clocks: when they strike, where they stand among records, and when they stop."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

import lowtide as lt
from lowtide.errors import FlowError
from lowtide.flow.plan.check import check_flow as check
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.time.every import Every
from lowtide.flow.time.moments import micros_of, moment


@dataclass(frozen=True)
class Click:
    page: str


def at(clock: str, day: int = 1) -> datetime:
    return datetime.fromisoformat(f"2026-03-{day:02}T{clock}+00:00")


def paged(click: Click, page: Click) -> Click:
    return click


def clocked(every: timedelta, tz: str | None = None, *, preload: bool = False) -> lt.Flow:
    flow = lt.Flow("clocked")
    flow.clock("clock", every, tz=tz).write("moments", lt.kafka("moments", lt.json(lt.Moment)))
    clicks = flow.read("clicks", lt.kafka("clicks", lt.json(Click)))
    if preload:
        pages = flow.read("pages", lt.kafka("pages", lt.json(Click), preload=True)).key_by("page").table("pages")
        clicks = clicks.key_by("page").join_table("paged", pages, paged)
    clicks.write("out", lt.kafka("out", lt.json(Click)))
    return flow


def struck(flow: lt.Flow, *moments: datetime, until: datetime | None = None) -> list[datetime]:
    clicks = [lt.Stamped(Click("home"), each) for each in moments]
    found = flow.run_locally(clicks=clicks, until=until)["moments"]
    assert {each.clock for each in found} <= {"clock"}
    return [each.at for each in found]


def test_a_clock_starts_with_the_first_record_and_strikes_each_multiple() -> None:
    flow = clocked(lt.hours(1))
    assert struck(flow, at("10:30"), at("13:30")) == [at("11:00"), at("12:00"), at("13:00"), at("14:00")]
    assert struck(flow, at("10:00"), at("10:00:01")) == [at("11:00")], "10:00 was there before the first record"
    assert struck(flow) == []


def test_when_all_sources_have_ended_it_strikes_at_the_end_of_the_last_span_with_a_record() -> None:
    assert struck(clocked(lt.hours(1)), at("10:30"), at("10:59:59.999")) == [at("11:00")]
    assert struck(clocked(lt.hours(1)), at("10:30"), at("11:00")) == [at("11:00"), at("12:00")]


def test_with_until_it_strikes_on_without_records() -> None:
    flow = clocked(lt.minutes(20))
    assert struck(flow, at("10:30"), until=at("11:20")) == [at("10:40"), at("11:00"), at("11:20")]
    assert struck(flow, at("10:30"), until=at("11:19:59")) == [at("10:40"), at("11:00")]


@dataclass(frozen=True)
class Seen:
    what: str
    number: int


def seen_click(click: Click) -> Seen:
    return Seen(click.page, 0)


def seen_moment(strike: lt.Moment) -> Seen:
    return Seen(f"{strike.at:%H:%M}", 0)


def numbered(count: int, seen: Seen) -> tuple[int, Seen]:
    return count + 1, Seen(seen.what, count + 1)


def one(seen: Seen) -> bool:
    return bool(seen.what)


def test_a_strike_stands_behind_all_records_before_its_moment_and_before_all_others() -> None:
    """Also where two sources, or partitions, are read one after the other."""
    flow = lt.Flow("ordered")
    strikes = flow.clock("clock", lt.hours(1)).map(seen_moment)
    first = flow.read("first", lt.kafka("first", lt.json(Click))).map(seen_click, name="one")
    other = flow.read("other", lt.kafka("other", lt.json(Click))).map(seen_click, name="two")
    merged = strikes.merge(first, other, name="merged")
    merged.write("out", lt.kafka("out", lt.json(Seen)))
    found = flow.run_locally(
        first=[lt.Stamped(Click("a"), at("10:59:59.998")), lt.Stamped(Click("b"), at("11:00"))],
        other={0: [lt.Stamped(Click("c"), at("10:59"))], 1: [lt.Stamped(Click("d"), at("12:00:01"))]},
    )
    assert [each.what for each in found["out"]] == ["c", "a", "11:00", "b", "12:00", "d", "13:00"]


def test_what_is_preloaded_does_not_start_a_clock() -> None:
    flow = clocked(lt.hours(1), preload=True)
    clicks = [lt.Stamped(Click("home"), at("10:30"))]
    found = flow.run_locally(clicks=clicks, pages=[Click("home")])
    assert [each.at for each in found["moments"]] == [at("11:00")]
    assert found["out"] == [Click("home")]


def test_a_clock_changes_no_order_key_of_the_flow_beside_it() -> None:
    plan = compile_flow(clocked(lt.hours(1)), parallelism=1)
    source = next(vertex for vertex in plan.vertices if vertex.name == "clicks")
    assert [each.name for each in plan.children(source.id)] == ["out/exchange"]


def test_a_clock_holds_no_other_branch() -> None:
    """A sink does not wait for a clock that is not upstream of it, though the clock has signs of its source."""
    flow = clocked(lt.hours(1))
    flow.read("others", lt.kafka("others", lt.json(Click))).write("others-out", lt.kafka("others-out", lt.json(Click)))
    plan = compile_flow(flow, parallelism=1)
    segments = segments_of(plan)
    by_name = {vertex.name: vertex.id for vertex in plan.sinks()}

    def behind(sink: str) -> set[int]:
        found, left = set(), [segments.outlet_of[by_name[sink]], *segments.waits[by_name[sink]]]
        while left:
            segment = left.pop()
            found.add(segment)
            left += segments.inbound[segment]
        return found

    fed = {topic: set(feeds) for topic, feeds in segments.feeds.items()}
    assert not behind("out") & fed["others"]
    assert not behind("out") & behind("others-out")
    assert behind("moments") & fed["clicks"]
    assert behind("moments") & fed["others"]


@pytest.mark.parametrize(
    ("every", "tz", "match"),
    [
        (timedelta(0), None, "above zero"),
        (lt.hours(7), "Europe/Berlin", "part of a day"),
        (lt.hours(36), "Europe/Berlin", "part of a day"),
        (lt.seconds(1), "Europe/Berlin", "part of a day"),
        (lt.hours(1), "Europe/Brlin", "unknown time zone"),
    ],
)
def test_what_no_clock_can_mean_is_refused(every: timedelta, tz: str | None, match: str) -> None:
    with pytest.raises(FlowError, match=match):
        lt.Flow("f").clock("clock", every, tz=tz)


def test_a_clock_that_is_faster_than_ticks_is_refused() -> None:
    (finding,) = check(clocked(lt.millis(1)))
    assert "every=1 ms is shorter than a tick" in str(finding)


def walk(every: Every, first: datetime, last: datetime) -> list[datetime]:
    found, now = [], micros_of(first)
    while (now := every.after(now) or micros_of(last)) < micros_of(last):
        found.append(moment(now))
    return found


def test_days_and_hours_of_a_zone_are_those_that_its_clocks_show() -> None:
    """Berlin puts its clocks forward on 2026-03-29 at 2:00, and back on 2026-10-25 at 3:00."""
    days = walk(Every(lt.days(1), "Europe/Berlin"), at("00:00", 28), at("00:00", 31))
    assert [each.isoformat() for each in days] == [
        "2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00", "2026-03-30T22:00:00+00:00",
    ]  # fmt: skip
    hours = walk(Every(lt.hours(1), "Europe/Berlin"), at("00:00", 29), at("03:00", 29))
    assert hours == [at("01:00", 29), at("02:00", 29)], "one moment for 2:00, which is skipped, and 3:00"
    back = datetime(2026, 10, 24, 22, 30, tzinfo=UTC)
    shown = walk(Every(lt.hours(1), "Europe/Berlin"), back, back + lt.hours(5))
    assert [f"{each:%H:%M}" for each in shown] == ["23:00", "00:00", "01:00", "02:00", "03:00"], "2:00 is shown twice"
    six = walk(Every(lt.hours(6), "Europe/Berlin"), back, back + lt.hours(24))
    assert [f"{each:%H:%M}" for each in six] == ["05:00", "11:00", "17:00"]


def test_a_midnight_that_is_skipped_is_struck_when_clocks_are_put_forward() -> None:
    """Cairo skips 2024-04-26 from 0:00 to 1:00; Samoa has no 30th of December 2011."""
    cairo = walk(
        Every(lt.days(1), "Africa/Cairo"), datetime(2024, 4, 25, tzinfo=UTC), datetime(2024, 4, 27, tzinfo=UTC)
    )
    assert [each.isoformat() for each in cairo] == ["2024-04-25T22:00:00+00:00", "2024-04-26T21:00:00+00:00"]
    first = datetime(2011, 12, 29, 5, tzinfo=UTC)
    samoa = walk(Every(lt.days(1), "Pacific/Apia"), first, first + lt.days(3))
    assert len(samoa) == len(set(samoa)) == 3


def test_moments_of_any_zone_ascend() -> None:
    for tz in ("America/Havana", "America/Sao_Paulo", "Asia/Kathmandu", "Australia/Lord_Howe", "Asia/Gaza"):
        for every in (lt.minutes(30), lt.hours(6), lt.days(1), lt.days(7)):
            found = walk(Every(every, tz), datetime(2016, 1, 1, tzinfo=UTC), datetime(2017, 1, 1, tzinfo=UTC))
            assert all(one < other for one, other in pairwise(found))
            assert abs(len(found) - lt.days(366) / every) <= 3


def test_a_message_that_cannot_be_read_is_a_sign_of_time_too() -> None:
    """Log time comes to it: a clock that struck or not, as time is known to end soon or late, would not be a replay."""
    flow = lt.Flow("letters", dead_letters=lt.kafka("letters", lt.raw()))
    flow.clock("clock", lt.hours(1)).write("moments", lt.kafka("moments", lt.json(lt.Moment)))
    flow.read("clicks", lt.kafka("clicks", lt.json(Click))).write("out", lt.kafka("out", lt.json(Click)))
    whole, broken = b'{"page":"home"}', b"?"
    messages = [lt.Message(value=value, timestamp=when) for value, when in (
        (broken, at("08:30")), (whole, at("10:30")), (broken, at("12:30")),
    )]  # fmt: skip
    found = flow.run_locally(clicks=messages)
    assert [each.at.hour for each in found["moments"]] == [9, 10, 11, 12, 13]
    assert len(found["out"]) == 1
