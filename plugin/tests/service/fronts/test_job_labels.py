"""A job labels what another job has written with that job's ticks, in every schedule; two rules broken are noticed.

One partition: the writing job puts transactions into the log, learns that they are committed, and only later do their
markers let readers have them. The reading job's front reads, and is granted idle heartbeats by the real `TailState`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.fronts.source_rows import SourceRows
from lowtide.service.fronts.tail_state import RECORD, Grant, Tail, TailState
from lowtide_tracker import Floor

MARKER = -1
STEPS = 600


@dataclass
class Log:
    """One partition, as a broker has it; an entry is a record's tick, or `MARKER`."""

    entries: list[int] = field(default_factory=list)
    open_from: int | None = None
    """The start of the transaction that has no marker yet."""

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def lso(self) -> int:
        return self.end if self.open_from is None else self.open_from


@dataclass
class Writer:
    """The job that writes: one lane, with transactions of records in the order of their ticks."""

    log: Log
    now: int = 1
    phase: str = "idle"
    delivered: int = 0
    durable: int = 0
    """The tick of the last record that is in the log for good."""
    stored: int = 0
    """The delivered time that it has stored and reported."""

    def step(self, dice: random.Random) -> None:
        if self.phase == "idle":
            self.now += dice.randint(0, 5)
            if dice.random() < 0.5:
                self.delivered = self.now  # Nothing lies before it.
                return
            self.log.open_from = self.log.end
            ticks = sorted(dice.randint(self.delivered, self.now) for _ in range(dice.randint(1, 3)))
            self.log.entries += ticks
            self.last, self.phase = ticks[-1], "written"
        elif self.phase == "written":
            if dice.random() < 0.2:  # Its life ends: the next one continues from what was reported.
                self.log.entries[self.log.open_from :] = [MARKER] * (self.log.end - (self.log.open_from or 0) + 1)
                self.log.open_from, self.phase, self.delivered = None, "idle", max(self.stored, self.durable)
                return
            self.delivered, self.durable, self.phase = self.last, self.last, "answered"
        else:
            self.log.entries.append(MARKER)
            self.log.open_from, self.phase = None, "idle"


class Reader:
    """The job that reads; it counts the labels that are no ticks of the writing job."""

    def __init__(self, dice: random.Random, *, by_job: bool, decided: bool) -> None:
        self.dice, self.by_job, self.decided = dice, by_job, decided
        self.log = Log()
        self.writer = Writer(self.log)
        self.front = Front(0, FrontLimits(1, Window(1 << 30, 1 << 30), 1 << 40), KnownFloors(0))
        self.state = TailState(skew_ms=0, active_s=0.001, idle_s=0.001)
        self.state.watch(Tail(0, "orders", 0, 0))
        self.known = self.wrong = self.labelled = 0
        self.grants: list[Grant] = []

    def write(self, _now_s: float) -> None:
        self.writer.step(self.dice)

    def tell(self, _now_s: float) -> None:
        self.writer.stored = self.writer.delivered
        if self.dice.random() < 0.7:
            self.known = self.writer.stored  # It was reported to the graph, and came here.

    def look(self, now_s: float) -> None:
        promised, end = self.known, self.log.end
        for _ in range(self.dice.randint(0, 3)):  # The writer goes on between the two questions.
            self.writer.step(self.dice)
        self.state.promised(0, promised, end if self.decided else 0)
        self.grants.append(
            self.state.looked(0, self.log.lso, before_ms=1 << 20, now_s=now_s, written_by_job=self.by_job)
        )

    def probe(self, now_s: float) -> None:
        for tail in self.state.probes([0], now_s):
            rest = self.log.entries[tail.offset : self.log.lso]
            met = RECORD if any(each != MARKER for each in rest) else self.log.lso
            self.state.probed(0, tail.offset, met, now_s)

    def read(self, now_s: float) -> None:
        entries = self.log.entries
        offsets = [at for at in range(self.front.next_offset, self.log.lso) if entries[at] != MARKER]
        if not offsets:
            return
        ticks = [entries[at] for at in offsets]
        rows = SourceRows(0, offsets, [*ticks], [None for _ in offsets], [b"" for _ in offsets])
        self.front.take(rows, now_ms=1 << 20)
        labels = [tick for part in self.front.admitted(0) for tick in part.ticks]
        self.wrong += sum(tick != label for tick, label in zip(ticks, labels, strict=True))
        self.labelled += len(labels)
        self.state.at(0, self.front.next_offset, now_s)

    def grant(self, _now_s: float) -> None:
        if self.grants:
            grant = self.dice.choice(self.grants[-3:])  # It may come late, and after a newer one.
            self.front.grant(Floor(0, grant.offset, max(0, grant.ms)))
            self.front.check()


def run(seed: int, *, by_job: bool = True, decided: bool = True) -> int:
    """Return how many labels are no ticks of the writing job; AssertionError if nothing was read."""
    dice = random.Random(seed)
    reader = Reader(dice, by_job=by_job, decided=decided)
    each = [reader.write, reader.tell, reader.look, reader.probe, reader.read, reader.grant]
    for moment in range(STEPS):
        dice.choices(each, [1, 2, 3, 3, 2, 3])[0](float(moment))
    assert reader.labelled, f"seed {seed}: nothing was read"
    return reader.wrong


@pytest.mark.parametrize("seed", range(100))
def test_labels_are_the_ticks_of_the_writing_job(seed: int) -> None:
    assert run(seed) == 0


def test_a_grant_that_ignores_the_writing_job_is_noticed() -> None:
    assert sum(bool(run(seed, by_job=False)) for seed in range(100)) > 50


def test_a_grant_that_does_not_wait_for_what_is_undecided_is_noticed() -> None:
    assert any(run(seed, decided=False) for seed in range(200))
