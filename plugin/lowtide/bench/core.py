"""The pure core, measured part by part on one thread: no Spark, no Kafka, no JVM."""

from __future__ import annotations

import platform
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
    where = machine()
    say("collector")
    # It tries both ways itself; everything else is measured as in a worker.
    variants: dict[str, Any] = {"collector": collector(extent)}
    set_up_collector()
    for name, part in _parts(extent).items():
        say(name)
        variants[name] = part()
    return {
        **headlines(variants, extent),
        "variants": variants,
        "trials": extent.trials,
        "versions": versions(),
        "machine": {**where, "load_after": load()},
    }


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


def headlines(variants: dict[str, Any], extent: Extent) -> dict[str, Any]:
    """Return the figures that have a goal, and those of the other mode.

    Of scan and last(2): one front, with reading columns and making objects of them, in the optimistic mode unless the
    name says otherwise.
    """
    size = str(_nearest(HEADLINE_SIZE, extent))
    columns = str(_nearest(HEADLINE_COLUMN_SIZE, extent))
    found = {
        name: variants["acks"][name]["median"] for name in ("acks_per_s", "acks_in_process_per_s", "local_fold_per_s")
    }
    found |= {name: variants["notices"][name] for name in ("notify_p50_ms", "notify_p99_ms")}
    found["label_per_s"] = variants["label"][columns]["label_per_s"]["median"]
    for name, part in (("scan", "scan"), ("group", "last")):
        for mode in MODES:
            figure = f"{name}_per_s" if mode == "optimistic" else f"{name}_{mode}_per_s"
            found[figure] = variants[part][mode]["in_order"][size]["per_s"]["median"]
    found["barrier_per_s"] = variants["barrier"]["columns"][columns]["per_s"]["median"]
    return found


def _nearest(size: int, extent: Extent) -> int:
    return min(extent.sizes, key=lambda each: abs(each - size))


def versions() -> dict[str, str]:
    """Return the versions of all that has a part in the figures."""
    found = {"lowtide": __version__, "python": platform.python_version()}
    return found | {package: version(package) for package in _PACKAGES}
