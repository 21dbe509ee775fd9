"""The columns of a table: their types by the fields of a dataclass, and how values are written.

| field | column | |
|---|---|---|
| `int`, `float`, `bool` | bigint, double precision, boolean | |
| `str`, `bytes` | text, bytea | |
| `datetime`, `date`, `time` | timestamptz, date, time | |
| `Annotated[Decimal, Precision(18, 2)]` | numeric | |
| `UUID` | uuid | |
| `Enum`, `Literal` | text or bigint | by their values |
| `list`, `tuple`, `dict`, a dataclass | jsonb | as `lt.json` writes them |
| `T | None` | as `T`, nullable | |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

from lowtide.flow.formats.json_writable import json_rule
from lowtide.flow.formats.writable import Rule, Writable, of_each, of_fields, of_type, of_values, or_none
from lowtide.flow.schema.marks import Field, bare_of, fields_of
from lowtide.sinks.postgres.names import quoted, table_of

PLAIN = {
    int: "bigint",
    float: "double precision",
    bool: "boolean",
    str: "text",
    bytes: "bytea",
    datetime: "timestamp with time zone",
    date: "date",
    time: "time without time zone",
    Decimal: "numeric",
    UUID: "uuid",
}
"""Columns' types, as PostgreSQL names them."""
_INT_8 = 1 << 63


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name.
        type: Its type, as `format_type` names it.
        nullable: True if it may be null.
    """

    name: str
    type: str
    nullable: bool

    @property
    def array(self) -> str:
        """The type of the parameter that brings the values of many rows; `unnest` would flatten arrays of JSON."""
        return "text[]" if self.type == "jsonb" else f"{self.type}[]"

    @property
    def cast(self) -> str:
        """Conversion of one of `array` into the column's value."""
        return "::jsonb" if self.type == "jsonb" else ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a sink writes.

    Attributes:
        name: Its name, perhaps with its schema before a dot.
        columns: Its columns, and `gone`, in the order of the record's fields.
        key: The index of the key's column; None if rows are only added.
        gone: The index of the column that is true for rows to delete, which the table does not have; None for none.
        refuses: True if rows that it refuses go to `lowtide.refused`, and the job goes on.
    """

    name: str
    columns: tuple[Column, ...]
    key: int | None
    gone: int | None
    refuses: bool = False

    @property
    def sql(self) -> str:
        """The name in SQL."""
        return table_of(self.name)

    @property
    def rights(self) -> str:
        """The rights that the job's user needs on the table."""
        words = "insert" if self.key is None else "select, insert, update"
        return words if self.gone is None else f"{words}, delete"

    @property
    def kept(self) -> list[Column]:
        """The columns that the table has."""
        return [column for index, column in enumerate(self.columns) if index != self.gone]


def table_for(name: str, record: type, key: str | None, deleted: str | None, *, refuses: bool = False) -> Table:
    """Return the table for records; `key` and `deleted` are fields, `refuses` as in `Table`."""
    fields = fields_of(record)
    names = [field.name for field in fields]
    columns = tuple(_column(field) for field in fields)
    return Table(
        name,
        columns,
        None if key is None else names.index(key),
        None if deleted is None else names.index(deleted),
        refuses,
    )


def ddl_of(table: Table) -> str:
    """Return the statement that makes a table."""
    lines = [f"{quoted(each.name)} {each.type}{'' if each.nullable else ' not null'}" for each in table.kept]
    if table.key is not None:
        lines.append(f"primary key ({quoted(table.columns[table.key].name)})")
    return f"create table {table.sql} (\n    " + ",\n    ".join(lines) + "\n);"


@cache
def maker_of(record: Any) -> Callable[[bytes, Any], tuple[Any, ...]]:
    """Return what makes of an order key and a record the tuple that goes to PostgreSQL: the key, then the columns."""
    names: dict[str, Any] = {}
    parts = ["at"]
    for index, field in enumerate(fields_of(record)):
        value, (write, wrapped) = f"r.{field.name}", _write_of(_hint(field))
        if write is not None:
            names[f"f{index}"] = write
            value = wrapped.format(value, f"f{index}")
            if bare_of(field.hint) is not field.hint:
                value = f"(None if r.{field.name} is None else {value})"
        parts.append(value)
    # Made of field names, which are identifiers, and of expressions from this file.
    make: Callable[[bytes, Any], tuple[Any, ...]] = eval(f"lambda at, r: ({', '.join(parts)})", names)  # noqa: S307
    return make


