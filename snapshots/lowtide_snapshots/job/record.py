"""The job record (R11): the settings that order and state depend on, fixed at a first start; sources may be added.

A value; `job_store` keeps it in ZooKeeper. Its JSON is defined in `snapshots/README.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Self

from lowtide_snapshots.errors import RecordDamaged, RecordDiffers, RecordRefused, RecordTooNew

RECORD_FORMAT = 2
"""Of a job that has grown; one that never has is written as format 1, which has no `grown`."""

_SETTINGS = {"slack_ms": "job.slack_ms", "units": "exchange.units", "lanes": "job.lanes"}
"""A field's name in the configuration."""
_NUMBERS = ("slack_ms", "units", "lanes", "hash_version")


@dataclass(frozen=True)
class JobRecord:
    """The settings that must be the same in every life of a job.

    Attributes:
        job: its name.
        slack_ms: the length of a tick, in milliseconds.
        units: into how many hash units keys go.
        lanes: into how many slices the output goes.
        timestamps: which timestamp of a source's record counts, e.g. "log".
        hash_version: of the key hash.
        sources: one "source=topic" for each source of the flow; sorted, in whatever order they were given. They may
            become more, never fewer.
        grown: the numbers of lanes that it had before, ascending; empty if it has never grown.
    """

    job: str
    slack_ms: int
    units: int
    lanes: int
    timestamps: str
    hash_version: int
    sources: tuple[str, ...]
    grown: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sources", tuple(sorted(self.sources)))
        for name in _NUMBERS:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise RecordRefused(f"{name} is {value!r}", where="the job's record", way_out="give a number from 1")
        for name in ("job", "timestamps"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise RecordRefused(f"{name} is {value!r}", where="the job's record", way_out="give a text")
        if not all(type(lanes) is int and lanes >= 1 for lanes in self.grown) or any(
            after <= before or after % before for before, after in pairwise(self.lane_counts)
        ):
            raise RecordRefused(
                f"grown is {list(self.grown)!r}, and lanes is {self.lanes}",
                where="the job's record",
                way_out="give ascending numbers, each a multiple of the one before",
            )

    @property
    def lane_counts(self) -> tuple[int, ...]:
        """The numbers of lanes that the job has had, the current one last."""
        return (*self.grown, self.lanes)

    def units_of_lane(self, lane: int) -> range:
        """The hash units of a lane."""
        return units_of_lanes(self.units, self.lanes, lane, lane + 1)

    def check(self, asked: JobRecord) -> None:
        """Hold what a start asks for against what is frozen here; sources that are new are let pass.

        Raises:
            RecordDiffers: with every field that differs and both its values.
        """
        # What it had before is only asked for by somebody who knows what it has.
        others = ("sources",) if asked.lanes == self.lanes else ("sources", "grown")
        differing = tuple(
            field.name
            for field in fields(self)
            if field.name not in others and getattr(self, field.name) != getattr(asked, field.name)
        )
        gone = sorted({*self.sources} - {*asked.sources})
        if gone and not differing:
            raise RecordDiffers(
                f"job {self.job!r} has read {', '.join(gone)}, but the flow no longer does; it reads "
                f"{_text(asked, 'sources')}. What was read is part of the job's state and order",
                where=f"the record of job {self.job!r} in ZooKeeper",
                way_out="keep the source with its name and topic and drop its records with a filter; or give the "
                "job another name: it then starts from scratch",
                fields=("sources",),
            )
        if gone:
            differing = (*differing, "sources")
        if not differing:
            return
        said = [f"{name} was {_text(self, name)}, now {_text(asked, name)}" for name in differing]
        back = ", ".join(f"{_SETTINGS.get(name, name)} to {_text(self, name)}" for name in differing)
        raise RecordDiffers(
            f"job {self.job!r} was started with other values, and its order and state depend on them: "
            f"{'; '.join(said)}",
            where=f"the record of job {self.job!r} in ZooKeeper",
            way_out=f"set {back} again, or give the job another name: it then starts from scratch",
            fields=differing,
        )

    def to_json(self) -> str:
        """The record as JSON, the same text for equal records."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.grown:
            del values["grown"]
        return json.dumps({"format": RECORD_FORMAT if self.grown else 1} | values, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The inverse of `to_json`.

        Raises:
            RecordTooNew: its format is newer than this code.
            RecordDamaged: it is not a record.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise _damaged(f"it is not JSON ({error})") from error
        found = values.pop("format", None) if isinstance(values, dict) else None
        if type(found) is not int or found < 1:
            raise _damaged("it has no format number")
        if found > RECORD_FORMAT:
            raise RecordTooNew(
                f"the job's record has format {found}; this version of Lowtide reads up to {RECORD_FORMAT}",
                way_out="use the version of Lowtide that the job was started with, or a newer one",
            )
        if found == 1:
            values.setdefault("grown", [])
        wrong = set(values) ^ {field.name for field in fields(cls)}
        if wrong or bool(values["grown"]) != (found > 1):
            raise _damaged(f"missing or unknown fields: {', '.join(sorted(wrong)) or 'grown'}")
        try:
            return cls(**values | {"sources": _texts(values["sources"]), "grown": tuple(values["grown"])})
        except (RecordRefused, TypeError) as error:
            raise _damaged(str(error)) from error


def units_of_lanes(units: int, lanes: int, first: int, end: int) -> range:
    """The hash units of lanes `first` to `end`, without the latter; a unit's lane is unit x lanes / units."""
    return range(-(-first * units // lanes), -(-end * units // lanes))


def _texts(values: Any) -> Iterable[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"sources is {values!r}, not a list of texts")
    return tuple(values)


def _text(record: JobRecord, name: str) -> str:
    value = getattr(record, name)
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else repr(value)


def _damaged(why: str) -> RecordDamaged:
    return RecordDamaged(
        f"cannot read the job's record: {why}",
        way_out="restore it from a backup of ZooKeeper, or give the job another name",
    )
