"""Reservations: the snapshots that may still be committed after a newer one has been."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lowtide_snapshots.format.names import incarnation_of
from lowtide_snapshots.zookeeper.node_values import damaged, to_bytes, value_of


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place among the commits, kept for a snapshot under way; it is void once the snapshot's life is over.

    Attributes:
        snapshot: its id.
        bases: ids of the commits of which one may turn out to be its base; none of them is dropped meanwhile.
    """

    snapshot: str
    bases: tuple[str, ...]


def reserved_to_bytes(reservations: Iterable[Reservation], path: str) -> bytes:
    """All of a job's reservations as their node holds them."""
    entries = [{"snapshot": each.snapshot, "bases": list(each.bases)} for each in reservations]
    return to_bytes({"reserved": entries}, path)


def reserved_in(data: bytes | None, path: str, incarnation: int) -> list[Reservation]:
    """The inverse, of those that a life has made or a later one; nothing where there is no node.

    Raises:
        RecordDamaged: it holds something else.
    """
    entries = value_of(data, path).get("reserved") if data else []
    try:
        found = [Reservation(str(each["snapshot"]), tuple(map(str, each["bases"]))) for each in entries or ()]
    except (KeyError, TypeError) as error:
        raise damaged(f"{entries!r} are not reservations", path) from error
    return [each for each in found if incarnation_of(each.snapshot) >= incarnation]
