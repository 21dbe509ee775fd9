"""Files as a flow names them, the fold that cuts them, and carriers on a folder."""

from __future__ import annotations

import glob
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from s3_server import ENVIRONMENT, S3Server
from staged_logs import Log, Reader, after, log_of

import lowtide as lt
from lowtide.conf import Conf
from lowtide.core.fronts.end import end_tick
from lowtide.doctor import Surroundings
from lowtide.doctor.stores import files as doctor_files
from lowtide.errors import ConfError, FlowError, RecordRefused, ServiceUnavailable
from lowtide.flow.formats.endpoints import last_visible_tick, mark_ticks
from lowtide.flow.plan.compiler import compile_flow
from lowtide.sinks.errors import PlaceTaken
from lowtide.sinks.files import groups
from lowtide.sinks.files.access import settings_of
from lowtide.sinks.files.endpoint import Files
from lowtide.sinks.files.fold import FileKey, Fold, Limits, Piece
from lowtide.sinks.files.groups import GroupFold
from lowtide.sinks.files.pattern import Pattern
from lowtide.sinks.files.places import places_of
from lowtide.sinks.staged.contract import Carriage, Progress, StagedRow
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_snapshots.stores.errors import StoreRefused

FIRST_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    text: str
    count: int


@dataclass(frozen=True)
class Order:
    id: int
    country: str | None = "DE"
    price: Annotated[Decimal, lt.Precision(10, 2)] = Decimal("1.50")
    at: datetime = datetime(2026, 1, 31, 12, tzinfo=UTC)
    lines: list[Line] | None = None
    notes: dict[str, int] | None = None
    color: Color = Color.RED
    paid: Annotated[bool, lt.Alias("isPaid")] = True


@dataclass(frozen=True)
class Keyed:
    user: Annotated[str, lt.Key()]
    amount: int


@dataclass(frozen=True)
class Headed:
    amount: int
    trace: Annotated[str | None, lt.Header("trace")] = None


def value_of(number: int) -> bytes:
    order = Order(number, [None, "", "DE", "a/b", "Ä"][number % 5], lines=[Line("x" * 50, number)])
    (value,) = lt.json(Order).encode([order])
    assert value is not None
    return value


def rows_of(*times_ms: int, value: bytes = b"x" * 10) -> list[StagedRow]:
    return [StagedRow(offset, time_ms, None, value) for offset, time_ms in enumerate(times_ms)]


@pytest.mark.parametrize(
    ("pattern", "more", "said"),
    [
        ("/lake/hour={tick:%H}/", {}, "has the hour but not the year"),
        ("/lake/{tick:%Y}/{tick:%d}/", {}, "has the day but not the month"),
        ("/lake/{tick:%Y-%m-%d %S}/", {}, "has %S"),
        ("/lake/", {}, "would grow for ever"),
        ("/lake/{tick}/", {}, "names no time"),
        ("/lake/{day:%Y}/", {}, "{day}"),
        ("/lake/{tick:%Y-%m-%d", {}, "cannot be read"),
        ("lake/{tick:%Y-%m-%d}/", {}, "not a place for files"),
        ("s3:///{tick:%Y-%m-%d}/", {}, "not a place for files"),
        ("gs://lake/{tick:%Y-%m-%d}/", {}, "not a place for files"),
        ("s3://lake-{tick:%Y}/a/", {}, "cannot depend"),
        ("/lake/../{tick:%Y-%m-%d}/", {}, ".."),
        ("/lake/{tick:%Y-%m-%d}/", {"roll": lt.minutes(7)}, "does not divide"),
        ("/lake/{tick:%Y-%m-%d}/hour={tick:%H}/", {"roll": lt.hours(2)}, "does not divide"),
        ("s3://lake/{tick:%Y-%m-%d}/", {"roll": lt.seconds(5)}, "at least 10 s"),
        ("/lake/{tick:%Y-%m-%d}/", {"max_file_bytes": 5}, "max_file_bytes= is at least"),
        ("/lake/{tick:%Y-%m-%d}/", {"partition_by": ["city"]}, "no field 'city'"),
        ("/lake/{tick:%Y-%m-%d}/", {"partition_by": ["lines"]}, "cannot be partitioned by 'lines'"),
        ("/lake/{tick:%Y-%m-%d}/", {"partition_by": ["at"]}, "cannot be partitioned by 'at'"),
        ("/lake/{tick:%Y-%m-%d}/", {"partition_by": ["id", "id"]}, "names a field twice"),
    ],
)
def test_a_sink_whose_files_could_not_be_right_is_refused(pattern: str, more: dict[str, Any], said: str) -> None:
    (fault,) = lt.files(pattern, lt.parquet(Order), **more).faults()
    assert said in fault


@pytest.mark.parametrize(
    "pattern",
    [
        "s3://lake/orders/dt={tick:%Y-%m-%d}/hour={tick:%H}/",
        "s3://lake/{tick:%Y/%j}",
        "file:///lake/{tick:%Y-%m}/",
        "/lake/y={tick:%Y}/",
    ],
)
def test_patterns_that_tell_a_time_from_the_year_down_are_fine(pattern: str) -> None:
    sink = lt.files(pattern, lt.parquet(Order), partition_by=("country", "color", "paid"))
    assert sink.faults() == []


