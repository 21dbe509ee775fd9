"""One host of one life, as Kafka knows it, and where its lanes are (R13, R19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.connectors.sender import Outgoing
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded
from lowtide.sinks.contract import LaneName, Mark, Packet
from lowtide.sinks.kafka.lasts_records import records_of


@dataclass(frozen=True, slots=True)
class Claimant:
    """One host of one life, as Kafka knows it.

    Attributes:
        transactional_id: The name of the pair of ids (`claims.pair_of`) that it uses in turn; listed before use among
            those that the next life claims.
        lasts_topic: The job's.
        incarnation: The life's number, for people who read that topic.
        check: Called in another thread once the ids are claimed; raises if this life is not the job's newest (W10).
        marks: The packed `last` of lanes when the life began; those not named had none, and strands begin without.
    """

    transactional_id: str
    lasts_topic: str
    incarnation: int
    check: Callable[[], None]
    marks: Mapping[LaneName, bytes] = field(default_factory=dict)

    def lasts(self, mark: Mark | None) -> Iterator[Outgoing]:
        """Yield a lane's mark as messages for the lasts topic; none without a mark."""
        if mark is None:
            return
        last = OrderKey.of(mark.last) if mark.last else None
        for key, value in records_of(mark.lane, last, mark.floors, self.incarnation, mark.covered):
            yield self.lasts_topic, 0, key, value, 0, None


class Marks:
    """The places of a host's lanes.

    Kafka compares no mark with the one that a delivery names (R19). Under its claim nobody but the host moves the lanes
    that it is given, so it knows where they are, and compares them itself.

    Args:
        claimant: The host.
        brokers: Where its deliveries go, for people.
    """

    def __init__(self, claimant: Claimant, brokers: str) -> None:
        self._claimant, self._brokers = claimant, brokers
        self._marks = dict(claimant.marks)

    def moved(self, packets: Sequence[Packet]) -> dict[LaneName, bytes]:
        """Return the lanes' marks after these packets; each goes on where its lane is (R19, errors: LifeEnded)."""
        moved: dict[LaneName, bytes] = {}
        for packet in packets:
            mark = packet.mark
            if mark is None:
                continue
            if mark.before != moved.get(mark.lane, self._marks.get(mark.lane, b"")):
                raise self._elsewhere(mark)
            moved[mark.lane] = mark.last
        return moved

    def update(self, moved: Mapping[LaneName, bytes]) -> None:
        """Take the marks of packets that have become durable."""
        self._marks.update(moved)

    def _elsewhere(self, mark: Mark) -> LifeEnded:
        lane = mark.lane
        what = f'{lane.slice} of sink "{lane.sink}"' if lane.sink else f"{lane.slice} of the dead letters"
        return LifeEnded(
            f"a delivery to {what} does not go on where the last one ended: this is a fault in Lowtide",
            where=f"broker {self._brokers}, life {self._claimant.incarnation}",
            way_out="start the job again, which reads what was committed: nothing is lost or duplicated; report this",
        )
