"""Reading: a batch of messages becomes records of one dataclass, in C as long as all can be parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lowtide.errors import LowtideError
from lowtide.flow.schema.columns import Columns, Messages
from lowtide.flow.schema.defaults import completer_of
from lowtide.flow.schema.fields import fits_of
from lowtide.flow.schema.schema import schema_of
from lowtide.flow.schema.texts import ESCAPED, SEVEN_DIGITS, has_fine_times
from lowtide.flow.schema.wire import Misread

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T_co]):
    """The records of a batch of `n` messages, and those that failed.

    Attributes:
        rows: The records, in order, without those that failed; all of them fit their type.
        failures: `(index in the batch, reason)` of those that failed, in order.
    """

    rows: list[T_co]
    failures: list[tuple[int, str]]


class Reading:
    """Turns messages of one format into records of a dataclass.

    Args:
        record: The dataclass.
        columns: Its columns.
        parse: Makes a `columns.value` of a message's value.
        refuses: The exceptions that `parse` raises for a bad value, besides UnicodeDecodeError.
        null: The reason why a null value fails.
    """

    def __init__(
        self,
        record: Any,
        columns: Columns,
        parse: Callable[[Any], Any],
        refuses: tuple[type[Exception], ...],
        null: str,
    ) -> None:
        self._parse = parse
        self._refuses: tuple[type[Exception], ...] = (*refuses, UnicodeDecodeError, Misread)
        self._null = null
        self._columns = columns
        self._complete = completer_of(record)
        self._fits = fits_of(record)
        self._schema = schema_of(record)

    def decode(self, messages: Messages) -> Decoded[Any]:
        """Parse the messages one by one and check that the records fit; report those that do not."""
        try:
            rows = self._rows(messages.values, messages)
        except LowtideError:
            raise  # No message is at fault.
        except Exception:  # noqa: BLE001 - of a user's __post_init__ too; whose it is, is asked below
            return self._each(messages)
        return Decoded(rows, []) if all(map(self._fits, rows)) else self._each(messages)

    def _rows(self, values: Sequence[bytes | None], messages: Messages) -> list[Any]:
        if self._columns.plain:
            rows = list(map(self._parse, values))
        elif self._columns.takes_null:
            parse = self._parse
            rows = self._columns.rows([None if value is None else parse(value) for value in values], messages)
        else:
            rows = self._columns.rows(map(self._parse, values), messages)
        if self._complete is not None:
            self._complete(rows)
        return rows

    def _each(self, messages: Messages) -> Decoded[Any]:
        rows: list[Any] = []
        failures: list[tuple[int, str]] = []
        for index, value in enumerate(messages.values):
            if value is None and not self._columns.takes_null:
                failures.append((index, self._null))
                continue
            try:
                (row,) = self._rows([value], messages.pick([index]))
            except LowtideError:
                raise
            except self._refuses as error:
                failures.append((index, str(error)))
            except Exception as error:  # noqa: BLE001 - whatever a user's __post_init__ raises
                failures.append((index, f"{type(error).__name__}: {error}"))
            else:
                fault = self._schema.fault(row)
                if fault is None:
                    rows.append(row)
                else:
                    failures.append((index, fault.what))
        return Decoded(rows, failures)


class FineReading:
    """Reads JSON records that have times: messages with more than six fractional digits take a slower way.

    The way depends on the message alone, so its record and its fault do not depend on the batch. The check costs all
    other messages 0.2 us.

    Args:
        reading: Reads most messages.
        fine: Reads those that may have such times.
    """

    def __init__(self, reading: Reading, fine: Reading) -> None:
        self._reading = reading
        self._fine = fine

    def decode(self, messages: Messages) -> Decoded[Any]:
        """As `Reading.decode`."""
        values = messages.values
        text = values[0] if len(values) == 1 else b"\n".join([value or b"" for value in values])
        # Finding a backslash alone is three times as fast.
        if not text or (SEVEN_DIGITS(text) is None and (b"\\" not in text or ESCAPED not in text)):
            return self._reading.decode(messages)
        ways: tuple[list[int], list[int]] = ([], [])
        for index, value in enumerate(values):
            ways[has_fine_times(value)].append(index)
        return (
            self._parted(messages, ways) if all(ways) else (self._fine if ways[1] else self._reading).decode(messages)
        )

    def _parted(self, messages: Messages, ways: tuple[list[int], list[int]]) -> Decoded[Any]:
        rows: dict[int, Any] = {}
        failures: list[tuple[int, str]] = []
        for reading, indices in zip((self._reading, self._fine), ways, strict=True):
            found = reading.decode(messages.pick(indices))
            failed = {indices[index]: reason for index, reason in found.failures}
            failures += failed.items()
            rows.update(zip((index for index in indices if index not in failed), found.rows, strict=True))
        return Decoded([rows[index] for index in sorted(rows)], sorted(failures))
