"""`call` with `order="answer"` at a worker without I/O: ticks of answers, what is due, and state of open questions."""

from __future__ import annotations

from typing import Any

import pytest
from call_rig import Worker, answer_to, given, instead, plain, plan
from core_rig import Event

from lowtide.core.effects import LastKeys, letters_of
from lowtide.core.fronts.end import end_tick
from lowtide.core.operators.faults.failure import CallChanged, CallGivenUp
from lowtide.core.operators.order.order import OrderKey, Position, tick_of
from lowtide.core.operators.program import Captured
from lowtide.core.operators.questions import Answer, call_key
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide_tracker import Floor, Request

END = end_tick(1)


class Completing(Worker):
    """A worker whose call gives answers as they come."""

    def __init__(self, *, more_levels: bool = True, made: dict[str, Any] | None = None, **rest: Any) -> None:
        super().__init__(plan(more_levels=more_levels, order="answer", **(made or {})), **rest)
        self.behind = self.core.program.segments.sends[self.ask.id][0]

    @property
    def due(self) -> int | None:
        return self.core.program.due(self.behind)

    def told(self) -> list[int | None]:
        """The dues behind the call that go into the next flush."""
        flush = self.core.flush()
        return [] if flush is None else [tick for segment, _, tick in flush.dues if segment == self.behind]

    def frames_out(self) -> list[tuple[list[int], list[Any]]]:
        """What has gone to the next level since somebody asked."""
        frames, self.frames = self.frames, []
        return [([tick_of(at) for at in frame.batch.ats], frame.batch.rows) for frame in frames]

    def kept(self) -> list[tuple[int, Any]]:
        """Make all bundles of the log durable; what they had."""
        found = self.of(self.log)
        while any(sink == self.log for sink, _ in self.bundles):
            self.durable(self.log)
        return found

    def saved(self, tick: int, since: int = 0) -> list[tuple[int, int]]:
        """What a snapshot would have: ticks and numbers."""
        units = self.core.program.capture(tick, since)["ask"]
        asked = [each for keys in units.values() for _, rows in keys for each in rows]
        return [(tick_of(at), row.number) for at, row in asked]


def test_answers_go_on_as_they_come_at_min_time_or_their_records_tick() -> None:
    worker = Completing()
    worker.read((5, 1), (7, 2), (9, 3))
    assert worker.numbers() == [1, 2, 3]
    worker.hear(7)
    worker.answer(3)
    worker.answer(1)
    assert worker.frames_out() == [([9], given(3)), ([9], given(1))], "one far ahead takes the later ones with it"
    worker.hear(20)
    worker.answer(2)
    assert worker.frames_out() == [([20], given(2))]


def test_the_log_has_answers_at_the_keys_at_which_they_went_on() -> None:
    worker = Completing(more_levels=False)
    worker.read((5, 1), (7, 2))
    worker.hear(8)
    worker.answer(2)
    worker.hear(9)
    assert worker.of(worker.log) == [(8, answer_to(2))]
    worker.answer(1)
    assert worker.of(worker.out) == [], "none is durable"
    worker.kept()
    assert worker.of(worker.out) == [(8, given(2)[0])]
    worker.durable(worker.out)
    worker.hear(10)
    assert worker.kept() == [(9, answer_to(1))]
    assert worker.of(worker.out) == [(9, given(1)[0])]


def test_an_open_question_holds_back_nobody() -> None:
    """R6b: it is due at min time, which goes on; so do what is done, the sinks of the level, and snapshots."""
    worker = Completing()
    worker.read((5, 1), (7, 2))
    assert worker.core.program.asking[worker.ask.id].first_tick() is None
    worker.hear(8, request=Request(1, 7))
    assert worker.due == 8
    worker.answer(2)
    worker.hear(12)
    assert worker.due == 8, "the answer that is not durable"
    assert (worker.core.complete, worker.core.settled_time) == (True, 8)
    worker.kept()
    assert worker.due == 12
    assert worker.of(worker.out) == [(8, given(2)[0])]
    assert worker.core.settled_time == 12
    worker.answer(1)
    assert worker.due == 12
    worker.hear(13)
    worker.kept()
    assert worker.due is None


