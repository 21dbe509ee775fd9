"""One job that writes to all stores at once, while its processes and the stores' servers are killed by a schedule.

`make outlets-chaos SECONDS=600 SEED=7`; the last line that the test prints is JSON.
"""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import pyarrow.parquet as pq
import pytest
from lake_demo.stores import make_tables
from s3_server import S3Server
from tests.chaos.processes import of_program
from tests.conftest import unique
from tests.flow_program import USERS, FlowProgram
from tests.postgres_server import PostgresServer, until
from tests.redis_server import RedisServer
from tests.settings import settings_of
from tests.waiting import HANGS_S, wait_until

from lowtide.conf import Conf
from lowtide.flow.plan.flow_file import load_flow
from lowtide.sinks.tables.access import catalog_settings, storage_options
from lowtide_snapshots.stores import StoreSetting, open_store

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.zookeeper,
    pytest.mark.postgres,
    pytest.mark.s3,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.nightly,
]
SECONDS = float(os.environ.get("OUTLETS_SECONDS", "600"))
SEED = int(os.environ.get("OUTLETS_SEED", "7"))
RATE, EVERY_S = 300, 0.25
PAUSE_S = (3.0, 12.0)
DOWN_S = (0.2, 3.0)
KINDS = ("driver", "worker", "carrier", "postgres", "s3", "redis")
MANY = {"worker": 1, "carrier": 5}
SINKS = """
orders.write("to-kafka", lt.kafka("{topic}", lt.json(Order)))
orders.write("to-rows", lt.postgres("{table}_rows", Order))
orders.write("to-users", lt.postgres("{table}_users", Order, key="user"))
orders.write("to-parquet", lt.files("{bucket}/files/hour={{tick:%Y%m%d%H}}/", lt.parquet(Order), roll=lt.seconds(10)))
orders.write("to-lines", lt.files("{folder}/lines/hour={{tick:%Y%m%d%H}}/", lt.json_lines(Order), roll=lt.seconds(5)))
orders.write("to-delta", lt.delta("{bucket}/delta", Order, commit_every=lt.seconds(2)))
orders.write("to-iceberg", lt.iceberg("lake.orders", Order, commit_every=lt.seconds(2)))
orders.write("to-redis", lt.puts("{table}", Order, key="user", put=lt.redis()))
"""
Row = tuple[Any, ...]


@dataclass
class Servers:
    """The stores' servers."""

    postgres: PostgresServer
    s3: S3Server
    redis: RedisServer


