import multiprocessing
from multiprocessing.connection import Connection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide_tracker import AckValues
from lowtide_tracker.ack_values import MAX_WORKER, mix

_M = (1 << 64) - 1


def unmix(x: int) -> int:
    """The inverse of `mix`, from its definition."""
    x ^= (x >> 31) ^ (x >> 62)
    x = x * pow(0x94D049BB133111EB, -1, 1 << 64) & _M
    x ^= (x >> 27) ^ (x >> 54)
    x = x * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & _M
    return x ^ (x >> 30) ^ (x >> 60)


@given(st.integers(0, _M))
def test_the_mix_is_a_bijection(x: int) -> None:
    assert unmix(mix(x)) == x


def test_no_value_is_zero_nor_made_twice() -> None:
    drawn = [values.next() for values in map(AckValues, (0, 1, 2, MAX_WORKER), (1, 1, 1, 1)) for _ in range(5000)]
    assert 0 not in drawn
    assert len(set(drawn)) == len(drawn)
    assert all(type(value) is int and value < 1 << 64 for value in drawn[:3])


def test_zero_is_skipped() -> None:
    """Worker 0's first argument in incarnation 0 is the one that the mix maps to 0."""
    assert mix(0) == 0
    assert AckValues(0, 0).next() == mix(1)


def test_another_incarnation_draws_other_values() -> None:
    first, second = AckValues(1, 1), AckValues(1, 2)
    assert {first.next() for _ in range(1000)}.isdisjoint({second.next() for _ in range(1000)})


def _draw(worker: int, into: Connection) -> None:
    values = AckValues(worker, 3)
    into.send([values.next() for _ in range(2000)])


def test_forked_workers_draw_different_values() -> None:
    """Two processes forked from one state: random generators repeat each other there, these values cannot."""
    context = multiprocessing.get_context("fork")
    drawn: list[int] = []
    for worker in (1, 2):
        here, there = context.Pipe()
        child = context.Process(target=_draw, args=(worker, there))
        child.start()
        drawn += here.recv()
        child.join()
    assert len(set(drawn)) == 4000


@pytest.mark.parametrize("worker", [-1, MAX_WORKER + 1])
def test_a_worker_that_does_not_fit_is_refused(worker: int) -> None:
    with pytest.raises(ValueError, match="0 to 65535"):
        AckValues(worker, 1)
