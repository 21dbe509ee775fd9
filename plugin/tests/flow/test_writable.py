"""A sink's records read back equal, or are refused before: for random types, at their edges."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from itertools import count
from random import Random
from typing import Annotated, Any, Literal, get_args, get_origin
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from programs import rows_of_values
from proto_messages import add_field, generated_by

import lowtide as lt
from lowtide.flow.formats.avro import Bound, schema_text
from lowtide.flow.formats.formats import Format
from lowtide.flow.plan.check import advice, check_flow
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.schema.fields import fits_of
from lowtide.flow.schema.marks import bare_of

SEEDS = range(100)
ROWS = 24
NUMBERS = count()


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"


class Size(Enum):
    SMALL = 1
    LARGE = 2**40


MONEY = Annotated[Decimal, lt.Precision(6, 2)]
PLAIN: list[Any] = [
    str, bytes, int, float, bool, date, time, datetime, UUID, MONEY, Colour, Size,
    Literal["RED", "GREEN"], Literal[0, 7], Annotated[datetime, lt.Epoch("s")], Annotated[datetime, lt.Epoch("us")],
]  # fmt: skip

DUBLIN = ZoneInfo("Europe/Dublin")
"""Until 1916 at an offset of minutes and seconds."""
ZONES = [
    UTC,
    timezone(timedelta(hours=-7)),
    DUBLIN,
    timezone(timedelta(seconds=-1)),
    timezone(timedelta(seconds=86399)),
]
INTEGERS = [0, 1, -1, 7, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, 0.1, -1e9, 1e300, -1e300, 3.4028235677973366e38, 3.4028235e38, 5e-324, 3, 2**53]
TEXTS = ["", "a", "\x00", '\u20ac\n"', "x" * 300, "RED", "-type", "\U0001f600"]


def value_of(dice: Random, hint: Any, floats: list[float]) -> Any:
    """A value of a type, at its edges mostly."""
    marks: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    inner = get_args(hint)[0] if marks else hint
    bare, origin, arguments = bare_of(inner), get_origin(inner), get_args(inner)
    if bare is not inner:
        return None if dice.random() < 0.4 else value_of(dice, Annotated[bare, *marks] if marks else bare, floats)
    if origin in (list, tuple):
        values = [value_of(dice, arguments[0], floats) for _ in range(dice.choice([0, 1, 2, 3]))]
        return values if origin is list else tuple(values)
    if origin is dict:
        return {name: value_of(dice, arguments[1], floats) for name in dice.sample(TEXTS, dice.randrange(3))}
    if origin is Literal:
        return dice.choice(arguments)
    if dataclasses.is_dataclass(inner):
        made: Any = inner
        hints = {field.name: field.type for field in dataclasses.fields(made)}
        return made(**{name: value_of(dice, each, floats) for name, each in hints.items()})
    if isinstance(inner, type) and issubclass(inner, Enum):
        return dice.choice(list(inner))
    if inner is Decimal:
        return Decimal(dice.choice([0, 1, -1, 999_999, -999_999, 10])).scaleb(-marks[0].scale)
    if inner is datetime:
        first = datetime(1, 1, 2, 12, tzinfo=UTC)
        at = dice.choice([first, datetime(1850, 1, 1, 1, 2, 3, 999_999, UTC), datetime(9999, 12, 30, tzinfo=UTC)])
        return at.astimezone(dice.choice(ZONES))
    edges: dict[Any, list[Any]] = {
        str: TEXTS,
        bytes: [b"", b"\x00\xff", b"a" * 300],
        int: INTEGERS,
        float: floats,
        bool: [True, False],
        date: [date.min, date.max, date(1969, 12, 31)],
        time: [time.min, time.max, time(1, 2, 3, 4)],
        UUID: [UUID(int=0), UUID(int=2**128 - 1)],
    }
    return dice.choice(edges[inner])


def record_of(dice: Random, depth: int = 2) -> Any:
    """A dataclass of random fields."""
    fields = []
    for place in range(dice.randint(1, 4)):
        hint = hint_of(dice, depth)
        fields.append((f"f{place}", hint))
    return dataclasses.make_dataclass(f"Made{next(NUMBERS)}", fields, frozen=True)


def hint_of(dice: Random, depth: int) -> Any:
    if depth and dice.random() < 0.5:
        inner = hint_of(dice, depth - 1)
        made: list[Any] = [list[inner], tuple[inner, ...], dict[str, inner], record_of(dice, depth - 1)]  # type: ignore[valid-type]
        found: Any = dice.choice(made)
    else:
        found = dice.choice(PLAIN)
    if dice.random() < 0.3 and bare_of(found) is found and not hasattr(found, "__metadata__"):
        return found | None if not isinstance(found, str) else found
    return found


def same(hint: Any, was: Any, found: Any, rounded: bool) -> Any:
    """True if a value is what was written; cut down where its marker says so, and perhaps rounded to 32 bits."""
    marks = getattr(hint, "__metadata__", ())
    inner = bare_of(get_args(hint)[0] if marks else hint)
    if was is None or found is None:
        return was is found
    origin, arguments = get_origin(inner), get_args(inner)
    if origin in (list, tuple):
        return len(was) == len(found) and all(
            same(arguments[0], *each, rounded) for each in zip(was, found, strict=True)
        )
    if origin is dict:
        return set(was) == set(found) and all(same(arguments[1], was[key], found[key], rounded) for key in was)
    if dataclasses.is_dataclass(inner):
        fields = dataclasses.fields(inner)
        return all(same(each.type, getattr(was, each.name), getattr(found, each.name), rounded) for each in fields)
    if marks and isinstance(marks[0], lt.Epoch):
        return timedelta(0) <= was - found < timedelta(microseconds={"s": 10**6, "us": 1}[marks[0].unit])
    if inner is datetime and rounded:
        return was == found or was.replace(microsecond=was.microsecond // 1_000 * 1_000) == found
    if inner is float:
        exact = repr(float(was)) == repr(float(found))
        return exact or (rounded and math.isfinite(was) and struct.pack("<f", was) == struct.pack("<f", found))
    return was == found


def keeps_the_law(form: Format[Any], dice: Random, floats: list[float], *, rounded: bool = False) -> int:
    """Write random records, those that fit, and read them; how many did not fit."""
    assert not form.writable.never, form.writable.never
    record: Any = form.record
    refused = 0
    for _ in range(ROWS):
        row = value_of(dice, record, floats)
        assert fits_of(record)(row), f"no record to be tried: {row}"
        fault = form.writable.fault(row)
        if fault is not None:
            refused += 1
            assert form.writable.perhaps or "ahead of UTC" in fault or "JSON cannot hold" in fault, (
                "what may not fit is noted"
            )
            continue
        (value,) = form.encode([row])
        decoded = form.decode(rows_of_values([value]))
        assert not decoded.failures, (row, value, decoded.failures)
        assert same(record, row, decoded.rows[0], rounded), (row, value, decoded.rows[0])
    return refused


@dataclasses.dataclass(frozen=True)
class Registered:
    """A registry of one schema."""

    text: str

    def schema(self, number: int) -> str:
        return self.text


def bound(form: Any) -> Any:
    return dataclasses.replace(form, bound=Bound(Registered(form.text), 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_written_reads_back_equal_or_is_refused(seed: int) -> None:
    dice = Random(seed)
    record = record_of(dice)
    floats = [*FLOATS, math.inf, -math.inf, math.nan]
    keeps_the_law(lt.json(record), dice, floats)
    assert keeps_the_law(bound(lt.avro(record)), dice, floats) == 0, "its schema is its own"


# -- Avro, by a schema that is given -----------------------------------------------------------------------------------


def schema_near(dice: Random, schema: Any) -> Any:
    """A schema in which something is otherwise here and there."""
    if isinstance(schema, list):
        near = [schema_near(dice, each) for each in schema]
        flat = [branch for each in near for branch in (each if isinstance(each, list) else [each])]
        return union_near(dice, [each for place, each in enumerate(flat) if each not in flat[:place]])
    if isinstance(schema, str):
        return dice.choice(NEAR[schema]) if schema in NEAR and dice.random() < 0.3 else schema
    if schema["type"] == "record":
        fields = [{**each, "type": schema_near(dice, each["type"])} for each in schema["fields"]]
        for each in fields:
            each.pop("default", None)
        if dice.random() < 0.2:
            fields.append({"name": "more", "type": "int", "default": 7})
        return {**schema, "fields": fields}
    if schema["type"] in ("array", "map"):
        of = "items" if schema["type"] == "array" else "values"
        return {**schema, of: schema_near(dice, schema[of])}
    if schema.get("logicalType") == "decimal" and dice.random() < 0.5:
        size = dice.choice([2, 3, 8])
        fixed = {"type": "fixed", "name": f"Fixed{next(NUMBERS)}", "size": size}
        least = min(dice.choice([5, 6, 7]), {2: 4, 3: 6, 8: 18}[size])
        return {**schema, **dice.choice([{}, fixed]), "precision": least, "scale": dice.choice([2, 3])}
    if schema.get("logicalType") == "timestamp-micros" and dice.random() < 0.3:
        return {**schema, "logicalType": dice.choice(["timestamp-millis", "local-timestamp-micros"])}
    return schema


def union_near(dice: Random, union: list[Any]) -> Any:
    """Of null and a type something else: without null, the other way round, or with one more type."""
    if len(union) != 2:
        return union
    more = [each for each in ("string", "bytes", "long", "float", "boolean") if each not in union]
    return dice.choice([union, union, union[1], union[::-1], [*union, dice.choice(more)]])


NEAR: dict[str, list[Any]] = {
    "long": ["int", ["int", "long"], ["float", "long"], ["null", "long"]],
    "double": ["float", ["float", "double"], ["long", "double"], ["null", "float"]],
    "string": [
        {"type": "enum", "name": "Symbols", "symbols": ["RED", "a"]}, ["bytes", "string"], ["null", "string"],
    ],
    "bytes": [{"type": "fixed", "name": "Two", "size": 2}, ["string", "bytes"]],
}  # fmt: skip


def renamed(schema: Any, names: Iterator[int]) -> Any:
    """The schema with each enum and fixed under a name of its own."""
    if isinstance(schema, list):
        return [renamed(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: renamed(each, names) if key in ("type", "items", "values") else each for key, each in schema.items()}
    if made["type"] in ("enum", "fixed"):
        made["name"] = f"{made['name']}{next(names)}"
    if "fields" in made:
        made["fields"] = [renamed(each, names) for each in made["fields"]]
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_written_by_another_schema_reads_back_equal_or_is_refused(seed: int) -> None:
    dice = Random(seed)
    tried = 0
    while tried < 3:
        record = record_of(dice)
        text = json.dumps(renamed(schema_near(dice, json.loads(schema_text(record))), NUMBERS))
        form = bound(lt.avro(record, schema=text))
        if not form.writable.never:
            keeps_the_law(form, dice, [*FLOATS, math.inf, math.nan], rounded=True)
            tried += 1


# -- Protobuf ----------------------------------------------------------------------------------------------------------

NARROW = ("int32", "sint32", "sfixed32", "uint32", "fixed32", "uint64", "fixed64", "int64", "sint64", "sfixed64")
KINDS: list[tuple[Any, tuple[str, ...]]] = [
    (str, ("string",)), (bytes, ("bytes",)), (bool, ("bool",)), (int, NARROW), (int, ("enum",)),
    (float, ("float", "double")),
    (date, ("string",)), (time, ("string",)), (UUID, ("string",)), (MONEY, ("string",)), (datetime, ("message",)),
    (Colour, ("enum", "string")), (Literal["RED", "BLUE"], ("enum", "string")), (Size, ("int64", "int32", "uint64")),
    (Literal[0, 1], (*NARROW, "enum")), (Annotated[datetime, lt.Epoch("s")], NARROW),
    (Annotated[datetime, lt.Epoch("us")], NARROW),
]  # fmt: skip


def message_near(dice: Random, file: FileDescriptorProto, message: DescriptorProto, depth: int) -> Any:
    """Fill a message, and give a dataclass of which some records fit into it."""
    fields: list[Any] = []
    has_oneof = dice.random() < 0.5  # What is `optional` would have to stand after it.
    for place in range(dice.randint(1, 5)):
        name = f"f{place}"
        shape = dice.choice(["one", "one", "one", "list", "tuple", "dict"])
        hint, kind, of = kind_near(dice, file, depth)
        optional, is_none = dice.random() < 0.4, dice.random() < 0.5
        whole = (
            Annotated[bare_of(get_args(hint)[0]) | None, *hint.__metadata__]
            if hasattr(hint, "__metadata__")
            else hint | None
        )
        if shape == "one":
            oneof = "which" if has_oneof and is_none and optional else ""
            add_field(message, name, kind, of, optional=optional and not has_oneof, oneof=oneof)
        elif shape == "dict":
            entry = message.nested_type.add(name=f"F{place}Entry")
            add_field(entry, "key", "string")
            add_field(entry, "value", kind, of)
            entry.options.map_entry = True
            add_field(message, name, "message", f".test.{message.name}.F{place}Entry", many=True)
        else:
            add_field(message, name, kind, of, many=True)
        item = whole if is_none else hint
        made: dict[str, Any] = {"one": item, "list": list[item], "tuple": tuple[item, ...], "dict": dict[str, item]}  # type: ignore[valid-type]
        found = made[shape]
        if shape != "one" and dice.random() < 0.2:
            found = found | None
        fields.append((name, found))
    # Only in the last ones a default can stand.
    name, last = fields[-1]
    if type(None) in get_args(last) and dice.random() < 0.5:
        fields[-1] = (name, last, dataclasses.field(default=None))
    return dataclasses.make_dataclass(f"Made{next(NUMBERS)}", fields, frozen=True)


def kind_near(dice: Random, file: FileDescriptorProto, depth: int) -> tuple[Any, str, str]:
    """A type, and the field that it stands in."""
    if depth and dice.random() < 0.3:
        inner = file.message_type.add(name=f"Inner{len(file.message_type)}")
        return message_near(dice, file, inner, depth - 1), "message", f".test.{inner.name}"
    hint, kinds = dice.choice(KINDS)
    kind = dice.choice(kinds)
    return hint, kind, {"enum": ".test.Colour", "message": ".google.protobuf.Timestamp"}.get(kind, "")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_written_as_protobuf_reads_back_equal_or_is_refused(seed: int) -> None:
    dice = Random(seed)
    records: list[Any] = []

    def fill(file: FileDescriptorProto, message: DescriptorProto) -> None:
        colours = file.enum_type.add(name="Colour")
        for number, name in enumerate(("RED", "BLUE")):
            colours.value.add(name=name, number=number)
        records.append(message_near(dice, file, message, 2))

    generated = generated_by(fill)
    keeps_the_law(lt.protobuf(records[0], generated), dice, [*FLOATS, math.inf, math.nan], rounded=True)


# -- one by one --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Line:
    count: int = 0


@dataclasses.dataclass(frozen=True)
class Order:
    key: Annotated[str, lt.Key()]
    id: int
    note: str | None = None
    lines: tuple[Line, ...] = ()
    gone: Annotated[bool, lt.Tombstone()] = False


WHOLE = Order("k", 1)


def narrow(file: FileDescriptorProto, message: DescriptorProto) -> None:
    add_field(file.message_type.add(name="Line"), "count", "uint32")
    add_field(message, "id", "int32")
    add_field(message, "note", "string", optional=True)
    add_field(message, "lines", "message", ".test.Line", many=True)


def test_a_fault_names_the_field_the_value_and_what_the_wire_holds() -> None:
    form = lt.protobuf(Order, generated_by(narrow))
    assert form.writable.fault(WHOLE) is None
    large, negative = dataclasses.replace(WHOLE, id=2**31), dataclasses.replace(WHOLE, lines=(Line(), Line(-1)))
    assert form.writable.fault(large) == "Order.id: 2147483648 is outside int32, -2147483648 to 2147483647"
    assert form.writable.fault(negative) == "Order.lines[].count: -1 is outside uint32, 0 to 4294967295"
    assert form.writable.fault(dataclasses.replace(large, gone=True)) is None, "of a tombstone there is no value"
    assert form.writable is lt.protobuf(Order, form.message).writable, "it is made once"
    at = datetime(1850, 1, 1, tzinfo=DUBLIN)
    timed = dataclasses.make_dataclass("Timed", [("ats", list[datetime])])
    fault = lt.json(timed).writable.fault(timed([at.astimezone(UTC), at]))
    assert fault is not None
    assert fault.startswith("Timed.ats[]: 1850-01-01 00:00:00-00:25:21 is -1 day, 23:34:39 ahead of UTC, but RFC 3339")
    assert lt.json(Order).writable.rule is None, "what is proven to fit is not looked at"
    assert lt.raw().writable.fault(lt.Raw(None, None)) is None


def nevers(record: Any, schema: Any) -> tuple[str, ...]:
    found: Any = lt.avro(record, schema=json.dumps({"type": "record", "name": "R", "fields": schema})).writable
    assert not found.perhaps
    return tuple(found.never)


def test_a_schema_that_no_record_fits_is_refused_with_the_reason() -> None:
    made = dataclasses.make_dataclass("Made", [("a", str), ("b", int)])
    a, b = {"name": "a", "type": "string"}, {"name": "b", "type": "long"}
    assert nevers(made, [a, b]) == ()
    assert nevers(made, [a]) == ("Made.b: the schema has no field 'b', so the value would be lost",)
    lacking = "Made: the schema requires 'c' and has no default that could be written for it"
    assert nevers(made, [a, b, {"name": "c", "type": "long"}]) == (lacking,)
    assert nevers(made, [a, b, {"name": "c", "type": "bytes", "default": "x"}]) == (lacking,)
    assert nevers(made, [a, b, {"name": "c", "type": "long", "default": 1}]) == ()
    assert nevers(made, [{"name": "a", "type": "long"}, b]) == ('Made.a: str does not fit "long"',)
    symbols = {"type": "enum", "name": "E", "symbols": ["GREEN"]}
    coloured = dataclasses.make_dataclass("Coloured", [("c", Colour)])
    assert nevers(coloured, [{"name": "c", "type": symbols}]) == ("Coloured.c: enum E has no symbol 'RED'",)
    assert nevers(made, [a, {"name": "b", "type": ["null", "string", "boolean"]}]) == (
        'Made.b: int fits no type of the union ["null", "string", "boolean"]',
    )
    priced = dataclasses.make_dataclass("Priced", [("p", MONEY)])
    rough = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}
    assert nevers(priced, [{"name": "p", "type": rough}]) == (
        "Priced.p: the schema has 1 digits after the point there, and the field 2",
    )
    fixed = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}
    found: Any = lt.avro(
        priced, schema=json.dumps({"type": "record", "name": "R", "fields": [{"name": "p", "type": fixed}]})
    )
    assert found.writable.perhaps == ("Priced.p: the schema has fewer digits than the field: not every value fits",)
    what = "Priced.p: 100.00 has more digits than the schema's decimal(4, 2)"
    assert (found.writable.fault(priced(Decimal("100.00"))), found.writable.fault(priced(Decimal("-99.99")))) == (
        what,
        None,
    )
    assert lt.avro(made, schema='["null","string"]').writable.never == (
        'Made: the schema has ["null", "string"] there, and not a record',
    )


def test_what_a_message_of_proto2_needs_and_its_closed_enums() -> None:
    def fill(file: FileDescriptorProto, message: DescriptorProto) -> None:
        colours = file.enum_type.add(name="Colour")
        colours.value.add(name="RED", number=4)
        add_field(message, "colour", "enum", ".test.Colour", required=True)
        add_field(message, "note", "string", required=True)

    made = dataclasses.make_dataclass("Made", [("colour", int)])
    generated = generated_by(fill, "proto2")
    writable = lt.protobuf(made, generated).writable
    assert writable.never == ("message test.M requires note, which Made lacks",)
    assert (writable.fault(made(5)), writable.fault(made(4))) == ("Made.colour: enum test.Colour has no number 5", None)
    noted = dataclasses.make_dataclass("Noted", [("colour", Literal[4]), ("note", str | None)])
    writable = lt.protobuf(noted, generated).writable
    assert writable.never == ()
    assert writable.fault(noted(4, None)) == "Noted.note: None cannot be written: field test.M.note is required"
    assert writable.perhaps == ("Noted.note: None cannot be written: field test.M.note is required",)


def test_a_oneof_holds_one_of_its_members() -> None:
    def fill(_file: FileDescriptorProto, message: DescriptorProto) -> None:
        for name, kind in (("a", "int64"), ("b", "string")):
            add_field(message, name, kind, oneof="which")

    generated = generated_by(fill)
    made = dataclasses.make_dataclass("Made", [("a", int | None), ("b", str | None)])
    form: Any = lt.protobuf(made, generated)
    assert form.writable.fault(made(7, "x")) == "Made: a and b are not None, but oneof test.M.which holds only one"
    assert [form.writable.fault(each) for each in (made(None, None), made(0, None), made(None, ""))] == [None] * 3
    full = dataclasses.make_dataclass("Full", [("a", int), ("b", str)])
    assert lt.protobuf(full, generated).writable.never == (
        "Full: a, b are members of oneof test.M.which, which holds only one, but a and b are never None",
    )
    other = dataclasses.make_dataclass(
        "Else", [("a", int | None, dataclasses.field(default=3)), ("b", str | None, None)]
    )
    what = (
        "Else.a: None cannot be written: a message without the field reads back with the default; make the default None"
    )
    assert lt.protobuf(other, generated).writable.fault(other(None)) == what


def test_check_refuses_what_never_fits_and_notes_what_may_not() -> None:
    @dataclasses.dataclass(frozen=True)
    class Lined:
        id: int
        lines: int = 0

    def flow_of(form: Any) -> lt.Flow:
        flow = lt.Flow("orders")
        flow.read("orders", lt.kafka("orders", lt.json(form.record))).write("out", lt.kafka("out", form))
        return flow

    generated = generated_by(narrow)
    plan = compile_flow(flow_of(lt.protobuf(Order, generated)), parallelism=1)
    assert [(note.step, note.message) for note in advice(plan)] == [
        ("out", "Order.id: field test.M.id is narrower than an int: not every value fits"),
        ("out", "Line.count: field test.Line.count is narrower than an int: not every value fits"),
    ]
    fields = [{"name": "id", "type": "long"}]
    lost = flow_of(lt.avro(Lined, schema=json.dumps({"type": "record", "name": "R", "fields": fields})))
    (finding,) = check_flow(lost)
    where = f"{test_check_refuses_what_never_fits_and_notes_what_may_not.__qualname__}.<locals>.Lined.lines"
    text = "the schema has no field 'lines', so the value would be lost"
    assert finding.message == f"cannot be written as Avro (registry 'default'): {where}: {text}"
