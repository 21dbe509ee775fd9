"""The process of Kafka's own producer: what it is told, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hanging import HANGS_S

from lowtide.conf import Conf
from lowtide.connectors.sender import Outgoing
from lowtide.errors import LifeEnded, ServiceUnavailable
from lowtide.sinks.kafka import java_producer
from lowtide.sinks.kafka.java_producer import JavaProducer, Kind, _portions, last_words
from lowtide.sinks.kafka.java_transactions import TransactionsTooOld, properties_of, see_version_two
from lowtide.sinks.kafka.versions import VersionTwo, version_two

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


class Waited(Exception):
    """Ends a call that waits."""


def wait_no_longer() -> None:
    raise Waited


def test_the_process_ends_with_the_socket_of_a_host_that_dies() -> None:
    producer = JavaProducer(1 << 20)
    with pytest.raises(Waited):
        producer.open(["a", "b"], properties_of(NOBODY, 1_000, 1_000, 1 << 20), 1_000, wait_no_longer)
    producer._socket.close()
    assert producer._process.wait(HANGS_S) == 0
    producer.close()


def test_a_property_that_kafka_does_not_take_is_said() -> None:
    producer = JavaProducer(1 << 20)
    wrong = properties_of({**NOBODY, "security.protocol": "SSH"}, 1_000, 1_000, 1 << 20)
    outcome = producer.open([], wrong, 1_000, lambda: None)
    assert (outcome.kind, "SSH" in outcome.text) == (Kind.UNKNOWN, True)
    producer.close()


def test_an_error_repeats_only_why_the_process_ended() -> None:
    notes = (
        "OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes\n"
        "SLF4J(W): No SLF4J providers were found.\n"
        "SLF4J(W): Defaulting to no-operation (NOP) logger implementation\n"
    )
    trace = (
        "java.lang.IllegalStateException: outer\n\tat io.lowtide.TransactionProcess.run(TransactionProcess.java:70)\n"
        "Caused by: java.io.IOException: inner\n\t... 2 more\n"
    )
    assert last_words(notes) == ""
    assert last_words(notes + trace) == "java.lang.IllegalStateException: outer; Caused by: java.io.IOException: inner"
    no_memory = "Terminating due to java.lang.OutOfMemoryError: Java heap space"
    assert last_words(f"{notes}{no_memory}\n") == no_memory


def test_a_producer_that_is_killed_has_no_last_words() -> None:
    """A JVM with notes to print, as its log has no provider."""
    producer = JavaProducer(1 << 20)
    with pytest.raises(Waited):
        producer.open(["a", "b"], properties_of(NOBODY, 1_000, 1_000, 1 << 20), 1_000, wait_no_longer)
    producer._process.kill()
    with pytest.raises(LifeEnded) as ended:
        producer.transact([], lambda _: (), lambda: None)
    assert ended.value.what == "the process of Kafka's producer ended with status -9: without a word"
    producer.close()


def test_a_look_at_brokers_that_are_away_takes_no_longer_than_it_may() -> None:
    begun = time.monotonic()
    with pytest.raises(ServiceUnavailable, match="Kafka did not tell its features within 500 ms"):
        see_version_two(VersionTwo(NOBODY, required=False), 500)
    assert time.monotonic() - begun < HANGS_S


def test_a_host_where_the_process_does_not_start_has_no_version_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where either version will do it takes the other one."""
    monkeypatch.setattr(java_producer, "HEAP_MB", -1_000)
    with pytest.raises(TransactionsTooOld, match="ended with status 1: Invalid maximum heap size"):
        see_version_two(VersionTwo(NOBODY, required=False), 30_000)


@pytest.mark.parametrize(("sizes", "parts"), [([], []), ([10] * 7, [3, 3, 1]), ([90, 90, 10], [1, 2]), ([500], [1])])
def test_a_message_has_no_more_than_it_may(
    monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int], parts: Sequence[int]
) -> None:
    monkeypatch.setattr(java_producer, "MESSAGE_RECORDS", 3)
    monkeypatch.setattr(java_producer, "MESSAGE_BYTES", 100)
    messages: list[Outgoing] = [("out", 0, None, bytes(size), 1, None) for size in sizes]
    found = list(_portions(messages))
    assert [len(part) for part in found] == parts
    assert [message for part in found for message in part] == messages


def test_one_request_takes_less_than_a_delivery_may() -> None:
    """Kafka's producer refuses properties where it is otherwise."""
    for limit_ms in (10, 1_000, 30_000, 600_000):
        found = {
            name: int(value) for name, value in properties_of(NOBODY, limit_ms, 1_000, 1).items() if value.isdigit()
        }
        assert found["linger.ms"] + found["request.timeout.ms"] <= found["delivery.timeout.ms"] == limit_ms
        assert found["transaction.timeout.ms"] >= limit_ms


def test_the_conf_asks_for_a_version() -> None:
    def asked(version: str) -> VersionTwo | None:
        settings = {"kafka.transactions": version, "kafka.properties": {"compression.codec": "zstd"}}
        return version_two(Conf.load(None, settings).kafka)

    assert Conf().kafka.transactions == "auto"
    assert asked("v1") is None
    auto, always = asked("auto"), asked("v2")
    assert auto is not None
    assert always is not None
    assert (auto.required, always.required) == (False, True)
    assert auto.properties["compression.type"] == "zstd"
