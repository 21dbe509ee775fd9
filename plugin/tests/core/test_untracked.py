"""Without tracking: everything is delivered at once, as it comes, and nothing is ever taken back."""

from __future__ import annotations

import msgspec
import pytest
from core_rig import Event, total
from programs import source_rows

from lowtide import Flow, json, kafka, raw
from lowtide.core.effects import Effects, letters_of
from lowtide.core.fronts.front import Front, Window
from lowtide.core.operators.order import Position
from lowtide.errors import RecordRefused
from lowtide.flow.compiler import compile_flow
from lowtide.local.run import Message
from lowtide.worker.untracked import UntrackedCore
from lowtide_tracker import LocalTracker


class Workers:
    """Two fronts and one worker of each later level; all that any of them delivers is durable at once."""

    def __init__(self, grouping: str = "optimistic", *, letters: bool = True) -> None:
        flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
        events = flow.read("events", kafka("events", json(Event)))
        first = events.key_by("key", name="first").scan("one", total, 0)
        first.key_by("key", name="second").scan("two", total, 0).write("out", kafka("out", json(Event)))
        plan = compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1)
        fronts = [Front(n, slack_ms=1, opening=0, window=Window(1, 1), max_future_ms=10**6) for n in (0, 1)]
        self.readers = [
            UntrackedCore(plan, 0, 0, tracker=LocalTracker(n, 1, start=0), front=front)
            for n, front in enumerate(fronts)
        ]
        self.later = [
            UntrackedCore(plan, level, 0, tracker=LocalTracker(level, 1, start=0), grouping=grouping)
            for level in (1, 2)
        ]
        self.delivered: list[Event] = []
        self.dead: list[tuple[int, int]] = []

    def read(self, front: int, offset: int, *events: tuple[int, int]) -> None:
        """Messages by (tick, number); a number of 1000 is no JSON."""
        messages = [
            Message(
                Position(front, offset + n),
                tick,
                None,
                b"?" if number == 1000 else msgspec.json.encode(Event("a", number)),
            )
            for n, (tick, number) in enumerate(events)
        ]
        self._take(0, self.readers[front].rows(source_rows(messages), 0))
        read = self.readers[front].front
        assert read is not None
        assert read.pulling, "no window stops anything"

    def _take(self, level: int, effects: Effects) -> None:
        core = self.later[level - 1] if level else None
        for sink, bundle in effects.bundles:
            if sink >= 0:
                self.delivered += bundle.rows
            else:
                assert sink == letters_of(level)
                self.dead += [(level, letter.position.sequence) for letter in bundle.rows]
            owner = core or self.readers[bundle.lane]
            self._take(level, owner.durable(sink, bundle.lane))
        for frame in effects.frames:
            assert frame.batch.flags is None
            self._take(level + 1, self.later[level].frame(frame))


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
def test_all_is_delivered_at_once_in_the_order_it_came(grouping: str) -> None:
    workers = Workers(grouping)
    sums, total_sum = [], 0
    for offset, (front, tick) in enumerate([(1, 500), (0, 3), (1, 500), (0, 3), (1, 900), (0, 4)]):
        workers.read(front, offset, (tick, 1))
        total_sum += offset + 1
        sums.append(total_sum)
        assert [event.number for event in workers.delivered] == sums, "nothing waits, though ticks go back and forth"
    assert [core.program.repairs for core in workers.later] == [0, 0]


def test_nobody_is_told_anything() -> None:
    workers = Workers()
    workers.read(0, 0, (5, 1), (7, 2))
    assert [core.delivered_time for core in (workers.readers[0], *workers.later)] == [8, 8, 8]
    for core in (*workers.readers, *workers.later):
        assert core.flush() is None
        assert (core.keep_floors().bundles, core.tracker.unflushed) == ([], False)


def test_dead_letters_are_delivered_at_once_again_and_again() -> None:
    workers = Workers()
    for offset in range(0, 9, 3):
        workers.read(0, offset, (5, 1000), (5, -1), (5, 1))
        assert workers.dead == [(0, 0), (1, 1), (0, 3), (1, 4), (0, 6), (1, 7)][: len(workers.dead)]
        assert len(workers.dead) == 2 * (offset // 3 + 1)
    assert len(workers.delivered) == 3


def test_a_message_that_cannot_be_read_ends_the_job_whenever_it_comes() -> None:
    workers = Workers(letters=False)
    workers.read(0, 0, (5, 1))
    workers.read(0, 1, (5, 1))
    with pytest.raises(RecordRefused, match="cannot be read"):
        workers.read(0, 2, (5, 1000))
