"""Random staged logs, and a reader that runs carriers on them: cut anywhere, ended anywhere, several at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.sinks.staged.contract import Carrier, StagedRow

Entry = StagedRow | int
"""A row, or a mark."""


@dataclass
class Log:
    """By lane its rows and marks, in order."""

    lanes: dict[int, list[Entry]] = field(default_factory=dict)

    @property
    def rows(self) -> list[StagedRow]:
        return [entry for entries in self.lanes.values() for entry in entries if isinstance(entry, StagedRow)]


def log_of(
    chance: random.Random, lanes: int, rows: int, value: Callable[[int], bytes], first_ms: int, step_ms: int
) -> Log:
    """Make a log; it ends with a mark of one day later in each lane, so that all rows are in whole files."""
    log, number = Log(), 0
    for lane in range(lanes):
        entries: list[Entry] = []
        offset, time_ms = 0, first_ms
        for _ in range(rows):
            time_ms += 10 * chance.choice([0, 0, 0, 1, step_ms // 10])
            offset += chance.choice([1, 1, 3])
            if chance.random() < 0.1:
                entries.append(time_ms)
            else:
                entries.append(StagedRow(offset, time_ms, None, value(number)))
                number += 1
        log.lanes[lane] = [*entries, time_ms + 86_400_000]
    return log


class Reader:
    """Runs one carrier on a log from its position on.

    Args:
        kept: By lane the largest `needed` that any carrier has reported; updated.
    """

    def __init__(self, log: Log, carrier: Carrier, kept: dict[int, int]) -> None:
        self.carrier, self._kept = carrier, kept
        begins: Mapping[int, int] = carrier.open(dict(kept))
        self._rest = {lane: list(after(entries, begins[lane])) for lane, entries in log.lanes.items()}

    @property
    def at_end(self) -> bool:
        return not any(self._rest.values())

    def read(self, chance: random.Random) -> None:
        """Give a lane some rows and what follows, settle perhaps, and keep the progress."""
        lane = chance.choice([lane for lane, rest in self._rest.items() if rest])
        rest = self._rest[lane]
        count = chance.randint(1, 40)
        some, self._rest[lane] = rest[:count], rest[count:]
        batch: list[StagedRow] = []
        for entry in some:
            if isinstance(entry, StagedRow):
                batch.append(entry)
                continue
            self.carrier.take(lane, batch)
            batch = []
            self.carrier.mark(lane, entry)
        self.carrier.take(lane, batch)
        if chance.random() < 0.7:
            self.settle()

    def settle(self) -> None:
        self.carrier.settle(0.0)
        for lane, progress in self.carrier.progress().items():
            self._kept[lane] = max(self._kept[lane], progress.needed)

    def finish(self, chance: random.Random) -> None:
        """Read all that is left."""
        while not self.at_end:
            self.read(chance)
        self.settle()


def after(entries: Sequence[Entry], offset: int) -> Sequence[Entry]:
    """Return what is at or after an offset: a mark is after the row before it."""
    for place, entry in enumerate(entries):
        if isinstance(entry, StagedRow) and entry.offset >= offset:
            begin = place
            while begin and not isinstance(entries[begin - 1], StagedRow):
                begin -= 1
            return entries[begin:]
    last = max((place for place, entry in enumerate(entries) if isinstance(entry, StagedRow)), default=-1)
    return entries[last + 1 :]
