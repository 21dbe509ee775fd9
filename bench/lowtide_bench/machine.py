"""The machine and the software of a measurement."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lowtide.jars.java import find_java
from lowtide.jars.third_party import broker_jars
from lowtide.version import __version__

_PACKAGES = ("pyspark", "numpy", "pyarrow", "confluent-kafka", "msgspec")


def machine() -> dict[str, Any]:
    """Return the machine's cores, memory and model, and its current load (of the last minute)."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "model": _model(),
        "kernel": platform.release(),
        "load": load(),
    }


def in_words(where: Mapping[str, Any]) -> str:
    """Return the machine as a line beside figures, given the object's `machine`."""
    return f"{where['cores']} cores ({where['model']}), load {where['load']} before and {where['load_after']} after"


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def versions() -> dict[str, str]:
    """Return the versions of all software that affects the figures."""
    from confluent_kafka import libversion

    broker = next(jar.stem.rpartition("-")[2] for jar in broker_jars() if jar.name.startswith("kafka_2"))
    return {
        "lowtide": __version__,
        "python": platform.python_version(),
        "java": str(find_java().version),
        "kafka": broker,
        "librdkafka": str(libversion()[0]),
        **{package: version(package) for package in _PACKAGES},
    }


def _model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
