"""Floors in few bytes: what is unpacked is what was packed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.fronts import floors as floors_module
from lowtide.core.fronts.floors import Steps, pack, unpack
from lowtide.errors import LifeEnded
from lowtide_tracker import Floor

i64 = st.integers(-(1 << 63), (1 << 63) - 1)
floors = st.lists(st.builds(Floor, st.integers(0, 3), i64, i64, st.booleans()))


@given(floors)
def test_what_is_unpacked_is_what_was_packed(some: list[Floor]) -> None:
    """Ticks and offsets at every type's edge wrap both ways."""
    steps = Steps(some)
    packed = pack(steps)
    assert sorted(floor for front, data in packed.items() for floor in unpack(front, data)) == list(steps)
    assert unpack(9, b"") == []


def test_floors_take_a_few_bytes_each() -> None:
    packed = pack(Floor(0, 1_000_000 + n, 880_000_000_000 + 40 * n + n % 7) for n in range(10_000))
    assert len(packed[0]) < 6 * 10_000


def test_more_than_a_plan_can_carry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors_module, "MAX_FLOORS", 2)
    with pytest.raises(LifeEnded, match=r"(?s)partitions have 3 quiet moments .* begin from a newer commit"):
        pack([Floor(0, n, n) for n in range(3)])
