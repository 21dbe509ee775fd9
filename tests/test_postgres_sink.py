"""PostgreSQL as a store, on a real server: late statements, claims, unknown outcomes, rows that it refuses."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as clock
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from tests.postgres_server import PostgresServer, until

from lowtide.cli.main import run
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded, RecordRefused, ServiceUnavailable
from lowtide.flow.schema.markers import Precision
from lowtide.sinks.contract import JobSinks, LaneName, Life, Mark, Packet
from lowtide.sinks.errors import LastsLost, PlaceTaken, SchemaDiffers
from lowtide.sinks.postgres import health
from lowtide.sinks.postgres.columns import ddl_of
from lowtide.sinks.postgres.ddl import statements_for
from lowtide.sinks.postgres.encoder import RowEncoder
from lowtide.sinks.postgres.endpoint import Postgres
from lowtide.sinks.postgres.health import concerns_of
from lowtide.sinks.postgres.home import PostgresHome
from lowtide.sinks.postgres.names import application_of
from lowtide.sinks.postgres.way import PostgresWay
from lowtide_tracker import Floor

pytestmark = [pytest.mark.postgres]
LIMIT_S = 8.0
Rows = Sequence[tuple[int, str]]


@dataclass(frozen=True)
class Order:
    id: int
    text: str
    gone: bool = False


class Rig:
    """A job with one sink and two lanes, and its table.

    Args:
        postgres: The server.
        key: The table's key, for upserts.
        deleted: The field that deletes.
    """

    def __init__(
        self, postgres: PostgresServer, key: str | None = "id", deleted: str | None = None, refused: bool = False
    ) -> None:
        self.server, self.name = postgres, f"t{uuid.uuid4().hex[:8]}"
        sink = Postgres(self.name, Order, key, deleted, refused=refused)
        self.job = JobSinks(self.name, "id-1", 0, 2, {"rows": sink}, postgres.settings)
        self.last = {0: b"", 1: b""}
        self.server.ask(ddl_of(sink.columns))

    def home(self, life: int, **changes: Any) -> PostgresHome:
        job = replace(self.job, **changes)
        found = next(iter(job.sinks.values())).home(job, _life(life))  # type: ignore[attr-defined]
        assert isinstance(found, PostgresHome)
        return found

    def claimed(self, life: int, known: str | None = None) -> dict[int, bytes]:
        """Begins a life, and returns its lanes' marks."""
        with closing(self.home(life)) as home:
            home.open(known)
            home.claim()
            return {name.lane: last.packed() for name, last in home.read().last.items()}

    @contextmanager
    def way(
        self, life: int, check: Callable[[], None] = lambda: None, limit_s: float = LIMIT_S
    ) -> Iterator[PostgresWay]:
        way = next(iter(self.job.sinks.values())).way(self.job, replace(_life(life), check=check, limit_s=limit_s))  # type: ignore[attr-defined]
        assert isinstance(way, PostgresWay)
        way.open()
        try:
            yield way
        finally:
            way.close()

    def packet(self, at: int, rows: Rows, lane: int = 0, gone: bool = False, **mark: Any) -> Packet:
        """The packet whose mark is that of a record at an offset; it comes after the lane's last one made."""
        ats = [OrderKey(at, 0, at * 100 + place).packed() for place in range(len(rows))]
        messages = RowEncoder(Order).encode(lane, [Piece(at, ats, [Order(*row, gone) for row in rows])])
        before, self.last[lane] = self.last[lane], ats[-1] if ats else self.last[lane]
        return Packet(0, lane, messages, Mark(LaneName(0, "rows", lane), self.last[lane], before, **mark))

    def rows(self) -> list[tuple[Any, ...]]:
        return self.server.ask(f"select id, text from {self.name} order by 1, 2")

    def backend(self, life: int) -> int:
        """The server's process for a life's connection."""
        found: list[int] = []

        def alone() -> bool:
            # A connection that has closed may still have a process.
            found[:] = self.server.pids(application_of(self.name, life))
            return len(found) == 1

        until(alone, "it is connected")
        return found[0]


def _mark_of(packet: Packet) -> bytes:
    assert packet.mark is not None
    return packet.mark.last


def _life(incarnation: int) -> Life:
    return Life(incarnation, "host-1", LIMIT_S, lambda: None)


@pytest.fixture(params=["id", None], ids=["upsert", "append"])
def rig(postgres: PostgresServer, request: pytest.FixtureRequest) -> Rig:
    return Rig(postgres, request.param)


