"""A broker that goes away while a job runs: a short outage is waited out, a long one ends the job with its reason."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.waiting import HANGS_S

from lowtide import Flow, kafka
from lowtide import json as as_json
from lowtide.driver.job import Job
from lowtide.embedded import EmbeddedServices
from lowtide.errors import ServiceUnavailable

if TYPE_CHECKING:
    from tests.conftest import Kafka, Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@dataclass(frozen=True)
class Order:
    user: str
    number: int


@pytest.fixture
def own(kafka: Kafka, tmp_path: Path) -> Iterator[Kafka]:
    """A broker of this test's own, to be stopped."""
    with EmbeddedServices(tmp_path / "services", only=["kafka"]) as services:
        yield type(kafka)(services)


def wait_while(job: Job, *, down: bool) -> None:
    """Watch the job until it sees the broker otherwise."""
    deadline = time.monotonic() + HANGS_S
    job.wait(lambda: (job.outage_s > 0) == down and time.monotonic() < deadline)


def test_a_short_outage_is_waited_out_and_a_long_one_ends_the_job(spark: Spark, own: Kafka) -> None:
    source, sink = own.topic("orders", 2), own.topic("out", 2)
    flow = Flow(f"outage-{uuid.uuid4().hex[:8]}")
    flow.read("orders", kafka(source, as_json(Order))).key_by("user").write("out", kafka(sink, as_json(Order)))
    # Of the two limits the one of an outage is the shorter.
    limits = {"kafka__outage_limit_ms": 45_000, "kafka__delivery_limit_ms": 120_000}
    with spark.job(flow, kafka__bootstrap_servers=own.address, **limits) as job:
        own.produce(source, [{"user": "ann", "number": 1}])
        assert own.records(sink, 1) == [{"user": "ann", "number": 1}]

        own.services.stop("kafka")
        wait_while(job, down=False)
        assert job.outage_s > 0
        own.services.start("kafka")
        own.produce(source, [{"user": "ann", "number": 2}])
        assert own.records(sink, 2) == [{"user": "ann", "number": n} for n in (1, 2)]
        wait_while(job, down=True)
        assert job.outage_s == 0

        own.services.stop("kafka")
        with pytest.raises(ServiceUnavailable, match=r"no Kafka broker has answered for 4\d s") as caught:
            job.wait()
    assert own.address in str(caught.value)
    assert "kafka.outage_limit_ms" in str(caught.value)
