"""Judges whether the machine left a measurement alone, and repeats one that it disturbed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

TRIES = 3
"""Limit on measurements of one figure, if none is given."""
OTHERS_LIMIT = 0.15
"""Limit on the CPU of processes outside the run, as a share of one core."""
MACHINE_LIMIT = 0.9
"""Limit on the CPU of all processes, as a share of all cores; of low rates only."""
MARK = "†"
NOTE = (
    f"{MARK} disturbed in every try: others used more than {OTHERS_LIMIT:.0%} of a core, "
    f"or all cores were busy for more than {MACHINE_LIMIT:.0%} of the time at a low rate"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Noise:
    """CPU time that a window of measurement has seen on the machine.

    Attributes:
        others: CPU of processes outside the run, as a share of one core.
        machine: CPU of all processes, as a share of all cores.
        low: Whether the rate is so low that a full machine is a disturbance; at high rates the run itself fills it.
    """

    others: float
    machine: float
    low: bool = True

    @property
    def marked(self) -> bool:
        """Return whether the figures are disturbed."""
        return self.others > OTHERS_LIMIT or (self.low and self.machine > MACHINE_LIMIT)

    def as_json(self, tries: int) -> dict[str, Any]:
        """Return its entries of the JSON object, given the number of tries."""
        shares = {"others_share": round(self.others, 3), "machine_share": round(self.machine, 3)}
        return {**shares, "marked": self.marked, "tries": tries}


def repeated(
    measure: Callable[[], T], noise: Callable[[T], Noise], say: Callable[[str], None], most: int = TRIES
) -> tuple[T, int]:
    """Measure until a try is undisturbed, or for the last time; return the last, and the number of tries."""
    for tries in range(1, most + 1):
        found = measure()
        seen = noise(found)
        if not seen.marked:
            break
        say(f"disturbed in try {tries} of {most}: {shares(seen.as_json(tries))}")
    return found, tries


def mark(figures: Mapping[str, Any]) -> str:
    """Return the mark of figures, given their entries of the JSON object, with a blank before it; empty for none."""
    return f" {MARK}" if figures.get("marked") else ""


def shares(figures: Mapping[str, Any]) -> str:
    """Return the shares in words: `others used 3% of a core, all together 71% of the machine`, and the mark."""
    others, machine = figures["others_share"], figures["machine_share"]
    return f"others used {others:.0%} of a core, all together {machine:.0%} of the machine{mark(figures)}"
