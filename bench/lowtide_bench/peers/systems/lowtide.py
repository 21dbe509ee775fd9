"""Lowtide itself, as `lowtide run` runs it; its snapshots are requested every second."""

from __future__ import annotations

import dataclasses

from lowtide.conf import Conf
from lowtide_bench.killable import Killable
from lowtide_bench.peers.program import Kind, Place, Restartable


class Job(Killable, Restartable):
    """A job that can be killed."""

    def strike(self) -> None:
        """Kill the driver's program, and with it the JVM and the workers; start it again."""
        self.kill("driver", 0)


def start(place: Place) -> Job:
    """Start it under a name of its own: a job of the same name has its position in Kafka, and continues from there."""
    return Job(place.way, of_its_own(place), place.folder, place.folder.name)


def of_its_own(place: Place) -> Conf:
    """Return the conf with folders of this place's own."""
    conf, folder = place.conf, place.folder
    return dataclasses.replace(
        conf,
        job=dataclasses.replace(conf.job, folder=str(folder / "jobs")),
        spark=dataclasses.replace(conf.spark, checkpoint_folder=str(folder / "checkpoints")),
        snapshots=dataclasses.replace(conf.snapshots, url=str(folder / "snapshots")),
    )


KIND = Kind(
    name="lowtide",
    title="**Lowtide**",
    delivery="**exactly once, ordered**",
    rates=(10_000, 15_000, 20_000, 30_000, 40_000, 55_000, 70_000, 90_000),
    install=lambda: None,
    start=start,
    snapshots_s=1.0,
)
