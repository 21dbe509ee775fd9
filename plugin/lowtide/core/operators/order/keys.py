"""Keys of records, as Python's values."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any
from uuid import UUID

_PLAIN = frozenset({bytes, str, int})


def key_of(columns: Sequence[str], record: Any) -> tuple[Any, ...]:
    """The values a record is keyed by, as they are hashed."""
    return tuple(plain(getattr(record, column)) for column in columns)


def plain(value: Any) -> Any:
    """A key's value as it is hashed: of an enumeration's member its value, of a UUID its text."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, UUID) else value


def meets_nothing(key: Any) -> bool:
    """True if a key is None, or has None in one of its columns: no join pairs it, as in SQL."""
    return key is None or (type(key) is tuple and None in key)
