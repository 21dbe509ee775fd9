"""Measures the sinks of `lowtide bench outlets`, each beside what it is compared with in the same run."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.sinks.postgres.columns import ddl_of
from lowtide_bench.arrivals import percentiles
from lowtide_bench.backlog import Backlog
from lowtide_bench.catching_up import fill
from lowtide_bench.figures import null_for_nan
from lowtide_bench.ground import PARTITIONS, Ground, described, ground, modes
from lowtide_bench.killable import Killable
from lowtide_bench.load import Load
from lowtide_bench.look import Look
from lowtide_bench.outlets.draining import Draining
from lowtide_bench.outlets.servers import asked, postmaster_of, servers
from lowtide_bench.outlets.statements import compared
from lowtide_bench.outlets.stores import KAFKA, OUTLETS, PACED, PACED_ROLL, POSTGRES, STORES, table_of
from lowtide_bench.quiet import Noise, repeated
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.session import Say, child
from lowtide_bench.sides import ratio
from lowtide_bench.systems import Way

SPAN_S = 60.0
AGO_S = 60
"""From a backlog's last timestamp to its sending: no period of a file is open then."""
SLOWEST_PER_S = 1_000
LATE_LIMIT_S = 30.0
POLL_S = 0.1
NS_PER_MS = 1_000_000
RECORDS = "passthrough"
FIGURES = ("delivered_per_s", "visible_per_s", "visible_after_s")


@dataclasses.dataclass(frozen=True, slots=True)
class Extent:
    """Extent of the measurement; a part with 0 is left out.

    Attributes:
        stores: Names of `STORES`.
        records: In the backlog.
        rounds: How often each store works it off, all in turn.
        rate: Records per second of the paced job.
        seconds: How long it is watched, after a warm-up of one file's time.
        deliveries: Of each size, for PostgreSQL beside its statement.
        tries: Limit on paced runs, which are repeated while the machine disturbs them.
    """

    stores: Sequence[str]
    records: int
    rounds: int
    rate: int
    seconds: float
    deliveries: int
    tries: int


def run(extent: Extent, conf: Conf, say: Say) -> dict[str, Any]:
    """Measure, and return the object that `lowtide bench outlets --json` prints.

    Args:
        extent: Extent of the measurement.
        conf: As in `lowtide_bench.run.run`.
        say: Called with each progress message.

    Raises:
        LowtideError: the run failed.
    """
    result: dict[str, Any] = {"partitions": PARTITIONS, **modes(conf, "create")}
    with described() as surroundings, ground(conf, "create", say) as bare:
        needed = {*extent.stores, *[POSTGRES] * bool(extent.seconds or extent.deliveries)}
        with servers(bare.conf, bare.folder, needed) as full:
            here = dataclasses.replace(bare, conf=full)
            if extent.deliveries:
                result["postgres"] = compared(extent.deliveries, full, say)
            if extent.seconds:
                load = Load(extent.rate, extent.seconds, PACED_ROLL.total_seconds(), extent.tries)
                found, tries = repeated(lambda: _paced(here, load, say), lambda found: found[1], say, extent.tries)
                result["paced"] = {"rate": extent.rate, **found[0], **found[1].as_json(tries)}
            if extent.rounds:
                rounds = _throughput(here, extent, say)
                result |= {"records": extent.records, "stores": summary(rounds), "rounds": rounds}
    return result | surroundings


