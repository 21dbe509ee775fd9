"""Floors as a step function, against a model that keeps everything it was given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide_tracker import Floor

EDGE = (1 << 63) - 1
fronts = st.integers(0, 2)
offsets = st.integers(0, 12)
ticks = st.integers(-5, 20) | st.sampled_from([-EDGE - 1, EDGE])
floor_lists = st.lists(st.builds(Floor, fronts, offsets, ticks, st.booleans()), max_size=25)
ALL = range(14)


def plain(floors: list[Floor], front: int, offset: int) -> int:
    """The model: the largest tick of all floors that begin at the offset or below."""
    found = [f.tick for f in floors if f.front == front and f.offset <= offset and not f.cap]
    return max(found, default=NO_TICK)


def caps(floors: list[Floor], front: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for floor in floors:
        if floor.front == front and floor.cap:
            found[floor.offset] = max(floor.tick, found.get(floor.offset, NO_TICK))
    return found


@given(floor_lists)
def test_a_floor_holds_from_its_offset_on_and_the_largest_counts(given_floors: list[Floor]) -> None:
    floors = Floors(given_floors)
    floors.check()
    for front in range(3):
        expected = [plain(given_floors, front, offset) for offset in ALL]
        assert [floors.tick_at(front, offset) for offset in ALL] == expected
        assert dict(zip(*floors.steps(front, 0, 13, cap=True), strict=True)) == caps(given_floors, front)


@given(floor_lists, floor_lists, st.randoms(use_true_random=False))
def test_a_union_depends_neither_on_order_nor_on_repetition(a: list[Floor], b: list[Floor], random: object) -> None:
    one, other = Floors(a), Floors(b)
    one.merge(b)
    other.merge(a)
    other.merge(one)
    mixed = a + b + a
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert one == other == Floors(mixed)
    assert list(one) == list(other) == list(Floors(one)) == sorted(one)


@given(floor_lists, offsets, fronts)
def test_a_cut_changes_nothing_from_its_offset_on(given_floors: list[Floor], offset: int, front: int) -> None:
    floors, whole = Floors(given_floors), Floors(given_floors)
    floors.cut(front, offset)
    floors.check()
    for other in range(3):
        first = offset if other == front else 0
        for at in ALL[first:]:
            assert floors.tick_at(other, at) == whole.tick_at(other, at)
        assert floors.steps(other, first, 13, cap=True) == whole.steps(other, first, 13, cap=True)
    kept = [floor for floor in floors.of_front(front) if floor.offset < offset]
    assert len(kept) <= 1
    assert not any(floor.cap for floor in kept)


def test_a_cut_keeps_the_floor_that_no_label_before_it_tells_of() -> None:
    # Offsets 7 and 8 are transaction markers: the first message that the floor of 7 lifts is the one at 9.
    floors = Floors([Floor(0, 2, 10), Floor(0, 7, 1000)])
    floors.cut(0, 9)
    assert list(floors) == [Floor(0, 7, 1000)]


@given(floor_lists, floor_lists)
def test_what_changed_since_a_version_makes_up_for_it(a: list[Floor], b: list[Floor]) -> None:
    floors = Floors(a)
    known, version = Floors(a), floors.version
    floors.merge(b)
    changed = floors.since(version)
    assert set(changed) <= set(b)
    known.merge(changed)
    assert known == floors
    assert floors.since(floors.version) == ()
    assert set(floors.since(0)) == set(floors)


def test_an_idle_front_has_one_floor_however_often_it_rises() -> None:
    floors = Floors()
    for tick in range(1000):
        assert floors.add(Floor(0, 7, tick))
    assert floors.since(0) == (Floor(0, 7, 999),)
    assert not floors.add(Floor(0, 7, 999))


def test_an_unknown_front_has_no_floor() -> None:
    assert [Floors().tick_at(5, offset) for offset in (0, 1)] == [NO_TICK, NO_TICK]
    assert Floors().largest_tick() == NO_TICK
    assert Floors([Floor(1, 0, 5), Floor(1, 3, 9), Floor(0, 0, 7, cap=True)]).largest_tick() == 9
