"""The division of ticks among shards: whose an ack is, and what of a flush concerns a shard (R9).

Example:
    >>> from lowtide_tracker import Flush
    >>> first, second = Splitter(2).split(Flush.of(1, 1, [(1, 5, 9), (1, 4, 8)], [(7, 5)]))
    >>> first.acks, first.heartbeats
    (((1, 4, 8),), ((7, 6),))
    >>> second.acks, second.heartbeats
    (((1, 5, 9),), ((7, 5),))
"""

from msgspec.structs import replace

from lowtide_tracker.fields import Due
from lowtide_tracker.messages import Absolute, Flush

NEVER = (1 << 63) - 1
"""The tick at which a group stands that nothing holds."""


def shard_of(tick: int, shards: int) -> int:
    """Every tick has one shard; neighbours have different ones, so that a burst at a few ticks is shared."""
    return tick % shards


def round_up(tick: int, shard: int, shards: int) -> int:
    """The first tick of a shard that is not below ``tick``; over all shards the smallest of these is ``tick``."""
    return min(tick + (shard - tick) % shards, NEVER)


class Splitter:
    """Divides one worker's flushes into parts, one per shard.

    Every shard gets a part of every flush, be it an empty one: its number is the worker's *node time* there. A
    heartbeat or due goes to a shard only if it moves there once it is rounded up.

    Args:
        shards: how many there are.
    """

    def __init__(self, shards: int) -> None:
        if shards < 1:
            raise ValueError(f"tracker.shards is {shards}; it must be at least 1")
        self.shards = shards
        self._heartbeats: list[dict[int, int]] = [{} for _ in range(shards)]
        """Per shard: front -> what it was sent last."""
        self._dues: list[dict[tuple[int, int], int | None]] = [{} for _ in range(shards)]
        """Per shard: (segment, owner) -> what it was sent last."""

    def split(self, flush: Flush) -> list[Flush]:
        """A flush's parts, by shard, when it is sent for the first time; flushes come in the order of their numbers."""
        parts = []
        for shard, (beats, dues) in enumerate(zip(self._heartbeats, self._dues, strict=True)):
            part = self.part(flush, shard)
            moved = tuple(beat for beat in part.heartbeats if beats.get(beat[0]) != beat[1])
            changed = tuple(due for due in part.dues if dues.get(due[:2], -1) != due[2])
            beats.update(moved)
            dues.update({(segment, owner): tick for segment, owner, tick in changed})
            parts.append(replace(part, heartbeats=moved, dues=changed))
        return parts

    def forget(self, shard: int) -> None:
        """Forget what this shard was sent: from now on nothing is left out until it was sent again."""
        self._heartbeats[shard].clear()
        self._dues[shard].clear()

    def part(self, flush: Flush, shard: int) -> Flush:
        """Return one shard's part of a flush, with nothing left out: to be sent again on a new connection."""
        shards = self.shards
        return replace(
            flush,
            acks=tuple(ack for ack in flush.acks if ack[1] % shards == shard),
            heartbeats=tuple((front, round_up(tick, shard, shards)) for front, tick in flush.heartbeats),
            floors=tuple(floor for floor in flush.floors if floor.front % shards == shard),
            dues=self._rounded(flush.dues, shard),
        )

    def report(self, absolute: Absolute, shard: int) -> Absolute:
        """Return one shard's part of a worker's state: for one that is being rebuilt."""
        shards = self.shards
        return replace(
            absolute,
            acks=tuple(ack for ack in absolute.acks if ack[1] % shards == shard),
            heartbeats=tuple((front, round_up(tick, shard, shards)) for front, tick in absolute.heartbeats),
            floors=tuple(floor for floor in absolute.floors if floor.front % shards == shard),
            dues=self._rounded(absolute.dues, shard),
        )

    def _rounded(self, dues: tuple[Due, ...], shard: int) -> tuple[Due, ...]:
        return tuple(
            (segment, owner, None if tick is None else round_up(tick, shard, self.shards))
            for segment, owner, tick in dues
        )
