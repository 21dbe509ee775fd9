"""What a look at a tail may grant, which tails are looked at when, and how the broker's clock is estimated."""

import time

import pytest

from lowtide.core.fronts.end import END_MS
from lowtide.service.fronts import broker_clock
from lowtide.service.fronts.broker_clock import ClockEstimate
from lowtide.service.fronts.tail_state import (
    ACTIVE_FOR_S,
    BUSY_LOOK_S,
    LONG_S,
    LOST_AFTER_S,
    MAX_BACK_OFF_S,
    MAX_PATIENCE_S,
    NO_OFFSET,
    NOTHING_MS,
    QUIET_S,
    RECORD,
    RECORD_STANDS_S,
    Grant,
    Tail,
    TailState,
)

ACTIVE_S, IDLE_S = 0.003, 0.1


def watching(*tails: Tail) -> TailState:
    state = TailState(skew_ms=200, active_s=ACTIVE_S, idle_s=IDLE_S)
    for tail in tails or (Tail(4, "orders", 1, 7),):
        state.watch(tail)
    return state


def look(state: TailState, lso: int, now_s: float) -> Grant:
    return state.looked(4, lso, before_ms=1000, now_s=now_s)


def wanted(state: TailState, now_s: float) -> list[Tail]:
    return state.probes([4], now_s)


def test_a_grant_is_the_lso_at_the_time_before_it_was_asked_minus_the_skew() -> None:
    assert look(watching(), 7, 1.0) == Grant(4, 7, 800)
    # The owner may be further than we know: it compares for itself.
    assert look(watching(), 9, 1.0) == Grant(4, 9, 800)


def test_an_end_that_a_reader_met_lets_the_owners_offset_be_granted() -> None:
    state = watching()
    look(state, 8, 1.0)
    assert wanted(state, 1.1) == [Tail(4, "orders", 1, 7)]
    state.probed(4, 7, 8, 1.1)
    assert wanted(state, 1.2) == []
    assert look(state, 8, 1.2).offset == 7


def test_what_lies_behind_the_end_that_a_reader_met_is_not_known() -> None:
    state = watching()
    look(state, 8, 1.0)
    state.probed(4, 7, 8, 1.0)
    assert look(state, 9, 1.1).offset == 9
    assert wanted(state, 1.4) == [Tail(4, "orders", 1, 8)]


def test_what_holds_no_record_up_to_an_end_is_skipped() -> None:
    state = watching()
    look(state, 9, 1.0)
    assert [state.skipped(4, offset) for offset in (6, 7, 9)] == [6, 7, 9]
    state.probed(4, 7, 9, 1.0)
    assert [state.skipped(4, offset) for offset in (6, 7, 8, 9, 10)] == [6, 9, 9, 9, 10]
    assert state.skipped(5, 7) == 7, "nobody watches it"


def test_an_end_is_of_no_use_from_another_offset() -> None:
    state = watching()
    look(state, 9, 1.0)
    state.probed(4, 7, 9, 1.0)
    state.at(4, 8, 1.0)
    assert look(state, 9, 1.1).offset == 9
    state.at(4, 9, 1.2)
    assert look(state, 8, 1.2).offset == 8


def test_a_record_that_a_reader_met_is_not_looked_for_again_until_the_owner_has_it() -> None:
    state = watching()
    look(state, 9, 1.0)
    state.probed(4, 7, RECORD, 1.1)
    assert wanted(state, 1.9) == []
    assert wanted(state, 1.1 + RECORD_STANDS_S) == [Tail(4, "orders", 1, 7)]
    state.at(4, 8, 1.2)
    assert wanted(state, 1.3) == [Tail(4, "orders", 1, 8)]


def test_an_owner_that_reads_what_comes_is_probed_ever_less() -> None:
    state, probes, now_s = watching(), 0, 0.0
    for offset in range(8, 1008):
        # A record every 10 ms, which its owner is 5 ms behind with.
        look(state, offset, now_s)
        if wanted(state, now_s + ACTIVE_S):
            probes += 1
            state.probed(4, offset - 1, RECORD, now_s + ACTIVE_S)
        state.at(4, offset, now_s + 0.005)
        now_s += 0.01
    assert probes <= 3
    # Once it stands, there is a probe within the longest patience.
    look(state, 1009, now_s)
    assert wanted(state, now_s + MAX_PATIENCE_S) == [Tail(4, "orders", 1, 1007)]


