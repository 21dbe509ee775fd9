"""Formats of files: how staged records become a file's bytes, the same for the same records in the same pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from lowtide.sinks.staged.contract import StagedRow

if TYPE_CHECKING:
    import pyarrow as pa

    from lowtide_snapshots.format.parts import Data

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
COMPRESSION_LEVEL = 3


class FileWriter(Protocol):
    """Writes one file."""

    def add(self, rows: Sequence[StagedRow], *, ends_group: bool) -> None:
        """Add records; those since the last group's end are a row group, if the format has such (RecordRefused)."""

    def close(self) -> None:
        """Write what comes at the end; the file itself stays open."""


class FileFormat(Protocol[T_co]):
    """A format of files: a frozen value in a flow.

    Attributes:
        suffix: The end of the files' names.
    """

    suffix: ClassVar[str]

    @property
    def record(self) -> type[T_co]:
        """The dataclass of the records."""

    @property
    def faults(self) -> Sequence[str]:
        """Return why such records cannot be written."""

    def writer(self, file: IO[bytes]) -> FileWriter:
        """Return what writes a file."""

    def count(self, data: Data) -> int:
        """Return the number of records in a whole file."""


@dataclass(frozen=True, slots=True)
class Parquet(Generic[T]):
    """Parquet files, compressed with zstd; `lt.parquet` makes one."""

    record: type[T]
    suffix: ClassVar[str] = "parquet"

    @property
    def faults(self) -> Sequence[str]:
        """Fields that are neither in a message's value nor its key."""
        return _lost(self.record, but="Key")

    def writer(self, file: IO[bytes]) -> FileWriter:
        """Return what writes row groups."""
        return _ParquetWriter(self.record, file)

    def count(self, data: Data) -> int:
        """Read it from the file's end."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        return int(pq.read_metadata(pa.BufferReader(data)).num_rows)

    def __str__(self) -> str:
        return f"Parquet of {self.record.__qualname__}"


@dataclass(frozen=True, slots=True)
class JsonLines(Generic[T]):
    """Text files with one JSON object a line; `lt.json_lines` makes one."""

    record: type[T]
    suffix: ClassVar[str] = "jsonl"

    @property
    def faults(self) -> Sequence[str]:
        """Fields that are not in a message's value."""
        return _lost(self.record)

    def writer(self, file: IO[bytes]) -> FileWriter:
        """Return what writes the staged values as they are."""
        return _LinesWriter(file)

    def count(self, data: Data) -> int:
        """Count the lines."""
        return bytes(data).count(b"\n")

    def __str__(self) -> str:
        return f"JSON lines of {self.record.__qualname__}"


def parquet(record: type[T]) -> Parquet[T]:
    """Files are Parquet with a column for each field of the dataclass `record`.

    Example:
        >>> place = "s3://lake/orders/dt={tick:%Y-%m-%d}/"
        >>> orders.write("archive", lt.files(place, lt.parquet(Order)))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'archive': [Order(user='ada', amount=5)]}
    """
    return Parquet(record)


def json_lines(record: type[T]) -> JsonLines[T]:
    """Files have one JSON object a line, with the fields of the dataclass `record`.

    Example:
        >>> orders.write("archive", lt.files("/lake/dt={tick:%Y-%m-%d}/", lt.json_lines(Order)))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'archive': [Order(user='ada', amount=5)]}
    """
    return JsonLines(record)


class _ParquetWriter:
    def __init__(self, record: type, file: IO[bytes]) -> None:
        import pyarrow.parquet as pq

        from lowtide.sinks.staged.arrow import ArrowRows

        self._rows = ArrowRows(record)
        self._group: list[pa.RecordBatch] = []
        self._writer = pq.ParquetWriter(
            file,
            self._rows.schema,
            compression="zstd",
            compression_level=COMPRESSION_LEVEL,
            write_page_checksum=True,
        )

    def add(self, rows: Sequence[StagedRow], *, ends_group: bool) -> None:
        """Make columns of them, and write the row group that ends."""
        import pyarrow as pa

        if rows:
            self._group.append(self._rows.batch(rows))
        if ends_group and self._group:
            # Chunks of other sizes would make other pages.
            table = pa.Table.from_batches(self._group).combine_chunks()
            self._group.clear()
            self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


class _LinesWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, rows: Sequence[StagedRow], *, ends_group: bool) -> None:
        """Write the values; JSON as `lt.json` writes it has no line end in it."""
        self._file.write(b"".join([row.value + b"\n" for row in rows]))

    def close(self) -> None:
        """Nothing comes at the end."""


def _lost(record: type, but: str = "") -> list[str]:
    """Return the fields that a staged record has not in its value."""
    from lowtide.flow.schema.marks import fields_of

    found = [(each.name, type(each.placed).__name__) for each in fields_of(record) if each.placed is not None]
    return [
        f"{record.__qualname__}.{name} is marked lt.{marker}(), and files have no such place: "
        "map the records to a dataclass without it"
        for name, marker in found
        if marker != but
    ]
