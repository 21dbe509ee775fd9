"""One Kafka and one ZooKeeper for all tests of a process, whichever folder they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

# On a busy machine a broker may stand still for long; there is no other one that its controller could ask.
PATIENT = {"broker.session.timeout.ms": "120000"}


def services(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Any]:
    # Not imported by its name: neither the snapshots nor the provider may know of lowtide.
    embedded = pytest.importorskip("lowtide.embedded", reason="the embedded servers are lowtide's")
    folder = tmp_path_factory.mktemp(name) / "services"
    with embedded.EmbeddedServices(folder, only=[name], kafka_settings=PATIENT) as started:
        yield started


@pytest.fixture(name="kafka_services", scope="session")
def _kafka_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from services(tmp_path_factory, "kafka")


@pytest.fixture(name="zookeeper_services", scope="session")
def _zookeeper_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from services(tmp_path_factory, "zookeeper")


@pytest.fixture(scope="session")
def zookeeper(zookeeper_services: Any) -> str:
    """The one ZooKeeper's address; jobs differ by their names."""
    return str(zookeeper_services.zookeeper)
