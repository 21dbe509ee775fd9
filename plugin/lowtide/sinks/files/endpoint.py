"""Files that a flow writes: a frozen value, no connection and no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from lowtide.errors import FlowError
from lowtide.flow.formats.endpoints import KAFKA
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.formats.writable import Rule, Writable, of_fields
from lowtide.flow.site import user_site
from lowtide.sinks.files.fold import Limits
from lowtide.sinks.files.pattern import DAY_MS, Pattern
from lowtide.sinks.files.spelling import folder_of

if TYPE_CHECKING:
    from lowtide.conf import Conf
    from lowtide.sinks.files.formats import FileFormat
    from lowtide.sinks.staged.contract import Carriage, Carrier

FILE_BYTES = 256 << 20
ROLL = timedelta(minutes=10)
MARK_EVERY_MS = 1_000
LEAST_ROLL_S3_MS = 10_000
LEAST_FILE_BYTES = 1 << 20
FILES_A_DAY = 1_000
"""Files a day of one group of lanes above which readers suffer."""


@dataclass(frozen=True, slots=True)
class Files:
    """Files of one format below one place; `lt.files` makes one.

    Attributes:
        pattern: The folders, with `{tick:...}`.
        format: The files' format.
        roll_ms: The length of log time that a file has.
        max_file_bytes: Staged bytes at which a file ends earlier.
        partition_by: The columns for whose values there are folders.
        connection: Which of the conf's `[files.NAME]`.
    """

    pattern: str
    format: FileFormat[Any]
    roll_ms: int
    max_file_bytes: int = FILE_BYTES
    partition_by: tuple[str, ...] = ()
    connection: str = "default"
    store: ClassVar[str] = KAFKA
    staged: ClassVar[bool] = True
    by_key: ClassVar[bool] = False

    @property
    def place(self) -> str:
        """The pattern, and the server of S3."""
        where = "" if self.connection == "default" else f" of {self.connection}"
        return f'files "{self.pattern.rstrip("/")}/"{where}'

    @property
    def record(self) -> type:
        """The dataclass of the format."""
        record: type = self.format.record
        return record

    @property
    def form(self) -> str:
        """The format."""
        return str(self.format)

    @property
    def key_column(self) -> str | None:
        """The column that is not in the value, but its key."""
        from lowtide.flow.schema.columns import columns_of

        return columns_of(self.record).key

    @property
    def writable(self) -> Writable:
        """Records that JSON can write, as they are staged so, and whose values can name folders."""
        from lowtide.sinks.files.parts import part_rules

        staged = JsonFormat(self.record).writable
        parts = part_rules(self.record, self.partition_by)
        also = [Rule(staged.rule.fits, staged.rule.fault)] if staged.rule is not None else []
        return Writable(staged.record, of_fields(dict(parts), also), staged.never, (*staged.perhaps, *self._small))

    @property
    def mark_every_ms(self) -> int:
        """About a second, and each end of a period: what waits for lanes without records waits no longer."""
        parts = max(1, -(-self.roll_ms // MARK_EVERY_MS))
        while self.roll_ms % parts:
            parts += 1
        return self.roll_ms // parts

    @property
    def visible_every_ms(self) -> int:
        """The length of a period, which becomes visible as a whole."""
        return self.roll_ms

    @property
    def limits(self) -> Limits:
        """The limits that decide which file has which records."""
        return Limits(self.roll_ms, self.max_file_bytes)

    def faults(self) -> Sequence[str]:
        """Return what is wrong with the pattern, the roll, the format or the columns."""
        from lowtide.sinks.files.parts import part_faults

        pattern = Pattern(self.pattern)
        found = list(pattern.faults)
        found += [*self.format.faults, *part_faults(self.record, self.partition_by)]
        if not pattern.faults and (self.roll_ms <= 0 or pattern.length_ms % self.roll_ms):
            length = timedelta(milliseconds=pattern.length_ms)
            roll = timedelta(milliseconds=self.roll_ms)
            found.append(f"roll={roll} does not divide {length}, the length of a folder: a file would be in two")
        if self.pattern.startswith("s3:") and self.roll_ms < LEAST_ROLL_S3_MS:
            found.append("on S3 roll= is at least 10 s: shorter ones make more requests than files are worth")
        if self.max_file_bytes < LEAST_FILE_BYTES:
            found.append(f"max_file_bytes= is at least {LEAST_FILE_BYTES}, found {self.max_file_bytes}")
        return found

    def meets(self, other: object) -> bool:
        """Return whether the folders are the same ones, however they are written."""
        return isinstance(other, Files) and other._folders == self._folders

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return the S3 server; credentials come in boto3's standard ways (errors: ConfError)."""
        from lowtide.sinks.files.access import settings_of

        return settings_of(conf, self.connection)

    def carrier(self, carriage: Carriage) -> Carrier:
        """Return what puts the files."""
        from lowtide.sinks.files.carrier import FilesCarrier

        return FilesCarrier(self, carriage)

    @property
    def _folders(self) -> tuple[str, str]:
        pattern = Pattern(self.pattern)
        return folder_of(self.pattern if pattern.faults else pattern.plain, self.connection)

    @property
    def root(self) -> tuple[str, str]:
        """The folder below which all files are, as `folder_of` gives it."""
        return folder_of(Pattern(self.pattern).root, self.connection)

    @property
    def _small(self) -> tuple[str, ...]:
        if self.roll_ms <= 0 or FILES_A_DAY * self.roll_ms >= DAY_MS:
            return ()
        each = DAY_MS // self.roll_ms
        return (f"{each} files a day for each worker, and each value of partition_by, are many: roll= could be longer",)

    def __str__(self) -> str:
        by = f", by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"{self.place} as {self.format}{by}, a file each {timedelta(milliseconds=self.roll_ms)}"


