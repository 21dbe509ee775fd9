"""A table as a flow names it: what it refuses, what it can write, and the statements for it; no server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

import lowtide as lt
from lowtide.conf import Conf
from lowtide.core.operators.order.bundle import Piece
from lowtide.errors import ConfError, FlowError
from lowtide.sinks.contract import LaneName, Mark, Packet
from lowtide.sinks.postgres.access import settings_of
from lowtide.sinks.postgres.columns import ddl_of
from lowtide.sinks.postgres.encoder import RowEncoder
from lowtide.sinks.postgres.endpoint import Postgres
from lowtide.sinks.postgres.names import application_of, life_of, table_of
from lowtide.sinks.postgres.statement import Claim, lanes_of, parameters_of
from lowtide_tracker import Floor


@dataclass(frozen=True)
class Line:
    text: str


@dataclass(frozen=True)
class Order:
    id: int
    user: str
    lines: list[Line]
    notes: dict[str, str]
    price: Annotated[Decimal, lt.Precision(10, 2)]
    at: datetime | None = None
    gone: bool = False


def order(
    number: int, *, user: str = "ada", lines: list[Line] | None = None, notes: dict[str, str] | None = None
) -> Order:
    return Order(number, user, lines or [], notes or {}, Decimal("1.50"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lt.postgres("orders", Order, dsn="postgresql://x:y@z/"), r"postgres has no dsn="),
        (lambda: lt.postgres("orders", Order, mode="upsert"), "an upsert needs a key"),
        (lambda: lt.postgres("orders", Order, mode="append", key="id"), "need no key"),
        (lambda: lt.postgres("a.b.c", Order), "a table's name"),
        (lambda: lt.postgres(".orders", Order), "a table's name"),
        (lambda: lt.postgres("orders.", Order), "a table's name"),
        (lambda: lt.postgres("orders", "Order"), "the dataclass of its rows"),  # type: ignore[arg-type]
        (lambda: lt.postgres("orders", Order, mode="merge"), '"upsert" or "append"'),  # type: ignore[arg-type]
    ],
)
def test_what_postgres_cannot_mean_is_refused_where_it_is_written(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(FlowError, match=said) as caught:
        make()
    assert "test_postgres.py" in caught.value.where
    assert "y@z" not in str(caught.value)


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (Postgres("orders", Order, "number"), "Order has no field 'number', which should be the key"),
        (Postgres("orders", Order, "lines"), "'lines' cannot be a key: it is"),
        (Postgres("orders", Order, "at"), "'at' cannot be a key: it is"),
        (Postgres("orders", Order, None, "gone"), 'deleted= needs mode="upsert"'),
        (Postgres("shop." + "ö" * 32, Order), "a name in PostgreSQL has at most 63 bytes, and 'öö"),
        (Postgres("orders", Order, "id", "user"), "deleted= names a bool of Order, found 'user'"),
    ],
)
def test_check_finds_what_does_not_fit_the_record(sink: Postgres, said: str) -> None:
    assert any(said in fault for fault in sink.faults())
    assert not Postgres("orders", Order, "id", "gone").faults()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (order(1 << 63), "Order.id: 9223372036854775808 does not fit into a bigint"),
        (order(1, user="a\0b"), "Order.user: PostgreSQL cannot hold text with a NUL"),
        (order(1, lines=[Line("a"), Line("\0")]), "Order.lines[].text: PostgreSQL cannot hold text with a NUL"),
        (order(1, notes={"a\0": ""}), "Order.notes[]: PostgreSQL cannot hold text with a NUL"),
        (order(1, notes={"a": "\0"}), "Order.notes{}: PostgreSQL cannot hold text with a NUL"),
    ],
)
def test_what_postgres_cannot_hold_is_found_before_the_barrier(row: Order, said: str) -> None:
    fault = Postgres("orders", Order, "id").writable.fault(row)
    assert fault is not None
    assert fault.startswith(said)
    assert Postgres("orders", Order, "id").writable.fault(order(-(1 << 63))) is None


def test_a_table_is_made_as_its_records_are() -> None:
    assert ddl_of(Postgres("shop.orders", Order, "id", "gone").columns).splitlines() == [
        'create table "shop"."orders" (',
        '    "id" bigint not null,',
        '    "user" text not null,',
        '    "lines" jsonb not null,',
        '    "notes" jsonb not null,',
        '    "price" numeric not null,',
        '    "at" timestamp with time zone,',
        '    primary key ("id")',
        ");",
    ]
    assert table_of('we"ird.na"me') == '"we""ird"."na""me"'


def test_a_statement_has_each_key_once_in_the_order_of_keys() -> None:
    table = Postgres("orders", Order, "id", "gone").columns
    rows = [order(3), order(1), order(3, user="bob"), order(2)]
    messages = RowEncoder(Order).encode(1, [Piece(1, [b"%d" % place for place in range(4)], rows)])
    packets = [
        Packet(0, 1, messages[:2], Mark(LaneName(0, "rows", 1), b"1", b"", [Floor(0, 1, 2)])),
        Packet(0, 1, messages[2:], Mark(LaneName(0, "rows", 1), b"3", b"1", (), [Floor(0, 1, 2)])),
    ]
    ((sink, lanes),) = lanes_of(packets).items()
    statement, parameters = parameters_of(Claim("job", 0, 7, 1000), sink, table, lanes)
    assert parameters[:3] == [[1], [b""], [b"3"]]
    lane, number, user = parameters[18:21]
    assert (lane, number, user) == ([1, 1, 1], [1, 2, 3], ["ada", "ada", "bob"])
    assert parameters[8:13] == [[], [], [], [], []], "a floor that is covered in the same delivery is not written"
    assert len(parameters) == 26
    assert "$26::boolean[]" in statement
    assert "$27" not in statement


def test_an_applications_name_tells_job_and_life() -> None:
    for job in ("shop", "a" * 200, "é-shop", "shop life 3"):
        name = application_of(job, 12)
        assert len(name) < 64
        assert name.isascii()
        assert life_of(name, job) == 12
    assert life_of(application_of("shop", 12), "shop2") is None
    assert life_of("psql", "shop") is None


def test_a_connection_is_the_confs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="psycopg is an extra")
    monkeypatch.setenv("DSN", "postgresql://lowtide:first@one:5433/shop?sslmode=require")
    monkeypatch.setenv("PASSWORD", "second")
    conf = Conf.load(None, {"postgres.default.dsn_env": "DSN", "postgres.default.password_env": "PASSWORD"})
    assert settings_of(conf, "default") == {
        "user": "lowtide", "password": "second", "host": "one", "port": "5433", "dbname": "shop", "sslmode": "require",
    }  # fmt: skip
    with pytest.raises(ConfError, match=r"the conf has no \[postgres.other\]"):
        settings_of(conf, "other")
    monkeypatch.setenv("DSN", "host='secret")
    with pytest.raises(ConfError) as caught:
        settings_of(conf, "default")
    assert "secret" not in str(caught.value)
