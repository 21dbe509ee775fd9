"""Keys of records, as Python's values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any


def key_of(columns: Sequence[str], record: Any) -> tuple[Any, ...]:
    """The values a record is keyed by, as they are hashed."""
    return tuple(plain(getattr(record, column)) for column in columns)


def plain(value: Any) -> Any:
    """A key's value as it is hashed and stored: of an enumeration's member its value."""
    return value.value if isinstance(value, Enum) else value
