"""Records made from a schema, for trial calls of functions."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from lowtide.flow.schema.kinds import Choice, Kind, Nullable, Scalar
from lowtide.flow.schema.nested_kinds import Mapping, Sequenced, Struct
from lowtide.flow.schema.plain_kinds import Fixed, Identifier
from lowtide.flow.schema.schema import schema_of

SAMPLES = 24

_SCALARS: dict[type, list[Any]] = {
    str: ["a", "b", "tea", "to be or not to be", ""],
    bytes: [b"a", b"b", b"tea", b"\x00\xff", b""],
    int: [1, 2, 0, -1, 7, 1_000_000],
    float: [1.0, 0.5, 0.0, -1.5, 1e9],
    bool: [True, False],
    date: [date(2026, 1, 31) + timedelta(days) for days in range(3)],
    datetime: [datetime(2026, 1, 31, 23, 59, tzinfo=UTC) + timedelta(hours) for hours in range(3)],
    time: [time(hour, 59) for hour in (0, 12, 23)],
}


def samples_of(record: type) -> list[Any]:
    """Return some records of a type, the same each time; none that its constructor refuses."""
    struct, made = schema_of(record).struct, []
    for number in range(SAMPLES):
        try:
            made.append(_value(struct, number))
        except (Exception, SystemExit):  # noqa: BLE001, S112 - whatever the user's __post_init__ raises
            continue
    return made


def _value(kind: Kind, number: int) -> Any:
    """Return the value for a number: neighbouring numbers give different values, which repeat after some."""
    if isinstance(kind, Nullable):
        return None if number % 4 == 3 else _value(kind.inner, number)
    if isinstance(kind, Scalar):
        values = _SCALARS[kind.python]
    elif isinstance(kind, Fixed):
        values = [Decimal(each).scaleb(-kind.scale) for each in (0, 1, 5, 9, -3)]
    elif isinstance(kind, Identifier):
        values = [UUID(int=each) for each in range(5)]
    elif isinstance(kind, Choice):
        values = sorted(kind.members, key=repr)
    elif isinstance(kind, Sequenced):
        return kind.python([_value(kind.item, number + index) for index in range(number % 3 + 1)])
    elif isinstance(kind, Mapping):
        names = _SCALARS[str]
        return {names[index]: _value(kind.value, number + index) for index in range(number % 3 + 1)}
    else:
        assert isinstance(kind, Struct), f"no sample of {kind.name}"
        fields = enumerate(kind.fields)
        return kind.record(**{name: _value(inner, number // (index + 1) + index) for index, (name, inner) in fields})
    return values[number % len(values)]
