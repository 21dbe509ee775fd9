"""The formats that outlive a job's process: the hash that gives each key its unit, and the job's place in ZooKeeper.

Nothing here knows of Spark, nor of the rest of Lowtide. `lowtide_snapshots.job.store` needs kazoo, an extra, and is
imported by its own name. The hash needs numpy and Arrow, and is loaded on use.
"""

from typing import TYPE_CHECKING, Any

from lowtide_snapshots.errors import KeyRefused, SnapshotsError
from lowtide_snapshots.job.record import JobRecord

if TYPE_CHECKING:
    from lowtide_snapshots.keys.hashing import HASH_VERSION, MAX_UNITS, hash_unit, hash_units

__all__ = ["HASH_VERSION", "MAX_UNITS", "JobRecord", "KeyRefused", "SnapshotsError", "hash_unit", "hash_units"]


def __getattr__(name: str) -> Any:
    """Import the names of the hash on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lowtide_snapshots.keys import hashing

    return getattr(hashing, name)
