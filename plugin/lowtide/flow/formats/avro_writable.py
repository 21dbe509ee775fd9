"""Values that an Avro schema cannot hold, where it is not made from the dataclass."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import Any, get_args, get_origin
from uuid import UUID

import msgspec

from lowtide.flow.formats.avro import BUILTIN, parsed, read, written
from lowtide.flow.formats.avro_schema import NamesCollide, schema_text
from lowtide.flow.formats.writable import (
    Findings,
    Rule,
    Writable,
    converted,
    never_none,
    of_each,
    of_fields,
    of_values,
    or_none,
    record_rule,
)
from lowtide.flow.formats.writable_numbers import FLOAT_32, ROUNDED, members_of, of_integers, stored, within
from lowtide.flow.schema.markers import Precision
from lowtide.flow.schema.marks import Field, bare_of, fields_of
from lowtide.flow.schema.schema import said
from lowtide.flow.schema.wire import Wire, wire_of, wire_of_field

_INTEGERS: Mapping[str, Rule | None] = {
    "long": None,
    "int": within(-(2**31), 2**31 - 1, "int"),
    "double": within(-(2**53), 2**53, "the integers of double"),
    "float": within(-(2**24), 2**24, "the integers of float"),
}
"""The rule for an int, by Avro type."""

_TYPES: Mapping[tuple[str, str], Any] = {
    ("string", ""): str,
    ("string", "uuid"): UUID,
    ("bytes", ""): bytes,
    ("fixed", ""): bytes,
    ("float", ""): float,
    ("double", ""): float,
    ("boolean", ""): bool,
    ("int", "date"): date,
    ("int", "time-millis"): time,
    ("long", "time-micros"): time,
    ("long", "timestamp-millis"): datetime,
    ("long", "timestamp-micros"): datetime,
    ("long", "local-timestamp-millis"): None,
    ("long", "local-timestamp-micros"): None,
    ("bytes", "decimal"): Decimal,
    ("fixed", "decimal"): Decimal,
}
"""By Avro's type and logical type that of the fields that stand there as they are, integers aside."""


@cache
def avro_writable(record: Any, schema: str | None) -> Writable:
    """Compare a dataclass with a schema: which records the schema can hold.

    Args:
        record: The dataclass.
        schema: The schema as JSON; None for the one made from the dataclass, which can hold all.
    """
    findings, rule = Findings(), None
    if schema is None:
        try:
            schema_text(record)
        except NamesCollide as error:
            findings.never.append(f"{error.what}; {error.way_out}")
    else:
        whole = parsed(schema)
        walk = _Walk(whole.get("__named_schemas", {}) if isinstance(whole, dict) else {}, findings)
        rule = record_rule(record, walk.record(record.__qualname__, record, whole))
    return Writable(record.__qualname__, rule, tuple(findings.never), tuple(findings.perhaps))


