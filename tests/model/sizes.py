"""The sizes that are explored: each small in most, and large in what it is about."""

from __future__ import annotations

from lowtide.driver.recovery import StartFrom

from .machine import message
from .world import NONE, Size

A, B = message(0, 0, 5, "a", 1), message(0, 1, 7, "a", 2)
OTHERS = message(0, 1, 7, "b", 2), message(0, 2, 9, "b", 4)
"""Of another hash unit than `A`, so that one of two parts stays as it is."""
QUIET = message(1, 0, 6, "a", 3)
"""The record of a front that may be granted a floor above it, and then comes later in the lane."""
LAST = StartFrom()
OLDER = StartFrom(commit="000001-0001")
AGAIN = StartFrom(commit="000001-0001", redeliver=True)

ONE, TWO, UNITS, FLOOR = ((A,),), ((A, B),), ((A, *OTHERS),), ((A, B), (QUIET,))
NO_FLOORS = (NONE, NONE, NONE)

DELIVERIES = Size("deliveries", FLOOR, (8, 9), (LAST, LAST), (0, 0), slips=1, before="begun")
OPENINGS = Size("openings", ONE, NO_FLOORS, (LAST, LAST), (0, 0))
CLAIMS = Size("claims", ((A,), (QUIET,)), (8, 9), (LAST, LAST), (0, 0))
SNAPSHOTS = Size("snapshots", ((A,), (QUIET,)), (8, 9), (LAST, LAST), (1, 0), before="begun")
STATES = Size("states", TWO, NO_FLOORS, (LAST, LAST), (1, 0), before="begun")
ANSWERS = Size("answers", ONE, NO_FLOORS, (LAST, LAST), (1, 0), lost=1, before="begun")
SWEEPS = Size("sweeps", TWO, NO_FLOORS, (LAST, LAST), (2, 0), keep=1, before="begun")
SWEEPER = Size("sweeper", ONE, NO_FLOORS, (LAST,), (1,), swept=1, before="begun")
BASES = Size("bases", UNITS, NO_FLOORS, (LAST,), (2,), keep=1, before="begun")
BESIDE = Size("beside", TWO, NO_FLOORS, (LAST,), (2,), swept=1, beside=True, before="begun")
LISTS = Size("lists", TWO, NO_FLOORS, (LAST,), (2,), swept=1, before="begun")
RESTORES = Size("restores", UNITS, NO_FLOORS, (LAST, OLDER), (2, 0), swept=1, before="done")
REWINDS = Size("rewinds", TWO, NO_FLOORS, (LAST, AGAIN), (2, 0), before="begun")
BOTH = Size("both", ONE, NO_FLOORS, (LAST, LAST), (1, 1), before="begun")
THREE = Size("three lives", ONE, NO_FLOORS, (LAST, LAST, LAST), (0, 0, 0), before="begun")

ALL = [
    DELIVERIES, OPENINGS, CLAIMS, SNAPSHOTS, STATES, ANSWERS, SWEEPS,
    SWEEPER, BASES, BESIDE, LISTS, RESTORES, REWINDS, BOTH, THREE,
]  # fmt: skip
SMALL = [SWEEPER, STATES, ANSWERS, OPENINGS]
"""What `make test` explores."""
