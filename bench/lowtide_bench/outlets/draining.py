"""Speed of a job that works off a backlog into a store: until it is durable, and until the store's readers see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide.connectors.topics import Topic, Topics
from lowtide.errors import LowtideError, ServiceUnavailable
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.status.job_view import JobView
from lowtide_bench.backlog import Backlog
from lowtide_bench.killable import Killable
from lowtide_bench.look import Look
from lowtide_bench.outlets.servers import asked, postmaster_of
from lowtide_bench.outlets.stores import POSTGRES, STORES, WRITTEN, table_of
from lowtide_bench.schedule import NS
from lowtide_bench.session import Say
from lowtide_bench.systems import Way

FIRST, LAST = 0.02, 0.98
"""Shares of the records between which the rate is taken: no start is in it, and no mark of an end."""
LOOK_S = 0.05
ASK_S = 0.5
"""Interval of looks at the job's status until nearly all is delivered; after that `LOOK_S`."""
NS_PER_MS = 1_000_000


class Draining:
    """A job that works off a backlog; of a topic its own count tells when, of a table the times of its commits.

    Args:
        system: The job, just started; it is named as its place.
        way: Its flow is the store's name, its sink the place.
        conf: The job's.
        backlog: The backlog.
        until: The limit on all of it, of the monotonic clock.
        say: Called with each progress message.
    """

    def __init__(self, system: Killable, way: Way, conf: Conf, backlog: Backlog, until: float, say: Say) -> None:
        self._system, self._way, self._conf, self._backlog = system, way, conf, backlog
        self._until, self._say = until, say
        name = Path(way.sink).name
        self._topic = staged_topic(name, "sink") if STORES[way.flow].staged else name
        self._topics = Topics(conf.kafka)
        self._known: list[Topic] = []
        self._samples = [(time.time_ns(), 0)]
        self._delivered, self._visible_ms = 0, 0

    def run(self) -> dict[str, Any]:
        """Wait until all is durable and visible, and return the JSON object's entries (errors: LowtideError)."""
        records, conf, place = self._backlog.count, self._conf, self._way.sink
        in_table = self._way.flow == POSTGRES
        beside = [postmaster_of(conf)] if in_table else []
        self._sample_until(lambda: self._samples[-1][1] >= FIRST * records, ASK_S)
        before = Look.at(self._system, beside)
        self._sample_until(lambda: self._samples[-1][1] >= LAST * records, ASK_S)
        after = Look.at(self._system, beside)
        staged = STORES[self._way.flow].staged
        ends_ns = self._backlog.end_ns
        self._sample_until(
            lambda: self._visible_ms * NS_PER_MS > ends_ns if staged else self._delivered >= records, LOOK_S
        )
        first_ns, last_ns = spread_of(_committed(conf, place, records) if in_table else self._samples, records)
        # Of other stores what is durable is visible.
        visible_ns, visible = (time.time_ns(), 1) if staged else (last_ns, LAST)
        return {
            "delivered_per_s": round((LAST - FIRST) * records / (last_ns - first_ns) * NS),
            "visible_per_s": round((visible - FIRST) * records / (visible_ns - first_ns) * NS),
            "visible_after_s": round((visible_ns - last_ns) / NS, 3),
            "cpu_by_process_s": {role: round(used, 2) for role, used in after.cpu_s(before).items()},
            **after.noise(before, low=False).as_json(1),
        }

    def _sample_until(self, true: Callable[[], bool], ask_s: float) -> None:
        ask_at = 0.0
        while True:
            now = time.monotonic()
            if now > self._until:
                raise ServiceUnavailable("the backlog is not worked off in time", where=self._system.describe())
            if now >= ask_at and (view := viewed(self._system)) is not None:
                ask_at = now + ask_s
                staged = view.sinks[0].staged if view.sinks else None
                self._delivered, self._visible_ms = view.totals.delivered, (staged and staged.visible_time_ms) or 0
                self._say(f"working off: {self._samples[-1][1]:,} of {self._backlog.count:,} records")
            count = self._delivered if self._way.flow == POSTGRES else self._in_topic()
            self._samples.append((time.time_ns(), max(self._samples[-1][1], count)))
            if true():
                return
            time.sleep(LOOK_S)

    def _in_topic(self) -> int:
        """Return how many records readers may read, Kafka's own among them; 0 before the topic is there."""
        if not self._known and self._topic in self._topics.names():
            self._known = [self._topics.describe(self._topic)]
        return sum(self._topics.ends(self._known).values())


def spread_of(samples: Sequence[tuple[int, int]], records: int) -> tuple[int, int]:
    """Return when the first and the last share of the records had become durable, ns since 1970, interpolated.

    Args:
        samples: Times, ns since 1970, each with the records that were durable by then; both never fall.
        records: All of them.
    """
    times, counts = np.array(samples, np.int64).T
    first, last = np.interp([FIRST * records, LAST * records], counts, times - times[0])
    return int(times[0] + first), int(times[0] + last)


def viewed(system: Killable) -> JobView | None:
    """Return the job's status; None while it starts (errors: ChildFailed)."""
    system.check()
    client = system.client()
    try:
        return None if client is None else client.status()
    except LowtideError:
        return None  # It has only just begun to listen.


def _committed(conf: Conf, place: str, records: int) -> list[tuple[int, int]]:
    """Return the samples of a table, by the times at which the rows' transactions were committed."""
    moment = "extract(epoch from pg_xact_commit_timestamp(xmin))"
    shares = [percent / 100 for percent in range(101)]
    found = f"select percentile_disc(array{shares}) within group (order by {moment})"
    [(times,)] = asked(conf, f"{found} from {table_of(place)} where {WRITTEN}")
    return [(round(time_s * NS), round(share * records)) for time_s, share in zip(times, shares, strict=True)]