def test_a_question_of_a_record_ahead_of_min_time_is_due_at_the_record() -> None:
    """R6b: a worker hears of min time late; nothing is told that min time behind it may have passed."""
    worker = Completing()
    worker.read((5, 1))
    assert worker.told() == [5], "in the flush with the ack of the record"
    worker.hear(6)
    worker.read((9, 2))
    assert worker.told() == [6]
    worker.answer(1)
    worker.hear(8)
    worker.kept()
    assert worker.told() == [9]


def test_what_waits_for_room_is_due_at_its_record_so_that_fronts_stop() -> None:
    """R8: else a service that is down would fill the memory."""
    worker = Completing(made={"concurrency": 1})
    worker.read((5, 1), (6, 2), (7, 3))
    worker.hear(20)
    assert (worker.numbers(), worker.due) == ([1], 6)
    worker.answer(1)
    assert (worker.numbers(), worker.due) == ([2], 7)
    assert worker.frames_out() == [([20], given(1))]
    worker.answer(2)
    worker.answer(3)
    worker.hear(21)
    assert worker.due == 20


def test_at_the_end_of_time_each_answer_is_a_tick_after_the_last_one() -> None:
    """Min time is infinite then and gives no tick; at one tick a later answer could sort before one that has gone."""
    worker = Completing()
    worker.read((5, 1), (7, 2), (8, 3))
    worker.hear(9)
    worker.answer(2)
    worker.hear(END)
    assert worker.kept() == [(9, answer_to(2))]
    dues = [worker.due]
    worker.answer(3)
    dues.append(worker.due)
    assert worker.kept() == [(10, answer_to(3))]
    dues.append(worker.due)
    worker.answer(1)
    assert worker.kept() == [(11, answer_to(1))]
    assert [*dues, worker.due] == [10, 10, 11, None]
    assert worker.core.settled_time == END


def test_an_answer_waits_in_the_log_for_what_may_end_the_life() -> None:
    """R6: until then somebody may correct a step before it, and with it the question."""
    worker = Completing(made={"letters": False})
    worker.read((5, 1))
    worker.hear(8, cleared=5)
    worker.answer(1)
    worker.hear(10, cleared=5)
    assert worker.of(worker.log) == []
    worker.hear(10, cleared=9)
    assert [tick for tick, _ in worker.of(worker.log)] == [8]


def test_a_sink_of_the_same_transaction_goes_as_far_as_answers_are_given() -> None:
    made = plan(letters=False, order="answer")
    worker = Worker(made, joint=[sink.id for sink in made.sinks()])
    worker.read((5, 1), (7, 2))
    worker.hear(8)
    worker.answer(2)
    worker.hear(9)
    assert [(sink, [tick for tick, _ in worker.of(sink)]) for sink, _ in worker.bundles] == [
        (worker.log, [8]),
        (worker.out, [8]),
    ], "the answer first"
    assert (worker.core.settled_time, worker.core.delivered_time) == (8, 8)


def test_floors_go_with_answers_that_rest_on_them() -> None:
    worker, floor = Completing(), Floor(0, 2, 20)
    worker.read((7, 2))
    worker.answer(2)
    worker.hear(20, floor)
    ((sink, bundle),) = worker.bundles
    assert (sink, len(bundle), bundle.floors) == (worker.log, 1, (floor,))


def test_a_failure_becomes_another_value_or_a_dead_letter_or_ends_the_life() -> None:
    worker = Completing(made={"failed": "value", "otherwise": instead})
    worker.read((5, 0), (6, 13))
    worker.hear(7)
    worker.answer(13)
    worker.answer(0)
    assert worker.frames_out() == [([7], [Event("a: 3 tries", 0)])]
    worker.hear(8)
    worker.kept()
    ((_, dead),) = worker.of(letters_of(1))
    assert dead.error == "raised ValueError: unlucky"
    worker = Completing()
    worker.read((5, 0))
    with pytest.raises(CallGivenUp, match=r'call "ask": raised OSError: no \(try 3\)'):
        worker.answer(0)
    worker.hear(9)
    assert worker.bundles == []


# -- over lives --------------------------------------------------------------------------------------------------------


