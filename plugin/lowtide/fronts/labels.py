"""Labels: which tick a message counts as (R1).

    label(o) = max(label(o - 1), tick(timestamp(o)), floor(o)),    tick(t) = floor(t / slack)

and where a cap stands at exactly o, the cap's tick takes the place of the timestamp's. All but the caps that are made
here is a function of the log and the floors, however it is cut into batches; and a cap that was made is a floor from
then on, so the same log with the floors that came of it gives the same labels in every later life
(`docs/decisions/004-caps.md`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lowtide.fronts.floors import LAST_TICK, Floors, Int64s
from lowtide_tracker import Floor

__all__ = ["Clock", "label"]


@dataclass(frozen=True, slots=True)
class Clock:
    """What of a timestamp is believed.

    Attributes:
        slack_ms: How many milliseconds one tick is long.
        now_ms: The broker's time, at least what an earlier life relied on.
        max_future_ms: How far beyond `now_ms` a timestamp may lie; one that lies further counts as `now_ms`.
    """

    slack_ms: int
    now_ms: int
    max_future_ms: int

    @property
    def tick(self) -> int:
        """The tick that is now: what a timestamp counts as that is not believed."""
        return self.now_ms // self.slack_ms

    @property
    def limit_ms(self) -> int:
        """The last timestamp that is believed."""
        return min(self.now_ms + self.max_future_ms, LAST_TICK)


def label(
    front: int, offsets: Int64s, timestamps: Int64s, *, before: int, floors: Floors, clock: Clock
) -> tuple[Int64s, list[Floor]]:
    """Label messages that follow each other in a front's log; O(n) in numpy, plus O(log) per floor they cross.

    Args:
        front: The front.
        offsets: int64[n], ascending, n >= 1.
        timestamps: int64[n], ms.
        before: The label of the message before them, `NO_TICK` if there is none.
        floors: All that are known of this front.
        clock: What is believed.

    Returns:
        int64[n], ascending and nowhere below `before`; and the caps of the messages that were not believed.
    """
    ticks: Int64s = timestamps // np.int64(clock.slack_ms)
    first, last = int(offsets[0]), int(offsets[-1])
    capped, cap_ticks = _caps_of(front, offsets, floors)
    caps = []
    if int(timestamps.max()) > clock.limit_ms:
        future = timestamps > clock.limit_ms
        future[capped] = False
        ticks[future] = clock.tick
        caps = [Floor(front, offset, clock.tick, cap=True) for offset in offsets[future].tolist()]
    ticks[capped] = cap_ticks
    ticks[0] = max(int(ticks[0]), before, floors.tick_at(front, first))
    # A floor lifts the first message that it holds for; the running maximum carries it on to the others.
    starts, steps = floors.steps(front, first + 1, last)
    for place, tick in zip(np.searchsorted(offsets, starts).tolist(), steps, strict=True):
        ticks[place] = max(int(ticks[place]), tick)
    return np.maximum.accumulate(ticks, out=ticks), caps


def _caps_of(front: int, offsets: Int64s, floors: Floors) -> tuple[npt.NDArray[np.intp], Int64s]:
    """Which of these messages have a cap, and the caps' ticks."""
    starts, ticks = floors.steps(front, int(offsets[0]), int(offsets[-1]), cap=True)
    places = np.searchsorted(offsets, np.array(starts, np.int64))
    here = offsets[places] == starts if starts else np.zeros(0, np.bool_)
    return places[here], np.array(ticks, np.int64)[here]