def summary(rounds: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return by store the medians of several rounds, and its rate as a share of Kafka's of the same round."""
    found = {}
    for name in rounds[0]:
        figures: dict[str, Any] = {each: round(median(turn[name][each] for turn in rounds), 3) for each in FIGURES}
        rates = [(turn[name]["delivered_per_s"], turn.get(KAFKA, {}).get("delivered_per_s")) for turn in rounds]
        shares = [share for rate, kafka in rates if (share := ratio(rate, kafka)) is not None]
        figures["of_kafka"] = round(median(shares), 3) if shares else None
        figures |= {each: sum(turn[name][each] for turn in rounds) for each in ("lost", "duplicated")}
        found[name] = figures | {"marked": any(turn[name]["marked"] for turn in rounds)}
    return found


def _throughput(here: Ground, extent: Extent, say: Say) -> list[dict[str, dict[str, Any]]]:
    source = here.source("backlog")
    backlog = Backlog((int(time.time()) - AGO_S) * NS, extent.records, SPAN_S)
    say(f"a backlog of {extent.records:,} records")
    fill(here, source, RECORDS, backlog, say)
    rounds = range(extent.rounds)
    return [{name: _drained(here, name, number, source, backlog, say) for name in extent.stores} for number in rounds]


def _drained(here: Ground, name: str, number: int, source: str, backlog: Backlog, say: Say) -> dict[str, Any]:
    """Have a job work off the backlog into a store; return its figures."""
    job = f"{name}-{number}"
    way = Way(name, False, here.conf.kafka.bootstrap_servers, source, str(here.folder / "places" / job), PARTITIONS)
    say(f"{job}: starting")
    if name == KAFKA:
        Topics(here.conf.kafka).create(job, partitions=PARTITIONS)
    elif name == POSTGRES:
        _make_table(here.conf, way, "sink")
        values = f"select '', n, 0, '' from generate_series(0, {backlog.count - 1}) n"  # noqa: S608 - a number
        asked(here.conf, f"insert into {table_of(way.sink)} (key, sequence, sent_ns, text) {values}")
        asked(here.conf, f"vacuum analyze {table_of(way.sink)}")
    until = time.monotonic() + here.conf.job.start_limit_s + backlog.count / SLOWEST_PER_S
    system = Killable(way, here.conf, here.folder, job=job)
    try:
        figures = Draining(system, way, here.conf, backlog, until, lambda what: say(f"{job}: {what}")).run()
    finally:
        system.stop()
    missing = backlog.count - STORES[name].rows(here.conf, way.sink)
    say(f"{job}: {figures['delivered_per_s']} records/s")
    return {**figures, "lost": max(0, missing), "duplicated": max(0, -missing)}


def _paced(here: Ground, load: Load, say: Say) -> tuple[dict[str, Any], Noise]:
    """Send records at a pace into files and a table; return how late they were there, and the noise."""
    here.used[PACED] += 1
    job = f"{PACED}-{here.used[PACED]}"
    kafka, place = here.conf.kafka.bootstrap_servers, here.folder / "places" / job
    way = Way(PACED, False, kafka, here.source(job), str(place), PARTITIONS)
    _make_table(here.conf, way, "rows")
    beside = [postmaster_of(here.conf)]
    say("paced: starting")
    with ExitStack() as stack:
        system = Killable(way, here.conf, here.folder, job=job)
        stack.callback(system.stop)
        client = system.running(here.conf.job.start_limit_s)
        schedule = load.schedule(time.time_ns() + NS)
        task = {**way.task, "flow": RECORDS, "topic": way.source, "schedule": dataclasses.asdict(schedule)}
        generator = child(stack, "lowtide_bench.generator", task)
        begin_ns, end_ns = schedule.window_ns
        time.sleep(max(0.0, begin_ns - time.time_ns()) / NS)
        before = Look.at(system, beside)
        sent = generator.expect("finished", load.limit_s, lambda line: say(f"paced: {line.get('sent')} sent"))
        after = Look.at(system, beside)
        # Until all periods are over that ended meanwhile.
        until = time.monotonic() + LATE_LIMIT_S
        while (client.status().delivered_time_ms or 0) * NS_PER_MS < end_ns and time.monotonic() < until:
            time.sleep(POLL_S)
    found = {"rows": _rows_late(here.conf, way.sink, schedule), **files_late(place, begin_ns, end_ns)}
    found |= {"seconds": load.seconds, "generator_lag_p99_ms": sent["lag_p99_ms"]}
    return found, after.noise(before, low=load.low)


def _make_table(conf: Conf, way: Way, sink: str) -> None:
    flow = OUTLETS[way.flow](Path(way.sink).name, way.source, way.sink)
    sinks = {call.name: call.step.sink for call in flow.calls if hasattr(call.step, "sink")}
    asked(conf, ddl_of(sinks[sink].columns))


def _rows_late(conf: Conf, place: str, schedule: Schedule) -> dict[str, Any]:
    """Return from when records were due to the commits of their rows, in ms."""
    late = "extract(epoch from pg_xact_commit_timestamp(xmin)) * 1000 - sent_ns / 1e6"
    begin_ns, _ = schedule.window_ns
    rows = asked(conf, f"select {late} from {table_of(place)} where sent_ns >= {begin_ns}")  # noqa: S608 - own names
    lost = schedule.count - schedule.warmup_count - len(rows)
    return {**_figures([float(late_ms) for (late_ms,) in rows]), "lost": lost}


def files_late(place: Path, begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Return from a boundary to the file, and to the `done.json`, that is there for what it ends, in ms."""
    ends_ms: dict[str, list[tuple[Path, float]]] = {"files": [], "folders": []}
    roll_ms = PACED_ROLL.total_seconds() * 1000
    for path in place.rglob("*.parquet"):
        ends_ms["files"].append((path, int(path.stem.rsplit("-", 2)[1]) + roll_ms))
    for path in place.rglob("*.done.json"):
        ends = datetime.fromisoformat(json.loads(path.read_bytes())["to"])
        ends_ms["folders"].append((path, ends.timestamp() * 1000))
    # The status changed last when the file got its name.
    return {
        kind: _figures(
            [
                path.stat().st_ctime_ns / NS_PER_MS - at_ms
                for path, at_ms in each
                if begin_ns < at_ms * NS_PER_MS <= end_ns
            ]
        )
        for kind, each in ends_ms.items()
    }


def _figures(late_ms: Sequence[float]) -> dict[str, Any]:
    p50, p99, longest = percentiles(np.array(late_ms, np.float64), (50, 99, 100))
    times = {"p50_ms": round(p50, 3), "p99_ms": round(p99, 3), "max_ms": round(longest, 3)}
    return {"count": len(late_ms), **null_for_nan(times)}
