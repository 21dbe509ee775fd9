"""A topic's records at the command line, on a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from lowtide.cli import topic as cli
from lowtide.conf import Conf
from lowtide.connectors.topics import LoginRefused, Topics
from lowtide.core.operators.faults.failure import Dead
from lowtide.core.operators.order.order import Position

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"security_protocol": "SSL"}, "SSL handshake failed"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "nobody"},
            "SASL SCRAM-SHA-512 mechanism handshake failed",
        ),
    ],
)
def test_a_login_that_fails_is_distinguished_from_a_broker_that_is_away(
    kafka: Kafka, settings: dict[str, str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("none")
    if "sasl_username" in settings:
        settings = settings | {"sasl_password_file": str(tmp_path / "password")}
    given = {"bootstrap_servers": kafka.address, "reach_limit_ms": 2_000, **settings}
    conf = Conf.load(None, {f"kafka.{key}": value for key, value in given.items()})
    with pytest.raises(LoginRefused, match=f"Kafka refuses the job's login: .*{says}"):
        Topics(conf.kafka).names()


def test_lines_are_written_and_read_and_only_what_was_committed(kafka: Kafka) -> None:
    bootstrap, lines = kafka.address, kafka.topic("lines", partitions=2)
    where = ["--set", f"kafka.bootstrap_servers={bootstrap}"]
    run = CliRunner()
    assert run.invoke(cli.topic, ["write", lines, *where], input="one\ntwo\nthree\n").exit_code == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "lines"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(lines, b"taken back", partition=0)
    producer.flush(10)
    producer.abort_transaction(10)
    read = run.invoke(cli.topic, ["read", lines, "--keys", *where])
    assert sorted(read.stdout.splitlines()) == ["\tone", "\tthree", "\ttwo"]
    wrong = run.invoke(cli.topic, ["write", lines, "--partition", "7", *where], input="lost\n")
    assert wrong.exit_code != 0


FLOW = """
from dataclasses import dataclass
import lowtide as lt

@dataclass(frozen=True)
class Word:
    word: str

flow = lt.Flow("words", dead_letters=lt.kafka("SOME-letters", lt.raw()))
flow.read("words", lt.kafka("SOME-in", lt.json(Word))).write("out", lt.kafka("SOME-out", lt.json(Word), key="word"))
"""


def test_a_flow_gets_its_topics_and_those_that_are_there_are_left_alone(kafka: Kafka, tmp_path: Path) -> None:
    there = kafka.topic("in", partitions=3)
    prefix = f"for-{there}"
    flow = tmp_path / "some_flow.py"
    flow.write_text(FLOW.replace("SOME-in", there).replace("SOME", prefix))
    where = ["--set", f"kafka.bootstrap_servers={kafka.address}", "--set", "job.parallelism=2"]
    made = CliRunner().invoke(cli.topic, ["create", str(flow), *where])
    assert made.stdout.splitlines() == [
        f"{there} exists already",
        f"created {prefix}-out with 2 partitions",
        f"created {prefix}-letters with 1 partition",
    ]
    again = CliRunner().invoke(cli.topic, ["create", str(flow), *where])
    assert again.stdout.count("exists already") == 3


def test_dead_letters_are_shown_with_step_place_and_reason(kafka: Kafka) -> None:
    letters = kafka.topic("letters")
    failed = Dead("clicks", Position(1, 7), 1_000, "is not JSON", b"ann", b"oops")
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(
        letters,
        b"oops",
        key=b"ann",
        headers=[("own", b"1"), *failed.describe(), ("lowtide.partition", b"clicks-1")],
        timestamp=1_000,
    )
    producer.produce(letters, b"of somebody else")
    producer.flush(10)
    where = ["--set", f"kafka.bootstrap_servers={kafka.address}"]
    shown = CliRunner().invoke(cli.topic, ["letters", letters, *where])
    assert shown.stdout == "1970-01-01 00:00:01.000  clicks: clicks-1, offset 7\n  is not JSON\n  oops\n"
    read = CliRunner().invoke(cli.topic, ["read", letters, "--keys", "--headers", *where])
    first, second = read.stdout.splitlines()
    assert first.startswith('ann\t{"own": "1", "lowtide.vertex": "clicks", ')
    assert second == "\t{}\tof somebody else"
