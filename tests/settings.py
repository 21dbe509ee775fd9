"""Settings common to the jobs of the tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.waiting import HANGS_S

if TYPE_CHECKING:
    from tests.conftest import Kafka


def settings_of(kafka: Kafka, zookeeper: str, folder: Path, slots: int) -> dict[str, object]:
    """Settings of a job on the tests' services, with everything that it writes in one folder."""
    return {
        "kafka.bootstrap_servers": kafka.address,
        "kafka.reach_limit_ms": 30_000,
        "zookeeper.hosts": zookeeper,
        "zookeeper.reach_limit_s": 30.0,
        "epoch.duration_s": 5.0,
        "job.start_limit_s": HANGS_S,
        "worker.start_limit_s": HANGS_S,
        "spark.master": f"local[{slots}]",
        "spark.checkpoint_folder": str(folder / "checkpoints"),
        "snapshots.url": str(folder / "snapshots"),
    }
