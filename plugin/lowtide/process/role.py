"""The role of this process: whether it is a host of workers."""

from __future__ import annotations

_workers: list[bool] = []


def becomes_worker() -> None:
    """Say that this process runs workers of a job from now on."""
    _workers.append(True)


def is_worker() -> bool:
    """Return whether this process runs workers of a job; no test, no `run_locally` and no `lowtide check` does."""
    return bool(_workers)
