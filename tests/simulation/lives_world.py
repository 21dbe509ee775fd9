"""Random flows in several lives, with snapshots between them: what is delivered has to be what `run_log` gives."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import ClassVar

import interpreter
from lives import Forgotten, Lives
from random_flows import Writer
from random_logs import logs, message_of

import lowtide
from lowtide.flow.plan.compiler import compile_flow

from .verdict import Violation
from .world import Step, Trace, World

UNITS = 8
FURTHER = 1 << 20
"""So far away is the next flow that is looked at for what it has to have."""


class LivesWorld(World):
    """A random flow of any steps. Its workers run without a tracker, frames come in any order: see `Lives`.

    Args:
        seed: The seed.
        trace: Told every start, snapshot and death.
        having: A kind of step that the flow has to have, `join`; None for any flow.
        shelved: How likely lives may have state on disk.
    """

    name: ClassVar[str] = "lives"

    def __init__(
        self, seed: int, trace: Trace | None = None, *, having: str | None = None, shelved: float = 0.5
    ) -> None:
        super().__init__(seed, trace)
        self._having = having
        dice = Random(f"{self.name}/{seed}/shelved")
        """Chance apart, so that a seed's execution is the same without a disk."""
        self._shelved = dice if dice.random() < shelved else None

    def run(self, steps: int) -> None:
        """Live all lives, however many steps were asked for.

        Raises:
            Violation: state was lost, or something else was delivered.
        """
        flow, again = self._written()
        rng = self.rng
        lanes, slack_ms = rng.choice([1, 2, 4]), rng.choice([1, 2, 5])
        plan = compile_flow(flow, units=UNITS, lanes=lanes, parallelism=1, slack_ms=slack_ms)
        log = {name: list(map(message_of, came)) for name, came in logs(rng, again).items()}
        self.steps = steps
        try:
            lives = Lives(plan, log, rng, self.trace or _silent, self._shelved)
            lives.run()
        except Forgotten as error:
            raise Violation("output", str(error)) from error
        self.counts["live"] = lives.number
        self.counts["evicted"] = lives.evicted

    def _written(self) -> tuple[lowtide.Flow, interpreter.Flow]:
        """The flow, for both interpreters."""
        for number in count(self.seed, FURTHER):
            again = Writer(interpreter, number).write()
            if self._having in (None, *(step.kind for step in again.steps)):
                return Writer(lowtide, number).write(), again
        raise AssertionError("numbers end")

    def chances(self) -> list[tuple[int, str, Step]]:
        """None: what happens is drawn by `Lives`."""
        return []

    def drain(self) -> None:
        """Nothing is left: `run` has compared all."""


def _silent(_text: str) -> None:
    """Say nothing."""