def test_rows_marks_and_floors_are_durable_together(rig: Rig) -> None:
    assert rig.claimed(1) == {}
    floors = [Floor(0, 5, 40), Floor(1, 9, 41, cap=True)]
    with rig.way(1) as way:
        way.deliver(
            [rig.packet(1, [(1, "a"), (2, "b")], floors=floors), rig.packet(1, [(3, "c")], lane=1, floors=floors)]
        )
        way.deliver([rig.packet(2, [(4, "d")])])
        way.deliver([rig.packet(3, [], floors=[Floor(0, 7, 50)], covered=[Floor(0, 5, 40)])])
    assert rig.rows() == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    with closing(rig.home(2)) as home:
        home.open(None)
        home.claim()
        stored = home.read()
    assert {name.lane: last.packed() for name, last in stored.last.items()} == rig.last
    assert set(stored.floors) == {Floor(1, 9, 41, cap=True), Floor(0, 7, 50)}


def test_the_last_row_of_a_key_counts_and_a_deleted_one_is_gone(postgres: PostgresServer) -> None:
    rig = Rig(postgres, deleted="gone")
    rig.claimed(1)
    with rig.way(1) as way:
        way.deliver([rig.packet(1, [(2, "a"), (1, "b"), (2, "c"), (3, "d")])])
        assert rig.rows() == [(1, "b"), (2, "c"), (3, "d")]
        way.deliver([rig.packet(2, [(2, "e"), (3, "")]), rig.packet(3, [(1, ""), (3, "")], gone=True)])
    assert rig.rows() == [(2, "e")]


def test_late_bytes_deliver_nothing(rig: Rig) -> None:
    """R19: the statement lies in a process of the server that stands still, while the same life delivers again."""
    rig.claimed(1)
    with rig.way(1, limit_s=2.0) as way:
        pid = rig.backend(1)
        rig.server.freeze(pid)
        # At a limit the way ends the connection; the statement is in the socket of the process all the same.
        first = rig.packet(1, [(1, "first")])
        threading.Timer(0.5, lambda: way._line and way._line._connection.close()).start()
        way.deliver([first])
        second = rig.packet(2, [(1, "second")])
        way.deliver([second])
        rig.server.thaw(pid)
        until(lambda: pid not in rig.server.pids(application_of(rig.name, 1)), "the late one has ended")
    assert rig.rows() == ([(1, "second")] if rig.job.sinks["rows"].by_key else [(1, "first"), (1, "second")])
    assert rig.claimed(2)[0] == rig.last[0]


def test_a_claim_shuts_out_who_delivers_and_a_late_claim_changes_nothing(rig: Rig) -> None:
    rig.claimed(1)
    with rig.way(1) as way:
        first = rig.packet(1, [(1, "a")])
        way.deliver([first])
        assert rig.claimed(3) == {0: rig.last[0]}
        with pytest.raises(LifeEnded, match="life 3 of the job has claimed lane 0"):
            way.deliver([rig.packet(2, [(2, "b")])])
        # The claim has ended the connection; a late statement would find the claim alone.
        with pytest.raises(LifeEnded, match="life 3 of the job has claimed lane 0"):
            way.deliver([replace(rig.packet(3, [(3, "c")]), mark=Mark(LaneName(0, "rows", 0), b"x", _mark_of(first)))])
    with pytest.raises(LifeEnded, match="life 3"):
        rig.claimed(2)
    assert rig.server.ask("select distinct claim from lowtide.lanes where job = %s", rig.name) == [(3,)]
    assert rig.rows() == [(1, "a")]


def test_a_read_after_the_claim_sees_all_that_older_lives_delivered(rig: Rig) -> None:
    rig.claimed(1)
    delivered: list[int] = []

    def deliver() -> None:
        with rig.way(1) as way, suppress(LifeEnded):
            for number in range(1, 100_000):
                way.deliver([rig.packet(number, [(number, "")])])
                delivered.append(number)

    thread = threading.Thread(target=deliver)
    thread.start()
    until(lambda: len(delivered) > 20, "it delivers")
    last, rows = rig.claimed(2), rig.rows()
    thread.join(LIMIT_S)
    assert OrderKey.of(last[0]).tick == len(rows) >= len(delivered)
    assert rig.rows() == rows


