import pytest

from lowtide_tracker import Table, TableFull, TimeWentBack, UnknownSegment
from lowtide_tracker.table import INT64_MIN

INT64_MAX = (1 << 63) - 1
CAPACITIES = [1, 2, 3, 7, 8, 1000]


def fold(table: Table, *acks: tuple[int, int, int]) -> None:
    table.admit(acks)
    table.apply(acks)


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("start", [0, 5, -9, 1 << 40])
def test_limits_are_exact(capacity: int, start: int) -> None:
    """Capacity - 1 is accepted; capacity, and capacity + 1, are not, though the table is empty."""
    table = Table([1], capacity, start)
    for too_far in (capacity, capacity + 1):
        with pytest.raises(TableFull, match=f"tick {start + too_far} is {too_far} ticks ahead"):
            fold(table, (1, start + too_far, 5))
    fold(table, (1, start + capacity - 1, 5))
    assert table.is_open(1, start + capacity - 1)
    with pytest.raises(TimeWentBack, match=f"tick {start - 1} is below min time {start}"):
        fold(table, (1, start - 1, 5))
    table.check()


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_full_table_does_not_alias_its_head(capacity: int) -> None:
    """The papers' own system took the tick at min time + capacity for the one at min time when exactly full."""
    table = Table([1], capacity, 0)
    fold(table, *((1, tick, 7) for tick in range(capacity)))
    with pytest.raises(TableFull):
        fold(table, (1, capacity, 7))
    assert all(table.is_open(1, tick) for tick in range(capacity))
    assert table.first_open(1, capacity) == 0


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_table_moves_on_for_ever(capacity: int) -> None:
    table = Table([1], capacity, 0)
    for tick in range(3 * capacity + 2):
        table.advance(1, tick)
        fold(table, (1, tick + capacity - 1, 3))
        assert table.first_open(1, tick + capacity) == tick + capacity - 1
        fold(table, (1, tick + capacity - 1, 3))
        assert table.first_open(1, tick + capacity) == tick + capacity
        table.check()


def test_a_flush_is_applied_whole_or_not_at_all() -> None:
    """A burst that overflows the table in its middle leaves nothing behind."""
    table = Table([1, 2], 4, 0)
    for bad in ((1, 4, 9), (1, -1, 9), (7, 0, 9)):
        with pytest.raises((TableFull, TimeWentBack, UnknownSegment)):
            fold(table, (2, 0, 9), bad, (1, 1, 9))
        assert table.first_open(1, 100) == table.first_open(2, 100) == 100


def test_segments_do_not_share_slots() -> None:
    table = Table([3, 1], 4, 0)
    fold(table, (3, 3, 1))
    table.advance(1, 50)
    fold(table, (1, 53, 1))
    assert (table.first_open(3, 99), table.first_open(1, 99)) == (3, 53)
    with pytest.raises(TableFull):
        fold(table, (3, 53, 1))


def test_equal_values_cancel_and_others_do_not() -> None:
    table = Table([1], 8, 0)
    fold(table, (1, 2, 5), (1, 2, 9), (1, 2, 5))
    assert table.is_open(1, 2)
    fold(table, (1, 2, 9))
    assert not table.is_open(1, 2)


def test_an_empty_table_jumps_to_its_limit() -> None:
    table = Table([1], 8, 0)
    assert table.first_open(1, 1 << 60) == 1 << 60


def test_a_jump_over_millions_of_ticks_stops_at_the_open_one() -> None:
    table = Table([1], 1 << 22, -5)
    fold(table, (1, 4_000_000, 1), (1, 4_100_000, 1))
    assert table.first_open(1, 1 << 50) == 4_000_000
    assert table.first_open(1, 3_999_999) == 3_999_999
    table.advance(1, 4_000_000)
    fold(table, (1, 4_000_000, 1), (1, 8_100_000, 1))
    assert table.first_open(1, 1 << 50) == 4_100_000
    fold(table, (1, 4_100_000, 1))
    assert table.first_open(1, 1 << 50) == 8_100_000


@pytest.mark.parametrize("capacity", [1, 3, 8])
def test_ticks_at_the_edges_of_int64(capacity: int) -> None:
    low = Table([1], capacity, INT64_MIN)
    fold(low, (1, INT64_MIN, 1), (1, INT64_MIN + capacity - 1, 2))
    assert low.first_open(1, 0) == INT64_MIN
    for tick in (INT64_MIN + capacity, 0, INT64_MAX):
        with pytest.raises(TableFull, match=f"tick {tick} is {tick - INT64_MIN} ticks ahead"):
            fold(low, (1, tick, 1))

    high = Table([1], capacity, INT64_MAX - capacity + 1)
    fold(high, (1, INT64_MAX, 1))
    assert high.first_open(1, INT64_MAX) == INT64_MAX
    for tick in (INT64_MIN, 0):
        with pytest.raises(TimeWentBack):
            fold(high, (1, tick, 1))


def test_a_difference_that_wraps_is_not_taken_for_a_small_one() -> None:
    """INT64_MIN lies one beyond INT64_MAX for a subtraction that wraps: it is below min time, not above."""
    table = Table([1], 8, INT64_MAX)
    with pytest.raises(TimeWentBack, match=str(INT64_MIN)):
        fold(table, (1, INT64_MIN, 1))


def test_a_value_has_all_its_bits() -> None:
    table = Table([1], 2, 0)
    fold(table, (1, 0, (1 << 64) - 1), (1, 0, (1 << 63) - 1))
    assert table.is_open(1, 0)
    fold(table, (1, 0, 1 << 63))
    assert not table.is_open(1, 0)


def test_no_acks_are_no_error() -> None:
    table = Table([1], 2, 0)
    fold(table)
    assert table.first_open(1, 9) == 9


def test_a_table_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="table_capacity_ticks is 0"):
        Table([1], 0, 0)