def test_a_folder_has_the_marked_fields_only_where_they_are_staged() -> None:
    place = "/lake/{tick:%Y-%m-%d}/"
    assert lt.files(place, lt.parquet(Keyed)).faults() == []
    assert lt.files(place, lt.parquet(Keyed)).key_column == "user"
    assert "lt.Key()" in lt.files(place, lt.json_lines(Keyed)).faults()[0]
    assert "lt.Header()" in lt.files(place, lt.parquet(Headed)).faults()[0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lt.files("/a/{tick:%Y}/", Order), "a format of files"),  # type: ignore[arg-type]
        (lambda: lt.files("/a/{tick:%Y}/", lt.json(Order)), "a format of files"),  # type: ignore[arg-type]
        (lambda: lt.files(5, lt.parquet(Order)), "a pattern"),  # type: ignore[arg-type]
        (lambda: lt.files("/a/{tick:%Y}/", lt.parquet(Order), roll=5), "a length of time"),  # type: ignore[arg-type]
        (lambda: lt.files("/a/{tick:%Y}/", lt.parquet(Order), partition_by="id"), "several names"),
    ],
)
def test_what_files_cannot_mean_is_refused_where_it_is_written(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(FlowError, match=said):
        make()


def test_a_text_too_long_for_a_folder_and_a_number_that_json_lacks_are_refused() -> None:
    @dataclass(frozen=True)
    class Reading:
        place: str | None
        celsius: float

    writable = lt.files("/lake/{tick:%Y-%m-%d}/", lt.parquet(Reading), partition_by=("place",)).writable
    assert writable.fault(Reading("p" * 200, 1.0)) is None
    assert writable.fault(Reading(None, 1.0)) is None
    assert "200 bytes" in (writable.fault(Reading("/" * 67, 1.0)) or "")
    assert "JSON cannot hold nan" in (writable.fault(Reading("p", float("nan"))) or "")


def test_many_files_a_day_are_said() -> None:
    place = "/lake/{tick:%Y-%m-%d}/"
    assert lt.files(place, lt.parquet(Order), roll=lt.minutes(2)).writable.perhaps == ()
    (said,) = lt.files(place, lt.parquet(Order), roll=lt.minutes(1)).writable.perhaps
    assert "1440 files a day" in said


def test_a_server_is_configuration() -> None:
    assert settings_of(Conf(), "default")["endpoint"] is None
    with pytest.raises(ConfError, match=r"no \[files.lake\]"):
        settings_of(Conf(), "lake")


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("/l/{tick:%Y-%m-%d %H}/", (1_706_742_000_000, 1_706_745_600_000)),
        ("/l/{tick:%Y-%m-%d}/", (1_706_659_200_000, 1_706_745_600_000)),
        ("/l/{tick:%Y-%m}/", (1_704_067_200_000, 1_706_745_600_000)),
        ("/l/{tick:%Y}/", (1_704_067_200_000, 1_735_689_600_000)),
    ],
)
def test_a_bucket_has_the_times_that_its_folder_names(text: str, span: tuple[int, int]) -> None:
    pattern = Pattern(text)
    first_ms = pattern.first_ms(1_706_745_599_990)
    end_ms = pattern.end_ms(first_ms)
    assert (first_ms, end_ms) == span
    folder = pattern.folder(first_ms)
    assert pattern.folder(end_ms - 1) == folder
    assert folder not in (pattern.folder(first_ms - 1), pattern.folder(end_ms))


def whole(pieces: list[Piece]) -> dict[FileKey, list[int]]:
    """Return the offsets of each file that has ended."""
    found: dict[FileKey, list[int]] = {}
    for piece in pieces:
        found.setdefault(piece.file, []).extend(row.offset for row in piece.rows)
    return {piece.file: found[piece.file] for piece in pieces if piece.last}


def test_a_file_ends_with_its_period_by_a_mark_or_a_later_row() -> None:
    fold = GroupFold(Limits(1_000, 100), None, {0: 0})
    assert fold.take(0, rows_of(5_000, 5_990)) == []
    assert (fold.needed(), fold.over_ms) == ({0: 0}, 5_000)
    assert fold.mark(0, 5_999) == []
    assert whole(fold.mark(0, 6_000)) == {FileKey(5_000, "", 0): [0, 1]}
    assert (fold.needed(), fold.over_ms) == ({0: 2}, 6_000)
    fold.take(0, [StagedRow(7, 6_100, None, b"x")])
    assert whole(fold.take(0, [StagedRow(9, 7_000, None, b"x")])) == {FileKey(6_000, "", 0): [7]}
    assert (fold.needed(), fold.over_ms) == ({0: 9}, 7_000)


