"""Records that columns cannot change, which spare a local run most of its trips through columns."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

from lowtide.flow.schema.kinds import Nullable, Scalar
from lowtide.flow.schema.schema import schema_of

INT64 = range(-(1 << 63), 1 << 63)


def is_plain(declared: type, record: object) -> bool:
    """Return whether a record certainly fits its type and comes back from columns unchanged; False says nothing.

    True only for a frozen dataclass without code of its own, with fields that hold exactly the text, bytes, bool or
    int that they declare (or None where that is declared), and an int that 64 bits hold.
    """
    fields = _plain_fields(declared)
    if fields is None or type(record) is not declared:
        return False
    for value_of, python, nullable in fields:
        value = value_of(record)
        if value is None and nullable:
            continue
        if type(value) is not python:
            return False
        if python is int and value not in INT64:
            return False
        # A lone surrogate, as from a wrongly decoded file name, is not text for Arrow.
        if isinstance(value, str) and not (value.isascii() or _is_text(value)):
            return False
    return True


@cache
def _plain_fields(declared: type) -> list[tuple[attrgetter[Any], type, bool]] | None:
    """Return each field's getter, its type, and whether it may be None; None for a type that columns may change."""
    kinds = schema_of(declared).kinds
    made_as_written = declared.__dataclass_params__  # type: ignore[attr-defined]  # a schema is a dataclass's
    if not (made_as_written.frozen and made_as_written.init) or hasattr(declared, "__post_init__"):
        return None
    fields: list[tuple[attrgetter[Any], type, bool]] = []
    for name, kind in kinds.items():
        inner = kind.inner if isinstance(kind, Nullable) else kind
        if not isinstance(inner, Scalar) or inner.python not in (str, bytes, bool, int):
            return None
        fields.append((attrgetter(name), inner.python, inner is not kind))
    return fields


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
