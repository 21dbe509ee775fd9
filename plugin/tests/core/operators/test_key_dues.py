"""Due keys and their moments, against a dict that is searched."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.core.operators.state.group import SPARE
from lowtide.core.operators.state.key_dues import KeyDues

keys = st.integers(0, 5)
puts = st.tuples(keys, st.integers(0, 30), st.integers(0, 2))
"""Key, tick, and how much later than the tick's begin its moment is."""
steps = st.lists(puts | keys | st.none(), max_size=60)
"""Put a key, drop one, or take the first."""


def unit_of(key: int) -> int:
    return key % 2


def key_bytes(key: int) -> bytes:
    return bytes([9 - key])


@settings(deadline=None, max_examples=300)
@given(steps)
def test_the_first_is_the_smallest_of_what_was_put_last(given_steps: list[tuple[int, int, int] | int | None]) -> None:
    dues, model = KeyDues(), dict[int, tuple[int, int, int, bytes, int]]()
    for step in given_steps:
        if isinstance(step, tuple):
            key, tick, later = step
            dues.put(key, unit_of(key), tick, 10 * tick + later, key_bytes)
            model[key] = tick, unit_of(key), 10 * tick + later, key_bytes(key), key
        elif step is not None:
            dues.drop(step)
            model.pop(step, None)
        elif model:
            assert dues.first == min(model.values())[0]
            first = dues.pop()
            assert first == min(model.values())
            del model[first[4]]
        dues.check()
        assert len(dues) == len(model)
        for tick in (0, 7, 31):
            assert sorted(dues.before(tick)) == sorted((key, unit_of(key)) for key in model if model[key][0] < tick)
        assert dues.first == min((each[0] for each in model.values()), default=None)


def test_what_counts_no_more_is_never_more_than_what_does() -> None:
    """One key holds the head, others come and go, and are put to and fro."""
    dues = KeyDues()
    dues.put(-1, 0, 0, 0, lambda _: b"")
    for number in range(5_000):
        dues.put(number, 0, 100_000 - number, 0, lambda _: b"\1")
        dues.put(7, 0, 90_000 - number, 0, lambda _: b"\2")
        dues.drop(number - 3)
        dues.check()
    assert dues.kept.number == len(dues) <= 5
    assert dues.kept.bytes < 1_000 * (len(dues) + SPARE)


def test_the_entries_of_keys_that_are_taken_do_not_outlast_them() -> None:
    """Keys that were put far, then sooner, then taken, leave a second entry each after the one that was taken."""
    dues = KeyDues()
    for number in range(5_000):
        dues.put(number, 0, 1_000_000, 0, lambda _: b"")
    dues.put(-1, 0, 2_000_000, 0, lambda _: b"")
    for number in range(5_000):
        dues.put(number, 0, number, 0, lambda _: b"")
    for number in range(5_000):
        assert dues.first == number
        dues.pop()
        dues.check()
    assert len(dues) == 1