def test_an_open_transaction_of_an_older_life_is_ended(rig: Rig) -> None:
    import psycopg

    rig.claimed(1)
    name = application_of(rig.name, 1)
    with psycopg.connect(**rig.server.settings, application_name=name) as open_one:
        open_one.execute("update lowtide.lanes set last = 'x' where job = %s", [rig.name])
        begun = time.monotonic()
        assert rig.claimed(2) == {}
        assert time.monotonic() - begun < LIMIT_S / 2
        with pytest.raises(psycopg.OperationalError):
            open_one.execute("select 1")


def test_way_checks_that_its_life_is_the_newest(rig: Rig) -> None:
    rig.claimed(1)

    def check() -> None:
        raise LifeEnded("there is a newer one")

    with pytest.raises(LifeEnded, match="newer one"), rig.way(1, check):
        pass


def test_a_server_that_is_away_for_a_moment_is_waited_for(postgres: PostgresServer) -> None:
    rig = Rig(postgres)
    rig.claimed(1)
    with rig.way(1) as way:
        way.deliver([rig.packet(1, [(1, "a")])])
        postgres.stop("immediate")
        threading.Timer(0.5, postgres.start).start()
        way.deliver([rig.packet(2, [(2, "b")])])
        assert sum(way.retries.values()) > 0
        assert set(way.retries) <= {"57P01", "57P03", "no answer"}
    assert rig.rows() == [(1, "a"), (2, "b")]
    assert rig.claimed(2)[0] == rig.last[0]


def test_a_lock_that_is_never_given_up_ends_the_delivery_in_time(rig: Rig) -> None:
    import psycopg

    rig.claimed(1)
    with rig.way(1, limit_s=1.0) as way, psycopg.connect(**rig.server.settings) as other:
        other.execute(f"lock table {rig.name} in access exclusive mode")
        begun = time.monotonic()
        with pytest.raises(ServiceUnavailable, match=r"did not .* within 1 s"):
            way.deliver([rig.packet(1, [(1, "a")])])
        assert time.monotonic() - begun < 4
    assert rig.rows() == []


def test_what_is_durable_is_on_disk_though_the_role_says_otherwise(rig: Rig) -> None:
    rig.claimed(1)
    rig.server.ask(f"""
        create function {rig.name}_seen() returns trigger language plpgsql as
        $$ begin new.text = current_setting('synchronous_commit'); return new; end $$;
        create trigger seen before insert on {rig.name} for each row execute function {rig.name}_seen();
        alter role postgres set synchronous_commit = off""")
    try:
        with rig.way(1) as way:
            way.deliver([rig.packet(1, [(1, "")])])
    finally:
        rig.server.ask("alter role postgres reset synchronous_commit")
    assert rig.rows() == [(1, "on")]


@pytest.mark.parametrize("place", [0, 17, 39])
def test_a_row_that_the_table_refuses_is_named(rig: Rig, place: int) -> None:
    rig.claimed(1)
    rig.server.ask(f"alter table {rig.name} add check (text <> 'bad')")
    rows = [(number, "bad" if number == place else "good") for number in range(40)]
    with rig.way(1) as way, pytest.raises(RecordRefused, match="refuses a row") as caught:
        way.deliver([rig.packet(3, rows)])
    assert f"front 0, offset {300 + place}: id={place}, text='bad'" in caught.value.where
    assert "(23514)" in str(caught.value)
    assert rig.rows() == []


REFUSED = "select lane, place, record->>'id', state, reason from lowtide.refused where job = %s order by at, 3"


@pytest.mark.parametrize("key", ["id", None], ids=["upsert", "append"])
def test_rows_that_the_table_refuses_are_set_aside_with_the_others_mark(
    postgres: PostgresServer, key: str | None
) -> None:
    rig = Rig(postgres, key, refused=True)
    rig.claimed(1)
    rig.server.ask(f"alter table {rig.name} add check (text <> 'bad'), add unique (text) deferrable initially deferred")
    rows = [(number, "bad" if number in (0, 17, 39) else f"good {number % 38}") for number in range(40)]
    with rig.way(1) as way:
        way.deliver([rig.packet(3, rows), rig.packet(3, [(50, "bad"), (51, "fine")], lane=1)])
        way.deliver([rig.packet(4, [(60, "fine"), (61, "ours")])])
        assert way.refused == {"rows": 5}
    assert rig.claimed(2) == rig.last
    assert [number for number, _ in rig.rows()] == [*range(1, 17), *range(18, 38), 38, 51, 61]
    found = rig.server.ask(REFUSED, rig.name)
    assert {row[:4] for row in found} == {
        (0, "front 0, offset 300", "0", "23514"),
        (0, "front 0, offset 317", "17", "23514"),
        (0, "front 0, offset 339", "39", "23514"),
        (1, "front 0, offset 300", "50", "23514"),
        (0, "front 0, offset 400", "60", "23505"),
    }
    assert len(found) == 5
    assert all("violates" in row[4] for row in found)


