"""Which looks at a job mean that it has died; values in, a value out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from lowtide_airflow.job_look import JobLook, Life

__all__ = ["MOST_ENDED", "WITHIN_S", "Death", "Deaths", "again_in_vain"]

MOST_ENDED = 5
"""How many lives may end by themselves before a person is asked."""
WITHIN_S = 1800.0
"""Within how long."""

GONE_S = 3.0
"""How long nobody holds the lease of a job that said it ran: one that was cut off from ZooKeeper takes it again within
a third of its session's time-out."""
FAILED_S = 30.0
"""The same of one that said why it ended, but not whether its program begins it again: that pauses 15 s at most."""

_OF_THE_FLOW = re.compile(r'(step |source )?"')
"""How the causes begin of what a flow's own functions and records bring about: the next life would end there too."""


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a life that nobody asked for, and that its program did not make good by itself.

    Attributes:
        job: whose.
        incarnation: the life.
        cause: why; what is known where it was killed.
        told_ms: the largest delivered time that was told until then; None if none was.
    """

    job: str
    incarnation: int
    cause: str
    told_ms: int | None

    def as_object(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Deaths:
    """Tells each death of a job once.

    A life that was told dead and holds the lease again had only been cut off: its death is told when it comes. Where a
    job's lives are counted anew, as its place in ZooKeeper was lost or is another one, what was told is forgotten.

    Args:
        told: the life whose death was told last; those up to it are not told again. As an attribute it goes down where
            something is taken back.
        gone_s: how long the lease of a job is free that has said nothing of its end.
        failed_s: the same of one that has said why it ended.
    """

    def __init__(self, told: int = 0, *, gone_s: float = GONE_S, failed_s: float = FAILED_S) -> None:
        self.told = told
        self._gone_s = gone_s
        self._failed_s = failed_s
        self._free: tuple[int, str] | None = None
        self._since_s = 0.0

    def look(self, look: JobLook, now_s: float) -> Death | None:
        """Take a look at the job; what is to be told of it.

        Args:
            look: at the job.
            now_s: a monotonic clock's time.
        """
        state = look.state
        held_again = look.alive and look.incarnation <= self.told
        if state != "unknown" and (held_again or look.incarnation < self.told):
            self.told = max(look.incarnation - 1, 0)
        if state not in ("failed", "gone") or look.incarnation <= self.told:
            self._free = None
            return None
        if self._free != (look.incarnation, state):
            self._free, self._since_s = (look.incarnation, state), now_s
        life = look.said
        for_good = state == "gone" or (life is not None and life.again is False)
        if now_s - self._since_s < (self._gone_s if for_good else self._failed_s):
            return None
        self.told = look.incarnation
        cause = life.cause if life is not None and state == "failed" else "it was killed, or its machine went down"
        return Death(look.job, look.incarnation, cause, look.told_ms)


def again_in_vain(
    cause: str, lives: Sequence[Life], now: datetime, *, most: int = MOST_ENDED, within_s: float = WITHIN_S
) -> tuple[str, str] | None:
    """Why it helps nobody to begin the job again without a person, in a word and a sentence; None if it may help.

    Args:
        cause: of its death.
        lives: its last ones, oldest first.
        now: with a time zone.
        most: so many lives may end by themselves.
        within_s: within so long.
    """
    if _OF_THE_FLOW.match(cause):
        return "in_vain", f"a function or a record of the flow ended it, and would end the next life as well: {cause}"
    ended = [
        life
        for life in lives
        if life.phase != "stopped" and life.at and (now - datetime.fromisoformat(life.at)).total_seconds() <= within_s
    ]
    if len(ended) > most:
        return "too_often", f"{len(ended)} lives have ended within {within_s:g} s, the last one as: {cause}"
    return None
