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
def test_a_login_that_fails_is_told_from_a_broker_that_is_away(
    kafka: Kafka, settings: dict[str, str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("none")
    if "sasl_username" in settings:
        settings = settings | {"sasl_password_file": str(tmp_path / "password")}
    given = {"bootstrap_servers": kafka.address, "reach_limit_ms": 2_000, **settings}
    conf = Conf.load(None, {f"kafka.{key}": value for key, value in given.items()})
    with pytest.raises(LoginRefused, match=f"Kafka does not let the job in: .*{says}"):
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
