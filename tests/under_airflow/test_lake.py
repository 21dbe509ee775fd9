"""Hours of files start a DAG that reads them: staged as hosts do, drained into a folder, announced, read by DuckDB."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import HANGS_S, wait_until

from lowtide.cli.main import run
from lowtide.conf import Conf
from lowtide.driver.frozen import job_record
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.own_topics import staged_topic
from lowtide.sinks.files.places import places_of
from lowtide.sinks.own_topics import open_topics
from lowtide.sinks.staged.encoder import MARK
from lowtide.sinks.staged.topics import staged_topics
from lowtide_snapshots.job.store import JobStore

from .conftest import LAKE

if TYPE_CHECKING:
    from .conftest import Stage

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]

HOUR_MS = 3_600_000
BEGINS_MS = 495_000 * HOUR_MS
LANES = 2
ORDERS = 30
"""Orders of an hour."""
STEP_S = 2.0
STEPS = 40
DAG = "lake_hours"


class Lake:
    """The job that writes the lake: its last life is over, and what it has staged is drained.

    Attributes:
        staged: By hour the numbers of its orders.
    """

    def __init__(self, stage: Stage) -> None:
        from confluent_kafka import Producer

        self.staged: dict[int, list[int]] = {}
        self._words = [str(stage.folder / "lake.py"), "--conf", str(stage.folder / "lowtide.toml")]
        conf = Conf.load(stage.folder / "lowtide.toml", {"job.lanes": LANES})
        plan = compile_job(load_flow(self._words[0]), conf)
        with JobStore(stage.zookeeper, LAKE) as driver:
            driver.freeze(job_record(plan))
            driver.take_lease("a test", 10.0, lambda _: None)
            driver.set_places(driver.raise_incarnation(), places_of(plan))
        open_topics(staged_topics(plan), conf.kafka, plan.lanes, {}, 1 << 20)
        self._topic = staged_topic(LAKE, "archive")
        settings: dict[str, Any] = {"bootstrap.servers": stage.kafka.address, "transactional.id": "lake"}
        self._producer = Producer(settings)
        self._producer.init_transactions(HANGS_S)

    def write(self, hour: int, orders: int = ORDERS) -> None:
        """Stage an hour's orders and the marks of its end, and drain them."""
        begins_ms, producer = BEGINS_MS + hour * HOUR_MS, self._producer
        self.staged[hour] = [hour * 1_000 + number for number in range(orders)]
        producer.begin_transaction()
        for place, number in enumerate(self.staged[hour]):
            value = json.dumps({"number": number, "country": ("DE", "FR", "IT")[number % 3]})
            at_ms = begins_ms + place * HOUR_MS // orders
            producer.produce(self._topic, value.encode(), None, place % LANES, timestamp=at_ms)
        for lane in range(LANES):
            producer.produce(self._topic, None, None, lane, headers=[(MARK, b"%d" % (begins_ms + HOUR_MS))])
        producer.commit_transaction(HANGS_S)
        assert run(["sinks", "drain", *self._words]) == 0


@pytest.fixture(name="lake")
def _lake(stage: Stage) -> Lake:
    return Lake(stage)


def test_each_hour_in_the_lake_starts_the_dag_that_reads_each_of_its_rows_once(stage: Stage, lake: Lake) -> None:
    stage.api.unpause(DAG)
    stage.api.read_again(DAG)
    # The watcher begins with the hour that it finds complete; when that is, is Airflow's matter.
    hour = 0
    while not stage.api.runs(DAG) and hour < STEPS:
        lake.write(hour)
        hour += 1
        time.sleep(STEP_S)
    lake.write(hour, orders=0)
    lake.write(hour + 1)

    def read() -> list[dict[str, Any]]:
        runs = [run for run in stage.api.runs(DAG) if run.over]
        assert {run.state for run in runs} <= {"success"}
        found = [stage.api.result(DAG, run.id, "read") for run in runs]
        return [each for result in found for each in (json.loads(result) if isinstance(result, str) else result)]

    last = _iso(hour + 2)
    wait_until(lambda: any(each["to"] == last for each in read()), HANGS_S, "the last hour is read")
    hours = sorted(read(), key=lambda each: str(each["from"]))
    first = next(number for number in lake.staged if _iso(number) == hours[0]["from"])
    assert [(each["from"], each["to"]) for each in hours] == [
        (_iso(number), _iso(number + 1)) for number in range(first, hour + 2)
    ], "each once"
    for number, each in enumerate(hours, first):
        assert (each["job"], each["sink"]) == (LAKE, "archive")
        assert sorted(each["numbers"]) == lake.staged[number]
        assert each["listed"] == len(lake.staged[number])
        assert Path(each["done"]).is_relative_to(stage.folder / "lake")
    assert {run.kind for run in stage.api.runs(DAG)} == {"asset_triggered"}


def _iso(hour: int) -> str:
    return datetime.fromtimestamp((BEGINS_MS + hour * HOUR_MS) / 1000, UTC).isoformat()
