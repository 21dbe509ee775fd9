"""`call` at a worker without I/O: when it asks, where its answers go, and what waits until they are durable (R23)."""

from __future__ import annotations

import pytest
from call_rig import FAILED, Worker, answer_to, ask, given, instead, plain, plan
from core_rig import Event

from lowtide import Flow, json, kafka, seconds
from lowtide.core.effects import LastKeys, letters_of
from lowtide.core.operators.asking import AskNode
from lowtide.core.operators.faults.failure import CallChanged, CallGivenUp, UserError
from lowtide.core.operators.order.order import OrderKey, Position, tick_of
from lowtide.core.operators.questions import Answer
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.segments import segments_of
from lowtide.flow.schema.fields import encode_rows
from lowtide.flow.steps.steps import Ask
from lowtide_tracker import Floor, Request


def test_a_record_that_others_may_change_is_asked_about_once_min_time_has_passed_it() -> None:
    worker = Worker(plan(stateful=True))
    worker.read((5, 1), (7, 2), (7, 3))
    assert worker.numbers() == []
    worker.hear(7)
    assert worker.numbers() == [1], "more may come at the tick of min time"
    worker.hear(8)
    assert worker.numbers() == [1, 2, 3]
    assert [tick_of(each.at) for each in worker.questions] == [5, 7, 7]
    worker.hear(9)
    assert worker.numbers() == [1, 2, 3], "each is asked about once"


def test_nobody_is_asked_before_the_floors_of_min_time_are_durable() -> None:
    """R2: without them a later life might give a record another label."""
    worker, floor = Worker(plan(stateful=True)), Floor(0, 1, 20)
    worker.read((5, 1))
    worker.hear(20, floor)
    assert worker.numbers() == []
    ((sink, bundle),) = worker.bundles
    assert (sink, len(bundle), bundle.floors) == (worker.log, 0, (floor,)), "it sees to them, as nobody else may"
    assert worker.core.settled_time == 5
    worker.durable(worker.log)
    assert worker.numbers() == [1]


def test_floors_of_an_older_min_time_do_not_wait_for_newer_ones() -> None:
    worker = Worker(plan(stateful=True))
    worker.read((5, 1), (7, 2))
    worker.hear(6, Floor(0, 2, 6))
    worker.hear(9, Floor(0, 2, 9))
    worker.durable(worker.log)
    assert worker.numbers() == [1]
    worker.durable(worker.log)
    assert worker.numbers() == [1, 2]


def test_a_record_that_no_other_one_changes_is_asked_about_as_it_comes() -> None:
    """It has its call key in every life, whatever its tick; the floors of that tick go with the answer."""
    worker, floor = Worker(), Floor(0, 2, 20)
    worker.read((7, 2), (7, 3))
    assert worker.numbers() == [2, 3]
    worker.answer(3, 2)
    assert worker.bundles == [], "its place is not final"
    worker.hear(20, floor)
    ((sink, bundle),) = worker.bundles
    assert (sink, len(bundle), bundle.floors) == (worker.log, 2, (floor,))


def test_of_records_that_wait_for_room_the_first_one_is_asked_about_first() -> None:
    worker = Worker(plan(concurrency=1))
    worker.read((5, 1), (9, 2), (11, 3))
    worker.answer(1)
    assert worker.numbers() == [2]
    worker.hear(12)
    worker.answer(2)
    assert worker.numbers() == [3]


def test_answers_of_early_questions_wait_in_the_log_for_what_may_end_the_life() -> None:
    """R6: a record that is corrected may come before them, and its answer is to be kept, too."""
    worker = Worker(plan(letters=False))
    worker.read((5, 1))
    worker.answer(1)
    worker.hear(8, cleared=5)
    assert worker.bundles == []
    worker.hear(9, cleared=6)
    assert [tick for tick, _ in worker.of(worker.log)] == [5]


