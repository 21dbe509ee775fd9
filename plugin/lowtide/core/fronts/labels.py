"""Labels: the ticks of messages (R1).

    label(o) = max(label(o - 1), tick(timestamp(o)), floor(o)),    tick(t) = floor(t / slack)

and where a cap stands at exactly o, the cap's tick takes the place of the timestamp's. All but the caps that are made
here is a function of the log and the floors, however it is cut into batches; and a cap that was made is a floor from
then on, so the same log with the floors that came of it gives the same labels in every later life
(`docs/decisions/004-caps.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lowtide.core.fronts.floors import LAST_TICK, Floors
from lowtide_tracker import Floor


@dataclass(frozen=True, slots=True)
class Clock:
    """The limit for accepting timestamps.

    Attributes:
        slack_ms: Length of a tick in ms.
        now_ms: The broker's time, at least what an earlier life relied on.
        max_future_ms: The distance beyond `now_ms` that a timestamp may have; a later one counts as `now_ms`.
    """

    slack_ms: int
    now_ms: int
    max_future_ms: int

    @property
    def tick(self) -> int:
        """The current tick, for timestamps that are not accepted."""
        return self.now_ms // self.slack_ms

    @property
    def limit_ms(self) -> int:
        """The last timestamp that is accepted."""
        return min(self.now_ms + self.max_future_ms, LAST_TICK)


def label(
    front: int, offsets: Sequence[int], timestamps: Sequence[int], *, before: int, floors: Floors, clock: Clock
) -> tuple[list[int], list[Floor]]:
    """Label messages that follow each other in a front's log; O(log floors) each.

    Args:
        front: The front.
        offsets: n, ascending, n >= 1.
        timestamps: n, ms.
        before: The label of the message before them, `NO_TICK` if there is none.
        floors: All that are known of this front.
        clock: What is believed.

    Returns:
        n labels, ascending and nowhere below `before`; and the caps of the messages that were not believed.
    """
    ticks: list[int] = []
    caps: list[Floor] = []
    for offset, timestamp in zip(offsets, timestamps, strict=True):
        _, capped = floors.steps(front, offset, offset, cap=True)
        if capped:
            tick = capped[0]
        elif timestamp > clock.limit_ms:
            tick = clock.tick
            caps.append(Floor(front, offset, tick, cap=True))
        else:
            tick = timestamp // clock.slack_ms
        before = max(before, tick, floors.tick_at(front, offset))
        ticks.append(before)
    return ticks, caps


def calm_labels(timestamps: Sequence[int], *, before: int, slack_ms: int, limit_ms: int) -> list[int] | None:
    """The same labels where no floor begins and no cap stands among the messages; None if one is not believed.

    Args:
        timestamps: As for `label`.
        before: The larger of the label of the message before them and the floor that holds for the first.
        slack_ms: How many milliseconds one tick is long.
        limit_ms: The last timestamp that is believed.
    """
    if max(timestamps) > limit_ms:
        return None
    ticks = [timestamp // slack_ms for timestamp in timestamps]
    if before <= ticks[0] and sorted(ticks) == ticks:
        return ticks
    return list(accumulate(ticks, max, initial=before))[1:]
