"""What a barrier hands to a sink in one atomic step (R13)."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.operators.batch import Batch
from lowtide.operators.order import FIRST_TICK, OrderKey
from lowtide_tracker import Floor

__all__ = ["FIRST_KEY", "Bundle"]

FIRST_KEY = OrderKey(FIRST_TICK, -(1 << 31), -(1 << 63))
"""Before every record's order key: the `last` of a lane that nothing was delivered to."""


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """Records of one lane, with what has to become durable together with them.

    Attributes:
        lane: The lane.
        number: Counts the lane's bundles in this life, from 1.
        batch: The records in order, all items; none in a bundle that only carries floors.
        last: The order key of the lane's last record, this bundle's or, if it has none, an earlier one's.
        floors: What the min time rests on that released these records, as far as the lane has not been given it yet;
            the sink keeps them beside those it has.
    """

    lane: int
    number: int
    batch: Batch
    last: OrderKey
    floors: tuple[Floor, ...]

    def __len__(self) -> int:
        return len(self.batch)
