"""Delta and Iceberg tables: each row once, over all committers, kills and lost answers."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
from own_sleep import not_at_all, sleep_is
from staged_logs import Log, Reader, log_of

import lowtide as lt
from lowtide.conf import Conf
from lowtide.errors import FlowError
from lowtide.sinks.errors import CatalogUnavailable, CommitConflict, LastsLost, SchemaDiffers
from lowtide.sinks.staged.contract import Carriage, Carrier, StagedRow
from lowtide.sinks.tables.carrier import Conflict, TableCarrier
from lowtide.sinks.tables.fit import missing_columns

FIRST_MS = 1_700_000_000_000
LANES = 3
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Order:
    number: int
    text: str | None = None


@dataclass(frozen=True)
class Wide:
    number: int
    at: datetime
    price: Annotated[Decimal, lt.Precision(18, 2)]
    tags: list[str]
    extra: dict[str, int]
    inner: Order


def value(number: int) -> bytes:
    return b'{"number":%d,"text":"row %d"}' % (number, number)


Make = Callable[[Path], Any]
"""Makes a sink in a folder."""


def to_delta(folder: Path) -> Any:
    return lt.delta(str(folder / "orders"), Order, commit_every=lt.seconds(1))


def to_iceberg(folder: Path) -> Any:
    return lt.iceberg("lake.orders", Order, commit_every=lt.seconds(1))


both = pytest.mark.parametrize("make", [to_delta, to_iceberg])


def carriage_of(sink: Any, folder: Path, **changes: Any) -> Carriage:
    conf = Conf.load(
        None,
        {
            "iceberg.default.type": "sql",
            "iceberg.default.uri": f"sqlite:///{folder}/catalog.db",
            "iceberg.default.warehouse": f"file://{folder}",
        },
    )
    said: dict[str, Any] = {"job": "shop", "job_id": "5f", "generation": 0, "sink": "table", "lanes": LANES}
    return Carriage(**said | changes, slack_ms=1, settings=sink.settings(conf))


def carrier_of(sink: Any, folder: Path, **changes: Any) -> Carrier:
    carrier: Carrier = sink.carrier(carriage_of(sink, folder, **changes))
    return carrier


def table_of(sink: Any, folder: Path) -> pa.Table:
    """The table, as its readers see it."""
    if sink.kind == "Delta":
        from deltalake import DeltaTable

        return DeltaTable(sink.table).to_pyarrow_table()
    from pyiceberg.catalog import load_catalog

    return load_catalog(**carriage_of(sink, folder).settings).load_table(sink.table).scan().to_arrow()


def numbers(sink: Any, folder: Path) -> Counter[int]:
    return Counter(table_of(sink, folder)["number"].to_pylist())


def small_log(seed: int, rows: int = 60) -> Log:
    return log_of(random.Random(seed), LANES, rows, value, FIRST_MS, 1000)


def kept() -> dict[int, int]:
    return dict.fromkeys(range(LANES), 0)


def read_to_the_end(reader: Reader, chance: random.Random) -> None:
    while not reader.at_end:
        reader.read(chance)
    reader.carrier.settle(float("inf"))


@both
def test_rows_are_there_once_with_their_types(make: Make, tmp_path: Path) -> None:
    sink, log = make(tmp_path), small_log(1)
    read_to_the_end(Reader(log, carrier_of(sink, tmp_path), kept()), random.Random(1))
    found = table_of(sink, tmp_path)
    assert Counter(found["number"].to_pylist()) == Counter(range(len(log.rows)))
    assert dict(zip(found["number"].to_pylist(), found["text"].to_pylist(), strict=True))[7] == "row 7"


@both
@pytest.mark.parametrize("seed", range(4))
def test_of_carriers_side_by_side_each_row_comes_from_one(make: Make, tmp_path: Path, seed: int) -> None:
    """A carrier that another has overtaken ends, and the next one begins at the table's position."""
    chance, sink, log, needed = random.Random(seed), make(tmp_path), small_log(seed), kept()
    readers = [Reader(log, carrier_of(sink, tmp_path), needed) for _ in range(2)]
    conflicts = 0
    while any(not reader.at_end for reader in readers):
        place = chance.choice([place for place, reader in enumerate(readers) if not reader.at_end])
        try:
            readers[place].read(chance)
            if chance.random() < 0.3:
                readers[place].carrier.settle(float("inf"))
        except CommitConflict:
            conflicts += 1
            readers[place] = Reader(log, carrier_of(sink, tmp_path), needed)
    for place in (0, 1, 0):
        try:
            readers[place].carrier.settle(float("inf"))
        except CommitConflict:
            readers[place] = Reader(log, carrier_of(sink, tmp_path), needed)
            read_to_the_end(readers[place], chance)
    assert numbers(sink, tmp_path) == Counter(range(len(log.rows)))
    assert conflicts


