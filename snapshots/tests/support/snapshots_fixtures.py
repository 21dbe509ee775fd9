"""The fixtures of a job's place in ZooKeeper. Every run of tests reads them, so that they import late."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from job_place import Place, Taker


@pytest.fixture
def place(zookeeper_services: Any) -> Iterator[Place]:
    """The place of a job that no other test has."""
    from job_place import Place

    with contextlib.ExitStack() as opened:
        yield Place(zookeeper_services.zookeeper, opened)


@pytest.fixture
def takes() -> type[Taker]:
    """Who takes snapshots of a job: `takes(job)`, or `takes(job, store)` if parts and manifests are to be there."""
    from job_place import Taker

    return Taker
