"""A record at which a job dies, for tests of flows on a real Kafka and Spark."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lowtide.process.role import is_worker

__all__ = ["abort_once"]

T = TypeVar("T")


def abort_once(is_abort: Callable[[T], bool], marker: str | Path) -> Callable[[T], bool]:
    """Make a function for `filter` that kills the life at a record, once, and lets all other records pass.

    The process of the first worker that is given such a record is killed by SIGKILL, as by the kernel or a machine that
    goes down: nothing is tidied up, and the life ends. In later lives the record is left out, as it always is in
    `run_locally`. So a test starts the job again and compares all that it has delivered with what `run_locally` gives.

        def is_abort(order: Order) -> bool:
            return order.user == "ABORT"

        orders.filter(lowtide.testing.abort_once(is_abort, tmp_path / "aborted"), name="abort")

    Args:
        is_abort: Whether a record is one at which the life ends.
        marker: A file that is made when that happens; its folder has to be there, and be seen by all executors.
    """
    path = os.fspath(Path(marker).absolute())

    @functools.wraps(is_abort)
    def passes(record: T) -> bool:
        if not is_abort(record):
            return True
        if is_worker() and _is_first(path):
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    return passes


def _is_first(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
