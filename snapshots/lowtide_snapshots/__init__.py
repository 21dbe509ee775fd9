"""The formats that outlive a job's process; today the hash that gives each key its unit.

Nothing here knows of Spark, nor of the rest of Lowtide.
"""

from lowtide_snapshots.errors import KeyRefused, SnapshotsError
from lowtide_snapshots.hashing import HASH_VERSION, MAX_UNITS, hash_unit, hash_units

__all__ = ["HASH_VERSION", "MAX_UNITS", "KeyRefused", "SnapshotsError", "hash_unit", "hash_units"]
