"""Kafka's delivery passes the contract of stores, on a real broker and a real ZooKeeper."""

from __future__ import annotations

import json as text
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from tests.conftest import Kafka
from tests.kafka_proxy import LossyKafkaProxy
from tests.kafka_sink import KafkaLines, committed

from lowtide.conf import Conf
from lowtide.flow.formats.formats import json
from lowtide.sinks.contract import Direct
from lowtide.testing.proxy import LossyProxy
from lowtide.testing.sinks import LIMIT_S, Line, ServedSinkContract

pytestmark = [pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]


class TestKafka(ServedSinkContract):
    kills = 2
    at_once = 6
    version = "v1"

    @pytest.fixture(autouse=True)
    def _services(self, kafka: Kafka, zookeeper: str) -> None:
        self.kafka, self.zookeeper = kafka, zookeeper

    def sink(self, name: str) -> Direct:
        topic = self.kafka.topic(name, self.lanes)
        return KafkaLines(topic, json(Line), None, self.kafka.address, self.zookeeper, self.version)

    def rows(self, sink: Direct) -> Iterable[Line]:
        assert isinstance(sink, KafkaLines)
        return [Line(**text.loads(each)) for each in committed(self.kafka.address, sink.topic, LIMIT_S)]

    def settings(self, sink: Direct, server: str | None = None) -> Mapping[str, Any]:
        return {**sink.settings(Conf()), "bootstrap.servers": server or self.server()}

    def server(self) -> str:
        return self.kafka.address

    def proxy(self) -> LossyProxy:
        return LossyKafkaProxy(self.server())

    # Each message of a host is lost or held once, in a topic of its own: minutes.

    @pytest.mark.nightly
    def test_a_connection_that_breaks_at_any_message_loses_and_doubles_nothing(self) -> None:
        super().test_a_connection_that_breaks_at_any_message_loses_and_doubles_nothing()

    @pytest.mark.nightly
    def test_a_message_that_comes_late_writes_nothing(self) -> None:
        super().test_a_message_that_comes_late_writes_nothing()


class TestKafkaByVersionTwo(TestKafka):
    """Transactions of version 2, by Kafka's own producer."""

    version = "v2"