@cache
def writable_of(record: Any) -> Writable:
    """Return which records PostgreSQL can hold: text has no NUL, integers have 64 bits."""
    rules = {field.name: _rule_of(field.hint) for field in fields_of(record)}
    return Writable(record.__qualname__, of_fields(rules))


def _column(field: Field) -> Column:
    hint = bare_of(field.hint)
    return Column(field.alias or field.name, _type_of(hint), hint is not field.hint)


def _hint(field: Field) -> Any:
    return bare_of(field.hint)


def _plain(hint: Any) -> Any:
    """Return a type without annotations."""
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def _members(hint: Any) -> Sequence[Any]:
    """Return the values of an Enum or a Literal; none of any other type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return [each.value for each in hint] if isinstance(hint, type) and issubclass(hint, Enum) else ()


def _type_of(hint: Any) -> str:
    hint = _plain(hint)
    if members := _members(hint):
        return PLAIN[type(members[0])]
    return PLAIN.get(hint, "jsonb")


def _write_of(hint: Any) -> tuple[Callable[[Any], Any] | None, str]:
    """Return the function that writes a value, None for none, and the expression that calls it: {0} value, {1} it."""
    hint = _plain(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return str, "{0}.value"
    if hint is float:
        # Of a list, psycopg asks only the first value for its type.
        return float, "{1}({0})"
    if _members(hint) or hint in PLAIN:
        return None, ""
    return _json_of(hint), "{1}({0})"


def _json_of(hint: Any) -> Callable[[Any], str]:
    import msgspec

    from lowtide.flow.schema.wire import wire_of

    encode, write = msgspec.json.Encoder().encode, wire_of(hint).write
    if write is None:
        return lambda value: encode(value).decode()
    return lambda value: encode(write(value)).decode()


def _has_no_nul(text: str) -> bool:
    return "\0" not in text


def _nul(text: str) -> tuple[str, str]:
    return "", f"PostgreSQL cannot hold text with a NUL: {text[:40]!r}"


def _fits_8(number: int) -> bool:
    return -_INT_8 <= number < _INT_8


def _too_large(number: int) -> tuple[str, str]:
    return "", f"{number} does not fit into a bigint, which has 64 bits"


_TEXT = Rule(_has_no_nul, _nul)
_INT = Rule(_fits_8, _too_large, f"{-_INT_8} <= {{0}} < {_INT_8}")


def _rule_of(hint: Any) -> Rule | None:
    bare = bare_of(hint)
    if bare is not hint:
        return or_none(_rule_of(bare))
    hint = _plain(hint)
    if hint in PLAIN or _members(hint):
        return {str: _TEXT, int: _INT}.get(hint)
    return _of_json(hint)


def _of_json(hint: Any) -> Rule | None:
    """The rule for a value inside JSON, whose numbers may have any size."""
    bare = bare_of(hint)
    if bare is not hint:
        return or_none(_of_json(bare))
    hint = _plain(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple):
        return of_each(_of_json(arguments[0]))
    if origin is dict:
        return _both(_of_names(), of_values(_of_json(arguments[1])))
    if is_dataclass(hint):
        return of_type(hint, _leaf)
    return _leaf(hint)


def _leaf(hint: Any) -> Rule | None:
    return _TEXT if hint is str else json_rule(hint)


def _of_names() -> Rule:
    each = of_each(_TEXT)
    assert each is not None
    return each


def _both(first: Rule, second: Rule | None) -> Rule:
    if second is None:
        return first
    rest = second
    return Rule(
        lambda value: first.fits(value) and rest.fits(value),
        lambda value: rest.fault(value) if first.fits(value) else first.fault(value),
    )
