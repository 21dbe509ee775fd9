"""The folders of a sink of files: which log times each has, and where readers find its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = {
    "year": timedelta(days=366),
    "month": timedelta(days=31),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
}
"""By the time of a folder how long it is at most, from the longest."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one sink, as the job's node `places` has them; all times are UTC.

    Attributes:
        folders: their pattern, `s3://lake/orders/dt={tick:%Y-%m-%d}/hour={tick:%H}/`.
        unit: the time of a folder: "minute", "hour", "day", "month" or "year".
        files: a glob for the files, below a folder.
        done: the file that says that all files are there, below a folder.
    """

    folders: str
    unit: str
    files: str
    done: str

    @classmethod
    def of(cls, place: Mapping[str, Any]) -> Self:
        """Read what the node has for a sink."""
        return cls(place["folders"], place["unit"], place["files"], place["done"])

    def first(self, moment: datetime) -> datetime:
        """Return the first time of the folder that has a time."""
        kept = [*_LONGEST].index(self.unit) + 1
        year, month, day, hour, minute = (*moment.timetuple()[:kept], *(1, 1, 1, 0, 0)[kept:])
        return datetime(year, month, day, hour, minute, tzinfo=UTC)

    def complete(self, since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield the first time and the end of each folder that ends after `since`, and not after `until`, in order."""
        begins = self.first(since)
        while (ends := self.first(begins + _LONGEST[self.unit])) <= until:
            yield begins, ends
            begins = ends

    def found(self, begins: datetime) -> dict[str, str]:
        """Return where readers find the folder that begins at a time: `folder`, `files` and `done`."""
        folder = self.folders.format(tick=begins)
        return {"folder": folder, "files": folder + self.files, "done": folder + self.done}
