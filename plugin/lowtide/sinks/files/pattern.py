"""The pattern of the folders that a files sink writes, as `s3://lake/orders/dt={tick:%Y-%m-%d}/hour={tick:%H}/`.

Up to the last `/` before the first `{tick...}` it is the *root*; what follows names a *bucket*, a folder for each day,
hour or whatever the pattern's finest part is. All times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from string import Formatter

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
LAST_MONTH = 9999 * 12 + 11
END_MS = 253_402_300_800_000
"""The beginning of the year 10000, which no datetime has."""

_LEVELS = ("year", "month", "day", "hour", "minute")
_LENGTHS_MS = {"day": DAY_MS, "hour": 60 * MINUTE_MS, "minute": MINUTE_MS}
_NAMED = {"Y": ("year",), "m": ("month",), "d": ("day",), "j": ("month", "day"), "H": ("hour",), "M": ("minute",)}
"""By directive of strftime: the parts of a time that it has."""
_DIRECTIVE = re.compile("%(.?)")


@dataclass(frozen=True)
class Pattern:
    """A pattern of folders; `faults` says what is wrong with it, and all else needs one that has none."""

    text: str

    @property
    def faults(self) -> list[str]:
        """Reasons why files cannot have it."""
        try:
            fields = {field for field, _ in self._fields()}
        except ValueError as error:
            return [f"the pattern {self.text!r} cannot be read: {error}"]
        if others := sorted(fields - {"tick"}):
            return [f"the pattern has {{{others[0]}}}; there is only {{tick:%Y-%m-%d}} and the like"]
        if "tick" not in fields:
            way_out = "end it with dt={tick:%Y-%m-%d}/"
            return [f"the pattern names no time, so that its one folder would grow for ever: {way_out}"]
        return [*self._place_faults(), *self._time_faults()]

    def _place_faults(self) -> Iterator[str]:
        scheme, bucket, path = re.match(r"(s3://|file://|)([^/]*)(.*)", self.text).groups()  # type: ignore[union-attr]
        if (scheme == "s3://") != bool(bucket) or not path.startswith("/"):
            yield f"{self.text!r} is not a place for files: write s3://bucket/folder/..., or a folder's absolute path"
        elif "{" in bucket:
            yield "the name of an S3 bucket cannot depend on {tick}"
        elif any(part in ("", ".", "..") for part in path.strip("/").split("/")):
            yield f"{self.text!r} has an empty part, or one that is . or .."

    def _time_faults(self) -> Iterator[str]:
        for letter in self._letters:
            if letter not in _NAMED:
                known = ", ".join(f"%{each}" for each in _NAMED)
                yield f"the pattern has %{letter}; there are {known}, and all times are UTC"
                return
        levels = self._levels
        if not levels:
            yield "the pattern names no time: write {tick:%Y-%m-%d}, for example"
            return
        for level in _LEVELS[: _LEVELS.index(self.unit)]:
            if level not in levels:
                yield f"the pattern has the {self.unit} but not the {level}: folders would be written again later"
                return

    @property
    def unit(self) -> str:
        """The length of a bucket: "year", "month", "day", "hour" or "minute"."""
        return next(level for level in reversed(_LEVELS) if level in self._levels)

    @property
    def length_ms(self) -> int:
        """The length of a bucket that every period has to divide; of months and years that of a day."""
        return _LENGTHS_MS.get(self.unit, DAY_MS)

    @property
    def root(self) -> str:
        """The folder below which all files are; without a / at its end."""
        return self._fixed[0].rstrip("/")

    @property
    def plain(self) -> str:
        """The pattern as strftime takes it: that of a month is the same in one {tick...} or in two."""
        parts = Formatter().parse(self.text)
        return "".join(text.replace("%", "%%") + (form or "") for text, _, form, _ in parts)

    def folder(self, time_ms: int) -> str:
        """Return the folder of a log time below the root; it ends with a /."""
        moment = EPOCH + timedelta(milliseconds=time_ms)
        return self._fixed[1].format(tick=moment).rstrip("/") + "/"

    def first_ms(self, time_ms: int) -> int:
        """Return the first log time of the bucket that has this one."""
        if length := _LENGTHS_MS.get(self.unit):
            return time_ms - time_ms % length
        return _month_ms(self._month(time_ms))

    def end_ms(self, first_ms: int) -> int:
        """Return the log time after a bucket that begins at this one."""
        if length := _LENGTHS_MS.get(self.unit):
            return first_ms + length
        return _month_ms(self._month(first_ms) + (1 if self.unit == "month" else 12))

    def _month(self, time_ms: int) -> int:
        """Return the first month of the month or year that has a log time, counted from the year 0."""
        moment = EPOCH + timedelta(milliseconds=time_ms)
        return moment.year * 12 + (moment.month - 1 if self.unit == "month" else 0)

    @cached_property
    def _fixed(self) -> tuple[str, str]:
        before, brace, after = self.text.partition("{tick")
        root, _, begun = before.rpartition("/")
        return root, begun + brace + after

    @cached_property
    def _letters(self) -> list[str]:
        return [letter for _, form in self._fields() for letter in _DIRECTIVE.findall(form)]

    @property
    def _levels(self) -> set[str]:
        return {level for letter in self._letters for level in _NAMED.get(letter, ())}

    def _fields(self) -> Iterator[tuple[str, str]]:
        for _, field, form, conversion in Formatter().parse(self.text):
            if field is not None:
                if conversion:
                    raise ValueError(f"!{conversion}")
                yield field, form or ""


def _month_ms(month: int) -> int:
    if month > LAST_MONTH:
        return END_MS
    moment = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)
