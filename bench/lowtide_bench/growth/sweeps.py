"""The sweeps: what grows, what is counted of it, and the class that the documents give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lowtide_bench.growth.job import Job
from lowtide_bench.growth.saved import saved

FRONTS, PARALLELISM, KEYS, RECORDS = 4, 4, 1_000, 512
"""A job's, where they do not grow; records of a round at each front."""
WARM_ROUNDS, ROUNDS = 2, 4
STATE_BYTES, STATE_KEYS, MANY_KEYS, CHANGES = 100, 8_000, 64_000, 1_000
"""Of state, where they do not grow; more keys where changes do, so that not all are changed."""
CONSTANT, LINEAR, SQUARE = "O(1)", "O(n)", "O(n^2)"


@dataclass(frozen=True)
class Sweep:
    """A value that grows.

    Attributes:
        title: Its words.
        values: Its values by default.
        counted: Returns counts, given a value.
        documented: The class of each count, as `docs/benchmarks/growth.md` gives it.
    """

    title: str
    values: Sequence[int]
    counted: Callable[[int], dict[str, float]]
    documented: Mapping[str, str]


def _rounds(
    *, fronts: int = FRONTS, parallelism: int = PARALLELISM, keys: int = KEYS, records: int = RECORDS
) -> dict[str, float]:
    """Count what a round of all fronts causes."""
    job = Job(fronts=fronts, parallelism=parallelism, keys=keys)
    for _ in range(WARM_ROUNDS):
        job.round(records)
    before = job.counts.copy()
    for _ in range(ROUNDS):
        job.round(records)
    job.counts.subtract(before)
    return {name: count / ROUNDS for name, count in job.counts.items()} | {"sums in the table": job.most_sums}


def _open_ticks(rounds: int) -> dict[str, float]:
    """Count the tracker's sums after so many rounds of one front, while the other stands still."""
    job = Job(fronts=2, parallelism=PARALLELISM, keys=KEYS)
    job.round(RECORDS)
    for _ in range(rounds):
        job.round(RECORDS, fronts=1)
    return {"sums in the table": job.most_sums}


_OF_TRACKER = ("flushes", "flush bytes", "acks", "notices", "notice bytes")
_SMALL = (2, 4, 8, 16, 32)


def _of_rounds(*, frames: str, frame_bytes: str, tracker: str) -> dict[str, str]:
    """The classes of what `_rounds` counts; closed ticks leave no sums, whatever grows."""
    of_tracker = dict.fromkeys(_OF_TRACKER, tracker)
    return {"frames": frames, "frame bytes": frame_bytes, **of_tracker, "sums in the table": CONSTANT}


SWEEPS = {
    "fronts": Sweep(
        "fronts",
        _SMALL,
        lambda n: _rounds(fronts=n),
        _of_rounds(frames=LINEAR, frame_bytes=LINEAR, tracker=LINEAR),
    ),
    "parallelism": Sweep(
        "workers of level 1",
        _SMALL,
        lambda n: _rounds(parallelism=n),
        _of_rounds(frames=LINEAR, frame_bytes=CONSTANT, tracker=LINEAR),
    ),
    "both": Sweep(
        "fronts, and as many workers of level 1",
        _SMALL,
        lambda n: _rounds(fronts=n, parallelism=n),
        _of_rounds(frames=SQUARE, frame_bytes=LINEAR, tracker=LINEAR),
    ),
    "records": Sweep(
        "records of a round at each front",
        (128, 256, 512, 1_024, 2_048),
        lambda n: _rounds(records=n),
        _of_rounds(frames=CONSTANT, frame_bytes=LINEAR, tracker=CONSTANT),
    ),
    "keys": Sweep(
        "keys of the records",
        (500, 1_000, 2_000, 4_000, 8_000),
        lambda n: _rounds(keys=n),
        _of_rounds(frames=CONSTANT, frame_bytes=CONSTANT, tracker=CONSTANT),
    ),
    "ticks": Sweep(
        "rounds that a front stands still, of four ticks",
        (4, 8, 16, 32, 64),
        _open_ticks,
        {"sums in the table": LINEAR},
    ),
    "state-keys": Sweep(
        "keys in state",
        (8_000, 16_000, 32_000, 64_000, 128_000),
        lambda n: saved(n, STATE_BYTES, CHANGES),
        {
            "keys kept": LINEAR,
            "bytes kept": LINEAR,
            "parts": CONSTANT,
            "bytes of parts": LINEAR,
            "parts after changes": CONSTANT,
            "bytes after changes": CONSTANT,
        },
    ),
    "state-bytes": Sweep(
        "bytes of a key's state",
        (100, 200, 400, 800, 1_600),
        lambda n: saved(STATE_KEYS, n, CHANGES),
        {
            "keys kept": CONSTANT,
            "bytes kept": LINEAR,
            "parts": CONSTANT,
            "bytes of parts": LINEAR,
            "parts after changes": CONSTANT,
            "bytes after changes": LINEAR,
        },
    ),
    "changes": Sweep(
        "records between two snapshots",
        (500, 1_000, 2_000, 4_000, 8_000),
        lambda n: saved(MANY_KEYS, STATE_BYTES, n),
        {
            "keys kept": CONSTANT,
            "bytes kept": CONSTANT,
            "parts": CONSTANT,
            "bytes of parts": CONSTANT,
            "parts after changes": CONSTANT,
            "bytes after changes": LINEAR,
        },
    ),
}
"""By name."""
