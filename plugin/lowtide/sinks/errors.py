"""Errors of all stores."""

from __future__ import annotations

from lowtide.errors import FlowError, LifeEnded, LowtideError

__all__ = [
    "CarrierStopped",
    "CatalogUnavailable",
    "CommitConflict",
    "LastsLost",
    "Overtaken",
    "PlaceTaken",
    "SchemaDiffers",
    "StagedLost",
    "of_another_job",
]


class LastsLost(LifeEnded):
    """Decide what to do with the job: the record of what it has delivered is lost."""


class PlaceTaken(FlowError):
    """Give the sink another place or another name: what is there is of another job or sink, or is named otherwise."""


class SchemaDiffers(FlowError):
    """Change the table, or the sink's dataclass: the one cannot hold the other's records."""


class _Loss(LowtideError):
    kind = "loss"
    exit_code = 5


class StagedLost(_Loss):
    """Decide what to do with the sink: records that were staged for its store are gone from Kafka."""


class Overtaken(_Loss):
    """Wait: another carrier has taken the records to their store, and this one begins again."""


class CarrierStopped(_Loss):
    """Look at the carrier's log: the process that takes staged records into their store stopped by itself."""


class CommitConflict(_Loss):
    """Wait: another commit came first, and the carrier reads the table's position again."""


class CatalogUnavailable(_Loss):
    """Look at the table's catalog or store: it does not answer, or refuses."""


def of_another_job(what: str, where: str, left: str) -> LifeEnded:
    """Return the error of a store that keeps what another job of the same name delivers; `left` is what that has."""
    return LifeEnded(
        f"{what} belongs to another job of this name: it runs with another ZooKeeper or under another root, or its "
        "nodes in this one were deleted",
        where=where,
        way_out="name the ZooKeeper and the root of the job that made it; or give this job another name; or delete "
        f"{left}, which delivers everything again",
    )