class _Walk:
    """Goes through a dataclass and a schema together.

    Args:
        named: The schema's named types.
        findings: Gets what never fits, or may not.
    """

    def __init__(self, named: Mapping[str, Any], findings: Findings) -> None:
        self._named = named
        self._findings = findings

    def record(self, qualname: str, record: Any, schema: Any) -> Rule | None:
        """The rule for a record."""
        schema = self._resolved(schema)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            return self._never(f"{qualname}: the schema has {_shown(schema)} there, and not a record")
        inside = {field.alias or field.name: field for field in fields_of(record) if field.placed is None}
        there = {field["name"]: field for field in schema["fields"]}
        for name, entry in there.items():
            if name not in inside and not self._has_default(entry):
                self._never(f"{qualname}: the schema requires {name!r} and has no default that could be written for it")
        rules: dict[str, Rule | None] = {}
        for name, field in inside.items():
            if name in there:
                rules[field.name] = self._field(f"{qualname}.{field.name}", field, there[name]["type"])
            else:
                self._never(f"{qualname}.{field.name}: the schema has no field {name!r}, so the value would be lost")
        return of_fields(rules)

    def _has_default(self, entry: Mapping[str, Any]) -> bool:
        """True if the codec writes a field's default where a record has no such field."""
        if "default" not in entry:
            return False
        try:
            written(_wrapped(entry, self._named), {})
        except Exception:  # noqa: BLE001 - fastavro has no word for the default of bytes, and raises what it meets
            return False
        return True

    def _field(self, qualname: str, field: Field, schema: Any) -> Rule | None:
        return self._any(qualname, field.hint, schema, wire_of_field(field))

    def _any(self, qualname: str, hint: Any, schema: Any, wire: Wire) -> Rule | None:
        """The rule for a value of any type, which stands in the message as its wire says."""
        schema, exact = self._resolved(schema), _precision(hint)
        hint = get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
        bare = bare_of(hint)
        branches = [self._resolved(each) for each in schema] if isinstance(schema, list) else [schema]
        others = [each for each in branches if each != "null"]
        is_number = bare_of(wire.hint) is int and bare is datetime
        if len(others) > 1:
            return self._union(qualname, int if is_number else bare, branches, exact, wire)
        if not others:
            return self._never(f"{qualname}: the schema has only null there")
        rule = self._one(qualname, int if is_number else bare, others[0], exact)
        if is_number and rule is not None and wire.write is not None:
            rule = converted(rule, wire.write)
        if bare is hint:
            return rule
        if len(others) < len(branches):
            return or_none(rule)
        self._findings.perhaps.append(f"{qualname}: the schema has no null there: a record with None does not fit")
        return never_none(rule, "the schema has no null there")

    def _union(
        self, qualname: str, hint: Any, branches: Sequence[Any], exact: Precision | None, wire: Wire
    ) -> Rule | None:
        """The rule for a value in a union of several types: what is written must read back equal."""
        if all(self._tried(qualname, hint, branch, exact) for branch in branches if branch != "null"):
            return self._never(f"{qualname}: {said(hint)} fits no type of the union {_shown(list(branches))}")
        what = "the schema has a union of several types there: a value that would read back changed does not fit"
        self._findings.perhaps.append(f"{qualname}: {what}")
        fits = _comes_back(branches, self._named, wire)
        union = _shown(list(branches))
        return Rule(fits, lambda value: ("", f"{value!r} would read back changed from the union {union}"))

    def _tried(self, qualname: str, hint: Any, schema: Any, exact: Precision | None) -> list[str]:
        """The faults by which a value never fits a type; the walk's own findings stay as they are."""
        tried = Findings()
        _Walk(self._named, tried)._one(qualname, hint, schema, exact)
        return tried.never

    def _one(self, qualname: str, hint: Any, schema: Any, exact: Precision | None) -> Rule | None:
        """The rule for a value that is not None, in a type that is not a union."""
        if isinstance(schema, list):
            return self._never(f"{qualname}: the schema has a union in a union there")
        kind = schema if isinstance(schema, str) else schema["type"]
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (list, tuple) and kind == "array":
            return of_each(self._item(f"{qualname}[]", arguments[0], schema["items"]))
        if origin is dict and kind == "map":
            return of_values(self._item(f"{qualname}{{}}", arguments[1], schema["values"]))
        if dataclasses.is_dataclass(hint) and kind == "record":
            return self.record(qualname, hint, schema)
        return self._leaf(qualname, hint, schema, kind, exact)

    def _item(self, qualname: str, hint: Any, schema: Any) -> Rule | None:
        return self._any(qualname, hint, schema, wire_of(hint))

    def _leaf(  # noqa: PLR0911 - one per type
        self, qualname: str, hint: Any, schema: Any, kind: str, exact: Precision | None
    ) -> Rule | None:
        """The rule for a plain value; add new cases here."""
        members = members_of(hint)
        bare: Any = type(stored(members[0])) if members else hint
        if kind == "enum" and bare is str:
            return self._symbols(qualname, members, schema)
        logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if bare is int and kind in _INTEGERS:
            return self._integer(qualname, members, kind)
        types = _TYPES.get((kind, logical)) or _TYPES.get(
            (kind, "")
        )  # An unknown logical type is read as its plain type.
        if bare is not types:
            return self._never(f"{qualname}: {said(hint)} does not fit {_shown(schema)}")
        if kind == "float":
            self._findings.perhaps.append(f"{qualname}: {ROUNDED}")
            return FLOAT_32
        if bare is Decimal:
            assert exact is not None, "a Decimal has its precision"
            return self._decimal(qualname, exact, schema)
        if kind == "fixed":
            return self._fixed(qualname, schema["size"])
        if logical in ("time-millis", "timestamp-millis"):
            self._findings.perhaps.append(f"{qualname}: the schema has milliseconds there, so values are cut to them")
        return None

    def _integer(self, qualname: str, members: Sequence[Any], kind: str) -> Rule | None:
        """The rule for integers, also for times stored as integers."""
        rule = _INTEGERS[kind]
        if rule is None:
            return None
        if not members:
            self._findings.perhaps.append(f"{qualname}: the schema has {kind} there: not every int fits")
        return of_integers(qualname, members, rule, self._findings)

    def _symbols(self, qualname: str, members: Sequence[Any], schema: Any) -> Rule | None:
        known = frozenset(schema["symbols"])
        rule = Rule(known.__contains__, lambda value: ("", f"enum {schema['name']} has no symbol {value!r}"))
        if members:
            return of_integers(qualname, members, rule, self._findings)
        self._findings.perhaps.append(f"{qualname}: the schema has an enum there: only its symbols fit")
        return rule

    def _fixed(self, qualname: str, size: int) -> Rule:
        self._findings.perhaps.append(f"{qualname}: the schema has a fixed there: only {size} bytes fit")
        return Rule(lambda value: len(value) == size, lambda value: ("", f"{len(value)} bytes, but fixed has {size}"))

    def _decimal(self, qualname: str, exact: Precision, schema: Any) -> Rule | None:
        """The rule for exact numbers: the digits that the schema has before and after the point."""
        precision, scale = schema["precision"], schema.get("scale", 0)
        if scale < exact.scale:
            what = f"has {scale} digits after the point there, and the field {exact.scale}"
            return self._never(f"{qualname}: the schema {what}")
        limit = 10 ** (precision - scale)
        if "size" in schema:
            limit = min(limit, (2 ** (8 * schema["size"] - 1) - 1) // 10**scale)
        if limit >= 10 ** (exact.digits - exact.scale):
            return None
        self._findings.perhaps.append(f"{qualname}: the schema has fewer digits than the field: not every value fits")
        return Rule(
            lambda value: -limit < value < limit,
            lambda value: ("", f"{value} has more digits than the schema's decimal({precision}, {scale})"),
        )

    def _resolved(self, schema: Any) -> Any:
        """Resolve a name to its schema, and a schema that is spelt out to its name."""
        if isinstance(schema, dict) and set(schema) == {"type"}:
            return self._resolved(schema["type"])
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _never(self, what: str) -> Rule | None:
        """Note that no record fits; there is no rule for what is refused."""
        self._findings.never.append(what)
        return None


def _precision(hint: Any) -> Precision | None:
    marks = getattr(hint, "__metadata__", ())
    return next((mark for mark in marks if isinstance(mark, Precision)), None)


def _shown(schema: Any) -> str:
    """A schema in a message: by its name, if it has one."""
    if isinstance(schema, dict) and "name" in schema:
        return f"{schema['type']} {schema['name']}"
    return json.dumps(schema)


def _wrapped(field: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of one field, as if it had been parsed."""
    whole = {"type": "record", "name": "lowtide.Value", "fields": [field]}
    return {**whole, "__fastavro_parsed": True, "__named_schemas": dict(named)}


def _comes_back(union: Sequence[Any], named: Mapping[str, Any], wire: Wire) -> Callable[[Any], bool]:
    """True if a value is read back as it was from a union of several types, where the codec chooses by the value."""
    whole = _wrapped({"name": "value", "type": list(union)}, named)

    def comes_back(value: Any) -> bool:
        try:
            data = written(whole, {"value": value if wire.write is None else wire.write(value)})
            found = msgspec.convert(read(whole, data)["value"], wire.hint, builtin_types=BUILTIN)
        except Exception:  # noqa: BLE001 - whatever the codec raises, it cannot write it
            return False
        return bool((found if wire.read is None else wire.read(found)) == value or repr(found) == repr(value))

    return comes_back