@both
def test_a_commit_whose_answer_is_lost_counts_once(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, log = make(tmp_path), small_log(3)
    carrier: Any = carrier_of(sink, tmp_path)
    reader, append = Reader(log, carrier, kept()), carrier._table.append
    lost: list[int] = []

    def unanswered(rows: pa.Table, position: dict[int, int]) -> None:
        append(rows, position)
        if len(lost) < 3:
            lost.append(rows.num_rows)
            raise Conflict("the connection was reset")

    monkeypatch.setattr(carrier._table, "append", unanswered)
    read_to_the_end(reader, random.Random(3))
    assert len(lost) == 3 or sum(lost) == len(log.rows)
    assert numbers(sink, tmp_path) == Counter(range(len(log.rows)))


@both
def test_a_strangers_commit_between_is_no_harm(make: Make, tmp_path: Path) -> None:
    sink, log = make(tmp_path), small_log(4)
    reader = Reader(log, carrier_of(sink, tmp_path), kept())
    stranger = carrier_of(sink, tmp_path, job="other")
    stranger.open(kept())
    stranger.take(0, [StagedRow(0, FIRST_MS, None, value(1_000_000))])
    stranger.settle(float("inf"))
    read_to_the_end(reader, random.Random(4))
    assert numbers(sink, tmp_path) == Counter([*range(len(log.rows)), 1_000_000])


@both
def test_carriers_may_begin_at_the_same_moment(make: Make, tmp_path: Path) -> None:
    together, errors = threading.Barrier(4), list[CatalogUnavailable]()

    def begin(folder: Path) -> None:
        together.wait()
        try:
            carrier_of(make(folder), folder).open(kept())
        except CatalogUnavailable as error:
            errors.append(error)

    for number in range(5):
        (folder := tmp_path / str(number)).mkdir()
        carriers = [threading.Thread(target=begin, args=(folder,)) for _ in range(4)]
        for carrier in carriers:
            carrier.start()
        for carrier in carriers:
            carrier.join()
    assert not errors


CHILD = """
import random, sys
import lowtide.sinks.tables.delta, lowtide.sinks.tables.iceberg
from plugin.tests.sinks.test_tables import *

name, folder, seed = sys.argv[1:]
sink, chance = (to_delta if name == "to_delta" else to_iceberg)(Path(folder)), random.Random(int(seed))
log = small_log(5, 400)
print("ready", flush=True)
sys.stdin.readline()
try:
    reader = Reader(log, carrier_of(sink, Path(folder)), kept())
    while not reader.at_end:
        reader.read(chance)
        print("read", flush=True)
        if chance.random() < 0.5:
            reader.carrier.settle(float("inf"))
    reader.carrier.settle(float("inf"))
except CommitConflict:
    sys.exit(3)
"""


class Child:
    """A carrier in a process of its own, ready to begin."""

    def __init__(self, make: Make, folder: Path, seed: int) -> None:
        command = [sys.executable, "-c", CHILD, make.__name__, str(folder), str(seed)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def go(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def kill(self, reads: int, after_s: float) -> bool:
        """Kills it some time after it has read so often; returns whether it had not ended by itself."""
        assert self._process.stdout is not None
        for _ in range(reads):
            self._process.stdout.readline()  # Nothing at its end.
        with suppress(subprocess.TimeoutExpired):
            assert self._process.wait(after_s) in (0, 3)
        killed = self._process.returncode is None
        self._process.kill()
        self._process.communicate()
        return killed


@both
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.nightly)])
def test_no_row_is_lost_or_doubled_over_kills(make: Make, tmp_path: Path, kills: int) -> None:
    """Every third has another carrier beside it, which may overtake it."""
    chance, log, killed = random.Random(6), small_log(5, 400), 0
    waiting = [Child(make, tmp_path, seed) for seed in range(2)]
    try:
        for number in range(kills):
            child, other = waiting.pop(0), waiting[0] if number % 3 == 0 else None
            child.go()
            if other is not None:
                other.go()
                waiting.pop(0)
            waiting += [Child(make, tmp_path, 10 + number + place) for place in range(2 - len(waiting))]
            killed += child.kill(chance.randrange(8), chance.uniform(0.0, 0.1))
            killed += other is not None and other.kill(chance.randrange(4), chance.uniform(0.0, 0.1))
    finally:
        for child in waiting:
            child.kill(0, 0)
    assert killed
    sink = make(tmp_path)
    carrier_of(sink, tmp_path).open(kept())
    found = numbers(sink, tmp_path)
    assert found, "some rows are there"
    assert max(found.values()) == 1, "rows are doubled"
    read_to_the_end(Reader(log, carrier_of(sink, tmp_path), kept()), chance)
    assert numbers(sink, tmp_path) == Counter(range(len(log.rows)))


