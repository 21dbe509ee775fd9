"""The outcome of a run: one line of JSON, and the exit status."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from lowtide.local.oracle import Output, Verdict, compare_lanes

Letters = Counter[tuple[bytes | None, bytes | None]]


@dataclass
class Result:
    """The account of a run.

    Attributes:
        kills: How many of the job's processes were killed.
        faults: How many faults of each kind there were.
        lost: Messages that were due and did not come, dead letters too; None before they were judged.
        duplicated: Messages that came and were not due, or not so often.
        out_of_order: Places at which lanes differ besides.
        recoveries_s: For each life that took the place of another, how long no output came.
        failures: What else went wrong, in words.
    """

    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    lost: int | None = None
    duplicated: int | None = None
    out_of_order: int | None = None
    recoveries_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """True if all came exactly once and in order, over at least one recovery, and nothing else went wrong."""
        counts = (self.lost, self.duplicated, self.out_of_order)
        return counts == (0, 0, 0) and bool(self.recoveries_s) and not self.failures

    def line(self) -> str:
        """The last line."""
        spent = self.recoveries_s
        return json.dumps(
            {
                "kills": self.kills,
                "faults": dict(sorted(self.faults.items())),
                "lost": self.lost,
                "duplicated": self.duplicated,
                "out_of_order": self.out_of_order,
                "recoveries": len(spent),
                "recovery_p50_s": round(median(spent), 2) if spent else None,
                "recovery_max_s": round(max(spent), 2) if spent else None,
            }
        )


def judged(
    result: Result,
    due: Mapping[int, Sequence[Output]],
    came: Mapping[int, Sequence[Output]],
    letters_due: Letters,
    letters_came: Letters,
) -> Verdict:
    """Write down what a comparison says of a sink's lanes, byte by byte, and of dead letters, which have no order.

    Returns:
        The lanes' verdict, which has the first differences in words.
    """
    verdict = compare_lanes(due, came)
    result.lost = verdict.lost + (letters_due - letters_came).total()
    result.duplicated = verdict.duplicated + (letters_came - letters_due).total()
    result.out_of_order = verdict.out_of_order
    return verdict