def test_somebody_waiting_means_a_look_at_once_and_often_for_a_while() -> None:
    state = watching()
    assert [tail.front for tail in state.due(1.0)] == [4]
    look(state, 7, 1.0)
    assert state.due(1.02) == []
    assert state.wait_s(1.02) == pytest.approx(IDLE_S - 0.02)
    assert state.active(1.02)
    assert state.due(1.02) != []
    look(state, 7, 1.02)
    assert state.wait_s(1.02) == pytest.approx(ACTIVE_S)
    assert not state.active(1.03)
    look(state, 7, 1.03 + ACTIVE_FOR_S)
    assert state.wait_s(1.03 + ACTIVE_FOR_S) == pytest.approx(IDLE_S)


def test_the_first_look_is_made_when_it_grants_enough() -> None:
    """Neither before, in vain, nor at the next of some regular looks."""
    state = watching()
    look(state, 7, 1.0)
    assert state.active(1.02, 1.022)
    assert state.due(1.02) == []
    assert state.wait_s(1.02) == pytest.approx(0.002)
    assert state.due(1.022) != []
    look(state, 7, 1.022)
    assert state.active(1.023, 1.024), "another record waits"
    assert state.wait_s(1.023) == pytest.approx(0.001)
    assert not state.active(1.0235, 1.026), "a later one does not put off its look"
    assert state.wait_s(1.0235) == pytest.approx(0.0005)
    look(state, 7, 1.024)
    assert state.wait_s(1.024) == pytest.approx(ACTIVE_S)
    assert state.active(1.025, 9.0), "a time far ahead leaves the others theirs"
    assert state.wait_s(1.025) == pytest.approx(ACTIVE_S)


def test_a_busy_tail_is_looked_at_less_until_it_is_quiet() -> None:
    state, now_s, lso = watching(), 1.0, 7
    for _ in range(100):
        state.active(now_s)
        look(state, lso, now_s)
        now_s, lso = now_s + ACTIVE_S, lso + 3
    state.active(now_s)
    look(state, lso, now_s)
    assert state.wait_s(now_s) == pytest.approx(BUSY_LOOK_S)
    state.active(now_s + BUSY_LOOK_S)
    look(state, lso, now_s + BUSY_LOOK_S)
    assert state.wait_s(now_s + BUSY_LOOK_S) == pytest.approx(ACTIVE_S)


def test_a_tail_that_does_not_answer_is_asked_at_once_then_ever_less_and_grants_again_afterwards() -> None:
    state, now_s, gaps = watching(), 1.0, []
    for _ in range(12):
        state.active(now_s)
        state.failed(4, now_s)
        gaps.append(state.wait_s(now_s) if not state.due(now_s) else 0.0)
        state.active(now_s)
        now_s += 2.0
    assert gaps[0] == 0.0
    assert gaps[1:] == sorted(gaps[1:])
    assert state.due(now_s - 2.0 + MAX_BACK_OFF_S - 0.01) == []
    assert state.due(now_s - 2.0 + MAX_BACK_OFF_S) != []
    assert state.failing([Tail(4, "orders", 1, 7)])
    assert look(state, 7, now_s) == Grant(4, 7, 800)
    assert not state.failing([Tail(4, "orders", 1, 7)])


def test_a_log_that_ends_before_what_was_read_is_reported_once_and_news_that_crossed_is_not() -> None:
    state = watching()
    look(state, 6, 1.0)
    look(state, 7, 1.1)
    assert state.lost(1.0 + LOST_AFTER_S) == []
    look(state, 0, 2.0)
    assert state.lost(2.0 + LOST_AFTER_S) == [(Tail(4, "orders", 1, 7), 0)]
    look(state, 0, 4.0)
    assert state.lost(9.0) == []


def test_an_offset_that_the_log_does_not_have_is_no_empty_tail() -> None:
    """Retention has deleted what the owner expects next: grants would go on, and the manifest would skip the rest."""
    state = watching()
    look(state, 20, 1.0)
    state.probed(4, 7, NO_OFFSET, 1.1)
    assert look(state, 20, 1.2).offset == 20, "nothing is granted at 7"
    assert state.skipped(4, 7) == 7
    assert state.lost(1.0 + LOST_AFTER_S) == []
    look(state, 20, 2.0)
    state.probed(4, 7, NO_OFFSET, 2.1)
    assert state.lost(1.1 + LOST_AFTER_S) == [(Tail(4, "orders", 1, 7), 20)]
    assert state.lost(99.0) == []


