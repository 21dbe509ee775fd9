"""Strangers that may wait at a door, and those that must go; without a clock."""

import pytest

from lowtide_tracker.strangers import LOG_EVERY_S, Refusals, Strangers

GRACE_S = 0.25
LIMIT_S = 10.0


@pytest.fixture
def strangers() -> Strangers[str]:
    return Strangers(most=2, grace_s=GRACE_S, limit_s=LIMIT_S)


def test_nobody_has_to_go_while_there_is_room(strangers: Strangers[str]) -> None:
    strangers.come("a", 0.0)
    assert (strangers.full, strangers.yields(LIMIT_S - 1), strangers.late(LIMIT_S - 1)) == (False, None, [])


def test_a_full_door_gives_everybody_its_grace_first(strangers: Strangers[str]) -> None:
    strangers.come("a", 0.0)
    strangers.come("b", 0.125)
    assert strangers.full
    assert strangers.yields(GRACE_S - 0.01) is None
    assert strangers.yields(GRACE_S) == "a"
    strangers.leave("a")
    assert (strangers.full, strangers.yields(9.0)) == (False, None)
    strangers.come("c", GRACE_S)
    assert strangers.yields(0.125 + GRACE_S) == "b", "the one that came first"


def test_whoever_has_proved_itself_takes_no_room_and_is_sent_away_by_nobody(strangers: Strangers[str]) -> None:
    strangers.come("a", 0.0)
    strangers.come("b", 0.0)
    strangers.leave("a")
    strangers.leave("a")
    assert ("a" in strangers, "b" in strangers, len(strangers)) == (False, True, 1)
    strangers.come("c", 1.0)
    assert strangers.late(LIMIT_S) == ["b"]


def test_nobody_is_let_in_over_the_limit(strangers: Strangers[str]) -> None:
    strangers.come("a", 0.0)
    strangers.come("b", 0.0)
    with pytest.raises(AssertionError, match="over the limit"):
        strangers.come("c", 0.0)


def test_a_crowd_that_is_refused_takes_a_line_a_minute() -> None:
    refusals = Refusals()
    said = [refusals.add("silent", number / 10) for number in range(int(10 * LOG_EVERY_S) + 1)]
    assert [line for line in said if line] == [
        "refused a connection: silent",
        f"refused a connection: silent; {int(10 * LOG_EVERY_S) - 1} others since the last message",
    ]