def test_a_row_is_set_aside_once_though_its_delivery_comes_again(postgres: PostgresServer) -> None:
    """R19 holds for rows that are refused, too."""
    rig = Rig(postgres, refused=True)
    rig.claimed(1)
    rig.server.ask(f"alter table {rig.name} add check (text <> 'bad')")
    packet = rig.packet(1, [(1, "bad"), (2, "a")])
    with rig.way(1) as way:
        way.deliver([packet])
        way.deliver([packet])
    with rig.way(1) as way, pytest.raises(LifeEnded):
        way.deliver([replace(rig.packet(2, [(3, "bad")]), mark=Mark(LaneName(0, "rows", 0), b"z", b"y"))])
    assert [row[2] for row in rig.server.ask(REFUSED, rig.name)] == ["1"]
    assert rig.rows() == [(2, "a")]


def test_what_no_row_is_to_blame_for_ends_the_job_though_rows_may_be_refused(postgres: PostgresServer) -> None:
    rig = Rig(postgres, refused=True)
    rig.claimed(1)
    rig.server.ask(f"alter table {rig.name} drop column text")
    with rig.way(1) as way, pytest.raises(SchemaDiffers, match="refuses the statement"):
        way.deliver([rig.packet(1, [(1, "a")])])
    assert rig.server.ask(REFUSED, rig.name) == []


def test_a_table_takes_one_sink_whatever_schema_the_server_looks_in(postgres: PostgresServer) -> None:
    rig = Rig(postgres)
    schema = f"s{uuid.uuid4().hex[:8]}"
    postgres.ask(f"create schema {schema}")
    postgres.ask(f"alter table {rig.name} set schema {schema}")
    sinks = {"first": Postgres(rig.name, Order, "id"), "second": Postgres(f"{schema}.{rig.name}", Order, "id")}
    settings = {**postgres.settings, "options": f"-c search_path={schema}"}
    with (
        closing(rig.home(1, sinks=sinks, settings=settings)) as home,
        pytest.raises(PlaceTaken, match='"second" writes the table of sink "first"'),
    ):
        home.open(None)


def test_another_store_and_another_job_are_refused(rig: Rig) -> None:
    with closing(rig.home(1)) as home:
        known = home.open(None)
        assert home.open(known) == home.open(None) == known
        with pytest.raises(LastsLost, match="has been replaced"):
            home.open(str(uuid.uuid4()))
    with closing(rig.home(1, job_id="id-2")) as home, pytest.raises(LifeEnded, match="belongs to another job"):
        home.open(None)
    rig.server.ask("delete from lowtide.jobs where job = %s", rig.name)
    with closing(rig.home(1)) as home, pytest.raises(LastsLost, match="is gone"):
        home.open(known)


def test_a_generation_begins_without_marks_and_with_all_floors(rig: Rig) -> None:
    rig.claimed(1)
    with rig.way(1) as way:
        way.deliver([rig.packet(1, [(1, "a")], floors=[Floor(0, 5, 40)])])
    with closing(rig.home(2, generation=1)) as home:
        home.open(None)
        home.claim()
        stored = home.read()
    assert stored.last == {}
    assert stored.floors == (Floor(0, 5, 40),)