@both
def test_the_log_is_needed_from_the_tables_position_and_marks_count_once_rows_are_there(
    make: Make, tmp_path: Path
) -> None:
    sink = make(tmp_path)
    carrier = carrier_of(sink, tmp_path)
    assert carrier.open({0: 0, 1: 0}) == {0: 0, 1: 0}
    carrier.mark(1, 500)
    carrier.take(0, [StagedRow(3, 400, None, value(1))])
    carrier.mark(0, 500)
    carrier.settle(10.0)
    assert {lane: (each.needed, each.visible_ms) for lane, each in carrier.progress().items()} == {
        0: (0, None),
        1: (0, 500),
    }
    carrier.settle(10.9)
    assert carrier.progress()[0].visible_ms is None, "rows wait for a commit"
    carrier.settle(11.0)
    assert (carrier.progress()[0].needed, carrier.progress()[0].visible_ms) == (4, 500)
    assert carrier_of(sink, tmp_path).open({0: 4, 1: 0}) == {0: 4, 1: 0}


@both
def test_a_table_that_was_replaced_or_restored_is_refused(make: Make, tmp_path: Path) -> None:
    sink = make(tmp_path)
    with pytest.raises(LastsLost, match=r"has been replaced: it does not know of the rows"):
        carrier_of(sink, tmp_path).open({0: 7})
    carrier = carrier_of(sink, tmp_path)
    carrier.open({0: 0})
    with pytest.raises(LastsLost, match=r"has fewer rows than the job has committed: lane 0 is at offset 0, and was"):
        carrier_of(sink, tmp_path).open({0: 7})


