"""A topic's records at the command line, on a real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from lowtide.cli import topic as cli

if TYPE_CHECKING:
    from tests.conftest import Kafka

pytestmark = pytest.mark.kafka


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