class Job(FlowProgram):
    """The flow with a sink for each kind of store, and what their readers see."""

    def __init__(self, folder: Path, kafka: Kafka, zookeeper: str, servers: Servers) -> None:
        self._servers, self._folder = servers, folder
        self._bucket, self._table = f"s3://{servers.s3.make_bucket()}", unique("all").replace("-", "_")
        self._written = kafka.topic("written", 2)
        where = {
            **{f"postgres.default.{key}": value for key, value in servers.postgres.settings.items()},
            "files.default.endpoint": servers.s3.endpoint,
            "iceberg.default.type": "sql",
            "iceberg.default.uri": f"sqlite:///{folder}/catalog.db",
            "iceberg.default.warehouse": f"file://{folder}/warehouse",
            "redis.default.url": f"redis://{servers.redis.address}/0",
            "job.restarts": 100,
            "job.restarts_within_s": 60,
        }
        sinks = SINKS.format(topic=self._written, table=self._table, bucket=self._bucket, folder=folder)
        super().__init__(folder, kafka, sinks, settings_of(kafka, zookeeper, folder, 12) | where)
        self.loaded: Any = load_flow(str(self.flow))
        make_tables(servers.postgres, self.loaded)
        self.bucket = open_store(StoreSetting(self._bucket, endpoint=servers.s3.endpoint))
        self.stores: dict[str, Callable[[], list[Row]]] = {
            "to-kafka": self._in_kafka,
            "to-rows": lambda: self._in_postgres("rows"),
            "to-users": lambda: self._in_postgres("users"),
            "to-parquet": self._in_parquet,
            "to-lines": self._in_lines,
            "to-delta": self._in_delta,
            "to-iceberg": self._in_iceberg,
            "to-redis": self._in_redis,
        }

    @property
    def program(self) -> int:
        """The process id of the newest program."""
        return self._started[-1].pid

    def kill(self) -> None:
        """Kill the program: what it has started ends with it."""
        self._started[-1].kill()
        self._started[-1].wait(HANGS_S)

    def ended(self) -> bool:
        """Return whether the newest program has ended by itself."""
        return self._started[-1].poll() is not None

    def _in_kafka(self) -> list[Row]:
        """All that readers of committed records see: those of one user in their order."""
        messages = self._kafka.messages(self._written)
        rows = [(message.partition(), *json.loads(message.value()).values()) for message in messages]
        assert len({row[:2] for row in rows}) == len({row[1] for row in rows}), "a user's orders are in one lane"
        return [row[1:] for row in rows]

    def _in_postgres(self, name: str) -> list[Row]:
        return self._servers.postgres.ask(f'select "user", number, so_far from {self._table}_{name}')

    def _in_parquet(self) -> list[Row]:
        names = [entry.name for entry in self.bucket.names("files/") if entry.name.endswith(".parquet")]
        return [row for name in names for row in rows_of(pq.read_table(io.BytesIO(self.bucket.get(name))))]

    def _in_lines(self) -> list[Row]:
        paths = self._folder.glob("lines/hour=*/[!._]*.jsonl")
        return [tuple(json.loads(line).values()) for path in paths for line in path.read_text().splitlines()]

    def _in_delta(self) -> list[Row]:
        from deltalake import DeltaTable

        place = f"{self._bucket}/delta"
        options = storage_options(place, {"endpoint": self._servers.s3.endpoint})
        return rows_of(DeltaTable(place, storage_options=options).to_pyarrow_table())

    def _in_iceberg(self) -> list[Row]:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(**catalog_settings(Conf.load(None, self.settings), "default"))
        return rows_of(catalog.load_table("lake.orders").scan().to_arrow())

    def _in_redis(self) -> list[Row]:
        return [tuple(value.values()) for value in self._servers.redis.read(self._table).values()]


def rows_of(table: Any) -> list[Row]:
    return [(row["user"], row["number"], row["so_far"]) for row in table.to_pylist()]


class Feed:
    """Orders at a steady pace until the block ends; a context.

    Attributes:
        orders: All that were sent.
    """

    def __init__(self, job: Job) -> None:
        self.orders: list[dict[str, Any]] = []
        self._job, self._ends = job, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        chance, began = Random(SEED), time.monotonic()
        while not self._ends.wait(EVERY_S):
            numbers = range(len(self.orders), int((time.monotonic() - began) * RATE))
            new = [{"user": f"user-{chance.randrange(USERS)}", "number": number} for number in numbers]
            self._job.produce(new)
            self.orders += new


class Chaos:
    """Kills by a schedule, all kinds in turn in an order that is drawn each time.

    Attributes:
        kills: How often each kind of process was killed.
        ended: How often the program ended by itself, and was started again as a supervisor does.
    """

    def __init__(self, job: Job, servers: Servers, say: Callable[[str], None]) -> None:
        self.kills: Counter[str] = Counter()
        self.ended = 0
        self._job, self._servers, self._say = job, servers, say
        self._chance = Random(SEED)

    def run(self, seconds: float) -> None:
        """Kill one after the other for so long."""
        deadline = time.monotonic() + seconds
        for round_ in count():
            for kind in self._chance.sample(KINDS, len(KINDS)):
                pause_s, down_s = self._chance.uniform(*PAUSE_S), self._chance.uniform(*DOWN_S)
                if time.monotonic() + pause_s > deadline:
                    return
                time.sleep(pause_s)
                self.revive()
                self._say(f"round {round_}: {kind}, {down_s:.1f} s")
                self._kill(kind, down_s)
                self.kills[kind] += 1

    def revive(self) -> None:
        """Start the program again if it has ended."""
        if self._job.ended():
            self.ended += 1
            self._say("the program has ended; it starts again")
            self._job.start()

    def _kill(self, kind: str, down_s: float) -> None:
        """Kill one process, and start it again after a time if nobody else does."""
        servers = self._servers
        if kind == "driver":
            self._job.kill()
            self._job.start()
        elif kind == "postgres":
            servers.postgres.stop("immediate")
            time.sleep(down_s)
            servers.postgres.start()
        elif kind == "s3":
            servers.s3.stop()
            time.sleep(down_s)
            servers.s3.start()
        elif kind == "redis":
            servers.redis.stop()
            time.sleep(down_s)
            servers.redis.start()
        else:
            victims = until(lambda: self._all(kind), f"each {kind} is there")
            # Each in turn: a program starts them in the order of the sinks.
            with suppress(ProcessLookupError):
                os.kill(victims[self.kills[kind] % MANY[kind]], signal.SIGKILL)

    def _all(self, kind: str) -> list[int]:
        """Return the processes of one kind, the oldest first, once all are there."""
        self.revive()
        found = of_program(self._job.program).get(kind, [])
        return found if len(found) >= MANY[kind] else []


