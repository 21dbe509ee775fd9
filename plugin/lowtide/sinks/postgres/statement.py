"""The statement of a delivery: rows, marks and floors of one sink's lanes, each lane whole or not at all (R19)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from lowtide.sinks.contract import Mark, Packet
from lowtide.sinks.postgres.columns import Table
from lowtide.sinks.postgres.names import number_of, quoted
from lowtide_tracker import Floor

KEPT_ON = """
    select set_config('lock_timeout', $6, true) is not null and set_config('synchronous_commit',
        case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end,
        true) is not null
"""
"""Settings of this transaction alone. What a client takes for durable must not be in memory only."""
OK = """
with ok as (
    update lowtide.lanes l set last = w.last from unnest($1::int[], $2::bytea[], $3::bytea[]) w(lane, before, last)
    where (/*settings*/) and l.job = $4 and l.generation = $5 and l.sink = $7 and l.claim = $8
      and l.lane = w.lane and l.last = w.before
    returning l.lane
)""".replace("/*settings*/", KEPT_ON)
FLOORS = """, added as (
    insert into lowtide.floors (job, front, from_offset, tick, cap)
    select distinct $4, f.front, f.from_offset, f.tick, f.cap
    from unnest($9::int[], $10::int[], $11::bigint[], $12::bigint[], $13::bool[]) f(lane, front, from_offset, tick, cap)
    where f.lane in (select lane from ok) order by 2, 3, 4, 5 on conflict do nothing
), covered as (
    delete from lowtide.floors o
    using unnest($14::int[], $15::int[], $16::bigint[], $17::bigint[], $18::bool[])
        f(lane, front, from_offset, tick, cap)
    where f.lane in (select lane from ok) and o.job = $4 and o.front = f.front and o.from_offset = f.from_offset
      and o.tick = f.tick and o.cap = f.cap
)"""
REFUSED = """, refused as (
    insert into lowtide.refused (job, generation, sink, lane, place, record, state, reason)
    select $4, $5, $7, r.lane, r.place, r.record::json, r.state, r.reason
    from unnest(/*arrays*/) r(lane, place, record, state, reason)
    where r.lane in (select lane from ok)
)"""


class RefusedRow(NamedTuple):
    """A row that goes to `lowtide.refused`.

    Attributes:
        place: The record's place in the log.
        record: The row as JSON.
        state: The SQLSTATE; empty for a value that cannot be sent at all.
        reason: PostgreSQL's words.
    """

    place: str
    record: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Words of a statement about its sender.

    Attributes:
        job: The job's name.
        generation: Of its output.
        incarnation: The life's number.
        lock_ms: How long to wait for a lock.
    """

    job: str
    generation: int
    incarnation: int
    lock_ms: int


@dataclass(slots=True)
class Lane:
    """The packets of one lane in a delivery, as one.

    Attributes:
        number: The lane's, or strand's, as `number_of` gives it.
        before: Its mark before.
        last: Its mark once they are delivered.
        floors: What they rest on.
        covered: Floors that need not be there beside these.
        rows: As the encoder made them: the order key, and the columns' values.
        refused: Rows of it that the table has refused.
    """

    number: int
    before: bytes
    last: bytes
    floors: list[Floor]
    covered: list[Floor]
    rows: list[tuple[Any, ...]]
    refused: list[RefusedRow] = field(default_factory=list)


def lanes_of(packets: Sequence[Packet]) -> dict[str, dict[int, Lane]]:
    """Return the lanes of a delivery by sink and number; the packets of one lane follow each other."""
    found: dict[str, dict[int, Lane]] = {}
    for packet in packets:
        mark = packet.mark
        assert isinstance(mark, Mark), "PostgreSQL delivers exactly once"
        lanes = found.setdefault(mark.lane.sink, {})
        number = number_of(mark.lane)
        lane = lanes.get(number)
        if lane is None:
            floors, covered = [*mark.floors], [*mark.covered]
            lanes[number] = Lane(number, mark.before, mark.last, floors, covered, [*packet.messages])
            continue
        assert lane.last == mark.before, "a lane's packets follow each other"
        lane.last = mark.last
        # What a later packet covers, an earlier one may have brought.
        lane.floors = [floor for floor in lane.floors if floor not in mark.covered] + [*mark.floors]
        lane.covered += mark.covered
        lane.rows += packet.messages
    return found


