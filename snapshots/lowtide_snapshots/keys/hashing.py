"""Hash units: which slice of the key space a key belongs to, the same in every life and on every machine.

    hash unit = XXH3-64 (seed 0) of the key's canonical bytes, as an unsigned number, modulo `units`

This is hash version 1. State, snapshots, lanes and rescaling go by hash unit, so a job's hash version and number of
units never change; `snapshots/README.md` is the definition, and this file one implementation of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lowtide_snapshots.errors import KeyRefused
from lowtide_snapshots.keys import MAX_UNITS
from lowtide_snapshots.keys.canonical import (
    KEY_TYPES,
    KeyValue,
    encode_days,
    encode_key,
    encode_microseconds,
    encode_value,
    join,
)

__all__ = ["HASH_VERSION", "MAX_UNITS", "hash_unit", "hash_units"]

HASH_VERSION = 1

# Below this many rows it is quicker to hash every row than to look for the distinct ones (measured with 100 keys).
_SMALL_BATCH_ROWS = 128

_Units = npt.NDArray[np.int32]


def hash_unit(key: Sequence[KeyValue], units: int) -> int:
    """Return the hash unit of one key, given as Python values in the order of the key columns.

    Args:
        key: one value per key column.
        units: number of hash units, 1 to `MAX_UNITS`.

    Raises:
        KeyRefused: a value has no place in the key encoding.
    """
    _check_units(units)
    return xxhash.xxh3_64_intdigest(encode_key(key)) % units


def hash_units(columns: Sequence[pa.Array], units: int) -> _Units:
    """Return each row's hash unit.

    Costs Arrow's dictionary encoding and numpy per row, and one encoding and one XXH3 per *distinct* key of the
    batch; O(rows) for one column, O(rows log rows) for several. Text and integers are not copied.

    Args:
        columns: the key columns, in the order the flow names them, all n rows long. Integers of any width, text,
            binary, bool, date, timestamp and null, also dictionary-encoded.
        units: number of hash units, 1 to `MAX_UNITS`.

    Returns:
        int32[n], each in [0, units).

    Raises:
        KeyRefused: a column's type has no place in the key encoding, or an unsigned integer needs all 64 bits.
        ValueError: the columns differ in length.
    """
    _check_units(units)
    if not columns:
        raise KeyRefused("a key has at least one column")
    keys = [_key_column(column) for column in columns]
    rows = len(keys[0].values)
    if any(len(key.values) != rows for key in keys):
        raise ValueError(f"key columns differ in length: {[len(key.values) for key in keys]}")
    if rows <= _SMALL_BATCH_ROWS:
        return _hash([key.encoded(key.values) for key in keys], units)
    if len(keys) == 1:
        distinct, codes = _distinct(keys[0].values)
        return _hash([keys[0].encoded(distinct)], units)[codes]
    return _of_several_columns(keys, rows, units)


@dataclass(frozen=True, slots=True)
class _KeyColumn:
    """A key column in a form that Python's values hold without loss, and how such a value is encoded."""

    values: pa.Array
    encode: Callable[[Any], bytes]

    def encoded(self, values: pa.Array) -> list[bytes]:
        return list(map(self.encode, values.to_pylist()))


def _of_several_columns(keys: Sequence[_KeyColumn], rows: int, units: int) -> _Units:
    combined = np.zeros(rows, np.int64)
    encoded: list[tuple[list[bytes], npt.NDArray[np.int32]]] = []
    for key in keys:
        distinct, codes = _distinct(key.values)
        encoded.append((key.encoded(distinct), codes))
        # Made dense after each column, the code stays below `rows`, and its product with the next within 64 bits.
        combined = np.unique(combined * len(distinct) + codes, return_inverse=True)[1]
    firsts, inverse = np.unique(combined, return_index=True, return_inverse=True)[1:]
    return _hash([[parts[code] for code in codes[firsts].tolist()] for parts, codes in encoded], units)[inverse]


def _hash(columns: Sequence[list[bytes]], units: int) -> _Units:
    """Return the units of keys given as encoded values, one list per key column, all of one length."""
    keys = columns[0] if len(columns) == 1 else map(join, zip(*columns, strict=True))
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, keys), dtype=np.uint64, count=len(columns[0]))
    return (hashes % np.uint64(units)).astype(np.int32)


def _distinct(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int32]]:
    """Return the distinct values (null among them) and each row's place among these."""
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy()


def _key_column(column: pa.Array) -> _KeyColumn:
    """Return the column with its encoding, or raise KeyRefused."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _key_column(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return _KeyColumn(_microseconds(column), encode_microseconds)
    if pa.types.is_date(kind):
        return _KeyColumn(column.cast(pa.date32()).cast(pa.int32()), encode_days)
    if any(accepts(kind) for accepts in _ACCEPTED):
        return _KeyColumn(column, encode_value)
    if pa.types.is_floating(kind):
        raise KeyRefused(
            f"a column of {kind} cannot be a key: nearly equal floats are different keys; use an integer, or text "
            "with a fixed number of digits"
        )
    raise KeyRefused(f"a column of {kind} cannot be a key; key types are: {KEY_TYPES}")


def _microseconds(column: pa.Array) -> pa.Array:
    """Return timestamps as microseconds, int64; Arrow holds those with a zone in UTC already."""
    try:
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise KeyRefused(f"a timestamp outside int64 microseconds cannot be a key: {error}") from None


def _check_units(units: int) -> None:
    if not 1 <= units <= MAX_UNITS:
        raise ValueError(f"units is {units}; it must be 1 to {MAX_UNITS}")


_ACCEPTED = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
