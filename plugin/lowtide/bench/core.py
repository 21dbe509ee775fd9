"""The pure core, measured part by part on one thread: no Spark, no Kafka, no JVM."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from lowtide.bench.core_barrier import barrier
from lowtide.bench.core_collector import collector
from lowtide.bench.core_exchange import exchange
from lowtide.bench.core_grouping import MODES, grouping
from lowtide.bench.core_labels import labels
from lowtide.bench.core_notice import notices
from lowtide.bench.core_timing import Extent
from lowtide.bench.core_tracker import acks
from lowtide.bench.machine import load, machine
from lowtide.bench.processes import busy_s
from lowtide.version import __version__
from lowtide.worker.garbage import set_up_collector

Say = Callable[[str], None]

HEADLINE_SIZE = 1_000
"""Records in a batch, of the figures of scan and last(2)."""
HEADLINE_COLUMN_SIZE = 10_000
"""And of those of labels and barrier."""
_PACKAGES = ("numpy", "pyarrow", "msgspec")


def run(extent: Extent, say: Say) -> dict[str, Any]:
    """Measure every part, and return the object that `lowtide bench core --json` prints.

    Args:
        extent: How much is measured.
        say: Told what happens.
    """
    where, began = machine(), _Clock()
    say("collector")
    # It tries both ways itself; everything else is measured as in a worker.
    variants: dict[str, Any] = {"collector": collector(extent)}
    set_up_collector()
    for name, part in _parts(extent).items():
        say(name)
        variants[name] = part()
    found = headlines(variants, extent)
    return {
        **{name: figure["median"] for name, figure in found.items()},
        **{name: variants["notices"][name] for name in ("notify_p50_ms", "notify_p99_ms")},
        "best": {name: figure["max"] for name, figure in found.items()},
        "variants": variants,
        "trials": extent.trials,
        "versions": versions(),
        "machine": {**where, "load_after": load(), "others_cores": began.others_cores()},
    }


class _Clock:
    """How many cores other programs have used since this was made."""

    def __init__(self) -> None:
        self._began = self._now()

    def others_cores(self) -> float:
        wall, busy, own = (now - began for now, began in zip(self._now(), self._began, strict=True))
        return round(max(0.0, busy - own) / wall, 2)

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), busy_s(), sum(os.times()[:4])


def _parts(extent: Extent) -> dict[str, Callable[[], dict[str, Any]]]:
    return {
        "acks": lambda: acks(extent),
        "notices": lambda: notices(extent.notices),
        "label": lambda: labels(extent),
        "scan": lambda: grouping("scan", extent),
        "last": lambda: grouping("last", extent),
        "barrier": lambda: barrier(extent),
        "exchange": lambda: exchange(extent),
    }


def headlines(variants: dict[str, Any], extent: Extent) -> dict[str, dict[str, float]]:
    """Return the figures that are told first, each with median, least and most.

    Of scan and last(2): one front, with reading columns and making objects of them, in the optimistic mode unless the
    name says otherwise.
    """
    size = str(_nearest(HEADLINE_SIZE, extent))
    columns = str(_nearest(HEADLINE_COLUMN_SIZE, extent))
    found = {name: figure for name, figure in variants["acks"].items() if name.endswith("_per_s")}
    found["label_per_s"] = variants["label"][columns]["label_per_s"]
    for name, part in (("scan", "scan"), ("group", "last")):
        for mode in MODES:
            figure = f"{name}_per_s" if mode == "optimistic" else f"{name}_{mode}_per_s"
            found[figure] = variants[part][mode]["in_order"][size]["per_s"]
    found["barrier_per_s"] = variants["barrier"]["columns"][columns]["per_s"]
    return found


def _nearest(size: int, extent: Extent) -> int:
    return min(extent.sizes, key=lambda each: abs(each - size))


def versions() -> dict[str, str]:
    """Return the versions of all that has a part in the figures."""
    found = {"lowtide": __version__, "python": platform.python_version()}
    return found | {package: version(package) for package in _PACKAGES}
