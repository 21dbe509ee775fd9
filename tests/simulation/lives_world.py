"""Random flows in several lives, with snapshots between them: what is delivered has to be what `run_log` gives."""

from __future__ import annotations

from typing import ClassVar

import interpreter
from lives import Forgotten, Lives
from random_flows import Writer
from random_logs import logs, message_of

import lowtide
from lowtide.flow.compiler import compile_flow

from .verdict import Violation
from .world import Step, World

UNITS = 8


class LivesWorld(World):
    """A random flow of any steps. Its workers run without a tracker, frames come in any order: see `Lives`."""

    name: ClassVar[str] = "lives"

    def run(self, steps: int) -> None:
        """Live all lives, however many steps were asked for.

        Raises:
            Violation: state was lost, or something else was delivered.
        """
        flow, again = Writer(lowtide, self.seed).write(), Writer(interpreter, self.seed).write()
        rng = self.rng
        lanes, slack_ms = rng.choice([1, 2, 4]), rng.choice([1, 2, 5])
        plan = compile_flow(flow, units=UNITS, lanes=lanes, parallelism=1, slack_ms=slack_ms)
        log = {name: list(map(message_of, came)) for name, came in logs(rng, again).items()}
        self.steps = steps
        try:
            lives = Lives(plan, log, rng, self.trace or _silent)
            lives.run()
        except Forgotten as error:
            raise Violation("output", str(error)) from error
        self.counts["live"] = lives.number

    def chances(self) -> list[tuple[int, str, Step]]:
        """None: what happens is drawn by `Lives`."""
        return []

    def drain(self) -> None:
        """Nothing is left: `run` has compared all."""


def _silent(_text: str) -> None:
    """Say nothing."""
