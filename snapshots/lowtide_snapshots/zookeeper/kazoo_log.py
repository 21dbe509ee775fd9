"""Kazoo's log: warnings only, and the same one seldom."""

from __future__ import annotations

import logging
import time

SAME_WARNING_S = 60.0


class _Seldom(logging.Filter):
    """Lets each warning through once a minute: a ZooKeeper that is away is tried several times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if record.levelno < logging.WARNING or now - self._said.get(record.msg, -SAME_WARNING_S) < SAME_WARNING_S:
            return False
        self._said[record.msg] = now
        return True


def quiet_logger() -> logging.Logger:
    """The logger for a kazoo client: a child of the package's, for the caller to direct."""
    logger = logging.getLogger("lowtide_snapshots.kazoo")
    if not any(isinstance(found, _Seldom) for found in logger.filters):
        logger.addFilter(_Seldom())
    return logger
