"""Questions asked one after the other in this process, with real threads; and the fake service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident

from lowtide.calls.inside import call_key
from lowtide.calls.once import Local, ask_once
from lowtide.calls.outcome import CallFailed
from lowtide.calls.setting import CallSetting
from lowtide.calls.stub import Stub


@dataclass
class Order:
    user: str
    items: list[str] = field(default_factory=list)


@dataclass
class Score:
    user: str
    value: float


def call(function: object, **rest: object) -> CallSetting:
    return CallSetting("score", function, Order, Score, **{"concurrency": 1, "timeout_s": 5.0, **rest})  # type: ignore[arg-type]


async def scored(order: Order) -> Score:
    return Score(order.user, len(order.items))


def test_one_question_is_asked_and_its_result_is_as_a_job_would_give_it() -> None:
    score = ask_once(call(scored), Order("ada", ["tea"]), "k")
    assert score == Score("ada", 1.0)
    assert type(score.value) is float


def test_a_plain_function_runs_in_one_thread_with_its_resource() -> None:
    threads: list[int] = []

    @contextmanager
    def connection() -> Iterator[str]:
        threads.append(get_ident())
        yield "connection"
        threads.append(get_ident())

    def ask(order: Order, used: str, key: str) -> Score:
        threads.append(get_ident())
        assert (used, key) == ("connection", call_key())
        return Score(key, 1.0)

    with Local(call(ask, resource=connection, pass_keys=True)) as local:
        assert [local.ask(Order("ada"), f"k{number}").user for number in range(20)] == [f"k{n}" for n in range(20)]
    assert len(threads) == 22
    assert len(set(threads)) == 1
    assert get_ident() not in threads


def test_a_record_is_the_functions_own_copy() -> None:
    order = Order("ada", ["tea"])

    def eats(given: Order) -> Score:
        given.items.clear()
        return Score(given.user, 0.0)

    assert ask_once(call(eats), order, "k") == Score("ada", 0.0)
    assert order.items == ["tea"]


def test_a_plain_function_that_hangs_fails_at_its_time_out_and_its_late_answer_is_not_taken() -> None:
    free = threading.Event()

    def hangs(order: Order) -> Score:
        if order.user == "ada":
            free.wait(30)
        return Score(order.user, 1.0)

    with Local(call(hangs, timeout_s=0.05, concurrency=2)) as local:
        assert local.ask(Order("ada"), "a") == CallFailed("gave no answer within 0.05 s", 1)
        assert local.ask(Order("bob"), "b") == Score("bob", 1.0)
        free.set()
        assert local.ask(Order("eve"), "c") == Score("eve", 1.0)


def test_whatever_a_plain_function_raises_fails_the_try() -> None:
    def leaves(order: Order) -> Score:
        raise SystemExit(order.user) if order.user == "ada" else StopIteration

    with Local(call(leaves)) as local:
        failures = [local.ask(Order(user), "k").what for user in ("ada", "bob")]
    assert failures == ["raised SystemExit: ada", "raised StopIteration: "]


def test_a_batch_is_of_one_record_and_waits_for_no_other() -> None:
    async def scores(orders: list[Order]) -> list[Score]:
        return [Score(order.user, len(orders)) for order in orders]

    assert ask_once(call(scores, batch=32, within_s=60.0), Order("ada"), "k") == Score("ada", 1.0)


def test_it_works_where_an_event_loop_runs() -> None:
    async def notebook() -> object:
        return ask_once(call(scored), Order("ada"), "k")

    assert asyncio.run(notebook()) == Score("ada", 0.0)


# -- the stub ------------------------------------------------------------------------------------------------------


def by_key(stub: Stub, retries: int, count: int = 200) -> list[object]:
    with Local(call(stub, retries=retries), pauses=False) as local:
        return [local.ask(Order(f"user {number}"), f"key {number}") for number in range(count)]


def score_of(order: Order) -> Score:
    return Score(order.user, 0.5)


def test_a_stub_fails_by_the_seed_and_the_key_alone() -> None:
    first = by_key(Stub(score_of, fails=0.3), 0)
    failed = [index for index, each in enumerate(first) if isinstance(each, CallFailed)]
    assert 40 < len(failed) < 80
    assert by_key(Stub(score_of, fails=0.3), 0) == first
    assert by_key(Stub(score_of, fails=0.3, seed=1), 0) != first


def test_a_stubs_failure_is_over_after_some_tries() -> None:
    stub = Stub(score_of, fails=0.3)
    assert by_key(stub, 20) == [Score(f"user {number}", 0.5) for number in range(200)]
    assert 240 < stub.asked.total() < 340


def test_a_stub_answers_from_a_table() -> None:
    @dataclass(frozen=True)
    class Item:
        name: str

    setting = CallSetting("score", Stub({Item("tea"): Score("tea", 3.0)}, fails=0.0), Item, Score, 1, 1.0)
    assert ask_once(setting, Item("tea"), "k") == Score("tea", 3.0)
    assert ask_once(setting, Item("rice"), "k").what == (
        "raised KeyError: test_a_stub_answers_from_a_table.<locals>.Item(name='rice')"
    )


def test_a_stub_is_slow_by_the_key() -> None:
    fast = CallSetting("score", Stub(score_of, fails=0.0, slow_s=60.0), Order, Score, 1, 0.01)
    assert ask_once(fast, Order("ada"), "k") == CallFailed("gave no answer within 0.01 s", 1)
