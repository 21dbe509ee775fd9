"""Logging of Lowtide's own processes: one line each, to standard error, which Spark puts into its own log."""

from __future__ import annotations

import logging


def log_to_stderr(process: str) -> None:
    """Log from now on as `process`, with its pid."""
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s lowtide {process} %(process)d %(levelname)s: %(message)s"
    )