@cache
def statement_of(table: Table, *, floors: bool, refused: bool, rows: bool) -> str:
    """Return the SQL of a delivery.

    Args:
        table: Where the rows go.
        floors: Whether there are any.
        refused: Likewise.
        rows: Likewise.
    """
    before, parts = 8, [OK]
    if floors:
        parts.append(FLOORS)
        before += 10
    if refused:
        kinds = ("int[]", *["text[]"] * len(RefusedRow._fields))
        arrays = ", ".join(f"${before + 1 + index}::{kind}" for index, kind in enumerate(kinds))
        parts.append(REFUSED.replace("/*arrays*/", arrays))
        before += len(kinds)
    if rows:
        parts.append(_rows(table, before))
    return "".join(parts) + "\nselect lane from ok"


def parameters_of(claim: Claim, sink: str, table: Table, lanes: Mapping[int, Lane]) -> tuple[str, list[Any]]:
    """Return the statement that delivers lanes, and its parameters."""
    chosen = list(lanes.values())
    found: list[Any] = [
        [lane.number for lane in chosen],
        [lane.before for lane in chosen],
        [lane.last for lane in chosen],
        claim.job,
        claim.generation,
        str(claim.lock_ms),
        sink,
        claim.incarnation,
    ]
    floors = any(lane.floors or lane.covered for lane in chosen)
    if floors:
        found += _floors([(lane.number, floor) for lane in chosen for floor in lane.floors])
        found += _floors([(lane.number, floor) for lane in chosen for floor in lane.covered])
    refused = [(lane.number, *row) for lane in chosen for row in lane.refused]
    if refused:
        found += map(list, zip(*refused, strict=True))
    numbers, rows = _chosen(table, chosen)
    if rows:
        found.append(numbers)
        found += map(list, zip(*rows, strict=True))
        del found[-len(rows[0])]  # The order keys.
    return statement_of(table, floors=floors, refused=bool(refused), rows=bool(rows)), found


def _chosen(table: Table, lanes: Sequence[Lane]) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Return the rows to write, each with its lane: of an upsert the last one of each key, by key.

    So all hosts lock a table's rows in one order, and a statement has no row twice, which PostgreSQL refuses.
    """
    if table.key is None:
        numbers = [number for lane in lanes for number in repeat(lane.number, len(lane.rows))]
        return numbers, [row for lane in lanes for row in lane.rows]
    key = itemgetter(1 + table.key)
    numbers, rows = [], []
    for lane in lanes:
        last = dict(zip(map(key, lane.rows), lane.rows, strict=True))
        numbers += repeat(lane.number, len(last))
        rows += sorted(last.values(), key=key)
    return numbers, rows


def _floors(floors: Sequence[tuple[int, Floor]]) -> list[list[Any]]:
    return [
        [lane for lane, _ in floors],
        [floor.front for _, floor in floors],
        [floor.offset for _, floor in floors],
        [floor.tick for _, floor in floors],
        [floor.cap for _, floor in floors],
    ]


def _rows(table: Table, before: int) -> str:
    """Return the part that writes rows; its first parameter comes after `before` others."""
    arrays = ["int[]", *(column.array for column in table.columns)]
    names = ["lane", *(f"c{index}" for index in range(len(table.columns)))]
    given = ", ".join(f"${before + 1 + index}::{array}" for index, array in enumerate(arrays))
    # Made of names in quotes, and of this file's own words.
    rows = f"unnest({given}) r({', '.join(names)}) where r.lane in (select lane from ok)"  # noqa: S608
    kept = [(index, column) for index, column in enumerate(table.columns) if index != table.gone]
    into = ", ".join(quoted(column.name) for _, column in kept)
    values = ", ".join(f"r.c{index}{column.cast}" for index, column in kept)
    written = f"insert into {table.sql} ({into}) select {values} from {rows}"  # noqa: S608
    if table.key is None:
        return f", written as (\n    {written}\n)"
    key = quoted(table.columns[table.key].name)
    others = [quoted(column.name) for index, column in kept if index != table.key]
    change = f"update set {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "nothing"
    if table.gone is None:
        return f", written as (\n    {written} on conflict ({key}) do {change}\n)"
    gone = f"r.c{table.gone}"
    deleted = f"delete from {table.sql} t using {rows} and {gone} and t.{key} = r.c{table.key}"  # noqa: S608
    written = f"{written} and not {gone} on conflict ({key}) do {change}"
    return f", written as (\n    {written}\n), deleted as (\n    {deleted}\n)"
