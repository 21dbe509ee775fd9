"""A Kafka cluster of three brokers on loopback, whose leaders move when a broker stops, dies or comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.conftest import Kafka
from tests.waiting import HANGS_S, wait_until

from lowtide.embedded import EmbeddedServices
from lowtide.embedded import kafka as embedded_kafka
from lowtide.embedded.ports import HOST, free_port

NODES = (1, 2, 3)
"""The first one is the controller, too: it stays."""
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Leaders go back to the brokers that have come back when the test says so.
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "true",
    # Kafka's own: a broker that starts has the newest metadata once the controller has written some.
    "metadata.max.idle.interval.ms": "500",
}


@dataclass(frozen=True)
class SeveralBrokers(Kafka):
    """The cluster; what it has of one broker is the first one's.

    Attributes:
        brokers: The servers by their node.
    """

    brokers: Mapping[int, EmbeddedServices]

    @property
    def address(self) -> str:
        """All brokers."""
        return ",".join(services.kafka for services in self.brokers.values())

    def leaders(self, topic: str) -> dict[int, int]:
        """The node that leads each partition; -1 for none."""
        partitions = self._admin.list_topics(topic, timeout=HANGS_S).topics[topic].partitions
        return {number: found.leader for number, found in sorted(partitions.items())}

    def stop(self, node: int, *, killed: bool = False) -> None:
        """Stop a broker, which hands over what it leads unless it is killed."""
        self.brokers[node].stop("kafka", **({"grace_s": 0} if killed else {}))

    def wait_until_led_without(self, node: int, topics: Sequence[str]) -> None:
        """Wait until another broker leads whatever this one led of these topics."""
        wait_until(
            lambda: all(leader not in (-1, node) for topic in topics for leader in self.leaders(topic).values()),
            HANGS_S,
            f"leaders other than broker {node}",
        )

    def start(self, node: int, topics: Sequence[str]) -> None:
        """Start a broker again, and give it back what it led of these topics once it has what it missed."""
        self.brokers[node].start("kafka")
        preferred = {
            TopicPartition(topic, number)
            for topic in topics
            for number, found in self._admin.list_topics(topic, timeout=HANGS_S).topics[topic].partitions.items()
            if found.replicas[0] == node
        }
        admin = self._admin  # It has to outlive its answer.

        def led_again() -> bool:
            admin.elect_leaders(ElectionType.PREFERRED, sorted(preferred)).result()
            return all(self.leaders(each.topic)[each.partition] == node for each in preferred)

        wait_until(led_again, HANGS_S, f"broker {node} leads again")

    @property
    def _admin(self) -> Any:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})


@contextmanager
def several_brokers(folder: Path) -> Iterator[SeveralBrokers]:
    """Start the cluster, and stop it after the block."""
    cluster = embedded_kafka.cluster_id()
    controller = free_port()
    services = {node: EmbeddedServices(folder / str(node), only=["kafka"], **_of(node, controller)) for node in NODES}
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(len(NODES)) as threads:
            patch.setattr(embedded_kafka, "cluster_id", lambda: cluster)
            # All at once: brokers wait for their controller.
            list(threads.map(running.enter_context, services.values()))
        try:
            yield SeveralBrokers(services[NODES[0]], services)
        finally:
            # The last ones would wait in vain for somebody to hand over to.
            for each in services.values():
                each.stop("kafka", grace_s=0)


def _of(node: int, controller: int) -> dict[str, Any]:
    """How a node is started."""
    port = free_port(other_than=[controller])
    settings = {**REPLICATED, "node.id": str(node), "controller.quorum.voters": f"{NODES[0]}@{HOST}:{controller}"}
    listener = f"CLIENT://{HOST}:{port}"
    if node == NODES[0]:
        settings["listeners"] = f"{listener},CONTROLLER://{HOST}:{controller}"
    else:
        settings |= {"process.roles": "broker", "listeners": listener}
    return {"kafka_port": port, "kafka_settings": settings}
