"""Every moment lies in the day, week and month that it is given, in every zone and year of this machine's tzdata."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from lowtide.flow.steps.windows import Calendar, CalendarUnit, Span, longest_us, spans_of
from lowtide.flow.time.every import DAY, Every
from lowtide.flow.time.moments import DAY_US, FIRST_US, LAST_US, micros_of, moment
from lowtide.flow.time.zones import first_shown

UNITS: tuple[CalendarUnit, ...] = ("day", "week", "month")
HOUR_US = 3_600_000_000
ODD = ("America/St_Johns", "America/Toronto", "America/Juneau", "Pacific/Apia", "Pacific/Kwajalein", "Asia/Manila")
"""Clocks put back over midnight, forward over it, and dates that come twice or never."""


def data_of(zone: str) -> bytes:
    """The zone's file, as RFC 8536 has it."""
    for folder in zoneinfo.TZPATH:
        if (path := Path(folder, zone)).is_file():
            return path.read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", zone).read_bytes()


def written_out(data: bytes) -> list[int]:
    """The moments at which a zone's file says that clocks change, in seconds since 1970."""
    head = struct.Struct(">4sc15x6I")

    def counts(at: int) -> tuple[int, ...]:
        return tuple(map(int, head.unpack_from(data, at)[2:]))

    isut, isstd, leap, times, types, chars = counts(0)
    second = head.size + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    times = counts(second)[3]
    return list(struct.unpack_from(f">{times}q", data, second + head.size))


def by_rule(zone: zoneinfo.ZoneInfo, first: datetime, last: datetime) -> Iterator[int]:
    """The moments at which clocks change, found by a look at each week, in seconds since 1970."""

    def offset(at: int) -> timedelta | None:
        return datetime.fromtimestamp(at, zone).utcoffset()

    for week, after in pairwise(range(int(first.timestamp()), int(last.timestamp()), 7 * 86_400)):
        if offset(week) != offset(after):
            low, high = week, after
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == offset(week) else (low, middle)
            yield high


@cache
def zones() -> list[tuple[str, list[int]]]:
    """Each zone, one of several names, with the moments at which its clocks change, until 2070."""
    known: dict[bytes, str] = {}
    for name in sorted(zoneinfo.available_timezones(), key=lambda name: (name not in ODD, name)):
        known.setdefault(data_of(name), name)
    found = []
    for data, name in known.items():
        changes = [at for at in written_out(data) if at > FIRST_US // 1_000_000 + 86_400]
        first = datetime.fromtimestamp(max([*changes, 0]), UTC)
        changes += by_rule(zoneinfo.ZoneInfo(name), first, datetime(2070, 1, 1, tzinfo=UTC))
        found.append((name, [at * 1_000_000 for at in changes]))
    return found


def check(name: str, moments: Sequence[int], unit: CalendarUnit) -> None:
    """A moment lies in its window, windows follow upon each other, and no local date begins before its window."""
    zone, longest = zoneinfo.ZoneInfo(name), longest_us(Calendar(unit, name))
    spans: Callable[[int], Sequence[Span]] = spans_of(Calendar(unit, name))
    clock = Every(DAY, name)
    for at in moments:
        ((start, end),) = spans(at)
        where = f"{moment(at)}, a {unit} in {name}"
        assert start <= at < end, where
        assert end - start <= longest, where
        assert spans(start)[0] == (start, end) == spans(end - 1)[0], where
        assert spans(end)[0][0] == end, where
        assert spans(start - 1)[0][1] == start, where
        before = moment(start - 1).astimezone(zone).replace(tzinfo=None)
        begins = moment(start).astimezone(zone).replace(tzinfo=None)
        assert before.date() < begins.date() or zone.utcoffset(before) != zone.utcoffset(begins), where
        if unit == "day":
            assert clock.after(at) == end, f"{where}: a clock of days strikes when one begins"


def around(change: int, hours: Sequence[float]) -> list[int]:
    return [change - 1, *(change + int(hour * HOUR_US) for hour in hours)]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("unit", UNITS)
def test_midnights_that_come_twice_or_never(name: str, unit: CalendarUnit) -> None:
    changes = dict(zones())[name]
    hours = [-30, -1.5, -0.5, 0, 0.5, 0.98, 1.5, 30]
    check(name, [at - us for change in changes for at in around(change, hours) for us in (1, 0)], unit)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_every_moment_lies_in_the_window_that_it_is_given_wherever_clocks_change(unit: CalendarUnit) -> None:
    changes = 0
    for name, found in zones():
        check(name, [at for change in found for at in around(change, [-24, 0, 0.5, 0.99, 24])], unit)
        changes += len(found)
    assert changes > 10_000


def test_every_moment_lies_in_the_window_that_it_is_given_in_all_zones_and_years() -> None:
    dice, first, last = Random(0), FIRST_US + 800 * DAY_US, LAST_US - 800 * DAY_US
    for name, _ in zones():
        for unit in UNITS:
            check(name, [dice.randrange(first, last) for _ in range(8)], unit)


@pytest.mark.parametrize("unit", UNITS)
def test_the_first_and_the_last_moment_of_all_have_their_windows(unit: CalendarUnit) -> None:
    for name in (*ODD, "UTC", "Pacific/Kiritimati", "Etc/GMT+12"):
        for at in (FIRST_US, FIRST_US + 39 * DAY_US, FIRST_US + 41 * DAY_US, LAST_US - 41 * DAY_US, LAST_US):
            ((start, end),) = spans_of(Calendar(unit, name))(at)
            assert start <= at < end
            assert DAY_US <= end - start <= 31 * DAY_US


def test_a_skipped_midnight_is_the_moment_at_which_clocks_are_put_forward() -> None:
    zone = zoneinfo.ZoneInfo("America/Toronto")  # From 23:30 to 0:30 in the night to 31 March 1919.
    began = first_shown(zone, datetime(1919, 3, 31))
    assert moment(began) == datetime(1919, 3, 31, 4, 30, tzinfo=UTC)
    ((start, _),) = spans_of(Calendar("day", "America/Toronto"))(began + 60_000_000)
    assert start == began


def test_a_day_that_has_begun_does_not_end_where_clocks_are_put_back_over_midnight() -> None:
    """In St John's one minute past midnight, until 2011: from then on the evening before was shown once more."""
    spans = spans_of(Calendar("day", "America/St_Johns"))
    midnight = datetime(2010, 11, 7, 2, 30, tzinfo=UTC)
    shown_again = midnight + timedelta(minutes=30)
    assert shown_again.astimezone(zoneinfo.ZoneInfo("America/St_Johns")).day == 6
    assert spans(micros_of(shown_again)) == spans(micros_of(midnight))
    assert spans(micros_of(midnight))[0][0] == micros_of(midnight)
