"""`order="answer"` in a flow: where a call may have it, what it saves, and how local runs give kept answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import lowtide as lt
from lowtide.core.operators.order.order import OrderKey, Position
from lowtide.core.operators.questions import Answer
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.driver.placement import refuse_other_steps, steps_of
from lowtide.driver.recovery import refuse_answers_twice
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.fields import encode_rows
from lowtide.flow.steps.steps import Ask
from lowtide.local.asking import place_of
from lowtide.local.items import Order
from lowtide.local.run import Message, run_log


@dataclass(frozen=True)
class Word:
    key: str
    count: int


def ask(word: Word) -> Word:
    return Word(word.key, 10 * word.count)


def added(state: int, word: Word) -> tuple[int, Word]:
    return state + word.count, Word(word.key, state + word.count)


def to(name: str) -> Any:
    return lt.kafka(name, lt.json(Word), key="key")


def words(flow: lt.Flow) -> Any:
    return flow.read("words", lt.kafka("words", lt.json(Word)))


def plan(**options: Any) -> Plan:
    flow = lt.Flow("test")
    asked = words(flow).call("ask", ask, timeout=lt.seconds(1), **options)
    asked.key_by("key").scan("added", added, 0).write("out", to("out"))
    return compile_flow(flow, parallelism=1, units=4, lanes=1, slack_ms=1)


def test_an_order_is_of_records_or_of_answers() -> None:
    with pytest.raises(FlowError, match=r'call takes order="record" or "answer", found .best.'):
        plan(order="best")


def test_answers_that_are_not_kept_have_no_order_of_their_own() -> None:
    with pytest.raises(FlowError, match='order="answer" without repeatable=True'):
        plan(order="answer", repeatable=True)


def test_a_call_behind_a_step_with_state_cannot_have_it() -> None:
    flow = lt.Flow("test")
    totals = words(flow).key_by("key").scan("totals", added, 0)
    totals.call("ask", ask, timeout=lt.seconds(1), order="answer").write("out", to("out"))
    with pytest.raises(
        FlowError, match=r'test_order_of_answers.*"ask": order="answer" asks .* what scan "totals" gives'
    ):
        compile_flow(flow, parallelism=1)


def test_a_call_behind_another_one_cannot_have_it() -> None:
    flow = lt.Flow("test")
    first = words(flow).call("first", ask, timeout=lt.seconds(1), order="answer")
    first.call("second", ask, timeout=lt.seconds(1), order="answer").write("out", to("out"))
    with pytest.raises(FlowError, match=r'"second": order="answer" asks .* what call "first" gives'):
        compile_flow(flow, parallelism=1)


def test_check_says_so() -> None:
    (call,) = plan(order="answer").those(Ask)
    assert call.step.shows("Word", ()).endswith("in the order of the answers")
    (call,) = plan().those(Ask)
    assert "order" not in call.step.shows("Word", ())


def test_open_questions_are_saved_by_hash_unit() -> None:
    assert "ask" not in saved_steps(plan())
    saved = saved_steps(plan(order="answer"))["ask"]
    assert (saved.kind, str(saved.key)) == ("call", "struct<hash_unit: int64>")
    keys = [OrderKey(tick, 1, tick, (2,), 7).packed() for tick in (5, 6)]
    entries = [(3, list(zip(keys, [Word("a", 1), Word("b", 2)], strict=True)))]
    table = saved.table(entries)
    assert table.num_rows == 2
    assert saved.entries(table) == entries
    assert saved.entries(table.slice(0, 0)) == []
    assert [row["record"]["key"] for row in saved.shown(entries)[0]] == ["a", "b"]
    assert saved.keys_of([{"hash_unit": "3"}]) == [3]


@pytest.mark.parametrize(("before", "after"), [({}, {"order": "answer"}), ({"order": "answer"}, {})])
def test_a_job_that_has_delivered_keeps_its_order(before: dict[str, Any], after: dict[str, Any]) -> None:
    delivered = {"steps": steps_of(plan(**before)), "since": 0}
    last: Any = {"any": OrderKey(9, 0, 0)}
    refuse_other_steps(plan(**before), delivered, None, last, 0)
    with pytest.raises(FlowError, match='"ask" is gone; "ask" is new'):
        refuse_other_steps(plan(**after), delivered, None, last, 0)


def test_a_job_with_commits_does_not_begin_without_state() -> None:
    refuse_answers_twice(plan())
    with pytest.raises(FlowError, match='call "ask" gives answers in the order in which they came'):
        refuse_answers_twice(plan(order="answer"))


def test_a_local_run_keeps_the_order_of_the_records() -> None:
    flow = lt.Flow("test")
    words(flow).call("ask", ask, timeout=lt.seconds(1), order="answer").write("out", to("out"))
    assert flow.run_locally(words=[Word("a", 1), Word("a", 2)])["out"] == [Word("a", 10), Word("a", 20)]


def test_the_reference_gives_kept_answers_at_their_ticks() -> None:
    made = plan(order="answer")
    messages = [Message(Position(0, number), 5, None, msgspec.json.encode(Word("a", number))) for number in range(3)]
    ticks = {0: 9, 1: 5, 2: 7}
    kept = {
        place_of(Order(tick, 0, number)): Answer(encode_rows([Word("a", 10**number)])) for number, tick in ticks.items()
    }
    out, _ = run_log(made, {"words": messages}, kept={"ask": kept})
    assert [(each.timestamp, msgspec.json.decode(each.value or b"")["count"]) for each in out["out"]] == [
        (5, 10),
        (7, 110),
        (9, 111),
    ]


def test_nobody_waits_through_answers_that_have_other_ticks() -> None:
    flow = lt.Flow("test")
    given = words(flow)
    asked = given.call("ask", ask, timeout=lt.seconds(1), order="answer")
    asked.write("out", to("out"))
    given.when_done("done", through=asked).write("done-words", to("done"))
    with pytest.raises(FlowError, match="call 'ask' is between 'words' and 'ask'"):
        compile_flow(flow, parallelism=1)
