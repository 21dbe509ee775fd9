"""PyFlink 2, exactly once: its Python in a thread of the JVM or in a process of its own."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from lowtide.jars.java import find_java
from lowtide_bench.peers.environments import Jar, jar, python
from lowtide_bench.peers.program import PROGRAMS, Kind, Place, Program

CONNECTOR = Jar(
    "org.apache.flink",
    "flink-sql-connector-kafka",
    "5.0.0-2.2",
    "5605c691d11a501382c383fecba37a7a552467da5ab7ba904ef5d6f3d62c5616",
)
RATES = {
    "thread": (2_000, 4_000, 6_000, 8_000, 11_000, 15_000, 20_000, 28_000),
    "process": (1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000),
}


def install() -> None:
    """Fetch Flink with its Python, and its Kafka connector."""
    python("flink")
    jar(CONNECTOR)


def newest_checkpoint(checkpoints: Path) -> Path | None:
    """Return the last checkpoint that is complete; None if there is none."""
    complete = [file.parent for file in checkpoints.glob("*/chk-*/_metadata")]
    # A restored job has a folder of its own, and continues the numbering.
    return max(complete, key=lambda folder: int(folder.name.removeprefix("chk-")), default=None)


def start(mode: str, checkpoint_ms: int, place: Place) -> Program:
    """Start it."""
    connector, checkpoints = str(jar(CONNECTOR)), place.folder / "checkpoints"

    def task(restored: bool) -> str:
        found = newest_checkpoint(checkpoints) if restored else None
        from_checkpoint = None if found is None else str(found)
        return place.task(mode=mode, checkpoint_ms=checkpoint_ms, jar=connector, from_checkpoint=from_checkpoint)

    interpreter = python("flink")
    # Its own scripts call `python` by that name.
    path = f"{interpreter.parent}{os.pathsep}{find_java().executable.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # PyFlink takes the mode from its settings, but starts its additional servers by this variable.
    environment = {"PATH": path, **({"_python_worker_execution_mode": mode} if mode == "process" else {})}
    return Program([str(interpreter), str(PROGRAMS / "flink_count.py")], task, place.folder, environment)


def kind(mode: str, checkpoint_ms: int) -> Kind:
    """Return it with its Python in a `thread` or a `process`, and checkpoints at an interval."""
    every = f"{checkpoint_ms} ms" if checkpoint_ms < 1_000 else f"{checkpoint_ms // 1_000} s"
    return Kind(
        name=f"pyflink-{mode}-{every.replace(' ', '')}",
        title=f"PyFlink 2, Python in a {mode}, checkpoint {every}",
        delivery="exactly once",
        rates=RATES[mode],
        install=install,
        start=partial(start, mode, checkpoint_ms),
    )
