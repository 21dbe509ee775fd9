"""The broker's clock, which can be stepped: a class of ours takes the place of Kafka's own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.shop import now_ms

from lowtide.jars.java import find_java
from lowtide.jars.third_party import broker_jars
from lowtide.service.fronts.broker_clock import FIRST_AHEAD_MS

SOURCE = Path(__file__).with_name("SystemTime.java")
COMPILED_WITHIN_S = 60.0
LATE_MS = 1_000
"""Time after the file for which the broker's clock may still show what it showed before, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Step:
    """From `from_ms` to `to_ms` of true time the clock was `by_ms` ahead, or, where that is negative, behind."""

    from_ms: int
    to_ms: int
    by_ms: int


class SteppedClock:
    """The clock of a broker that is started with `classes` before its own.

    Attributes:
        classes: A folder of classes, and of the file that says how far off the clock is.
        steps: What was done, in order.
    """

    def __init__(self, folder: Path) -> None:
        """Compile the class; the clock is right."""
        self.classes = folder
        self.steps: list[Step] = []
        folder.mkdir(parents=True)
        self._set(0)
        compiler = find_java().executable.resolve().with_name("javac")
        jars = ":".join(map(str, broker_jars()))
        command: list[Any] = [compiler, "-d", folder, "-cp", jars, SOURCE]
        subprocess.run(command, check=True, timeout=COMPILED_WITHIN_S)

    @contextmanager
    def stepped(self, by_ms: int) -> Iterator[None]:
        """Let the clock be so much ahead, or behind, until the block ends."""
        from_ms = now_ms()
        self._set(by_ms)
        try:
            yield
        finally:
            self._set(0)
            self.steps.append(Step(from_ms, now_ms() + LATE_MS, by_ms))

    def believed_ms(self, dated_ms: int) -> int:
        """The latest time that a job may have taken for the present one when the broker dated a record so.

        That is the true time, the latest of those at which the clock may have shown this date. But a life that begins
        while the clock is ahead follows its first stamp for a minute's worth, and then stands still until true time is
        as late as that.
        """
        shown = [dated_ms - step.by_ms for step in self.steps]
        times = [at for at, step in zip(shown, self.steps, strict=True) if step.from_ms <= at <= step.to_ms]
        true_ms = max(times, default=dated_ms) if dated_ms > now_ms() else max([*times, dated_ms])
        led = [step.to_ms + FIRST_AHEAD_MS for step in self.steps if step.by_ms > 0 and step.from_ms <= true_ms]
        return max([true_ms, *(min(until, true_ms + FIRST_AHEAD_MS) for until in led)])

    def _set(self, by_ms: int) -> None:
        draft = self.classes / "offset_ms.new"
        draft.write_text(str(by_ms))
        draft.replace(self.classes / "offset_ms")
