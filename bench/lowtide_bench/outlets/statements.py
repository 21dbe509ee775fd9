"""PostgreSQL's sink beside the bare statement: the same rows into tables of one kind, on one server, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from math import inf
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey
from lowtide.sinks.contract import JobSinks, LaneName, Life, Mark, Packet, Way
from lowtide.sinks.postgres.access import settings_of
from lowtide.sinks.postgres.columns import ddl_of
from lowtide.sinks.postgres.encoder import RowEncoder
from lowtide.sinks.postgres.endpoint import Postgres
from lowtide.sinks.postgres.line import connected
from lowtide_bench.arrivals import percentiles
from lowtide_bench.outlets.servers import asked
from lowtide_bench.record import Sample
from lowtide_bench.session import Say
from lowtide_bench.sides import ratio

SIZES = (1, 100, 1_000)
"""Rows of a delivery."""
KEYS = 100_000
"""Of both tables: most rows replace one."""
WARMUP = 20
LIMIT_S = 30.0
BARE = """
    insert into bare (key, sequence, sent_ns, text)
    select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
    on conflict (sequence) do update set key = excluded.key, sent_ns = excluded.sent_ns, text = excluded.text
"""


def compared(deliveries: int, conf: Conf, say: Say) -> dict[str, Any]:
    """Return p50 and p99 of both in ms, and their ratios, by the rows of a delivery.

    The sink's includes making rows of records, the statement's the binary form of its columns, as psycopg does it.

    Args:
        deliveries: Of each size.
        conf: The conf that names the server.
        say: Called with each progress message.
    """
    bare, sink = Postgres("bare", Sample, "sequence"), Postgres("kept", Sample, "sequence")
    for each in (bare, sink):
        asked(conf, ddl_of(each.columns))
    job = JobSinks("statements", "statements", 0, 1, {"rows": sink}, settings_of(conf, "default"))
    life = Life(1, "bench", LIMIT_S, lambda: None)
    with closing(sink.home(job, life)) as home:
        home.open(None)
        home.claim()
    sizes = {}
    with closing(sink.way(job, life)) as way, closing(connected(job.settings, "bare", LIMIT_S, lambda: inf)) as line:
        way.open()
        lane = _Lane(way)
        for size in SIZES:
            say(f"deliveries of {size} rows")
            sizes[str(size)] = _in_turns(size, deliveries, lane.deliver, lambda rows: line.ask(BARE, _columns(rows)))
    return {"deliveries": deliveries, "sizes": sizes}


class _Lane:
    """The only lane of the sink."""

    def __init__(self, way: Way) -> None:
        self._way, self._encoder = way, RowEncoder(Sample)
        self._number, self._last = 0, b""

    def deliver(self, rows: Sequence[Sample]) -> None:
        """Deliver these records as one bundle."""
        ats = [OrderKey(1, 0, self._number + place).packed() for place in range(len(rows))]
        self._number += len(rows)
        messages = self._encoder.encode(0, [Piece(1, ats, list(rows))])
        self._way.deliver([Packet(0, 0, messages, Mark(LaneName(0, "rows", 0), ats[-1], self._last))])
        self._last = ats[-1]


def _columns(rows: Sequence[Sample]) -> list[list[Any]]:
    return [[getattr(row, name) for row in rows] for name in ("key", "sequence", "sent_ns", "text")]


def _in_turns(
    size: int, deliveries: int, deliver: Callable[[Sequence[Sample]], None], bare: Callable[[Sequence[Sample]], Any]
) -> dict[str, Any]:
    """Deliver rows of keys that are drawn anew each time, both ways, each first in turn; return the figures."""
    chance = np.random.default_rng(size)
    took_ms: dict[str, list[float]] = {"sink": [], "bare": []}
    for turn in range(WARMUP + deliveries):
        keys = chance.choice(KEYS, size, replace=False).tolist()
        rows = [Sample(f"k{key % 1000:03d}", key, turn, "abcdefghijklmnopqrstuv") for key in keys]
        ways = [("sink", deliver), ("bare", bare)]
        for name, write in ways if turn % 2 else reversed(ways):
            begun = time.perf_counter()
            write(rows)
            took_ms[name].append((time.perf_counter() - begun) * 1000)
    found: dict[str, Any] = {}
    for name, times in took_ms.items():
        p50, p99 = percentiles(np.array(times[WARMUP:]), (50, 99))
        found[name] = {"p50_ms": round(p50, 3), "p99_ms": round(p99, 3), "rows_per_s": round(size * 1000 / p50)}
    ratios = {figure: ratio(found["sink"][figure], found["bare"][figure]) for figure in ("p50_ms", "p99_ms")}
    return {**found, "ratios": ratios}