def files(
    pattern: str,
    format: FileFormat[Any],  # noqa: A002 - reads best so
    *,
    roll: timedelta = ROLL,
    max_file_bytes: int = FILE_BYTES,
    partition_by: Sequence[str] = (),
    connection: str = "default",
) -> Files:
    """Name files to write, in S3 or a folder: each record is in exactly one, whole, and none ever changes.

    Args:
        pattern: The folders: `s3://bucket/...`, or an absolute path. `{tick:%Y-%m-%d}` becomes the date of log time,
            `{tick:%H}` the hour, in UTC.
        format: `lt.parquet(Type)` or `lt.json_lines(Type)`.
        roll: The log time that a file has; it divides the time of a folder. A file is there, whole, once the flow is
            past its end.
        max_file_bytes: Bytes, as JSON, at which a file ends and another one begins.
        partition_by: Columns for whose values there are folders, as `country=DE/`.
        connection: A table `[files.NAME]` of the conf, which has the S3 server if it is not Amazon's.

    Raises:
        FlowError: an argument is of another type.

    Example:
        >>> place = "s3://lake/orders/dt={tick:%Y-%m-%d}/hour={tick:%H}/"
        >>> orders.write("archive", lt.files(place, lt.parquet(Order), roll=lt.minutes(10)))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'archive': [Order(user='ada', amount=5)]}
    """
    site = str(user_site())
    if not isinstance(pattern, str):
        raise FlowError(f"files takes a pattern of folders, found {pattern!r}", where=site)
    if isinstance(format, type) or not hasattr(type(format), "suffix"):
        said = format.__name__ if isinstance(format, type) else "Type"
        way_out = f"write lt.parquet({said}) or lt.json_lines({said})"
        raise FlowError(f"files takes a format of files, found {format!r}", where=site, way_out=way_out)
    if not isinstance(roll, timedelta):
        raise FlowError(f"roll= takes a length of time, found {roll!r}", where=site, way_out="write lt.minutes(10)")
    if isinstance(partition_by, str):
        way_out = f"write partition_by=({partition_by!r},)"
        raise FlowError("partition_by= takes several names", where=site, way_out=way_out)
    roll_ms = roll // timedelta(milliseconds=1)
    return Files(pattern, format, roll_ms, max_file_bytes, tuple(partition_by), connection)