@both
def test_a_job_that_gets_more_lanes_goes_on_in_its_table(make: Make, tmp_path: Path) -> None:
    """And a carrier that knows fewer neither adds rows again nor has others do so."""
    sink, log, begin = make(tmp_path), small_log(5), kept()
    read_to_the_end(Reader(log, carrier_of(sink, tmp_path), begin), random.Random(5))
    more = log_of(random.Random(6), LANES, 60, lambda number: value(1_000 + number), FIRST_MS, 1000)
    grown = Log(log.lanes | {LANES + lane: entries for lane, entries in more.lanes.items()})
    begin |= dict.fromkeys(range(LANES, 2 * LANES), 0)
    read_to_the_end(Reader(grown, carrier_of(sink, tmp_path, lanes=2 * LANES), begin), random.Random(6))
    expected = Counter([*range(len(log.rows)), *range(1_000, 1_000 + len(more.rows))])
    assert numbers(sink, tmp_path) == expected
    earlier = carrier_of(sink, tmp_path)
    if sink.kind == "Delta":  # Each lane has a transaction of its own.
        assert earlier.open(kept()).keys() == kept().keys()
    else:
        with pytest.raises(CommitConflict, match="rows of more lanes than this carrier knows"):
            earlier.open(kept())
    read_to_the_end(Reader(grown, carrier_of(sink, tmp_path, lanes=2 * LANES), begin), random.Random(7))
    assert numbers(sink, tmp_path) == expected


@both
def test_another_job_of_the_name_has_a_position_of_its_own(make: Make, tmp_path: Path) -> None:
    sink = make(tmp_path)
    for job_id in ("5f", "60"):
        carrier = carrier_of(sink, tmp_path, job_id=job_id)
        assert carrier.open({0: 0}) == {0: 0}
        carrier.take(0, [StagedRow(0, 0, None, value(1))])
        carrier.settle(float("inf"))
    assert numbers(sink, tmp_path) == Counter({1: 2})


