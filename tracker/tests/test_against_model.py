"""The tracker against a model that follows the definitions and nothing else."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide_tracker import Flush, Graph, Notice, TableFull, TimeWentBack, Tracker, TrackerError

CAPACITY = 6


class Model:
    """Min time of a segment: the smallest open tick or heartbeat of anything from which it can be reached."""

    def __init__(self, inbound: dict[int, list[int]], fronts: list[int]) -> None:
        self.above = {s: {s} for s in inbound}
        for _ in inbound:
            self.above = {s: self.above[s].union(*(self.above[u] for u in inbound[s])) for s in inbound}
        least = {s for s in inbound if all(self.above[u] == self.above[s] for u in inbound[s])}
        self.sums: dict[tuple[int, int], int] = {}
        self.beats, self.least, self.min = dict.fromkeys(fronts, 0), least, dict.fromkeys(inbound, 0)

    def move(self) -> None:
        for s, above in self.above.items():
            open_ticks = [tick for (u, tick), value in self.sums.items() if u in above and value]
            beats = self.beats.values() if above & self.least else []
            self.min[s] = max(self.min[s], min([*open_ticks, *beats]))


@st.composite
def graphs(draw: st.DrawFn) -> dict[int, list[int]]:
    segments = range(1, draw(st.integers(1, 5)) + 1)
    return {s: draw(st.lists(st.sampled_from(segments), max_size=3, unique=True)) for s in segments}


@settings(max_examples=200, deadline=None)
@given(graphs(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_tracker_is_the_model(inbound: dict[int, list[int]], fronts: int, rng: random.Random) -> None:
    model = Model(inbound, list(range(fronts)))
    tracker = Tracker(Graph(inbound), dict.fromkeys(range(fronts), 0), start=0, capacity_ticks=CAPACITY)
    number, heard, notices = 0, dict(model.min), 0
    for _ in range(30):
        acks = []
        for _ in range(rng.randrange(4)):
            segment = rng.choice(list(inbound))
            acks.append((segment, model.min[segment] + rng.randrange(-1, CAPACITY + 1), rng.choice([1, 2])))
        if rng.random() < 0.3:  # Close what is open, or little would ever move.
            acks += [(s, t, v) for (s, t), v in model.sums.items() if v and rng.random() < 0.8]
        beats = [(front, tick + rng.randrange(3)) for front, tick in model.beats.items() if rng.random() < 0.5]
        wrong: type[TrackerError] | None = None
        for segment, tick, _ in reversed(acks):
            ahead = tick - model.min[segment]
            wrong = TimeWentBack if ahead < 0 else TableFull if ahead >= CAPACITY else wrong
        flush, before = Flush.of(1, number + 1, acks, beats), tracker.min_times()
        if wrong is not None:
            with pytest.raises(wrong):
                tracker.receive(flush)
            assert tracker.min_times() == before
            continue
        moved = tracker.receive(flush)
        number += 1
        for segment, tick, value in acks:
            model.sums[segment, tick] = model.sums.get((segment, tick), 0) ^ value
        model.beats.update(beats)
        model.move()
        tracker.check()
        assert tracker.min_times() == model.min
        for notice in moved:
            notices += 1
            changed = {segment: tick for segment, tick in model.min.items() if tick != heard[segment]}
            assert notice == Notice(1, notices, notices - 1, changed, min(model.min.values()))
            heard.update(changed)
        assert heard == model.min
        held = tracker.holder()
        assert held.tick == tracker.global_min