def test_a_snapshot_has_the_open_questions_below_it_and_what_was_answered_from_there_on() -> None:
    """Neither is read again: the record lies below T, its answer is not in what the steps behind it have."""
    worker = Completing()
    worker.read((5, 1), (6, 2), (7, 3), (30, 4))
    worker.hear(10)
    worker.answer(2)
    worker.hear(20)
    worker.answer(3)
    assert worker.saved(10) == [(5, 1), (6, 2), (7, 3)]
    assert worker.saved(11) == [(5, 1), (7, 3)]
    assert worker.saved(20) == [(5, 1), (7, 3)]
    assert worker.saved(21) == [(5, 1)]
    assert worker.saved(31) == [(5, 1), (30, 4)]
    assert worker.core.program.kept["ask"].number == 4
    worker.kept()
    worker.hear(21)
    worker.kept()
    assert worker.core.program.kept["ask"].number == 2, "what no snapshot will have is forgotten"
    (unit,) = worker.core.program.capture(31)["ask"]
    assert [row.number for _, row in worker.core.program.look("ask", unit, 31)] == [1, 4]
    assert worker.core.program.look("ask", unit + 1, 31) is NOTHING


def test_a_unit_without_records_or_answers_since_a_commit_is_left_out() -> None:
    worker = Completing()
    worker.read((5, 1))
    worker.hear(20)
    assert worker.saved(20) == [(5, 1)]
    assert worker.core.program.capture(25, 20)["ask"] == {}
    worker.answer(1)
    assert worker.core.program.capture(25, 20)["ask"] == {unit: [] for unit in worker.core.program.capture(25)["ask"]}


def life_before() -> tuple[dict[bytes, Answer], LastKeys, Captured]:
    """What a life leaves that was answered 2 and 3 at ticks 10 and 20, and not 1: its log, `last`, snapshot at 15."""
    worker = Completing()
    worker.read((5, 1), (6, 2), (7, 3))
    worker.hear(10)
    worker.answer(2)
    worker.hear(20)
    state = worker.core.program.capture(15)
    worker.answer(3)
    worker.hear(21)
    bundles = [worker.durable(worker.log) for _ in range(2)]
    known = {
        at: row for each in bundles for piece in each.pieces for at, row in zip(piece.ats, piece.rows, strict=True)
    }
    return known, {(worker.log, bundles[-1].lane): OrderKey.of(bundles[-1].last)}, state


def test_a_later_life_gives_known_answers_at_the_keys_that_were_kept() -> None:
    known, last, _ = life_before()
    worker = Completing(last=last, known=known, relied_on=21)
    worker.read((5, 1), (6, 2), (7, 3))
    assert worker.numbers() == [1]
    assert worker.frames_out() == [], "others may come before them; a front may label no further ahead than this (R8)"
    assert worker.due == 5
    worker.hear(11)
    assert worker.frames_out() == [([10], given(2))]
    worker.answer(1)
    worker.hear(30)
    assert worker.frames_out() == [([20, 21], given(3, 1))]
    assert worker.kept() == [(21, answer_to(1))], "the others are kept"
    assert worker.core.program.asking[worker.ask.id].reused == 2


def test_a_life_from_a_snapshot_asks_about_its_open_questions_and_knows_its_answers() -> None:
    known, last, state = life_before()
    above = {at: answer for at, answer in known.items() if tick_of(at) >= 15}
    worker = Completing(last=last, known=above, relied_on=21)
    worker.core.restore(state, 15)
    assert worker.core.program.capture(15) == state, "a snapshot at the same T is the same"
    assert (worker.core.ready, worker.core.unfinished) == (True, True), "it asks without a notice"
    assert worker.due == 15
    worker.hear(15)
    assert worker.numbers() == [1]
    assert worker.due == 15
    worker.hear(21)
    assert worker.frames_out() == [([20], given(3))]
    worker.answer(1)
    assert worker.frames_out() == [([21], given(1))], "not below what lanes further down may have"


def test_a_record_in_the_place_of_another_one_that_was_asked_about_ends_the_life() -> None:
    known, last, _ = life_before()
    worker = Completing(last=last, known=known, relied_on=21)
    with pytest.raises(CallChanged, match='call "ask": an earlier life has asked about another record') as caught:
        worker.read((5, 1), (6, 5))
    assert caught.value.position == Position(0, 1)


def test_an_answer_without_a_digest_is_used() -> None:
    known, last, _ = life_before()
    worker = Completing(last=last, known={at: plain(answer) for at, answer in known.items()}, relied_on=21)
    worker.read((5, 1), (6, 5))
    assert worker.numbers() == [1]


def test_the_same_records_are_asked_about_with_the_same_keys() -> None:
    one, other = Completing(), Completing()
    one.read((5, 1))
    other.read((9, 1))
    (key, other_key) = (call_key("job", "ask", each.questions[0].at) for each in (one, other))
    assert key == other_key