def test_of_two_commits_on_one_version_iceberg_takes_one_whatever_the_table_says_of_retries(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    sink = to_iceberg(tmp_path)
    carrier_of(sink, tmp_path).open({0: 0})
    table = load_catalog(**carriage_of(sink, tmp_path).settings).load_table(sink.table)
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    one, other = (carrier_of(sink, tmp_path) for _ in range(2))
    for carrier in (one, other):
        carrier.open({0: 0})
        carrier.take(0, [StagedRow(0, 0, None, value(1))])
    one.settle(float("inf"))
    other.settle(float("inf"))
    assert numbers(sink, tmp_path) == Counter({1: 1})


@pytest.mark.parametrize("word", ["delta", "iceberg"])
def test_a_column_that_somebody_adds_is_null(word: str, tmp_path: Path) -> None:
    place = str(tmp_path / "wide") if word == "delta" else "lake.wide"
    narrow, wide = getattr(lt, word)(place, Order), getattr(lt, word)(place, Later)
    carrier = carrier_of(narrow, tmp_path)
    carrier.open({0: 0})
    carrier.take(0, [StagedRow(0, 0, None, value(1))])
    carrier_of(wide, tmp_path, job="other").open({0: 0})
    carrier.settle(float("inf"))
    again = carrier_of(narrow, tmp_path)
    again.open({0: 0})
    again.take(0, [StagedRow(1, 0, None, value(2))])
    again.settle(float("inf"))
    assert [(row["number"], row["new"]) for row in table_of(wide, tmp_path).sort_by("number").to_pylist()] == [
        (1, None),
        (2, None),
    ]


@pytest.mark.parametrize("word", ["delta", "iceberg"])
def test_kinds_and_columns_that_come_later(word: str, tmp_path: Path) -> None:
    place = str(tmp_path / "wide") if word == "delta" else "lake.wide"
    first, later = getattr(lt, word)(place, Order), getattr(lt, word)(place, Later)
    carrier_of(first, tmp_path).open({0: 0})
    carrier = carrier_of(later, tmp_path)
    carrier.open({0: 0})
    carrier.take(0, [StagedRow(0, 0, None, b'{"number":1,"text":"a","new":5}'), StagedRow(1, 0, None, value(2))])
    carrier.settle(float("inf"))
    assert table_of(later, tmp_path).sort_by("number").to_pylist() == [
        {"number": 1, "text": "a", "new": 5},
        {"number": 2, "text": "row 2", "new": None},
    ]
    wide = getattr(lt, word)(place + "2", Wide)
    row = b'{"number":1,"at":"2026-11-26T13:00:00Z","price":"1.50","tags":["a"],"extra":{"b":2},"inner":{"number":3}}'
    carrier = carrier_of(wide, tmp_path)
    carrier.open({0: 0})
    carrier.take(0, [StagedRow(0, 0, None, row)])
    carrier.settle(float("inf"))
    (found,) = table_of(wide, tmp_path).to_pylist()
    assert found["at"] == datetime(2026, 11, 26, 13, tzinfo=UTC)
    assert (found["tags"], dict(found["extra"]), found["inner"]["number"]) == (["a"], {"b": 2}, 3)


@dataclass(frozen=True)
class Later:
    number: int
    text: str | None = None
    new: int | None = None


@pytest.mark.parametrize(
    ("there", "fault"),
    [
        ([("number", pa.string(), False)], 'has column "number" of type string, the rows int64'),
        ([("text", pa.string(), True)], 'has no column "number", which no row may lack'),
        ([("number", pa.int64(), False), ("more", pa.int64(), False)], 'has column "more", which the rows lack'),
        ([("number", pa.int64(), False), ("text", pa.string(), False)], 'has column "text", which cannot be null'),
    ],
)
def test_a_table_that_does_not_fit_is_refused(there: list[tuple[str, pa.DataType, bool]], fault: str) -> None:
    rows = pa.schema([pa.field("number", pa.int64(), False), pa.field("text", pa.string())])
    with pytest.raises(SchemaDiffers, match=fault):
        missing_columns("the table", pa.schema([pa.field(*each) for each in there]), rows)


def test_names_of_items_and_sizes_of_offsets_are_no_difference() -> None:
    rows = pa.schema([pa.field("tags", pa.list_(pa.string())), pa.field("inner", pa.struct([("a", pa.binary())]))])
    there = pa.schema(
        [
            pa.field("tags", pa.large_list(pa.field("element", pa.large_string()))),
            pa.field("inner", pa.struct([("a", pa.large_binary())])),
        ]
    )
    assert missing_columns("the table", there, rows) == pa.schema([])


def test_what_a_flow_may_not_say() -> None:
    with pytest.raises(FlowError, match=r"delta takes the dataclass of a table's rows"):
        lt.delta("/lake", "Order")  # type: ignore[arg-type]
    with pytest.raises(FlowError, match=r"commit_every= takes a length of time, found 5"):
        lt.iceberg("lake.orders", Order, commit_every=5)  # type: ignore[arg-type]
    assert lt.iceberg("orders", Order, commit_every=lt.millis(5)).faults() == [
        "commit_every= is at least 1 s, found 5 ms",
        "an Iceberg table has a namespace, as \"lake.orders\", found 'orders'",
    ]
    assert lt.delta("lake", Order).faults() == ["a Delta table is in s3://... or an absolute folder, found 'lake'"]


def test_a_catalog_that_does_not_answer_is_named(tmp_path: Path) -> None:
    sink = to_iceberg(tmp_path)
    with pytest.raises(CatalogUnavailable, match=r'cannot open Iceberg table "lake\.orders"'):
        carrier_of(sink, tmp_path / "nowhere").open({0: 0})


def test_a_commit_is_tried_again_until_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep_is(monkeypatch, not_at_all)

    class Busy:
        place = "the table"
        position: dict[int, int] = {}  # noqa: RUF012

        def open(self, schema: pa.Schema) -> None:
            pass

        def load(self) -> dict[int, int] | None:
            return {0: 0}

        def append(self, rows: pa.Table, position: Any) -> None:
            raise Conflict("compacted")

    carrier = TableCarrier(Busy(), Order, 1.0, Carriage("shop", "5f", 0, "table", 1, 1))
    carrier.open({0: 0})
    carrier.take(0, [StagedRow(0, 0, None, value(1))])
    with pytest.raises(CommitConflict, match=r"it was refused 8 times, the last time: compacted"):
        carrier.settle(float("inf"))