def test_a_full_file_is_followed_by_another_of_its_period() -> None:
    fold = Fold(Limits(1_000, 25), None)
    pieces = [*fold.take(rows_of(*[5_000] * 7)), *fold.mark(6_000)]
    assert whole(pieces) == {
        FileKey(5_000, "", 0): [0, 1, 2],
        FileKey(5_000, "", 1): [3, 4, 5],
        FileKey(5_000, "", 2): [6],
    }


def test_one_file_too_many_ends_all_that_are_open() -> None:
    fold = Fold(Limits(1_000, 1_000, open_files=2), lambda rows: [f"p={row.value[:1].decode()}/" for row in rows])
    values = [b"a", b"b", b"a", b"c", b"a"]
    rows = [StagedRow(offset, 5_000, None, value) for offset, value in enumerate(values)]
    pieces = [*fold.take(rows), *fold.mark(6_000)]
    assert whole(pieces) == {
        FileKey(5_000, "p=a/", 0): [0, 2],
        FileKey(5_000, "p=b/", 0): [1],
        FileKey(5_000, "p=c/", 0): [3],
        FileKey(5_000, "p=a/", 1): [4],
    }


@pytest.mark.parametrize("first", [0, 1])
def test_lanes_of_a_group_have_one_order_whichever_is_read_first(first: int) -> None:
    fold = GroupFold(Limits(1_000, 10_000), None, {4: 0, 5: 0})
    times = {4: (5_000, 5_100, 6_000), 5: (5_000, 5_000, 5_050)}
    pieces: list[Piece] = []
    for lane in (4 + first, 5 - first):
        pieces += fold.take(lane, [StagedRow(10 * lane + n, each, None, b"x") for n, each in enumerate(times[lane])])
        pieces += fold.mark(lane, 6_000)
    assert whole(pieces) == {FileKey(5_000, "", 0): [40, 50, 51, 52, 41]}
    assert fold.needed() == {4: 42, 5: 53}, "a lane needs its first row whose period is not over"


def test_a_record_goes_on_once_none_before_it_can_follow() -> None:
    fold = GroupFold(Limits(1_000, 10_000, piece_rows=1), None, {0: 0, 1: 0})
    assert fold.take(0, rows_of(5_000)) == [], "nothing is known of the other lane"
    assert (fold.over_ms, fold.needed()) == (None, {0: 0, 1: 0})
    assert len(fold.mark(1, 5_000)) == 1, "of one time the first lane comes first"
    assert fold.take(1, rows_of(5_000)) == [], "the first lane may have more of this time"
    assert fold.needed() == {0: 0, 1: 0}
    assert len(fold.mark(0, 5_001)) == 1
    assert fold.mark(0, 7_000) == []
    assert (len(fold.mark(1, 6_000)), fold.over_ms, fold.needed()) == (1, 6_000, {0: 1, 1: 1})


LIMITS = Limits(1_000, 200, open_files=3, group_bytes=120, group_rows=9, piece_rows=3, piece_bytes=40)
STEPS = st.tuples(st.sampled_from([0, 0, 10, 700]), st.integers(1, 90), st.booleans())
BATCH = 5
WAITING_BYTES = 1_000
END_MS = 100_000


def staged(lanes: list[list[tuple[int, int, bool]]]) -> dict[int, list[StagedRow | int]]:
    """By lane rows, and marks after some of them and at the end."""
    log: dict[int, list[StagedRow | int]] = {}
    for lane, steps in enumerate(lanes):
        entries, time_ms = log.setdefault(lane, []), 5_000
        for number, (step_ms, size, marked) in enumerate(steps):
            time_ms += step_ms
            entries.append(StagedRow(2 * number, time_ms, b"%d" % lane, b"%d" % (size % 5) * size))
            entries += [time_ms] * marked
        entries.append(END_MS)
    return log


def parts(some: Any) -> list[str]:
    return [f"p={row.value[:1].decode()}/" for row in some]


def folded(
    log: dict[int, list[StagedRow | int]], kept: dict[int, int], turns: int, chance: random.Random
) -> tuple[dict[int, int], list[Piece]]:
    """Return what is needed, and the pieces, after so many turns of lanes that do not rest; all of them if below 0."""
    fold, pieces = GroupFold(LIMITS, parts, kept), list[Piece]()
    rest = {lane: [*after(entries, kept[lane])] for lane, entries in log.items()}
    while turns and any(rest.values()):
        lane = chance.choice([lane for lane, left in rest.items() if left and lane not in fold.resting()])
        batch: list[StagedRow] = []
        for _ in range(min(len(rest[lane]), chance.randint(1, BATCH))):
            entry = rest[lane].pop(0)
            if isinstance(entry, StagedRow):
                batch.append(entry)
                continue
            pieces += [*fold.take(lane, batch), *fold.mark(lane, entry)]
            batch = []
        pieces += fold.take(lane, batch)
        # Each lane may bring a batch before anything is known of it: it does not rest.
        assert fold._waiting_bytes <= WAITING_BYTES + len(log) * BATCH * (groups.ROW_BYTES + 90)
        turns -= 1
    return fold.needed(), pieces


