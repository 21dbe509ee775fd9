"""Bytewax: one process, its snapshots every second."""

from __future__ import annotations

import subprocess

from lowtide_bench.peers.environments import NotInstalled, python
from lowtide_bench.peers.program import PROGRAMS, Kind, Place, Program

SNAPSHOT_S = 1
SET_UP_LIMIT_S = 30.0


def start(place: Place) -> Program:
    """Make its recovery store, and start it."""
    interpreter, store = str(python("bytewax")), place.folder / "checkpoints"
    store.mkdir()
    made = subprocess.run(
        [interpreter, "-m", "bytewax.recovery", str(store), "1"],
        capture_output=True,
        text=True,
        timeout=SET_UP_LIMIT_S,
        check=False,
    )
    if made.returncode:
        raise NotInstalled(f"bytewax.recovery ended with {made.returncode}: {made.stderr[-500:]}")
    # Kept for 0 s: the newest snapshot is enough, and older ones go.
    options = ["-r", str(store), "-s", str(SNAPSHOT_S), "-b", "0"]
    task = place.task()
    command = [interpreter, "-m", "bytewax.run", *options, str(PROGRAMS / "bytewax_count.py")]
    return Program(command[:-1], lambda _: command[-1], place.folder, {"PEER_TASK": task})


def install() -> None:
    """Fetch it."""
    python("bytewax")


KIND = Kind(
    name="bytewax",
    title="Bytewax, one process, snapshots every second",
    delivery="at least once",
    rates=(10_000, 15_000, 20_000, 30_000, 45_000, 60_000, 80_000, 110_000),
    install=install,
    start=start,
)
