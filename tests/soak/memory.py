"""Memory of a job's processes over time, by role: processes are replaced, roles are not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple, Self

LEFT_OUT = frozenset({"saver"})
"""They live for as long as they write a snapshot, and share most of their memory with the worker they come from."""
MOST = 1.10
MIB = 1 << 20


class Sample(NamedTuple):
    """Bytes that the processes of each role took together, at a time in s."""

    at_s: float
    bytes: Mapping[str, int]


@dataclass(frozen=True)
class Grown:
    """The growth of one role's processes.

    Attributes:
        role: What they are.
        settled: What they took once the job had settled, in bytes: the median of some samples.
        end: What they took in the end, likewise.
        most: The most that they took.
    """

    role: str
    settled: float
    end: float
    most: int

    @property
    def share(self) -> float:
        """Their memory in the end, as a share of what they took before."""
        return self.end / self.settled

    @property
    def right(self) -> bool:
        """True if they have not grown; shrinking is fine."""
        return self.share <= MOST


class Sampler:
    """Looks every few seconds, for as long as the block lasts.

    Args:
        processes: Gives the processes by role; None while the job does not run.
        clock: Gives the time in s.
        every_s: How often it looks.

    Attributes:
        samples: In the order they were taken.
    """

    def __init__(
        self, processes: Callable[[], Mapping[str, Sequence[int]] | None], clock: Callable[[], float], every_s: float
    ) -> None:
        self.samples: list[Sample] = []
        self._processes, self._clock, self._every_s = processes, clock, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            roles = self._processes()
            if roles is not None:
                found = {role: sum(map(resident_bytes, pids)) for role, pids in roles.items() if role not in LEFT_OUT}
                self.samples.append(Sample(self._clock(), found))


def resident_bytes(pid: int) -> int:
    """A process's RSS; 0 for one that is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def grown(samples: Sequence[Sample], settled_s: float, end_s: float, within_s: float) -> list[Grown]:
    """Compare, by role, what was taken for so long from `settled_s` on with the same time before `end_s`.

    Raises:
        ValueError: there is no sample of a role at one of the two.
    """
    found = []
    for role in sorted({role for sample in samples for role in sample.bytes}):
        taken = [(at_s, roles[role]) for at_s, roles in samples if roles.get(role)]
        before = [size for at_s, size in taken if settled_s <= at_s <= settled_s + within_s]
        after = [size for at_s, size in taken if end_s - within_s <= at_s <= end_s]
        if not before or not after:
            raise ValueError(f"no {role} was seen {'after it had settled' if not before else 'in the end'}")
        found.append(Grown(role, median(before), median(after), max(size for _, size in taken)))
    return found


def table(found: Sequence[Grown], settled_s: float) -> str:
    """For people: a line for each role."""
    lines = [f"{'MiB, by role':<14}{f'after {settled_s / 60:.1f} min':>16}{'at the end':>14}{'':>9}{'highest':>11}"]
    for each in found:
        mark = "" if each.right else "  grown"
        sizes = f"{each.settled / MIB:16.1f}{each.end / MIB:14.1f}{each.share - 1:+9.1%}{each.most / MIB:11.1f}"
        lines.append(f"{each.role:<14}{sizes}{mark}")
    return "\n".join(lines)


def write_series(samples: Sequence[Sample], file: Path) -> None:
    """Write all samples as CSV, in MiB: what a role took when."""
    roles = sorted({role for sample in samples for role in sample.bytes})
    rows = [[f"{at_s:.0f}", *(f"{sizes.get(role, 0) / MIB:.1f}" for role in roles)] for at_s, sizes in samples]
    file.write_text("\n".join(map(",".join, [["s", *roles], *rows])) + "\n", "utf-8")