@pytest.fixture
def servers(postgres: PostgresServer, s3: S3Server, redis: RedisServer) -> Servers:
    return Servers(postgres, s3, redis)


@pytest.fixture
def job(kafka: Kafka, zookeeper: str, servers: Servers, tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path, kafka, zookeeper, servers)
    yield job
    job.close()
    job.bucket.close()


def test_each_store_has_what_run_locally_gives_over_kills_of_everything(
    job: Job, servers: Servers, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()

    def say(what: str) -> None:
        with capsys.disabled():
            click.echo(f"{time.monotonic() - began:6.1f} s {what}", err=True)

    job.start()
    chaos = Chaos(job, servers, say)
    with Feed(job) as feed:
        wait_until(lambda: of_program(job.program).get("carrier"), HANGS_S, "the carriers run")
        chaos.run(SECONDS)
    due = wanted(job.loaded, feed.orders)
    there = {name: Counter[Row]() for name in due}
    for name, rows in due.items():

        def has_all(name: str = name, rows: Counter[Row] = rows) -> bool:
            chaos.revive()
            there[name] = Counter(job.stores[name]())
            return not rows - there[name]

        with suppress(AssertionError):
            wait_until(has_all, HANGS_S, name)
        say(f"{name}: {there[name].total()} of {rows.total()} rows")
    job.close()
    found = {name: job.stores[name]() for name in due}
    figures = {name: compared(due[name], Counter(found[name])) for name in due}
    with capsys.disabled():
        said = {"seed": SEED, "seconds": SECONDS, "orders": len(feed.orders), "stores": figures}
        click.echo(json.dumps({**said, "kills": dict(chaos.kills), "ended": chaos.ended}))
    assert not any(each["lost"] or each["doubled"] for each in figures.values()), job.log.read_text()[-4000:]
    numbers: dict[str, int] = {}
    for user, number, _ in found["to-kafka"]:
        assert numbers.get(user, -1) < number, f"{user} has its orders in their order"
        numbers[user] = number
    assert set(chaos.kills) == set(KINDS) or len(KINDS) * (PAUSE_S[1] + DOWN_S[1]) > SECONDS


def wanted(flow: Any, orders: list[dict[str, Any]]) -> Mapping[str, Counter[Row]]:
    """What each store should have, by the name of its sink; those with a key have the newest of each."""
    order: Any = flow.calls[0].step.source.format.record
    due = {
        name: [tuple(asdict(each).values()) for each in rows]
        for name, rows in flow.run_locally(orders=[order(**each) for each in orders]).items()
    }
    for name in ("to-users", "to-redis"):
        due[name] = list({row[0]: row for row in due[name]}.values())
    return {name: Counter(rows) for name, rows in due.items()}


def compared(due: Counter[Row], there: Counter[Row]) -> dict[str, int]:
    """The rows of a store, those that it lacks, and those that it has besides."""
    return {"rows": there.total(), "lost": (due - there).total(), "doubled": (there - due).total()}
