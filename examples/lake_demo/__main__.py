"""Takes orders to PostgreSQL, to Parquet files on S3 and to an Iceberg table, and kills the job in the middle.

    make lake-demo

At the end SQL asks all three what they have. All servers are the demo's own, on this machine, and end with it; logs
stay in .lowtide/lake-demo until the next time. The last line is one JSON object, and the exit status is 0 only if each
row is there once in each place.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from demo.running import Job, write_conf
from demo.showing import Show
from orders_to_lake import flow
from s3_server import ENVIRONMENT, S3Server, S3ServerMissing
from tests.postgres_server import PostgresMissing, PostgresServer

from lake_demo.feeding import Feeder
from lake_demo.stores import Files, Rows, Table, Totals, make_bucket, make_tables
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import EmbeddedServices
from lowtide.errors import LowtideError
from lowtide.sinks.tables.access import catalog_settings

FLOW = Path("examples/orders_to_lake.py")
FOLDER = Path(".lowtide/lake-demo")
CATALOG = (Path(__file__).parents[2] / FOLDER / "catalog.db").resolve()
PARTITIONS = 2
FEED_S, KILL_AFTER_S, VISIBLE_LIMIT_S = 30.0, 12.0, 120.0

CONF = """
[postgres.default]
host = "{postgres[host]}"
port = {postgres[port]}
dbname = "{postgres[dbname]}"
user = "{postgres[user]}"

[files.default]
endpoint = "{s3}"
region = "us-east-1"

[iceberg.default]
type = "sql"
uri = "sqlite:///{catalog}"
warehouse = "s3://lake/warehouse"
endpoint = "{s3}"
region = "us-east-1"
"""


class Demo:
    """One run of the demo, between servers that exist and end with it."""

    def __init__(self, services: EmbeddedServices, postgres: PostgresServer, s3: S3Server, show: Show) -> None:
        stores = CONF.format(s3=s3.endpoint, catalog=CATALOG, postgres=postgres.settings)
        conf_file = write_conf(FOLDER, services, stores)
        conf = Conf.load(conf_file)
        make_tables(postgres, flow)
        self._show = show
        self._job = Job(flow.name, FLOW, conf_file, FOLDER / "jobs", show.say)
        self._feeder = Feeder(services.kafka, "orders", PARTITIONS, seconds=FEED_S)
        self._files = Files(s3)
        self._stores: list[Rows] = [Totals(postgres), self._files, Table(catalog_settings(conf, "default"))]
        Topics(conf.kafka).create("orders", partitions=PARTITIONS)

    def run(self) -> int:
        """Feed, kill, wait until all is visible, compare; return the exit status."""
        try:
            self._job.check()
            self._job.start()
            self._show.step(f"orders come, {self._feeder.rate} a second, for {FEED_S:.0f} s")
            self._feeder.start()
            self._watch(KILL_AFTER_S, lambda: False)
            pid = self._job.kill()
            self._show.step(f"driver {pid} is dead, and all it had started; the orders do not know")
            self._job.start()
            self._watch(FEED_S + VISIBLE_LIMIT_S, self._all_visible)
            self._job.stop()
        finally:
            self._feeder.end()
            self._job.stop()
        return self._tell()

    def _all_visible(self) -> bool:
        return self._feeder.done and all(store.count() >= store.due(self._feeder.orders) for store in self._stores)

    def _watch(self, limit_s: float, done: Callable[[], bool]) -> None:
        self._job.watch(self._show, limit_s, done, self._progress)

    def _progress(self) -> str:
        there = ", ".join(f"{store.count():,} {store.what}" for store in self._stores)
        return f"{len(self._feeder.orders):,} orders sent; {there}"

    def _tell(self) -> int:
        show, orders = self._show, self._feeder.orders
        due = flow.run_locally(orders=orders)
        lost = duplicated = 0
        for store in self._stores:
            show.step(f"{store.what}: {store.question}")
            show.say(store.answer())
            there, wanted = Counter(store.rows()), Counter(store.wanted(due))
            lost += (wanted - there).total()
            duplicated += (there - wanted).total()
        said = {
            "records": len(orders),
            "lost": lost,
            "duplicated": duplicated,
            "files": len(self._files.names()),
            "kills": 1,
        }
        show.say(json.dumps(said))
        return 0 if lost == duplicated == 0 else 1


def main() -> int:
    os.chdir(Path(__file__).parents[2])
    signal.signal(signal.SIGTERM, _interrupt)
    show = Show()
    os.environ.update(ENVIRONMENT)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        show.step("starting Kafka, ZooKeeper, PostgreSQL and an S3 server")
        with ExitStack() as stack:
            services = stack.enter_context(EmbeddedServices(FOLDER / "services"))
            postgres = stack.enter_context(PostgresServer())
            s3 = stack.enter_context(S3Server((FOLDER / "s3").resolve()))
            make_bucket(s3, "lake")
            return Demo(services, postgres, s3, show).run()
    except LowtideError as error:
        show.say(f"error: {error}")
        return error.exit_code
    except (PostgresMissing, S3ServerMissing) as error:
        show.say(f"error: {error}")
        return 4
    except KeyboardInterrupt:
        show.say("interrupted")
        return 130


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