@given(lanes=st.lists(st.lists(STEPS, max_size=40), min_size=1, max_size=3), chance=st.randoms(use_true_random=False))
def test_files_are_a_function_of_the_log_however_it_is_read_and_wherever_it_is_taken_up_again(
    lanes: list[list[tuple[int, int, bool]]], chance: random.Random
) -> None:
    """R20: batches, turns of the lanes, lanes that rest, and an end anywhere make no difference, by piece."""

    def files(pieces: list[Piece]) -> dict[FileKey, list[StagedRow]]:
        found: dict[FileKey, list[StagedRow]] = {}
        for piece in pieces:
            found.setdefault(piece.file, []).extend(piece.rows)
        return {piece.file: found[piece.file] for piece in pieces if piece.last}

    log = staged(lanes)
    rows = [(row.time_ms, lane, row) for lane, each in log.items() for row in each if isinstance(row, StagedRow)]
    oracle, expected = Fold(LIMITS, parts), list[Piece]()
    for _, _, row in sorted(rows):
        expected += oracle.take([row])
    expected += oracle.mark(END_MS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups, "WAITING_BYTES", WAITING_BYTES)
        kept, before = folded(log, dict.fromkeys(log, 0), chance.randint(0, 60), chance)
        needed, pieces = folded(log, kept, -1, chance)
    assert pieces == [each for each in expected if each in pieces]
    assert {**files(before), **files(pieces)} == files(expected)
    assert needed == {lane: 2 * len(steps) - (len(steps) > 0) for lane, steps in enumerate(lanes)}


def sink_of(place: Path, **more: Any) -> Files:
    pattern = f"{place}/dt={{tick:%Y-%m-%d}}/hour={{tick:%H}}/"
    form = more.pop("form", lt.parquet(Order))
    return lt.files(pattern, form, **{"max_file_bytes": 1 << 20, **more})


def carriage(sink: Files, lanes: int = 2, **more: Any) -> Carriage:
    return Carriage(**{"job": "shop", "job_id": "a", "generation": 0, "sink": "orders", "lanes": lanes, "slack_ms": 10,
                       "settings": sink.settings(Conf()), **more})  # fmt: skip


def files_in(place: Path) -> dict[str, bytes]:
    found = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


