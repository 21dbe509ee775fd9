"""Avro messages become records and back, by the schemas of a registry."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from programs import rows_of_values
from registry_server import RegistryServer, registry_server

import lowtide as lt
from lowtide.conf import Conf
from lowtide.connectors.schema_registry import SchemaRegistry, bound, registry_of
from lowtide.errors import ConfError, FlowError, ServiceUnavailable
from lowtide.flow.formats.avro import AvroFormat, Bound, schema_text
from lowtide.flow.plan.check import check_flow
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.steps.steps import Read


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Line:
    price: Annotated[float, lt.Alias("unitPrice")]
    count: int = 1


@dataclass(frozen=True)
class Order:
    key: Annotated[str, lt.Key()]
    id: UUID
    amount: Annotated[Decimal, lt.Precision(18, 2)] = Decimal("0.00")
    at: datetime | None = None
    since: Annotated[datetime | None, lt.Epoch("ms")] = None
    colour: Colour = Colour.RED
    size: Literal[0, 1] = 0
    lines: tuple[Line, ...] = ()
    line: Line | None = None
    stock: dict[str, Line] = field(default_factory=dict)
    data: bytes = b""
    day: date = date(2026, 1, 1)
    hour: time = time(12)
    note: str | None = "none"
    good: bool = True
    gone: Annotated[bool, lt.Tombstone()] = False


AT = datetime(2026, 3, 1, 10, 0, 1, 500_001, tzinfo=UTC)
WHOLE = Order(
    "k", UUID(int=7), Decimal("-1.50"), AT, AT.replace(microsecond=500_000), Colour.BLUE, 1, (Line(1.5), Line(2.0, -3)),
    Line(0.5), {"b": Line(0.5), "a": Line(1.0)}, b"\xff", date(1969, 1, 1), time(1, 2, 3, 4), None, False,
)  # fmt: skip


@pytest.fixture(name="server")
def _server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def form_of(server: RegistryServer, record: Any = Order, **more: Any) -> AvroFormat[Any]:
    registry = SchemaRegistry(server.url, 0.5)
    form = lt.avro(record, **more)
    return AvroFormat(record, schema=form.schema, bound=Bound(registry, registry.register("out-value", form.text)))


def read(form: AvroFormat[Any], *values: bytes | None) -> Any:
    return form.decode(rows_of_values(values, [b"k"] * len(values)))


def framed(server: RegistryServer, schema: dict[str, Any], record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), record)
    return b"\0" + server.add("in-value", json.dumps(schema)).to_bytes(4) + out.getvalue()


def test_what_is_written_is_what_is_read(server: RegistryServer) -> None:
    form = form_of(server)
    gone = Order("k", UUID(int=0), gone=True)
    values = form.encode([WHOLE, gone])
    assert values[1] is None
    assert read(form, values[0]).rows == [WHOLE]
    assert list(map(repr, read(form, values[0]).rows)) == [repr(WHOLE)]
    plain: Any = schemaless_reader(
        io.BytesIO((values[0] or b"")[5:]), parse_schema(json.loads(schema_text(Order))), None
    )
    assert (plain["amount"], plain["colour"], plain["since"]) == (Decimal("-1.50"), "blue", 1_772_359_201_500)
    assert plain["lines"][0] == {"unitPrice": 1.5, "count": 1}
    again = pickle.loads(pickle.dumps(form))
    assert (again, again.encode([WHOLE])) == (form, values[:1])


SCHEMA = {"type": "record", "name": "V1", "fields": [{"name": "unitPrice", "type": "int"}]}
NEWER = {"type": "record", "name": "V2", "fields": [*SCHEMA["fields"], {"name": "more", "type": ["null", "string"]}]}


def test_schemas_of_writers_may_be_older_or_newer(server: RegistryServer) -> None:
    form = form_of(server, Line)
    values = [framed(server, SCHEMA, {"unitPrice": 3}), framed(server, NEWER, {"unitPrice": 4, "more": "x"})] * 2
    assert read(form, *values).rows == [Line(3.0), Line(4.0)] * 2
    assert [server.asked[f"/schemas/ids/{number}"] for number in (2, 3)] == [1, 1], "each is asked once"


@dataclass(frozen=True)
class AsText:
    id: UUID
    amount: Annotated[Decimal, lt.Precision(9, 2)]
    at: datetime
    hour: time
    day: date = date(2026, 1, 1)


def text_schema(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": types.get(name, "string")} for name in ("id", "amount", "at", "hour", "day")]
    return {"type": "record", "name": "AsText", "fields": fields}


def test_text_is_read_as_json_reads_it(server: RegistryServer) -> None:
    form = form_of(server, AsText)
    texts = {
        "id": str(UUID(int=7)), "amount": "1.5", "at": "2026-03-01T23:59:59.9999999Z", "hour": "23:59:59.999999999",
        "day": "2026-03-01",
    }  # fmt: skip
    (row,) = read(form, framed(server, text_schema(), texts)).rows
    at = datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC)
    assert row == AsText(UUID(int=7), Decimal("1.50"), at, time.max, date(2026, 3, 1))
    for name, wrong in (
        ("id", "0541d9c8-e291-a476-cbc1-a215a0615c_b"),
        ("amount", "1_0"),
        ("at", "2026-03-01"),
        ("hour", "\u0661\u0662:00:00"),
        ("day", "2026-03-0\uff11"),
    ):
        uuid = {"id": {"type": "string", "logicalType": "uuid"}} if name == "id" else {}
        assert read(form, framed(server, text_schema(**uuid), texts | {name: wrong})).failures, name


def test_nanoseconds_are_cut_down(server: RegistryServer) -> None:
    form = form_of(server, AsText)
    schema = text_schema(at={"type": "long", "logicalType": "timestamp-nanos"})
    texts = {"id": str(UUID(int=7)), "amount": "1.5", "hour": "12:00:00", "day": "2026-03-01"}
    for number in (1_772_409_599_999_999_999, -1):
        (row,) = read(form, framed(server, schema, texts | {"at": number})).rows
        assert row.at == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number // 1000)


def test_what_cannot_be_read_is_a_failure_with_its_reason(server: RegistryServer) -> None:
    form = form_of(server, Line)
    good = framed(server, SCHEMA, {"unitPrice": 3})
    wrong = framed(
        server, {"type": "record", "name": "W", "fields": [{"name": "price", "type": "string"}]}, {"price": "x"}
    )
    found = read(form, good, None, b"", b"\1" + good[1:], b"\0\0\0\0\x63", good[:5], wrong)
    assert found.rows == [Line(3.0)]
    whats = ["a null value is not Avro", "does not begin", "does not begin", "has no schema 99", "follow its schema"]
    whats.append("missing required field `unitPrice`")
    assert [index for index, _ in found.failures] == [1, 2, 3, 4, 5, 6]
    assert all(what in reason for what, (_, reason) in zip(whats, found.failures, strict=True)), found.failures


SEVEN = UUID(int=7)


@dataclass(frozen=True)
class Defaults:
    id: str
    name: str = "\u00e9"
    count: int = -3
    good: bool = True
    data: bytes = b"\xff\x00"
    amount: Annotated[Decimal, lt.Precision(18, 2)] = Decimal("-1.50")
    at: datetime = AT
    since: Annotated[datetime, lt.Epoch("ms")] = AT
    day: date = date(1969, 12, 31)
    hour: time = time(0, 0, 1, 2)
    uuid: UUID = SEVEN
    colour: Colour = Colour.BLUE
    lines: tuple[Line, ...] = (Line(0.5),)
    line: Line | None = Line(1.5, 2)
    stock: dict[str, Line] = field(default_factory=dict)
    note: str | None = "none"
    far: float = float("inf")
    others: tuple[int | None, ...] = (None, 1)


def test_a_schema_has_the_defaults_that_avro_has_words_for() -> None:
    """Who reads older messages by it finds what a flow does."""
    fields = {each["name"]: each for each in json.loads(schema_text(Defaults))["fields"]}
    assert {name: each["default"] for name, each in fields.items() if "default" in each} == {
        "name": "\u00e9", "count": -3, "good": True, "data": "\u00ff\u0000", "amount": "\u00ff\u006a",
        "at": 1_772_359_201_500_001, "since": 1_772_359_201_500, "day": -1, "hour": 1_000_002,
        "uuid": str(UUID(int=7)), "colour": "blue", "lines": [{"unitPrice": 0.5, "count": 1}],
        "line": {"unitPrice": 1.5, "count": 2}, "stock": {}, "note": "none",
    }  # fmt: skip
    assert [fields[name]["type"] for name in ("note", "line")] == [["string", "null"], ["Line", "null"]]
    plain = {each["name"]: each for each in json.loads(schema_text(Order))["fields"]}
    assert (plain["at"]["type"][0], plain["at"]["default"]) == ("null", None)
    assert "default" not in plain["id"]


def test_a_registry_that_is_away_is_no_fault_of_a_message(server: RegistryServer) -> None:
    value = framed(server, SCHEMA, {"unitPrice": 3})
    form = form_of(server, Line)
    server.away = True
    with pytest.raises(ServiceUnavailable, match=r"does not answer within 0\.5 s: 503") as caught:
        read(form, value)
    assert caught.value.exit_code == 4
    server.away = False
    assert read(form, value).rows == [Line(3.0)], "and is asked again"


def flow() -> lt.Flow:
    flow = lt.Flow("avro")
    lines = flow.read("lines", lt.kafka("lines", lt.avro(Line)))
    lines.write("out", lt.kafka("out", lt.avro(Line, subject="a/b", registry="other")))
    return flow


def test_a_start_binds_formats_and_registers_what_is_written(server: RegistryServer) -> None:
    conf = Conf.load(None, {"registry.default.url": server.url, "registry.other.url": server.url})
    plan = bound(compile_flow(flow(), parallelism=1), conf)
    steps = [vertex.step for vertex in plan.vertices]
    (source,) = [step.source.format for step in steps if isinstance(step, Read)]
    (sink,) = [sink.format for _, sink in plan.kafka_sinks()]
    assert isinstance(source, AvroFormat)
    assert isinstance(sink, AvroFormat)
    assert (source.bound, sink.bound) == (
        Bound(SchemaRegistry(server.url, 10.0)),
        Bound(SchemaRegistry(server.url, 10.0), 1),
    )
    assert server.subjects == {"a/b": [1]}
    assert bound(compile_flow(flow(), parallelism=1), conf) == plan, "the same number each time"
    with pytest.raises(ConfError, match="the flow uses the schema registry 'default', which the conf does not name"):
        bound(compile_flow(flow(), parallelism=1), Conf())


def test_who_asks_says_who_it_is(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.login = "ann:secret"
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    settings = {"url": server.url, "username": "ann", "password_env": "REGISTRY_PASSWORD"}
    conf = Conf.load(None, {f"registry.default.{key}": value for key, value in settings.items()})
    registry = registry_of(conf, "default")
    assert "secret" not in repr(registry)
    assert registry.register("s", schema_text(Line)) == 1
    with pytest.raises(ServiceUnavailable, match="refuses the login: 401"):
        SchemaRegistry(server.url, 0.5, "ann", "other").schema(1)
    with pytest.raises(FlowError, match="rejects the flow's schema"):
        registry.register("s", "[]")


@pytest.mark.parametrize("ask", ["schema", "register"])
def test_no_other_server_gets_the_password(ask: str, server: RegistryServer) -> None:
    with registry_server() as other:
        server.elsewhere = other.url
        asked = SchemaRegistry(server.url, 0.5, "ann", "secret")
        with pytest.raises(ServiceUnavailable, match=f"redirects to {other.url}, which would get the password"):
            asked.schema(1) if ask == "schema" else asked.register("s", "{}")
        assert other.logins == []
        assert len(server.logins) == 1, "it asks once: the answer will be the same"
        other.add("s", "{}")
        assert SchemaRegistry(server.url, 0.5).schema(1) == "{}", "without a password there is nothing to keep"


def test_a_redirect_within_the_registry_is_followed(server: RegistryServer) -> None:
    server.login = "ann:secret"
    server.add("s", "{}")
    server.moved = ("/schemas/ids/7", "/schemas/ids/1")
    assert SchemaRegistry(server.url, 0.5, "ann", "secret").schema(7) == "{}"


def test_what_is_no_schema_and_no_table_is_refused(tmp_path: Any) -> None:
    with pytest.raises(FlowError, match="schema= is not an Avro schema"):
        lt.avro(Line, schema='{"type":"nothing"}')
    with pytest.raises(FlowError, match="give run_locally records"):
        flow().run_locally(lines=[b"x"])
    assert flow().run_locally(lines=[Line(1.0)])["out"] == [Line(1.0)]
    file = tmp_path / "conf.toml"
    file.write_text('[registry.default]\nurl = "ftp://x"\n')
    with pytest.raises(ConfError, match="registry"):
        Conf.load(file)
    file.write_text('[registry.default]\nuri = "http://x"\n')
    with pytest.raises(ConfError, match=r"unknown key `uri` in \[registry\.default\]"):
        Conf.load(file)


class Bought:
    @dataclass(frozen=True)
    class Item:
        sku: str


class Returned:
    @dataclass(frozen=True)
    class Item:
        sku: str
        reason: str = ""


@dataclass(frozen=True)
class Doc:
    bought: Bought.Item
    returned: Returned.Item | None = None


def test_two_dataclasses_of_one_name_are_refused_where_they_are_written(server: RegistryServer) -> None:
    """The second would be written by the schema of the first, and what the first has not would be lost."""
    docs = lt.avro(Doc)
    flow = lt.Flow("docs")
    flow.read("docs", lt.kafka("docs", docs)).write("out", lt.kafka("out", docs))
    (finding,) = check_flow(flow)
    assert "test_avro.Bought.Item and " in finding.message
    assert "test_avro.Returned.Item are both record 'Item' in one Avro schema" in finding.message
    assert "schema=" in finding.message
    with pytest.raises(FlowError, match="are both record 'Item'"):
        compile_flow(flow, parallelism=1)
    item: dict[str, Any] = {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "string"}]}
    other = {**item, "namespace": "returned", "fields": [*item["fields"], {"name": "reason", "type": "string"}]}
    schema: dict[str, Any] = {"type": "record", "name": "Doc"}
    schema["fields"] = [{"name": "bought", "type": item}, {"name": "returned", "type": ["null", other]}]
    form = form_of(server, Doc, schema=json.dumps(schema))
    assert form.writable.never == ()
    doc = Doc(Bought.Item("tea"), Returned.Item("cup", "broken"))
    assert read(form, *form.encode([doc])).rows == [doc], "as each has a name of its own"
    bound_docs = AvroFormat(Doc, bound=form.bound)
    assert read(bound_docs, *form.encode([doc])).rows == [doc], "what is read goes by its writer's schema"


def test_names_in_a_schema_stay_those_of_the_classes_alone() -> None:
    """A registry knows a schema by them: one that holds no two of a name is the same as ever."""
    wanted = {"name": "Item", "type": "record", "fields": [{"name": "sku", "type": "string"}]}
    assert json.loads(schema_text(Bought.Item)) == wanted
