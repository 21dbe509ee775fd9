"""What steps touch, so that an order is tried only where it can matter (partial-order reduction).

Where all that a life, or one script, can do next touches nothing that anybody else will touch from here on, nobody else
has to go first: whatever they do is the same afterwards. No way leads back to a state, as each step answers something,
so nobody is left out for ever. Who may touch what from here on is bounded from above, by what it is and how far it is.
"""

from __future__ import annotations

from typing import NamedTuple

from lowtide_snapshots.zookeeper.nodes import Check

from .access import PATHS
from .scripts import Place, Question
from .world import Size

JOB, LEASE, LIFE, COMMITS, RESTORED, OBJECTS, PUTS, CLAIMS, KAFKA = (1 << place for place in range(9))
ALL = (1 << 9) - 1


class Touched(NamedTuple):
    """What is read and what is written, as sets of bits."""

    reads: int = 0
    writes: int = 0

    def beside(self, other: Touched) -> bool:
        """True if the two are the same in either order."""
        return not (self.writes & (other.reads | other.writes) or other.writes & self.reads)

    def __or__(self, other: Touched) -> Touched:
        return Touched(self.reads | other.reads, self.writes | other.writes)


NOTHING = Touched()
_PATHS = {
    PATHS.lease: LEASE,
    PATHS.incarnation: LIFE,
    PATHS.commits: COMMITS,
    PATHS.last_commit: COMMITS,
    PATHS.reserved: COMMITS,
    PATHS.restored: RESTORED,
}
_SIMPLE = {
    "put": Touched(0, PUTS),
    "get": Touched(OBJECTS, 0),
    "names": Touched(OBJECTS | PUTS, 0),
    # What may be deleted is judged by the commits that there are.
    "delete": Touched(COMMITS, OBJECTS),
    "claim": Touched(0, CLAIMS),
    "deliver": Touched(CLAIMS, KAFKA),
    "read lasts": Touched(KAFKA, 0),
    "keep floors": Touched(0, KAFKA),
}


def of_path(path: str) -> int:
    """What a node belongs to."""
    return _PATHS.get(path) or (COMMITS if path.startswith(PATHS.commits) else JOB)


def of_question(question: Question) -> Touched:
    """What a question's answer touches outside of the life that asks it."""
    if question.what in ("read node", "list"):
        return Touched(of_path(question.given[1]), 0)
    if question.what == "write":
        touched = NOTHING
        for operation in question.given[1]:
            place = of_path(operation.path)
            touched |= Touched(place, 0) if isinstance(operation, Check) else Touched(place, place)
        if touched.writes & COMMITS:
            # A commit is judged by what is durable and stored.
            touched |= Touched(KAFKA | OBJECTS | PUTS, 0)
        return touched
    return _SIMPLE.get(question.what, NOTHING)


def of_driver(place: Place | None, size: Size, life: int) -> Touched:
    """What a driver may touch from here on; one that has not begun is None."""
    if place is not None and place.question is None:
        return NOTHING
    again = COMMITS | KAFKA if size.starts[life].redeliver else 0
    return Touched(ALL & ~PUTS, JOB | LEASE | LIFE | RESTORED | CLAIMS | again)


def of_delivery(place: Place) -> Touched:
    """What deliveries may touch from here on."""
    if place.question is None:
        return NOTHING
    if place.question.what in ("take bundle", "deliver", "is durable"):
        return Touched(CLAIMS, KAFKA)
    return Touched(LIFE | CLAIMS, CLAIMS | KAFKA)


def of_snapshots(place: Place, *, sweeps: bool) -> Touched:
    """What snapshots, or a sweeper, may touch from here on."""
    if place.question is None:
        return NOTHING
    if sweeps:
        return Touched(ALL & ~(CLAIMS | JOB | LEASE), COMMITS | OBJECTS | PUTS | RESTORED)
    return Touched(LIFE | COMMITS | KAFKA | OBJECTS | PUTS, COMMITS | PUTS)
