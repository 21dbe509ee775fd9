"""What all worlds share: steps drawn by seed, a trace, and the model's word after each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import ClassVar

from lowtide_tracker import Flush

from .model import Model
from .tracking import Line, Tracking

Trace = Callable[[str], None]
Step = Callable[[], bool]

MAX_TRIES = 20
LATE = 0.1
"""How likely those who have not heard of the last notices, as these do not concern them, catch up after a step."""
NAMING = 0.8
"""How likely workers of some seeds name the segments that matter to them; if not, they hear of all."""


class World(ABC):
    """A world that is made from a seed and goes on step by step; equal seeds make equal worlds.

    Attributes:
        rng: All that happens by chance.
        model: What is really in flight.
        tracking: The tracker and its connections.
        counts: How often which step was taken.
    """

    name: ClassVar[str]
    model: Model
    tracking: Tracking

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        self.seed = seed
        self.rng = Random(f"{self.name}/{seed}")
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.steps = 0
        self.naming = Random(f"{self.name}/{seed}/naming")
        """Chance apart, and in some seeds only, so that all others are the same without it."""
        self.names = self.naming.random() < (NAMING if seed % 3 == 0 else 0.0)
        """Whether workers name segments."""
        self._chances: list[tuple[str, Step]] = []

    def run(self, steps: int) -> None:
        """Take so many steps, then let faults stop and everything end.

        Raises:
            Violation: the core did wrong.
        """
        pick, chances = self.rng.choice, self.weighted()
        for self.steps in range(1, steps + 1):
            for _ in range(MAX_TRIES):
                name, step = pick(chances)
                if step():
                    self.counts[name] += 1
                    break
            self.check()
        self.drain()

    def weighted(self) -> list[tuple[str, Step]]:
        """The steps there are, each as often as it is likely."""
        if not self._chances:
            self._chances = [(name, step) for weight, name, step in self.chances() for _ in range(weight)]
        return self._chances

    @abstractmethod
    def chances(self) -> list[tuple[int, str, Step]]:
        """The steps there are: how likely each is, its name, and what does it; it says whether there was anything."""

    @abstractmethod
    def drain(self) -> None:
        """Nothing fails any more: everything comes to its end, within a limit, and is compared."""

    # -- steps that all worlds take --------------------------------------------------------------------------------

    def flush(self) -> bool:
        """A worker flushes."""
        line = self.rng.choice(self.tracking.lines)
        done = self.tracking.send(line)
        if done and self.trace:
            self.say(f"worker {line.local.worker}", "flushes")
        return done

    def arrive(self) -> bool:
        """A flush arrives."""
        lines = [line for line in self.tracking.lines if line.up]
        if not lines:
            return False
        self.take(self.rng.choice(lines))
        return True

    def take(self, line: Line) -> None:
        """The tracker takes what a worker has sent first."""
        message = self.tracking.arrive(line)
        if self.trace:
            acks = [(segment, tick) for segment, tick, _ in message.acks]
            self.say("tracker", f"takes flush {message.number} of worker {message.worker}: {acks} {message.heartbeats}")

    def hear(self) -> bool:
        """A worker hears one notice, or several merged."""
        lines = [line for line in self.tracking.lines if line.down]
        if not lines:
            return False
        line = self.rng.choice(lines)
        notice = self.tracking.tell(line, self.rng.choice([1, 1, 2, 9]))
        if self.trace:
            asked = "" if notice.request is None else f", asked for a snapshot at {notice.request.tick}"
            self.say(f"worker {line.local.worker}", f"hears {dict(notice.min_times)}{asked}")
        return True

    def unsettled(self) -> Line | None:
        """A worker whose first message under way is a flush; None if there is none."""
        lines = [line for line in self.tracking.lines if line.up and isinstance(line.up[0], Flush)]
        return self.rng.choice(lines) if lines else None

    # -- laws ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Safety, and the tracker's own invariants where it has been asked to do something."""
        tracking = self.tracking
        if tracking.audience.behind and self.naming.random() < LATE:
            tracking.catch_up()
        self.model.check(tracking.tracker.min_times())
        if tracking.touched:
            tracking.touched = False
            tracking.tracker.check()

    def say(self, who: str, what: object) -> None:
        """One line of the trace; ask `self.trace` before, so that nothing is formatted for nobody."""
        if self.trace is not None:
            least = self.model.least()
            told = ", ".join(
                f"{segment}: {tick} <= {'-' if (may := least[segment]) is None else may}"
                for segment, tick in self.tracking.tracker.min_times().items()
            )
            self.trace(f"{self.steps:4}  {who:<12} {what}  [min time {told}]")