def test_a_reader_is_pointed_behind_what_is_known_to_hold_nothing() -> None:
    """Markers at offset 7: retention deletes them, and then another aborted transaction comes."""
    state = watching()
    look(state, 8, 1.0)
    state.probed(4, 7, 8, 1.1)
    look(state, 11, 2.0)
    assert wanted(state, 2.5) == [Tail(4, "orders", 1, 8)]
    state.probed(4, 8, 11, 2.6)
    assert look(state, 11, 2.7).offset == 7
    assert state.skipped(4, 7) == 11
    assert state.lost(99.0) == []


def test_an_offset_that_the_owner_has_passed_meanwhile_is_not_lost() -> None:
    state = watching()
    look(state, 20, 1.0)
    state.probed(4, 7, NO_OFFSET, 1.1)
    state.at(4, 20, 5.0)
    look(state, 20, 6.0)
    assert state.lost(99.0) == []


def test_a_record_that_its_owner_does_not_take_is_known_whatever_else_comes() -> None:
    """An executor that does not reach its broker polls on in silence."""
    state = watching()
    lso = 8
    for step in range(100):
        look(state, lso + step, 1.0 + step / 50)  # The end never stands.
    now_s = 1.0 + 99 / 50
    assert now_s - 1.0 > LONG_S
    assert wanted(state, now_s) == [Tail(4, "orders", 1, 7)]
    state.probed(4, 7, None, now_s)
    assert state.unread(now_s) == {}, "nothing came in time"
    state.probed(4, 7, RECORD, now_s)
    state.probed(4, 7, RECORD, now_s + 3)
    ((front, (offset, lay_s)),) = state.unread(now_s + 5).items()
    assert (front, offset, round(lay_s)) == (4, 7, 5)
    state.at(4, 8, now_s + 5)
    assert state.unread(now_s + 5) == {}


