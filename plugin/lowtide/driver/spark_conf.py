"""Keys of the conf in Spark's own: `spark.lowtide.TABLE.KEY`, from `spark-submit --conf` or a SparkConf."""

from __future__ import annotations

import os
import sys

PREFIX = "spark.lowtide."
OWN_KEYS = frozenset(f"{PREFIX}{name}" for name in ("python", "store", "startLimitMs", "attachLimitMs", "doors"))
"""Settings of the plugin's JVM side under that prefix; all others there are keys of the conf."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"


def submitted() -> bool:
    """Return whether spark-submit started this program, so that the JVM is already there."""
    return _SUBMITTED in os.environ


def conf_settings() -> dict[str, str]:
    """Return `{"table.key": value}` of the Spark that this program runs in; nothing if it has not started Spark."""
    if not submitted() and "pyspark" not in sys.modules:
        return {}
    from pyspark import SparkConf, SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        pairs = context.getConf().getAll()
    elif submitted():
        # What spark-submit was given is known to its JVM alone.
        SparkContext._ensure_initialized()
        pairs = SparkConf().getAll()
    else:
        return {}
    return {key.removeprefix(PREFIX): value for key, value in pairs if key.startswith(PREFIX) and key not in OWN_KEYS}
