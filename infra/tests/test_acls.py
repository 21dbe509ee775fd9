"""A job whose user may do what `lowtide topic allow` allows, on a broker that allows nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.waiting import HANGS_S

import lowtide.embedded.kafka as embedded_kafka
from lowtide.embedded.ports import free_port
from lowtide.embedded.services import EmbeddedServices

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.nightly]

# Whoever comes by the other listener is the broker itself, and the test.
CLOSED = """
listeners=CLIENT://{host}:{port},LOGIN://{host}:{login},CONTROLLER://{host}:{controller_port}
advertised.listeners=CLIENT://{host}:{port},LOGIN://{host}:{login}
listener.security.protocol.map=CLIENT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
listener.name.login.sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    user_admin="secret" user_job="secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin
"""
FLOW = """
from dataclasses import dataclass

import lowtide as lt


@dataclass(frozen=True)
class Order:
    user: str
    number: int


def checked(order: Order) -> Order:
    if order.number < 0:
        raise ValueError(order.user)
    return order


flow = lt.Flow("allowed", dead_letters=lt.kafka("letters", lt.raw()))
orders = flow.read("orders", lt.kafka("source", lt.json(Order), stop="now"))
orders.key_by("user").map(checked).write("out", lt.kafka("sink", lt.json(Order), key="user"))
"""


@pytest.fixture(name="closed")
def _closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The conf of a job, but for its user, with a broker that allows nothing by itself."""
    login = free_port()
    closed = embedded_kafka.PROPERTIES + CLOSED.replace("{login}", str(login))
    monkeypatch.setattr(embedded_kafka, "PROPERTIES", closed)
    with EmbeddedServices(tmp_path / "services") as services:
        yield {
            "kafka.bootstrap_servers": f"127.0.0.1:{login}",
            "kafka.security_protocol": "SASL_PLAINTEXT",
            "kafka.sasl_mechanism": "PLAIN",
            "kafka.sasl_password_env": "KAFKA_PASSWORD",
            "zookeeper.hosts": services.zookeeper,
            "job.parallelism": "1",
            "embedded.enabled": "false",
        }


def test_a_user_may_run_its_job_and_do_nothing_else(closed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)

    def lowtide(user: str, *arguments: str, written: str = "") -> subprocess.CompletedProcess[str]:
        given = [
            word
            for key, value in {**closed, "kafka.sasl_username": user}.items()
            for word in ("--set", f"{key}={value}")
        ]
        return subprocess.run(
            [sys.executable, "-m", "lowtide.cli", *arguments, *given],
            input=written, cwd=tmp_path, env={**os.environ, "KAFKA_PASSWORD": "secret"},
            capture_output=True, text=True, check=False, timeout=HANGS_S * 4,
        )  # fmt: skip

    made = lowtide("admin", "topic", "create", "flow.py")
    assert made.returncode == 0, made.stderr
    lines = "".join(f'{{"user": "ann", "number": {number}}}\n' for number in (1, -1, 2))
    assert lowtide("admin", "topic", "write", "source", "--partition", "0", written=lines).returncode == 0
    refused = lowtide("job", "topic", "allow", "flow.py", "--user", "job")
    assert refused.returncode != 0
    assert "Kafka makes no ACLs" in refused.stderr
    early = lowtide("job", "run", "flow.py")
    assert early.returncode != 0, "it is allowed nothing yet"
    allowed = lowtide("admin", "topic", "allow", "flow.py", "--user", "job")
    assert allowed.returncode == 0, allowed.stderr
    assert "lowtide.allowed.*" in allowed.stdout
    done = lowtide("job", "run", "flow.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    read = lowtide("admin", "topic", "read", "sink")
    assert [line.replace(" ", "") for line in read.stdout.splitlines()] == [
        f'{{"user":"ann","number":{number}}}' for number in (1, 2)
    ]
    assert len(lowtide("admin", "topic", "read", "letters").stdout.splitlines()) == 1
    assert refusal(closed["kafka.bootstrap_servers"], "source") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert lowtide("admin", "topic", "create", "of-others").returncode == 0
    others = lowtide("job", "topic", "list")
    assert "of-others" not in others.stdout
    assert "sink" in others.stdout


def refusal(address: str, topic: str) -> int | None:
    """Return why the job's user may not write to a topic; None if it may."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "job"}
    producer = Producer({"bootstrap.servers": address, "sasl.password": "secret", **login})
    codes: list[int | None] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        codes.append(None if error is None else error.code())

    producer.produce(topic, b"mine", on_delivery=told)
    producer.flush(HANGS_S)
    return codes[0]