def test_a_sink_of_the_same_transaction_need_not_wait_until_answers_are_durable() -> None:
    """What else rests on them does: min time, snapshots, delivered time."""
    made = plan(letters=False)
    worker = Worker(made, joint=[sink.id for sink in made.sinks()])
    worker.read((5, 1), (7, 2), (9, 3))
    worker.hear(10, request=Request(1, 8))
    worker.answer(1)
    assert [(sink, [tick for tick, _ in worker.of(sink)]) for sink, _ in worker.bundles] == [
        (worker.log, [5]),
        (worker.out, [5]),
    ], "the answer first"
    worker.answer(2)
    worker.durable(worker.out)
    assert worker.of(worker.out) == [], "the answer waits for the one before it, so what rests on it waits as well"
    assert (worker.core.complete, worker.core.settled_time, worker.core.delivered_time) == (False, 5, 5)
    worker.durable(worker.log)
    assert [[tick for tick, _ in worker.of(sink)] for sink in (worker.log, worker.out)] == [[7], [7]]
    assert worker.core.delivered_time == 7


def test_a_joint_sink_does_not_pass_what_has_failed_behind_its_call() -> None:
    """R6: it fails once its answer is durable; only then may somebody correct it."""
    flow = Flow("test")
    asked = flow.read("events", kafka("events", json(Event))).call("ask", ask, timeout=seconds(1))
    asked.map(fail_of_seventy).write("out", kafka("out", json(Event)))
    made = compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1)
    worker = Worker(made, joint=[sink.id for sink in made.sinks()])
    worker.read((5, 1), (6, 7), (7, 2))
    worker.hear(8)
    worker.answer(1, 7, 2)
    assert [tick for tick, _ in worker.of(worker.out)] == [5]
    with pytest.raises(UserError, match="seventy"):
        worker.durable(worker.log)


def fail_of_seventy(event: Event) -> Event:
    if event.number == 70:
        raise ValueError("seventy")
    return event


def test_a_call_that_raises_holds_back_nobody_else() -> None:
    """The next life asks about the same record: nobody corrects it, so no outlet has to wait for its answer."""
    made = plan(letters=False)
    segments = segments_of(made)
    (call,) = made.those(Ask)
    (out,) = made.sinks()
    assert not set(segments.sends[call.id]) & {segments.outlet_of[out.id]}


def test_answers_go_on_at_once_in_any_order_and_are_kept_in_that_of_the_records() -> None:
    worker = Worker(plan(more_levels=True))
    worker.read((5, 1), (7, 2), (7, 3), (9, 4))
    worker.hear(10)
    worker.answer(3)
    worker.answer(4, 2)
    assert [(frame.ticks, frame.batch.rows) for frame in worker.frames] == [([7], given(3)), ([7, 9], given(2, 4))]
    assert worker.bundles == [], "the first one has no answer"
    worker.answer(1)
    assert [tick for tick, _ in worker.of(worker.log)] == [5, 7, 7, 9]
    assert [row for _, row in worker.of(worker.log)] == [answer_to(number) for number in (1, 2, 3, 4)]


def test_all_of_its_level_wait_until_answers_are_durable() -> None:
    """R23, R14, R18: its sinks, min time behind it, snapshots, what is pruned, and delivered time."""
    worker = Worker(plan(more_levels=True))
    worker.read((5, 1), (7, 2))
    behind = worker.core.program.segments.sends[worker.ask.id][0]
    assert worker.folded(behind) == [5, 7], "what is held"
    worker.hear(8, request=Request(1, 8))
    worker.answer(2)
    assert worker.folded(behind) == [7], "the answer; the hold stays"
    worker.answer(1)
    assert worker.folded(behind) == [5]
    assert worker.of(worker.out) == [], "an answer that is under way may be lost"
    assert (worker.core.complete, worker.core.settled_time) == (False, 5)
    assert worker.core._pruned == worker.core.delivered_time == 5
    worker.durable(worker.log)
    assert worker.of(worker.out) == [(5, given(1)[0]), (7, given(2)[0])]
    assert worker.folded(behind) == [5, 7], "the holds have ended"
    assert (worker.core.complete, worker.core.settled_time) == (True, 8)
    assert (worker.core._pruned, worker.core.delivered_time) == (8, 5)
    worker.durable(worker.out)
    assert worker.core.delivered_time == 8


def test_min_time_goes_on_as_far_as_answers_are_durable() -> None:
    worker = Worker()
    worker.read((5, 1), (7, 2), (9, 3))
    worker.hear(10)
    worker.answer(1)
    worker.answer(2)
    worker.durable(worker.log)
    assert (worker.core.settled_time, worker.of(worker.out)) == (7, [(5, given(1)[0])])
    worker.durable(worker.log)
    assert worker.core.settled_time == 9


