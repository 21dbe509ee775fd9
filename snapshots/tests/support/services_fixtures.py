"""One Kafka and one ZooKeeper for all tests of a process, whichever folder they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def services(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Any]:
    # Not imported by its name: neither the snapshots nor the provider may know of lowtide.
    embedded = pytest.importorskip("lowtide.embedded", reason="the embedded servers are lowtide's")
    with embedded.EmbeddedServices(tmp_path_factory.mktemp(name) / "services", only=[name]) as started:
        yield started


@pytest.fixture(name="kafka_services", scope="session")
def _kafka_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from services(tmp_path_factory, "kafka")


@pytest.fixture(name="zookeeper_services", scope="session")
def _zookeeper_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from services(tmp_path_factory, "zookeeper")