class Time:
    """Our clock, to be set; a broker's is 5 s ahead of it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ahead_ms = 5000.0
        self.ours_s = 1_000_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.ours_s

    @property
    def broker_ms(self) -> float:
        return (self.now_s + self.ours_s - 100.0) * 1000 + self.ahead_ms


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Time:
    clocks = Time()
    monkeypatch.setattr(broker_clock, "time", clocks)
    return clocks


def stamp(estimate: ClockEstimate, clocks: Time, there_s: float, back_s: float) -> None:
    before_s = clocks.now_s
    clocks.now_s += there_s
    stamped = int(clocks.broker_ms)
    clocks.now_s += back_s
    estimate.stamped(before_s, stamped, clocks.now_s)


def test_the_brokers_time_is_bounded_by_its_stamps_however_lopsided_the_way(clocks: Time) -> None:
    estimate = ClockEstimate()
    for there_s, back_s in ((0.2, 0.001), (0.0004, 0.0011), (0.001, 0.3)):
        stamp(estimate, clocks, there_s, back_s)
        assert abs(estimate.offset_ms - 5000) <= estimate.within_ms
        assert estimate.at_least_ms() <= clocks.broker_ms
    assert estimate.within_ms < 2
    assert estimate.at_least_ms() > clocks.broker_ms - 5


def test_it_says_when_it_will_show_a_time(clocks: Time) -> None:
    estimate = ClockEstimate()
    stamp(estimate, clocks, 0.0005, 0.0005)
    wanted_ms = estimate.at_least_ms() + 3
    wait_s = estimate.shows_in_s(wanted_ms)
    assert 0.002 < wait_s <= 0.003
    clocks.now_s += wait_s - 0.0001
    assert estimate.at_least_ms() == wanted_ms - 1
    clocks.now_s += 0.0002
    assert estimate.at_least_ms() == wanted_ms
    assert estimate.shows_in_s(wanted_ms) == 0.0


def test_a_stamp_that_ages_says_less(clocks: Time) -> None:
    estimate = ClockEstimate()
    stamp(estimate, clocks, 0.0005, 0.0005)
    within_ms = estimate.within_ms
    clocks.now_s += 30
    clocks.ahead_ms -= 3
    assert estimate.within_ms > within_ms
    assert estimate.at_least_ms() <= clocks.broker_ms


def test_a_brokers_clock_that_is_set_back_is_followed_at_the_next_stamp_and_now_never_falls(clocks: Time) -> None:
    estimate = ClockEstimate()
    stamp(estimate, clocks, 0.0005, 0.0005)
    before_ms = estimate.now_ms()
    clocks.ahead_ms = -60_000
    stamp(estimate, clocks, 0.001, 0.001)
    assert estimate.at_least_ms() <= clocks.broker_ms
    assert estimate.now_ms() == before_ms


def test_a_stamp_that_is_an_hour_ahead_lifts_no_floor(clocks: Time) -> None:
    """R2: a grant never moves faster than our monotonic clock plus a bound."""
    estimate = ClockEstimate()
    for _ in range(broker_clock.FIRST_SAMPLES):
        stamp(estimate, clocks, 0.0005, 0.0005)
    assert estimate.jump_ms == 0
    right = clocks.ahead_ms
    for _ in range(3):
        clocks.now_s += 30
        before_ms = clocks.broker_ms
        clocks.ahead_ms = right + 3_600_000
        stamp(estimate, clocks, 0.0005, 0.0005)
        assert estimate.at_least_ms() <= before_ms + 2_000
        assert estimate.now_ms() <= before_ms + 2_000
        assert estimate.jump_ms > 3_590_000
        clocks.ahead_ms = right
    clocks.now_s += 30
    stamp(estimate, clocks, 0.0005, 0.0005)
    assert (estimate.jump_ms, estimate.at_least_ms() <= clocks.broker_ms) == (0, True)


def test_a_clock_that_stays_ahead_is_followed_slowly(clocks: Time) -> None:
    estimate = ClockEstimate()
    for _ in range(broker_clock.FIRST_SAMPLES):
        stamp(estimate, clocks, 0.0005, 0.0005)
    clocks.ahead_ms += 10_000
    behind = []
    for _ in range(60):
        clocks.now_s += 30
        stamp(estimate, clocks, 0.0005, 0.0005)
        behind.append(clocks.broker_ms - estimate.at_least_ms())
    assert behind[0] > 9_000
    assert behind[-1] < 20
    assert estimate.jump_ms == 0


def test_a_clock_that_is_set_back_for_a_time_is_followed_and_reported(clocks: Time) -> None:
    estimate = ClockEstimate()
    for _ in range(broker_clock.FIRST_SAMPLES):
        stamp(estimate, clocks, 0.0005, 0.0005)
    clocks.now_s += 30
    clocks.ahead_ms -= 60_000
    stamp(estimate, clocks, 0.0005, 0.0005)
    assert estimate.jump_ms < -59_000
    clocks.now_s += 30
    clocks.ahead_ms += 60_000
    stamp(estimate, clocks, 0.0005, 0.0005)
    assert estimate.jump_ms == 0
    assert clocks.broker_ms - 500 < estimate.at_least_ms() <= clocks.broker_ms


def test_a_life_that_begins_while_the_brokers_clock_is_an_hour_ahead_does_not_follow_it(clocks: Time) -> None:
    """R2: the largest floor counts in all later lives."""
    clocks.ahead_ms = 3_600_000
    estimate = ClockEstimate()
    for _ in range(5):
        stamp(estimate, clocks, 0.0005, 0.0005)
    assert estimate.at_least_ms() <= clocks.broker_ms - 3_530_000
    assert estimate.jump_ms > 3_530_000


def test_a_life_that_begins_while_the_brokers_clock_is_an_hour_behind_goes_on_when_it_is_right(clocks: Time) -> None:
    """Followed slowly it would stand still for a hundred hours: all that is timely would be beyond what is believed."""
    clocks.ahead_ms = -3_600_000
    estimate = ClockEstimate()
    for _ in range(broker_clock.FIRST_SAMPLES):
        stamp(estimate, clocks, 0.0005, 0.0005)
    clocks.now_s += 30
    clocks.ahead_ms = 0
    stamp(estimate, clocks, 0.0005, 0.0005)
    assert clocks.broker_ms - 5 < estimate.at_least_ms() <= clocks.broker_ms
    assert estimate.jump_ms == 0


def test_slow_first_stamps_are_no_jump(clocks: Time) -> None:
    estimate = ClockEstimate()
    for there_s, back_s in ((4.0, 0.001), (0.001, 4.0), (0.0005, 0.0005), (0.0005, 0.0005), (0.0005, 0.0005)):
        stamp(estimate, clocks, there_s, back_s)
    assert estimate.jump_ms == 0
    assert estimate.at_least_ms() <= clocks.broker_ms


def test_clocks_that_drift_are_followed_without_a_word(clocks: Time) -> None:
    estimate = ClockEstimate()
    for _ in range(200):
        clocks.now_s += 30
        clocks.ahead_ms += 30_000 * broker_clock.DRIFT
        stamp(estimate, clocks, 0.0005, 0.0005)
        assert estimate.jump_ms == 0
        assert clocks.broker_ms - 20 < estimate.at_least_ms() <= clocks.broker_ms


def test_setting_our_own_clock_changes_nothing(clocks: Time) -> None:
    estimate = ClockEstimate()
    stamp(estimate, clocks, 0.0005, 0.0005)
    before_ms = estimate.now_ms()
    clocks.ours_s += 3600
    assert estimate.now_ms() == before_ms


def test_a_clock_that_is_to_be_measured_is_known_from_its_first_stamp_on() -> None:
    estimate = ClockEstimate(known=False)
    known = [estimate.known]
    estimate.stamped(1.0, 1, 1.0)
    assert [*known, estimate.known] == [False, True]


def test_without_a_stamp_it_is_this_machines_clock() -> None:
    assert abs(ClockEstimate().now_ms() - time.time() * 1000) < 50


def test_a_look_is_not_repeated_once_nobody_waits_any_more() -> None:
    """An idle job costs next to nothing, and one with ten records a second little more."""
    state = watching()
    look(state, 7, 1.0)
    state.active(1.0)
    assert state.wait_s(1.0) == pytest.approx(ACTIVE_S)
    state.calm()
    assert state.wait_s(1.0) == pytest.approx(IDLE_S)


def test_a_tail_is_at_its_stop_when_its_owner_has_passed_it_or_no_reader_gets_anything_before_it() -> None:
    state = watching(Tail(4, "orders", 1, 7, stop=9))
    assert look(state, 9, 1.0) == Grant(4, 9, 800), "a record may lie there"
    state.probed(4, 7, 8, 1.1)
    assert look(state, 9, 1.2).ms == 800, "one may lie at 8"
    state.probed(4, 8, 9, 1.3)
    assert look(state, 9, 1.4) == Grant(4, 7, END_MS)
    state.at(4, 12, 1.5)
    assert look(state, 12, 1.6) == Grant(4, 12, END_MS)


def look_at_job(state: TailState, lso: int) -> int:
    return state.looked(4, lso, before_ms=1000, now_s=1.0, written_by_job=True).ms


def test_a_topic_of_another_job_is_granted_nothing_until_that_job_has_promised_something() -> None:
    state = watching()
    assert look_at_job(state, 7) == NOTHING_MS
    state.promised(4, 500, 7)
    assert look_at_job(state, 7) == 500
    assert look(state, 7, 1.0).ms == 800, "once the job is forgotten the broker's clock counts"


def test_a_promise_counts_once_all_that_was_written_before_it_is_decided() -> None:
    """A commit's answer comes before its records can be read: they lie after the LSO then."""
    state = watching()
    assert state.awaits(4, 500)
    state.promised(4, 500, 9)
    assert look_at_job(state, 7) == NOTHING_MS
    assert not state.awaits(4, 600), "one waits for its LSO"
    state.promised(4, 600, 12)
    assert look_at_job(state, 9) == 500, "the newer one came later, and does not hold up the first"
    assert not state.awaits(4, 500), "it counts already"
    assert state.awaits(4, 600)
    state.promised(4, 600, 12)
    assert [look_at_job(state, 10), look_at_job(state, 12)] == [500, 600]


def test_a_promise_is_never_granted_beyond_the_brokers_clock() -> None:
    state = watching()
    state.promised(4, 5000, 7)
    assert look_at_job(state, 7) == 800


def test_a_transaction_is_open_while_records_lie_behind_an_lso_that_stands() -> None:
    """Since the LSO has come there; only tails that have not moved for a while are asked for."""
    state = watching()
    look(state, 7, 1.0)
    assert state.quiet(1.0 + QUIET_S - 0.1) == []
    assert [tail.front for tail in state.quiet(1.0 + QUIET_S)] == [4]
    state.ended(4, 7)
    assert state.open_transactions(9.0) == {}, "nothing lies behind it"
    state.ended(4, 9)
    assert state.open_transactions(9.0) == {4: (7, 8.0)}
    look(state, 7, 20.0)
    assert state.open_transactions(20.0) == {4: (7, 19.0)}
    look(state, 9, 21.0)
    assert state.open_transactions(21.0) == {}
    assert state.quiet(21.0) == []


def test_a_tail_that_does_not_answer_is_not_asked_for_its_end() -> None:
    state = watching()
    look(state, 7, 1.0)
    state.failed(4, 9.0)
    assert state.quiet(9.0) == []
