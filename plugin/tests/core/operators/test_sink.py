"""A record that a sink's format cannot write fails before the barrier, as at any other step (R6, W12)."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from programs import Programs, by_lane
from proto_messages import add_field, generated_by

from lowtide import Flow, json, kafka, protobuf, raw
from lowtide.core.operators.faults.failure import NotWritable
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey, Position
from lowtide.core.operators.plain.sink import SinkEncoder
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import Message, run_log

LIMIT = 2**31


@dataclass(frozen=True)
class Sum:
    key: str
    amount: int = 0


def fill(_file: Any, message: Any) -> None:
    add_field(message, "key", "string")
    add_field(message, "amount", "int32")


NARROW = generated_by(fill)


def summed(state: int, one: Sum) -> tuple[int, Sum]:
    return state + one.amount, replace(one, amount=state + one.amount)


def plan_of(*, letters: bool) -> Plan:
    """Totals, which are too large for the message now and then; the sink is called as the step before it."""
    flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
    sums = flow.read("in", kafka("in", json(Sum))).key_by("key").scan("total", summed, 0)
    sums.write("total", kafka("total", protobuf(Sum, NARROW), key="key"))
    sums.key_by("amount").scan("again", summed, 0).write("again", kafka("again", json(Sum)))
    return compile_flow(flow, parallelism=2, units=8)


def logs(dice: random.Random) -> list[list[Message]]:
    """Two partitions."""
    found = []
    for front in range(2):
        amounts = [dice.choice([1, LIMIT // 2, LIMIT - 2, 1 - LIMIT]) for _ in range(12)]
        values = [b'{"key":"%s","amount":%d}' % (dice.choice([b"a", b"b"]), amount) for amount in amounts]
        found.append([
            Message(Position(front, place), 1_000 + 4 * place, None, value) for place, value in enumerate(values)
        ])  # fmt: skip
    return found


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize("seed", range(20))
def test_workers_and_oracle_refuse_the_same_records_whatever_is_repaired(seed: int, grouping: str) -> None:
    dice, plan = random.Random(seed), plan_of(letters=True)
    messages = logs(dice)
    programs = Programs(plan, dice.randrange, grouping)
    for front in dice.sample(messages, 2):
        programs.feed("in", front)
        for _ in range(dice.randrange(6)):
            programs.step()
    programs.finish()
    delivered, dead = run_log(plan, {"in": [each for front in messages for each in front]})
    assert programs.delivered == by_lane(delivered)
    assert Counter(map(repr, programs.dead)) == Counter(map(repr, dead))
    assert {letter.vertex for letter in dead} == {"total"}
    assert "Sum.amount: " in dead[0].error
    assert dead[0].error.endswith("is outside int32, -2147483648 to 2147483647")
    assert len(delivered["total"]) + len(dead) == len(delivered["again"]) == 24


def test_without_dead_letters_it_ends_the_life_with_topic_step_record_and_way_out() -> None:
    plan = plan_of(letters=False)
    log = [Message(Position(0, place), 1_000, None, b'{"key":"a","amount":%d}' % LIMIT) for place in range(2)]
    errors = []
    for run in (lambda: run_log(plan, {"in": log}), lambda: _program(plan, log)):
        with pytest.raises(NotWritable) as caught:
            run()
        errors.append(caught.value)
    alone, error = errors
    assert (alone.what, alone.way_out) == (error.what, error.way_out)
    assert alone.where.removesuffix("; key: key = 'a'") in error.where
    assert error.kind == "flow", "the program does not begin a life again that would end in the same way"
    assert error.what == (
        'sink "total", topic "total": a record cannot be written as Protobuf (test.M): Sum.amount: 2147483648 is '
        "outside int32, -2147483648 to 2147483647"
    )
    assert "record at front 0, offset 0: Sum(key='a', amount=2147483648); order key: tick " in error.where
    assert alone.where.endswith("; key: key = 'a'"), "that of the message which it would be"
    assert "dead_letters" in error.way_out


def _program(plan: Plan, log: list[Message]) -> None:
    programs = Programs(plan)
    programs.feed("in", log)
    programs.finish()


def test_run_locally_has_the_same_letters() -> None:
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    flow.read("in", kafka("in", json(Sum))).write("out", kafka("out", protobuf(Sum, NARROW)))
    found = flow.run_locally({"in": [Sum("a", 1), Sum("b", LIMIT), Sum("c", -LIMIT)]})
    assert found["out"] == [Sum("a", 1), Sum("c", -LIMIT)]
    (letter,) = found["dead-letters"]
    assert (letter.vertex, letter.value) == ("out", b'{"key":"b","amount":2147483648}')


@dataclass(frozen=True)
class Seen:
    at: datetime


def sight(one: Sum) -> Seen:
    return Seen(datetime(1890 + one.amount, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32))))


def test_a_letter_says_what_json_cannot() -> None:
    """The record of a letter is as it was: not another time, as JSON would have it."""
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    sums = flow.read("in", kafka("in", json(Sum))).key_by("key")
    sums.map(sight).write("out", kafka("out", json(Seen)))
    (letter,) = flow.run_locally({"in": [Sum("a", 1)]})["dead-letters"]
    assert letter.value == b'{"at":"1891-01-01T00:00:00+00:19:32"}'
    assert "1891-01-01 00:00:00+00:19:32 is 0:19:32 ahead of UTC" in letter.error


def lowest(_: float, one: Sum) -> tuple[float, list[Sum]]:
    return math.nan, []


def failing(_: float, at: datetime) -> tuple[float, list[Sum]]:
    raise ValueError("no level")


def in_a_second(_: float) -> datetime:
    return datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_a_letter_says_what_json_cannot_of_a_state_too() -> None:
    """What failed when time called a key is not a record, but what is kept of the key."""
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    sums = flow.read("in", kafka("in", json(Sum))).key_by("key")
    called = sums.flat_scan("lowest", lowest, 0.0, timer=in_a_second, on_timer=failing)
    called.write("out", kafka("out", json(Sum)))
    (letter,) = flow.run_locally({"in": [Sum("a", 1)]})["dead-letters"]
    assert letter.value == b'{"key":"a","time":"1970-01-01T00:00:01Z","state":"nan"}'


def test_a_codec_that_fails_after_the_barrier_ends_the_life_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules lack one: so the life ends in the flow's name, and not again and again."""
    flow = Flow("test")
    flow.read("in", kafka("in", json(Sum))).write("out", kafka("out", json(Sum)))
    (sink,) = compile_flow(flow, parallelism=1).sinks()

    def encode(_form: object, rows: list[Sum]) -> list[bytes]:
        if Sum("b") in rows:
            raise ValueError("no word for it")
        return [b"" for _ in rows]

    monkeypatch.setattr(JsonFormat, "encode", encode)
    ats = [OrderKey(5, 0, place).packed() for place in range(3)]
    with pytest.raises(NotWritable, match="JSON: ValueError: no word for it") as caught:
        SinkEncoder(sink, 2).encode(0, [Piece(5, ats, [Sum("a"), Sum("b"), Sum("c")])])
    assert (caught.value.kind, caught.value.position) == ("flow", Position(0, 1))