def test_so_many_are_open_at_once_as_the_flow_says() -> None:
    worker = Worker(plan(concurrency=2))
    worker.read((5, 1), (5, 2), (6, 3), (7, 4))
    worker.hear(9)
    assert worker.numbers() == [1, 2]
    assert worker.core.program.asking[worker.ask.id].open_calls == 2
    worker.answer(2)
    assert worker.numbers() == [1, 3]
    assert not worker.core.unfinished, "it waits for answers, not for its turn"
    worker.answer(3, 1)
    assert worker.numbers() == [4]


def test_a_portion_bounds_what_is_asked_at_once() -> None:
    worker = Worker(plan(stateful=True), portion=2)
    worker.read((5, 1), (5, 2), (6, 3))
    worker.hear(9)
    assert worker.numbers() == [1, 2]
    assert worker.core.unfinished
    worker._note(worker.core.moved(()))
    assert worker.numbers() == [1, 2, 3]
    worker._note(worker.core.moved(()))
    assert not worker.core.unfinished


def test_nobody_is_asked_before_nothing_can_end_the_life_any_more() -> None:
    """R6: what somebody corrects in a step before it may give other records from the one that has failed on."""
    worker = Worker(plan(letters=False, stateful=True))
    worker.read((5, 1), (7, 2))
    worker.hear(8, cleared=5)
    assert worker.numbers() == []
    worker.hear(8, cleared=7)
    assert worker.numbers() == [1]
    worker.hear(9)
    assert worker.numbers() == [1, 2]


def counted(state: int, event: Event) -> tuple[int, Event]:
    if event.number == 3:
        raise ValueError("three")
    return state + 1, event


def test_what_stands_beside_or_before_a_call_does_not_wait_for_it() -> None:
    """Nor may it: what fails there at the tick of a question that waits for that has to end the life."""
    flow = Flow("test")
    counts = flow.read("events", kafka("events", json(Event))).key_by("key").scan("counted", counted, 0)
    counts.write("counts", kafka("counts", json(Event)))
    counts.call("ask", ask, timeout=seconds(1)).write("out", kafka("out", json(Event)))
    worker = Worker(compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1))
    worker.read((5, 1))
    worker.hear(6)
    assert worker.numbers() == [1]
    assert [tick for tick, _ in worker.of(worker.out)] == [5], "counts are delivered"
    worker.read((7, 2), (7, 3))
    with pytest.raises(UserError, match="three"):
        worker.hear(8, cleared=7)
    assert worker.numbers() == [1]


def kept_before(*events: tuple[int, int]) -> tuple[dict[bytes, Answer], LastKeys]:
    """The log that a life leaves that was answered about all of these; and what its lane says."""
    worker = Worker()
    worker.read(*events)
    worker.hear(events[-1][0] + 1)
    worker.answer(*(number for _, number in events))
    bundle = worker.durable(worker.log)
    known = {at: row for piece in bundle.pieces for at, row in zip(piece.ats, piece.rows, strict=True)}
    return known, {(worker.log, bundle.lane): OrderKey.of(bundle.last)}


def test_answers_of_an_earlier_life_are_used_and_not_kept_again() -> None:
    known, last = kept_before((5, 1), (7, 2))
    known = {
        at: each._replace(value=encode_rows([Event("then", place)])) for place, (at, each) in enumerate(known.items())
    }
    worker = Worker(last=last, known=known)
    worker.read((5, 1), (7, 2), (7, 3))
    worker.hear(8)
    assert worker.numbers() == [3]
    assert worker.of(worker.log) == []
    assert worker.of(worker.out) == [(5, Event("then", 0))]
    assert worker.core.settled_time == 7
    worker.durable(worker.out)
    worker.answer(3)
    assert worker.of(worker.log) == [(7, answer_to(3))]
    worker.durable(worker.log)
    assert worker.of(worker.out) == [(7, Event("then", 1)), (7, Event("answered", 30))]


def test_a_record_in_the_place_of_another_one_that_was_asked_about_ends_the_life() -> None:
    """R6, R23: it would be given the answer to another question."""
    known, last = kept_before((5, 1), (7, 2))
    worker = Worker(last=last, known=known)
    with pytest.raises(CallChanged, match='call "ask": an earlier life has asked about another record') as caught:
        worker.read((5, 1), (7, 3))
    assert caught.value.position == Position(0, 1)
    assert "front 0, offset 1" in caught.value.where


