"""The formats that outlive a job's process: the hash that gives each key its unit, and the job's place in ZooKeeper.

Nothing here knows of Spark, nor of the rest of Lowtide. `lowtide_snapshots.job_store` needs kazoo, an extra, and is
imported by its own name.
"""

from lowtide_snapshots.errors import KeyRefused, SnapshotsError
from lowtide_snapshots.hashing import HASH_VERSION, MAX_UNITS, hash_unit, hash_units
from lowtide_snapshots.job_record import JobRecord

__all__ = ["HASH_VERSION", "MAX_UNITS", "JobRecord", "KeyRefused", "SnapshotsError", "hash_unit", "hash_units"]
