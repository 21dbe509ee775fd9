"""Protobuf messages become records and back, by the names of their fields."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from programs import rows_of_values

import lowtide as lt
from lowtide.errors import FlowError

ONE, MANY = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED


def fields(message: DescriptorProto, *named: tuple[str, str, str], many: tuple[str, ...] = ()) -> DescriptorProto:
    """Fields of a message: name, type as in a .proto file, and of a message or an enum its name."""
    for number, (name, kind, of) in enumerate(named, 1):
        declared = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")
        label = MANY if name in many else ONE
        message.field.add(name=name, number=number, type=declared, label=label, type_name=of or None)
    return message


def shop(*added: tuple[str, str, str]) -> Any:
    """What protoc makes of a file `shop.proto`, syntax proto3; of a later version, in which fields were added."""
    file = FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    colours = file.enum_type.add(name="Colour")
    for number, name in enumerate(("RED", "BLUE")):
        colours.value.add(name=name, number=number)
    fields(file.message_type.add(name="Line"), ("unit_price", "double", ""), ("count", "sint32", ""))
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="StockEntry")
    fields(entry, ("key", "string", ""), ("value", "message", ".shop.Line")).options.map_entry = True
    fields(
        order,
        ("id", "int64", ""),
        ("amount", "string", ""),
        ("at", "message", ".google.protobuf.Timestamp"),
        ("since", "uint64", ""),
        ("colour", "enum", ".shop.Colour"),
        ("size", "enum", ".shop.Colour"),
        ("lines", "message", ".shop.Line"),
        ("tags", "string", ""),
        ("stock", "message", ".shop.Order.StockEntry"),
        ("data", "bytes", ""),
        ("ignored", "bool", ""),
        ("note", "string", ""),
        many=("lines", "tags", "stock"),
    )
    order.field[-1].proto3_optional = True
    order.oneof_decl.add(name="_note")
    order.field[-1].oneof_index = 0
    for name, kind, of in added:
        fields(order, (name, kind, of))
        order.field[-1].number = len(order.field)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


Message = shop()


class Colour(Enum):
    RED = "RED"
    BLUE = "BLUE"


@dataclass(frozen=True)
class Line:
    price: Annotated[float, lt.Alias("unit_price")]
    count: int = 1


@dataclass(frozen=True)
class Order:
    key: Annotated[str, lt.Key()]
    id: int
    amount: Annotated[Decimal, lt.Precision(18, 2)] = Decimal("0.00")
    at: datetime | None = None
    since: Annotated[datetime | None, lt.Epoch("ms")] = None
    colour: Colour = Colour.RED
    size: Literal[0, 1] = 0
    lines: tuple[Line, ...] = ()
    tags: list[str] = field(default_factory=list)
    stock: dict[str, Line] = field(default_factory=dict)
    data: bytes = b""
    note: str | None = "none"


AT = datetime(2026, 3, 1, 10, 0, 1, 500_001, tzinfo=UTC)
WHOLE = Order(
    "k", -7, Decimal("1.50"), AT, AT.replace(microsecond=500_000), Colour.BLUE, 1, (Line(1.5), Line(2.0, -3)),
    ["a", ""], {"b": Line(0.5), "a": Line(1.0)}, b"\xff", "x",
)  # fmt: skip


def read(*values: bytes | None, form: Any = None) -> Any:
    return (form or lt.protobuf(Order, Message)).decode(rows_of_values(values, [b"k"] * len(values)))


def test_what_is_written_is_what_is_read() -> None:
    (value,) = lt.protobuf(Order, Message).encode([WHOLE])
    assert value is not None
    assert read(value).rows == [WHOLE]
    message = Message.FromString(value)
    assert (message.id, message.amount, message.colour, message.lines[1].count) == (-7, "1.50", 1, -3)
    assert (message.since, message.at.nanos, message.data) == (1_772_359_201_500, 500_001_000, b"\xff")


def test_what_is_absent_takes_its_default() -> None:
    (row,) = read(Message(amount="2", ignored=True).SerializeToString()).rows
    assert row == Order("k", 0, Decimal("2.00"), since=datetime(1970, 1, 1, tzinfo=UTC))
    (row,) = read(Message(amount="2", note="").SerializeToString()).rows
    assert row.note == ""


@dataclass(frozen=True)
class Shipped(Order):
    shop: str = ""
    parcel: Line = Line(0.5)


def test_messages_of_older_and_newer_classes_are_read() -> None:
    """A field that the generated class has not is passed over; one that the message has not is absent."""
    newer = shop(("shop", "string", ""), ("parcel", "message", ".shop.Line"))
    value = newer(id=7, amount="1", shop="mill", parcel={"unit_price": 2.0, "count": 3}).SerializeToString()
    (row,) = read(value).rows
    assert row == Order("k", 7, Decimal("1.00"), since=datetime(1970, 1, 1, tzinfo=UTC))
    form = lt.protobuf(Shipped, newer)
    rows = read(value, Message(id=8, amount="2").SerializeToString(), form=form).rows
    assert [(each.id, each.shop, each.parcel) for each in rows] == [(7, "mill", Line(2.0, 3)), (8, "", Line(0.5))]
    (again,) = form.encode(rows[:1])
    assert read(again).rows == [row], "and an older reader takes what a newer one writes"


def test_equal_records_are_equal_bytes_whatever_the_order_of_a_map() -> None:
    other = Order("k", 1, stock=dict(reversed(WHOLE.stock.items())))
    assert len(set(lt.protobuf(Order, Message).encode([other, Order("k", 1, stock=WHOLE.stock)]))) == 1


@dataclass(frozen=True)
class Finer:
    at: datetime
    hour: Annotated[time, lt.Alias("amount")]
    hours: Annotated[list[time], lt.Alias("tags")]


def test_times_are_cut_down() -> None:
    message = Message(amount="23:59:59.9999999", tags=["00:00:00.1234567"])
    message.at.seconds, message.at.nanos = 1_772_409_599, 999_999_999
    (row,) = read(message.SerializeToString(), form=lt.protobuf(Finer, Message)).rows
    assert row == Finer(datetime(2026, 3, 1, 23, 59, 59, 999_999, UTC), time.max, [time(0, 0, 0, 123_456)])


def test_what_cannot_be_read_is_a_failure_with_its_reason() -> None:
    good = Message(amount="1").SerializeToString()
    far = Message(amount="1")
    far.at.seconds = 10**12
    values = [good, b"\xff", None, Message(amount="1.505").SerializeToString(), far.SerializeToString()]
    found = read(*values, Message(amount="1", colour=7).SerializeToString(), Message(amount="x").SerializeToString())
    assert len(found.rows) == 1
    assert [index for index, _ in found.failures] == [1, 2, 3, 4, 5, 6]
    assert (
        read(Message(amount="1_0").SerializeToString()).failures[0][1]
        == "'1_0' is not a decimal number, for Order.amount"
    )
    whats = [
        "",
        "a null value is not a Protobuf message",
        "1.505 is not a Decimal",
        "beyond what a datetime",
        "colour",
        "amount",
    ]
    assert all(what in reason for what, (_, reason) in zip(whats, found.failures, strict=True))


def refused(hint: Any, name: str, what: str) -> None:
    record: Any = dataclass(type("Odd", (), {"__annotations__": {name: hint}}))
    with pytest.raises(FlowError, match=what):
        lt.protobuf(record, Message)


def test_fields_that_do_not_fit_are_refused_where_the_format_is_named() -> None:
    refused(str, "nothing", r"Odd\.nothing: message shop\.Order has no field 'nothing'; it has id, amount")
    refused(str, "id", r"Odd\.id: str does not fit field shop\.Order\.id")
    refused(int, "amount", "int does not fit field")
    refused(str, "tags", "str does not fit field")
    refused(list[int], "tags", "int does not fit field")
    refused(list[str], "note", r"list\[str\] does not fit field")
    refused(Literal["RED", "GREEN"], "colour", "enum shop.Colour has no 'GREEN'; it has RED, BLUE")
    refused(datetime, "since", "datetime does not fit field")
    refused(Line, "at", "Line.price: message google.protobuf.Timestamp has no field 'unit_price'")
    with pytest.raises(FlowError, match="takes a generated message class, found <class 'int'>") as caught:
        lt.protobuf(Order, int)
    assert __file__ in (caught.value.where or "")


def test_a_format_reaches_workers_that_have_no_generated_module(tmp_path: Path) -> None:
    again = pickle.loads(pickle.dumps(lt.protobuf(Line, type(Message().lines.add()))))
    assert again.message.DESCRIPTOR.full_name == "shop.Line"
    assert read(form=pickle.loads(pickle.dumps(lt.protobuf(Order, Message)))).rows == []
    (value,) = lt.protobuf(Order, Message).encode([WHOLE])
    elsewhere = pickle.loads(pickle.dumps(lt.protobuf(Order, Message)))
    assert elsewhere.encode(read(value, form=elsewhere).rows) == [value]
    code = "import sys; import lowtide; print([name for name in sys.modules if name.startswith('google.protobuf')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