def test_a_record_before_others_that_were_asked_about_ends_the_life() -> None:
    """R23: its answer would be kept nowhere, so each life would go by another one."""
    known, last = kept_before((5, 1), (7, 2), (7, 3))
    del known[sorted(known)[1]]
    worker = Worker(last=last, known=known)
    with pytest.raises(CallChanged, match="has not asked about this record"):
        worker.read((5, 1), (7, 2))
    worker = Worker(last=last)
    worker.read((5, 1), (7, 2), (7, 3))
    assert worker.numbers() == [1, 2, 3], "a start without state knows of none, and asks again"


def test_an_answer_of_a_version_without_digests_is_used() -> None:
    known, last = kept_before((5, 1))
    worker = Worker(last=last, known={at: plain(answer) for at, answer in known.items()})
    worker.read((5, 2))
    assert (worker.numbers(), worker.core.program.asking[worker.ask.id].reused) == ([], 1)


def test_answers_of_other_lanes_are_forgotten_once_no_record_of_an_earlier_life_comes() -> None:
    """A job that has grown reads them with its own."""
    known, last = kept_before((5, 1), (7, 2))
    others = OrderKey(6, 3, 9).packed()
    worker = Worker(last=last, known={**known, others: answer_to(2)})
    node = worker.core.program.asking[worker.ask.id]
    assert isinstance(node, AskNode)
    worker.read((5, 1), (7, 2), (8, 3))
    worker.hear(7)
    assert node._known.keys() == {others}, "a record of tick 7 may come"
    worker.hear(8)
    worker.hear(9)
    assert node._known == {}
    assert (worker.numbers(), node.reused) == ([3], 2)


def test_known_answers_take_no_room() -> None:
    known, last = kept_before((5, 1), (5, 2))
    worker = Worker(plan(concurrency=1), last=last, known=known)
    worker.read((5, 1), (5, 2), (5, 3), (5, 4))
    worker.hear(6)
    assert worker.numbers() == [3]
    assert worker.core.program.asking[worker.ask.id].reused == 2


def test_a_call_that_has_failed_for_good_ends_the_life_and_nothing_is_kept() -> None:
    worker = Worker()
    worker.read((5, 0))
    worker.hear(6)
    with pytest.raises(CallGivenUp, match=r'call "ask": raised OSError: no \(try 3\)'):
        worker.answer(0)
    assert worker.bundles == []


def test_a_call_that_has_failed_for_good_gives_another_value() -> None:
    worker = Worker(plan(failed="value", otherwise=instead))
    worker.read((5, 0), (6, 13))
    worker.hear(7)
    worker.answer(13)
    worker.answer(0)
    assert worker.of(worker.log) == [(5, FAILED), (6, FAILED)], "the failure is kept, not what came of it"
    worker.durable(worker.log)
    assert worker.of(worker.out) == [(5, Event("a: 3 tries", 0))]
    ((_, dead),) = worker.of(letters_of(1))
    assert dead.error == "raised ValueError: unlucky"


def test_a_record_whose_call_has_failed_for_good_becomes_a_dead_letter() -> None:
    worker = Worker(plan(failed="letter"))
    worker.read((5, 0), (5, 1))
    worker.hear(6)
    worker.answer(1, 0)
    assert worker.of(letters_of(1)) == [], "not before it is durable that it has failed"
    worker.durable(worker.log)
    ((_, dead),) = worker.of(letters_of(1))
    assert (dead.vertex, dead.error) == ("ask", "raised OSError: no (try 3)")
    assert worker.of(worker.out) == [(5, given(1)[0])]


def test_answers_that_are_always_the_same_are_not_kept() -> None:
    worker, floor = Worker(plan(repeatable=True)), Floor(0, 1, 20)
    worker.read((5, 1), (7, 2))
    worker.hear(20, floor)
    assert worker.numbers() == [1, 2], "whatever a later life calls the record, the answer is the same"
    worker.answer(2)
    assert worker.of(worker.out) == []
    worker.answer(1)
    assert [row for _, row in worker.of(worker.out)] == given(1, 2)
    assert worker.log == -1
