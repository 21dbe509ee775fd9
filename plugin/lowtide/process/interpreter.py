"""Python as every process of a job runs it: hash seed, garbage collector."""

from __future__ import annotations

import gc
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

PACKAGES = ("lowtide", "pyarrow", "numpy", "msgspec", "cloudpickle")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that frames and pickled functions depend on."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str:
    module = sys.modules.get(name)
    own = getattr(module, "__version__", None)
    return str(own) if own else version(name)


THRESHOLDS = (10_000, 2, 500)
"""The collector checks young objects when so many more were made than dropped (700 by default); the survivors, once
more after every second such check (10), which keeps a pause short; all objects after 1,000 of them (100)."""


def set_up_collector() -> None:
    """Exclude all present objects from collections, and collect less often; call it once all modules are loaded.

    Reference counts free records and their results; only cycles need the collector, and only user code makes any. With
    Python's defaults it takes a fifth of a `scan`'s time, in pauses of up to 50 ms
    (`docs/benchmarks/core.md`). Nothing is collected here: in a forked process that would copy the parent's memory.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in the block: while many lasting objects are made, every collection is wasted."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