def small(sink: Files, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Give a sink limits that a few hundred rows reach."""
    limits = Limits(sink.roll_ms, 4_000, open_files=3, group_bytes=3_000, group_rows=20, piece_rows=5)
    monkeypatch.setattr(Files, "limits", property(lambda _: limits))
    return sink


def log(seed: int, rows: int = 300) -> Log:
    return log_of(random.Random(seed), 3, rows * 2 // 3, value_of, FIRST_MS, 300_000)


def shared(sink: Files, **more: Any) -> Carriage:
    """Three lanes, the first two of which share files."""
    return carriage(sink, 3, workers=2, **more)


def carried(sink: Files, log: Log, place: Path) -> dict[str, bytes]:
    """Return the files of one carrier that is never disturbed."""
    reader = Reader(log, sink.carrier(shared(sink)), dict.fromkeys(log.lanes, 0))
    reader.finish(random.Random(0))
    reader.carrier.close()
    return files_in(place)


@pytest.mark.parametrize("form", [lt.parquet(Order), lt.json_lines(Order)], ids=str)
@pytest.mark.parametrize("by", [(), ("country",)], ids=["whole", "parts"])
@pytest.mark.parametrize("seed", range(3))
def test_carriers_that_end_anywhere_and_go_on_side_by_side_put_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any, by: tuple[str, ...], seed: int
) -> None:
    chance, written = random.Random(seed), log(seed)
    sink = small(sink_of(tmp_path / "same", partition_by=by, form=form), monkeypatch)
    expected = carried(sink, written, tmp_path / "same")
    (tmp_path / "same").rename(tmp_path / "expected")
    kept = dict.fromkeys(written.lanes, 0)
    for _ in range(5):
        readers = [Reader(written, sink.carrier(shared(sink)), kept) for _ in range(2)]
        for _ in range(chance.randint(1, 12)):
            reader = chance.choice(readers)
            if not reader.at_end:
                reader.read(chance)
        for reader in readers:
            reader.carrier.close()
    last = Reader(written, sink.carrier(shared(sink)), kept)
    last.finish(chance)
    last.carrier.close()
    assert files_in(tmp_path / "same") == expected
    ids = [json.loads(row.value)["id"] for row in written.rows]
    assert ids_in(tmp_path / "same", form.suffix) == sorted(ids)


def ids_in(place: Path, suffix: str) -> list[int]:
    read = "read_parquet" if suffix == "parquet" else "read_json"
    asked = f"select id from {read}('{place}/**/orders-*.{suffix}', hive_partitioning=false)"
    return sorted(number for (number,) in duckdb.execute(asked).fetchall())


def test_duckdb_reads_what_the_flow_wrote(tmp_path: Path) -> None:
    orders = [
        Order(1, "DE", Decimal("-0.05"), datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC), [Line("a", 1)], {"x": 5}),
        Order(2, None, Decimal("12345678.90"), paid=False),
    ]
    sink = sink_of(tmp_path)
    carrier = sink.carrier(carriage(sink, 1))
    carrier.open({0: 0})
    values = lt.json(Order).encode(orders)
    carrier.take(0, [StagedRow(place, FIRST_MS, None, value or b"") for place, value in enumerate(values)])
    carrier.mark(0, FIRST_MS + HOUR_MS)
    carrier.settle(0.0)
    carrier.close()
    rows = duckdb.execute(f"select * from read_parquet('{tmp_path}/**/*.parquet') order by id")
    described = {name: str(kind) for name, kind, *_ in rows.description}
    assert described == {
        "id": "BIGINT",
        "country": "VARCHAR",
        "price": "DECIMAL(10,2)",
        "at": "TIMESTAMP WITH TIME ZONE",
        "lines": 'STRUCT("text" VARCHAR, count BIGINT)[]',
        "notes": "MAP(VARCHAR, BIGINT)",
        "color": "VARCHAR",
        "isPaid": "BOOLEAN",
        "dt": "DATE",
        "hour": "BIGINT",
    }
    (first, second) = rows.fetchall()
    assert first[:3] == (1, "DE", Decimal("-0.05"))
    assert (first[4], first[5], first[7]) == ([{"text": "a", "count": 1}], {"x": 5}, True)
    assert second[1:3] == (None, Decimal("12345678.90"))
    assert (second[4], second[6], second[7], second[8]) == (None, "red", False, date(2023, 11, 14))
    assert first[3].astimezone(UTC) == orders[0].at


@pytest.fixture(name="one")
def _one(tmp_path: Path) -> Iterator[Any]:
    sink = sink_of(tmp_path)
    carrier = sink.carrier(carriage(sink))
    carrier.open({0: 0, 1: 0})
    yield carrier
    carrier.close()


def test_an_hour_is_done_once_all_lanes_have_passed_it_also_if_it_is_empty(one: Any, tmp_path: Path) -> None:
    hour = FIRST_MS - FIRST_MS % HOUR_MS
    one.take(0, [StagedRow(0, FIRST_MS, None, value_of(1)), StagedRow(1, FIRST_MS, None, value_of(2))])
    one.settle(0.0)
    assert one.progress() == {0: Progress(0, None), 1: Progress(0, None)}
    one.mark(0, hour + 3 * HOUR_MS)
    one.mark(1, hour + 2 * HOUR_MS + 1)
    one.settle(0.0)
    assert one.progress() == {0: Progress(2, hour + 3 * HOUR_MS), 1: Progress(0, hour + 2 * HOUR_MS)}
    folder = tmp_path / "dt=2023-11-14"
    assert sorted(path.name for path in folder.iterdir()) == ["hour=22", "hour=23"]
    said = json.loads((folder / "hour=22/_lowtide/orders.done.json").read_text())
    (file,) = (folder / "hour=22").glob("*.parquet")
    (reported,) = said.pop("files")
    size = file.stat().st_size
    expected = {"sink": "orders", "from": "2023-11-14T22:00:00Z", "to": "2023-11-14T23:00:00Z", "rows": 2}
    assert said == {**expected, "bytes": size}
    assert (reported["name"], reported["rows"], reported["bytes"], len(reported["sha256"])) == (file.name, 2, size, 64)
    assert json.loads((folder / "hour=23/_lowtide/orders.done.json").read_text())["files"] == []


@pytest.mark.parametrize("text", ["{tick:%Y-%m-%d %H}", "{tick:%Y-%m}", "{tick:%Y}"])
def test_the_end_of_time_completes_the_folders_that_have_files_and_no_others(tmp_path: Path, text: str) -> None:
    sink = lt.files(f"{tmp_path}/{text}/", lt.parquet(Order))
    end_ms = (datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    first = sink.carrier(carriage(sink))
    first.open({0: 0, 1: 0})
    first.take(0, [StagedRow(0, FIRST_MS, None, value_of(1))])
    first.mark(0, FIRST_MS + 600_000)
    first.mark(1, 0)
    first.settle(0.0)
    kept = {lane: each.needed for lane, each in first.progress().items()}
    first.close()
    assert kept == {0: 1, 1: 0}
    last = sink.carrier(carriage(sink))
    last.open(kept)
    for lane in (0, 1):
        last.mark(lane, FIRST_MS + 600_000)
        last.mark(lane, end_ms)
    last.settle(0.0)
    last.close()
    (done,) = tmp_path.glob("*/_lowtide/orders.done.json")
    assert json.loads(done.read_text())["rows"] == 1
    assert done.parent.parent.name == datetime.fromtimestamp(FIRST_MS / 1000, UTC).strftime(text[6:-1])


def test_a_scratch_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    carrier = sink.carrier(carriage(sink, 1, settings={"scratch": str(tmp_path / "gone")}))
    carrier.open({0: 0})
    value = lt.json(Order).encode([Order(n, notes={os.urandom(90_000).hex(): n}) for n in range(9)])
    with pytest.raises(ServiceUnavailable, match="No such file or directory") as raised:
        carrier.take(0, [StagedRow(place, FIRST_MS, None, each or b"") for place, each in enumerate(value)])
    carrier.close()
    assert "scratch in [files.default]" in raised.value.way_out


def test_a_sink_of_any_name_has_files(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    carrier = sink.carrier(replace(carriage(sink, 1), sink="orders/old: 1"))
    carrier.open({0: 0})
    carrier.take(0, rows_of(FIRST_MS, value=value_of(1)))
    carrier.mark(0, FIRST_MS + HOUR_MS)
    carrier.settle(0.0)
    carrier.close()
    (path,) = tmp_path.rglob("*.parquet")
    assert path.name.startswith("orders%2Fold%3A 1-0-")
    assert json.loads((path.parent / "_lowtide/orders%2Fold%3A 1.done.json").read_text())["rows"] == 1


def test_a_complete_hour_has_the_one_two_days_before_swept(one: Any, tmp_path: Path) -> None:
    left = tmp_path / "dt=2023-11-12/hour=22/country=DE/.left.unfinished"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    os.utime(left, (0, 0))
    for lane in (0, 1):
        one.mark(lane, FIRST_MS)
        one.mark(lane, FIRST_MS + HOUR_MS)
    one.settle(0.0)
    assert not left.exists()


def test_a_file_of_another_version_stays_and_is_what_the_hour_says(one: Any, tmp_path: Path) -> None:
    other = sink_of(tmp_path / "other")
    writer = other.carrier(carriage(other, 1))
    writer.open({0: 0})
    rows = [StagedRow(place, FIRST_MS, None, value_of(place)) for place in range(3)]
    for carrier in (writer, one):
        carrier.take(0, rows if carrier is writer else rows[:2])
        carrier.mark(0, FIRST_MS + HOUR_MS)
    writer.settle(0.0)
    writer.close()
    (theirs,) = (tmp_path / "other").rglob("*.parquet")
    name = theirs.relative_to(tmp_path / "other")
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(theirs.read_bytes())
    one.mark(1, FIRST_MS + HOUR_MS)
    one.settle(0.0)
    assert (tmp_path / name).read_bytes() == theirs.read_bytes()
    done = json.loads((tmp_path / name.parent / "_lowtide/orders.done.json").read_text())
    assert (done["rows"], done["bytes"]) == (3, theirs.stat().st_size)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"job_id": "b"}, "job_id 'a', not 'b'"),
        ({"generation": 1}, "generation 0, not 1"),
        ({"lanes": 3}, "lanes 2, not 3"),
    ],
)
def test_a_place_with_files_of_another_origin_is_refused(
    one: Any, tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    sink = sink_of(tmp_path)
    with pytest.raises(PlaceTaken, match=said):
        sink.carrier(carriage(sink, **more)).open({0: 0, 1: 0})
    other = sink_of(tmp_path, roll=timedelta(minutes=5))
    with pytest.raises(PlaceTaken, match="roll_ms 600000, not 300000"):
        other.carrier(carriage(other)).open({0: 0, 1: 0})


def give(carrier: Any, lanes: int, from_ms: int) -> dict[int, int]:
    """Have each lane bring a row, and the end of its period."""
    for lane in range(lanes):
        carrier.take(lane, [StagedRow(from_ms // 1_000, from_ms, None, value_of(lane))])
        carrier.mark(lane, from_ms + 600_000)
    carrier.settle(0.0)
    return {lane: each.needed for lane, each in carrier.progress().items()}


def test_a_sink_has_as_many_files_a_period_as_workers_at_its_first_start(tmp_path: Path) -> None:
    sink, kept = sink_of(tmp_path), dict.fromkeys(range(32), 0)
    for start, workers in enumerate((2, 5)):
        carrier = sink.carrier(carriage(sink, 32, workers=workers))
        carrier.open(kept)
        kept = give(carrier, 32, FIRST_MS + 600_000 * start)
        carrier.close()
    names = [path.name for path in sorted(tmp_path.rglob("*.parquet"))]
    assert [name.split("-")[1] for name in names] == ["0", "0", "1", "1"]
    assert len(ids_in(tmp_path, "parquet")) == 64
    said = json.loads((tmp_path / "_lowtide/orders.json").read_text())
    assert (said["groups"], said["grouped_lanes"]) == (2, 32)
    assert "lanes" not in said, "earlier versions, which know no groups, find another number of lanes"


@pytest.mark.parametrize(("lanes", "count"), [(2, 2), (3, 2), (32, 5), (32, 32)])
def test_lanes_of_a_group_are_side_by_side_and_their_parts_stay_in_it(lanes: int, count: int) -> None:
    made = groups.Groups(lanes, count)
    found = [made.of(lane, lanes) for lane in range(lanes)]
    assert found == sorted(found)
    assert set(found) == set(range(count))
    for times in (2, 3):
        assert [made.of(part, times * lanes) for part in range(times * lanes)] == [
            group for group in found for _ in range(times)
        ]


def test_a_sink_that_has_files_of_each_lane_goes_on_with_them(tmp_path: Path) -> None:
    """As earlier versions began it: what names files has no groups."""
    written, places = log(7), []
    for place, workers in ((tmp_path / "before", None), (tmp_path / "since", 2)):
        sink, kept = sink_of(place), dict.fromkeys(range(3), 0)
        for each in (None, workers):
            reader = Reader(written, sink.carrier(carriage(sink, 3, workers=each)), kept)
            if each is workers:
                reader.finish(random.Random(0))
            else:
                reader.read(random.Random(0))
            reader.carrier.close()
        found = files_in(place)
        assert json.loads(found.pop("_lowtide/orders.json"))["lanes"] == 3
        places.append(found)
    assert places[0] == places[1]
    assert {name.rpartition("/")[2].split("-")[1] for name in places[0] if name.endswith(".parquet")} == {"0", "1", "2"}


@pytest.mark.parametrize(("roll", "slack_ms"), [(lt.minutes(10), 2), (lt.minutes(10), 10), (lt.seconds(3), 7)])
def test_the_last_period_that_ends_is_the_last_that_becomes_visible(roll: timedelta, slack_ms: int) -> None:
    """Lanes are marked each second or so, periods are longer; nothing is waited for after that."""
    sink = lt.files("/lake/{tick:%Y-%m-%d}/", lt.parquet(Order), roll=roll)
    fold, every, end = GroupFold(sink.limits, None, {0: 0, 1: 0}), mark_ticks(sink, slack_ms), end_tick(slack_ms)
    assert every * slack_ms <= 1_000
    for lane in (0, 1):
        fold.mark(lane, end // every * every * slack_ms)
    assert fold.over_ms is not None
    assert fold.over_ms // slack_ms == last_visible_tick(sink, slack_ms, end)


@pytest.mark.parametrize("roll_ms", [1, 7, 900, 1_000, 1_500, 7_500, 10_000, 600_000, 86_400_000])
def test_each_end_of_a_period_is_marked(roll_ms: int) -> None:
    every_ms = Files("/lake/{tick:%Y-%m-%d}/", lt.parquet(Order), roll_ms).mark_every_ms
    assert roll_ms % every_ms == 0
    assert 500 <= every_ms <= 1_000 or every_ms == roll_ms < 1_000


def test_a_job_that_gets_more_lanes_goes_on_in_its_folders(one: Any, tmp_path: Path) -> None:
    """A folder is complete once the new lanes have passed it as well."""
    sink = sink_of(tmp_path)
    wider = sink.carrier(carriage(sink, lanes=4, lane_counts=(2, 4)))
    wider.open(dict.fromkeys(range(4), 0))
    with closing(wider):
        for lane in range(4):
            assert not list(tmp_path.rglob("orders.done.json"))
            wider.take(lane, [StagedRow(0, FIRST_MS, None, value_of(lane))])
            wider.mark(lane, FIRST_MS + HOUR_MS)
            wider.settle(0.0)
    (done,) = tmp_path.rglob("orders.done.json")
    assert json.loads(done.read_text())["rows"] == 4
    with pytest.raises(PlaceTaken, match="lanes 2, not 1"):
        sink.carrier(carriage(sink, lanes=1)).open({0: 0})


def test_a_staged_record_that_does_not_fit_is_named(one: Any) -> None:
    one.take(0, [StagedRow(5, FIRST_MS, None, b'{"id": 1}'), StagedRow(8, FIRST_MS, None, b'{"id": "x"}')])
    with pytest.raises(RecordRefused, match="offset 8 of the staged log"):
        one.mark(0, FIRST_MS + HOUR_MS)


def test_files_are_counted(one: Any, tmp_path: Path) -> None:
    one.take(0, [StagedRow(0, FIRST_MS, None, value_of(1)), StagedRow(1, FIRST_MS + HOUR_MS, None, value_of(2))])
    one.settle(0.0)
    (size,) = [len(data) for name, data in files_in(tmp_path).items() if name.endswith(".parquet")]
    assert one.counts() == {"files": 1, "file_bytes": size}
    one.mark(0, FIRST_MS + 2 * HOUR_MS)
    one.settle(0.0)
    sizes = [len(data) for name, data in files_in(tmp_path).items() if name.endswith(".parquet")]
    assert one.counts() == {"files": 2, "file_bytes": sum(sizes)}


def test_doctor_finds_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    def flow_to(place: Path) -> lt.Flow:
        flow = lt.Flow("shop")
        flow.read("orders", lt.kafka("orders", lt.json(Order))).write("archive", sink_of(place))
        return flow

    (tmp_path / "file").write_text("not a folder")
    assert doctor_files(Surroundings(Conf(), flow_to(tmp_path / "lake"))).verdict == "warn"
    assert doctor_files(Surroundings(Conf(), flow_to(tmp_path / "lake"), probe=True)).verdict == "ok"
    assert files_in(tmp_path / "lake") == {}
    answer = doctor_files(Surroundings(Conf(), flow_to(tmp_path / "file"), probe=True))
    assert (answer.verdict, "Not a directory" in answer.found) == ("fail", True)


@pytest.mark.s3
@pytest.mark.parametrize("seed", range(2))
def test_in_s3_two_carriers_put_what_one_does(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    chance, written, bucket = random.Random(seed), log(seed, 120), s3.make_bucket()
    expected = carried(small(sink_of(tmp_path), monkeypatch), written, tmp_path)
    sink = small(lt.files(f"s3://{bucket}/lake/dt={{tick:%Y-%m-%d}}/hour={{tick:%H}}/", lt.parquet(Order)), monkeypatch)
    settings = {"endpoint": s3.endpoint, "region": None, "profile": None, "request_limit_s": 30.0, "scratch": None}
    kept = dict.fromkeys(written.lanes, 0)
    for _ in range(2):
        readers = [Reader(written, sink.carrier(shared(sink, settings=settings)), kept) for _ in range(2)]
        for _ in range(6):
            reader = chance.choice(readers)
            if not reader.at_end:
                reader.read(chance)
        for reader in readers:
            reader.carrier.close()
    last = Reader(written, sink.carrier(shared(sink, settings=settings)), kept)
    last.finish(chance)
    last.carrier.close()
    store = open_store(StoreSetting(f"s3://{bucket}/lake", endpoint=s3.endpoint))
    objects = {each.name: store.get(each.name) for each in store.names("")}
    place = "_lowtide/orders.json"
    expected.pop(place), objects.pop(place)
    assert objects == expected
    store.close()


@pytest.mark.s3
def test_a_large_file_goes_to_s3_in_slices(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    sink = lt.files(f"s3://{s3.make_bucket()}/{{tick:%Y-%m-%d}}/", lt.json_lines(Order), max_file_bytes=20 << 20)
    settings = {"endpoint": s3.endpoint}
    carrier = sink.carrier(carriage(sink, 1, settings=settings))
    carrier.open({0: 0})
    large = lt.json(Order).encode([Order(1, notes={"x" * 999_000: 1})])[0] or b""
    carrier.take(0, [StagedRow(place, FIRST_MS, None, large) for place in range(30)])
    carrier.mark(0, FIRST_MS + 24 * HOUR_MS)
    carrier.settle(0.0)
    carrier.close()
    store = open_store(StoreSetting(Pattern(sink.pattern).root, endpoint=s3.endpoint))
    done = json.loads(store.get("2023-11-14/_lowtide/orders.done.json"))
    assert [file["bytes"] for file in done["files"]] == [21 * (len(large) + 1), 9 * (len(large) + 1)]
    assert store.get("2023-11-14/" + done["files"][0]["name"]) == (large + b"\n") * 21
    store.close()


@pytest.mark.s3
def test_a_bucket_that_is_not_there_is_said_at_once(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    sink = lt.files("s3://no-such-bucket/{tick:%Y-%m-%d}/", lt.parquet(Order))
    carrier = sink.carrier(carriage(sink, 1, settings={"endpoint": s3.endpoint}))
    with pytest.raises(StoreRefused, match="NoSuchBucket"):
        carrier.open({0: 0})
    carrier.close()


def test_readers_learn_where_each_sinks_files_are(tmp_path: Path) -> None:
    """A glob finds the files of its own sink and no others, and `done` is what a carrier writes."""
    place = f"{tmp_path}/dt={{tick:%Y-%m-%d}}/hour={{tick:%H}}"
    sinks: dict[str, list[str]] = {"archive": [], "archive-eu": [], "by_country": ["country"]}
    places = {}
    for name, columns in sinks.items():
        flow = lt.Flow(f"to-{name}")
        orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
        orders.write(name, lt.files(place, lt.parquet(Order), partition_by=columns))
        orders.write("copy", lt.kafka("copy", lt.json(Order)))
        places.update(places_of(compile_flow(flow, parallelism=1)))
    assert set(places) == set(sinks)
    rows = [StagedRow(0, FIRST_MS, None, b'{"id":1}'), StagedRow(1, FIRST_MS + 1, None, b'{"id":2,"country":"FR"}')]
    for name, columns in sinks.items():
        carrier = lt.files(place, lt.parquet(Order), partition_by=columns).carrier(Carriage("j", "id", 0, name, 1, 10))
        carrier.open({0: 0})
        carrier.take(0, rows)
        carrier.mark(0, FIRST_MS + HOUR_MS)
        carrier.settle(0.0)
        carrier.close()
    for name, each in places.items():
        folder = each["folders"].format(tick=datetime.fromtimestamp(FIRST_MS / 1000, UTC))
        done = json.loads(Path(folder + each["done"]).read_text())
        found = {str(Path(file).relative_to(folder)) for file in glob.glob(folder + each["files"])}
        assert found == {file["name"] for file in done["files"]}
        assert (done["sink"], each["unit"], len(found)) == (name, "hour", len(sinks[name]) + 1)