def test_many_first_starts_make_the_tables_at_once(postgres: PostgresServer) -> None:
    database = f"d{uuid.uuid4().hex[:8]}"
    postgres.ask(f"create database {database}")
    sink, faults = Postgres("orders", Order, "id"), list[Exception]()
    settings = {**postgres.settings, "dbname": database}
    postgres.ask(ddl_of(sink.columns), dbname=database)

    def open_one(number: int) -> None:
        try:
            job = JobSinks(f"job-{number}", "id", 0, 2, {"rows": sink}, settings)
            with closing(sink.home(job, _life(1))) as home:
                home.open(None)
                home.claim()
        except Exception as error:  # noqa: BLE001 - the test says which
            faults.append(error)

    threads = [threading.Thread(target=open_one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert faults == []
    assert postgres.ask("select count(*) from lowtide.jobs", dbname=database) == [(8,)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("drop column text", "there is no column text"),
        ("alter column id type int", "column id is integer, but the sink writes bigint"),
        ("add column more int not null", "column more is not null and has no default"),
        ("drop constraint {}_pkey", "id has no unique index"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_what_to_change(
    postgres: PostgresServer, change: str, said: str
) -> None:
    rig = Rig(postgres)
    postgres.ask(f"alter table {rig.name} {change.format(rig.name)}")
    with closing(rig.home(1)) as home, pytest.raises(SchemaDiffers, match=said) as caught:
        home.open(None)
    if "integer" not in said:
        for statement in caught.value.way_out.partition("\n")[2].splitlines():
            postgres.ask(statement)
        assert rig.claimed(1) == {}


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str
    at: datetime


@dataclass(frozen=True)
class Everything:
    number: int
    text: str
    real: float
    flag: bool
    data: bytes
    at: datetime
    day: date
    hour: clock
    price: Annotated[Decimal, Precision(10, 2)]
    uid: UUID
    colour: Colour
    size: Literal[1, 2]
    items: list[int]
    parts: list[Part]
    names: dict[str, str]
    perhaps: int | None = None
    maybe: list[str] | None = None
    shade: Colour | None = None


def test_all_kinds_of_columns_come_back_as_they_were_written(postgres: PostgresServer) -> None:
    name, at = f"t{uuid.uuid4().hex[:8]}", datetime(2026, 3, 1, 12, 30, 15, 123456, UTC)
    sink = Postgres(name, Everything, "number")
    assert sink.faults() == []
    postgres.ask(ddl_of(sink.columns))
    uid, part = uuid.uuid4(), Part('é "q" \\ {,}', at)
    text = 'é "q" \\ {,}'
    first = Everything(
        0, text, 1.5, True, b"\0\xff", at, date(1, 1, 1), clock(1, 2, 3, 4), Decimal("1.50"), uid, Colour.RED, 2,
        [1, 2], [part], {"a b": "c"},
    )  # fmt: skip
    rows = [
        first,
        replace(first, number=1, perhaps=-(1 << 63), maybe=["x", "y"], shade=Colour.RED),
        replace(first, number=2, perhaps=(1 << 63) - 1),
    ]
    rows.append(replace(rows[0], number=-1, real=float("nan"), at=datetime.max.replace(tzinfo=UTC), items=[], parts=[]))
    rows.append(replace(rows[0], number=-2, real=7, at=at.astimezone(timezone(timedelta(hours=2)))))
    assert [sink.writable.fault(row) for row in rows] == [None] * len(rows)
    job = JobSinks(name, "id", 0, 1, {"rows": sink}, postgres.settings)
    with closing(sink.home(job, _life(1))) as home:
        home.open(None)
        home.claim()
    ats = [OrderKey(1, 0, place).packed() for place in range(len(rows))]
    way = sink.way(job, _life(1))
    way.open()
    for order in (rows, [*reversed(rows)]):
        messages = RowEncoder(Everything).encode(0, [Piece(1, ats, order)])
        before = b"" if order is rows else ats[-1]
        way.deliver([Packet(0, 0, messages, Mark(LaneName(0, "rows", 0), ats[-1] + bytes(order is not rows), before))])
        found = postgres.ask(f"select * from {name} order by number")
        assert len(found) == len(rows)
        for row, own in zip(sorted(rows, key=lambda row: row.number), found, strict=True):
            number, text, real, *others = own
            assert (number, text) == (row.number, row.text)
            assert real == row.real or (real != real and row.real != row.real)
            assert others[2:7] == [row.at, row.day, row.hour, row.price, uid]
            assert others[:2] == [True, b"\0\xff"]
            assert others[7:9] == ["red", 2]
            assert others[9] == row.items
            assert others[10] == [{"name": each.name, "at": "2026-03-01T12:30:15.123456Z"} for each in row.parts]
            assert others[11:] == [{"a b": "c"}, row.perhaps, row.maybe, row.shade and "red"]
    way.close()


FLOW = """
from dataclasses import dataclass

import lowtide as lt


@dataclass(frozen=True)
class Order:
    id: int
    user: str


flow = lt.Flow("ddl")
orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
orders.write("rows", lt.postgres("{name}.rows", Order, key="id"))
orders.write("log", lt.postgres("{name}", Order))
"""


def test_ddl_prints_what_makes_a_database_fit_and_applies_what_is_missing(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, file = f"t{uuid.uuid4().hex[:8]}", tmp_path / "flow.py"
    file.write_text(FLOW.format(name=name))
    for database in ("printed", "applied"):
        postgres.ask(f"create database {name}_{database}")
    where = [f"--set=postgres.default.{key}={value}" for key, value in postgres.settings.items() if key != "dbname"]

    def ddl(database: str, *more: str) -> str:
        assert run(["sinks", "ddl", str(file), *where, f"--set=postgres.default.dbname={name}_{database}", *more]) == 0
        return capsys.readouterr().out

    printed = ddl("printed")
    assert "grant insert on" in printed
    postgres.ask(printed, dbname=f"{name}_printed")
    assert "has all that the flow needs" in ddl("printed", "--apply")
    assert f'create table "{name}"."rows"' in ddl("applied", "--apply")
    postgres.ask(f"alter table {name}.rows drop constraint rows_pkey", dbname=f"{name}_applied")
    assert ddl("applied", "--apply") == f'alter table "{name}"."rows" add unique ("id");\n'
    assert "has all that the flow needs" in ddl("applied", "--apply")


def test_doctor_finds_rights_that_lack_and_tables_that_do_not_fit(postgres: PostgresServer) -> None:
    rig = Rig(postgres, deleted="gone")
    rig.claimed(1)
    user, table = f"{rig.name}_user", rig.job.sinks["rows"].columns  # type: ignore[attr-defined]
    settings = {**postgres.settings, "user": user}
    postgres.ask(
        f"create role {user} login; grant usage on schema lowtide to {user}; grant select on {rig.name} to {user}"
    )

    def reported() -> list[str]:
        return [each.found for each in concerns_of(settings, {"rows": table}, LIMIT_S) if each.fatal]

    found = reported()
    assert f'the user may not insert, update, delete on "{rig.name}"' in found
    assert "the user may not select, insert, update on lowtide.lanes" in found
    for statement in statements_for({"rows": table}, user):
        if statement.startswith("grant"):
            postgres.ask(statement)
    assert reported() == []
    postgres.ask(f"alter table {rig.name} alter column id type int")
    assert reported() == [f'sink "rows", table {rig.name}: column id is integer, but the sink writes bigint']


def test_doctor_names_a_transaction_that_stays_open(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    monkeypatch.setattr(health, "OPEN_TOO_LONG_S", 0.01)
    with psycopg.connect(**postgres.settings) as other:
        other.execute("select 1")
        time.sleep(0.05)
        found = concerns_of(postgres.settings, {}, LIMIT_S)
        assert any(f"a transaction of process {other.info.backend_pid} has been open" in each.found for each in found)
    assert not any(each.fatal for each in found)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("postgres")
def test_a_failover_to_a_synchronous_standby_loses_and_doubles_nothing() -> None:
    with PostgresServer() as primary, PostgresServer(primary) as standby:
        until(lambda: primary.ask("select 1 from pg_stat_replication where state = 'streaming'"), "it streams")
        (concern,) = concerns_of(primary.settings, {}, LIMIT_S)
        assert "no standby is synchronous (walreceiver" in concern.found
        primary.ask("alter system set synchronous_standby_names = '*'")
        primary.ask("select pg_reload_conf()")
        until(lambda: primary.ask("select 1 from pg_stat_replication where sync_state = 'sync'"), "it is synchronous")
        assert concerns_of(primary.settings, {}, LIMIT_S) == []
        rig = Rig(primary, None)
        both = {"host": "127.0.0.1,127.0.0.1", "port": f"{primary.port},{standby.port}"}
        rig.job = replace(rig.job, settings={**primary.settings, **both})
        rig.claimed(1)
        failed_over = threading.Event()

        def fail_over() -> None:
            time.sleep(0.5)
            primary.stop("immediate")
            standby.promote()
            failed_over.set()

        thread, number, after = threading.Thread(target=fail_over), 0, 0
        thread.start()
        with rig.way(1) as way:
            while after < 50:
                number += 1
                after += failed_over.is_set()
                way.deliver([rig.packet(number, [(number, "")])])
        thread.join()
        rig.server = standby
        assert rig.rows() == [(each, "") for each in range(1, number + 1)]
        assert rig.claimed(2)[0] == rig.last[0]
