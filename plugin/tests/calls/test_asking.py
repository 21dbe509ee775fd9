"""The engine of a call, in virtual time: tries, time-outs, pauses, batches, resources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from virtual_time import run_virtually

from lowtide.calls.asking import GRACE_S, Asking, pause_s
from lowtide.calls.inside import CallRefused, call_key
from lowtide.calls.outcome import Answered, CallFailed, Question
from lowtide.calls.setting import CallSetting
from lowtide.errors import FlowError
from lowtide.flow.schema.fields import decoder_of


@dataclass(frozen=True)
class Item:
    name: str


@dataclass(frozen=True)
class Price:
    name: str
    euros: int


def setting(function: Callable[..., Any], **rest: Any) -> CallSetting:
    return CallSetting("price", function, Item, Price, **{"concurrency": 4, "timeout_s": 2.0, **rest})


class Answers:
    """The answers of a run, in order, with the time at which each came."""

    def __init__(self) -> None:
        self.all: list[Answered] = []
        self.at: dict[int, float] = {}

    def __call__(self, answered: Answered) -> None:
        assert answered.id not in self.at, "a question is answered once"
        self.all.append(answered)
        self.at[answered.id] = asyncio.get_running_loop().time()

    def prices(self) -> list[int]:
        """The euros of each question's answer, by id; -1 for a failure."""
        found = sorted(self.all, key=lambda each: each.id)
        return [-1 if each.value is None else decoder_of(Price)(each.value)[0].euros for each in found]

    def failure(self, id_: int = 0) -> CallFailed:
        found = next(each.failure for each in self.all if each.id == id_)
        assert found is not None
        return found


def asked(call: CallSetting, names: list[str], until_s: float = 1000.0, **rest: Any) -> Answers:
    """Ask about items at once, their keys their names, and return the answers that came within the time."""

    async def run() -> Answers:
        answers = Answers()
        asking = Asking(call, answers, **rest)
        asking.ask([Question(number, name, Item(name)) for number, name in enumerate(names)])
        await asyncio.sleep(until_s)
        await asking.close()
        return answers

    return run_virtually(run())


async def priced(item: Item) -> Price:
    return Price(item.name, len(item.name))


def test_each_question_gets_its_answer_once() -> None:
    assert asked(setting(priced), ["tea", "rice", "a", "bb", "c", "dd"]).prices() == [3, 4, 1, 2, 1, 2]


def test_no_more_functions_run_at_once_than_the_concurrency() -> None:
    running = most = 0

    async def slow(item: Item) -> Price:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return Price(item.name, 1)

    answers = asked(setting(slow, concurrency=3), [str(number) for number in range(10)])
    assert most == 3
    assert answers.at[9] == pytest.approx(4)


def test_a_failed_try_is_followed_by_others_after_pauses_of_the_key() -> None:
    tries: list[float] = []

    async def third(item: Item) -> Price:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 3:
            raise ConnectionResetError("gone")
        return Price(item.name, 7)

    assert asked(setting(third, retries=2), ["tea"]).prices() == [7]
    first = pause_s("tea", 1)
    assert tries == [0.0, pytest.approx(first), pytest.approx(first + pause_s("tea", 2))]


def test_pauses_double_up_to_ten_seconds_and_are_the_same_in_every_run() -> None:
    for tries, longest in enumerate([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0], 1):
        drawn = {pause_s(f"key {number}", tries) for number in range(200)}
        assert longest / 2 <= min(drawn) < longest * 0.55
        assert longest * 0.95 < max(drawn) <= longest
    assert pause_s("tea", 2_000) <= 10
    assert pause_s("tea", 1) == 0.06803242655005307


def test_the_last_failure_names_the_error_and_the_tries_and_where_it_was_raised() -> None:
    async def gone(item: Item) -> Price:
        raise ConnectionResetError(f"no {item.name}")

    failure = asked(setting(gone, retries=3), ["tea"]).failure()
    assert (failure.what, failure.tries) == ("raised ConnectionResetError: no tea", 4)
    assert "in gone\n" in failure.traceback_text
    assert "lowtide/calls" not in failure.traceback_text


def test_a_refused_record_is_not_tried_again() -> None:
    async def refused(item: Item) -> Price:
        raise CallRefused("no such item")

    failure = asked(setting(refused, retries=3), ["tea"]).failure()
    assert (failure.what, failure.tries) == ("refused: no such item", 1)


def test_a_try_ends_at_its_time_out_and_a_late_answer_is_not_taken() -> None:
    seen: list[str] = []

    async def deaf(item: Item) -> Price:
        try:
            await asyncio.sleep(3)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0.5)
        return Price(item.name, 1)

    answers = asked(setting(deaf), ["tea"])
    assert answers.failure() == CallFailed("gave no answer within 2 s", 1)
    assert answers.at[0] == pytest.approx(2)
    assert seen == ["cancelled"]


def test_the_time_out_is_of_one_try() -> None:
    tries: list[Item] = []

    async def slow_at_first(item: Item) -> Price:
        tries.append(item)
        await asyncio.sleep(1.9 if len(tries) > 1 else 5)
        return Price(item.name, 1)

    answers = asked(setting(slow_at_first, retries=1), ["tea"])
    assert answers.prices() == [1]
    assert answers.at[0] == pytest.approx(2 + pause_s("tea", 1) + 1.9)


def test_functions_that_go_on_after_their_time_out_keep_their_places_and_all_of_them_stick_the_call() -> None:
    stuck: list[float] = []

    async def run() -> int:
        loop = asyncio.get_running_loop()
        answers = Answers()

        async def deaf(item: Item) -> Price:
            until = loop.time() + (100 if item.name == "deaf" else 0)
            while loop.time() < until:
                try:
                    await asyncio.sleep(until - loop.time())
                except asyncio.CancelledError:
                    continue
            return Price(item.name, 1)

        asking = Asking(setting(deaf, concurrency=2), answers, stuck=lambda: stuck.append(loop.time()))
        asking.ask([Question(0, "a", Item("deaf")), Question(1, "b", Item("fine")), Question(2, "c", Item("fine"))])
        await asyncio.sleep(10)
        assert stuck == []
        assert answers.prices() == [-1, 1, 1]
        asking.ask([Question(3, "d", Item("deaf")), Question(4, "e", Item("fine"))])
        await asyncio.sleep(60)
        before = len(answers.all)
        await asyncio.sleep(60)
        await asking.close()
        return before

    assert run_virtually(run()) == 4
    assert stuck == [pytest.approx(10 + 2 + GRACE_S)]


def test_a_function_that_returns_at_last_hangs_no_more() -> None:
    stuck: list[int] = []

    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        answers = Answers()

        async def deaf(item: Item) -> Price:
            until = loop.time() + float(item.name)
            while loop.time() < until:
                try:
                    await asyncio.sleep(until - loop.time())
                except asyncio.CancelledError:
                    continue
            return Price(item.name, 1)

        asking = Asking(setting(deaf, concurrency=2), answers, stuck=lambda: stuck.append(1))
        asking.ask([Question(0, "a", Item("20"))])
        await asyncio.sleep(30)
        asking.ask([Question(1, "b", Item("20")), Question(2, "c", Item("1"))])
        await asyncio.sleep(10)
        await asking.close()
        return answers.prices()

    assert run_virtually(run()) == [-1, -1, 1]
    assert stuck == []


def test_many_time_outs_at_once_do_not_stick_a_call_whose_functions_end() -> None:
    async def slow(item: Item) -> Price:
        await asyncio.sleep(100)
        return Price(item.name, 1)

    stuck: list[int] = []
    answers = asked(setting(slow), list("abcdefgh"), stuck=lambda: stuck.append(1))
    assert answers.prices() == [-1] * 8
    assert answers.at[7] == pytest.approx(4)
    assert stuck == []


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (None, "returned None, expected Price"),
        (Item("tea"), "returned Item, expected Price"),
        (Price("tea", "3"), "Price.euros: expected int, found str '3'"),  # type: ignore[arg-type]
        (Price("tea", 1 << 63), "Price.euros: expected int"),
        ([Price("tea", 3)], "returned list, expected Price"),
    ],
)
def test_a_result_that_is_not_of_the_type_fails_the_try(result: object, what: str) -> None:
    tries: list[Item] = []

    async def wrong(item: Item) -> object:
        tries.append(item)
        return result

    failure = asked(setting(wrong, retries=1), ["tea"]).failure()
    assert failure.what.startswith(what)
    assert (failure.tries, len(tries), failure.traceback_text) == (2, 2, "")


class Unsayable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (Unsayable(), "raised Unsayable: (its text cannot be made)"),
        (ValueError("a\ud800"), "raised ValueError: a\\ud800"),
        (ValueError("x" * 5_000), f"raised ValueError: {'x' * 1_000}…"),
        (asyncio.CancelledError(), "raised CancelledError: "),
        (KeyboardInterrupt(), "raised KeyboardInterrupt: "),
        (SystemExit(2), "raised SystemExit: 2"),
        (ExceptionGroup("two", [ValueError(1), KeyError(2)]), "raised ExceptionGroup: two (2 sub-exceptions)"),
    ],
)
def test_any_exception_is_a_failed_try_whose_text_can_be_written(error: BaseException, what: str) -> None:
    async def fails(item: Item) -> Price:
        raise error

    def makes() -> str:
        raise error

    failure = asked(setting(fails), ["tea"]).failure()
    assert failure.what == what
    failure.traceback_text.encode()
    assert asked(setting(priced, resource=makes), ["tea"]).failure().what == f"its resource {what}"


def test_a_result_that_cannot_be_read_fails_the_try() -> None:
    async def empty(item: Item) -> Slotted:
        return object.__new__(Slotted)

    failure = asked(CallSetting("price", empty, Item, Slotted, 1, 1.0), ["tea"]).failure()
    assert (
        failure.what
        == "returned a Slotted that cannot be read: AttributeError: 'Slotted' object has no attribute 'name'"
    )


# -- batches -------------------------------------------------------------------------------------------------------


def batched(sizes: list[int]) -> Callable[[list[Item]], Any]:
    async def prices(items: list[Item]) -> list[Price]:
        sizes.append(len(items))
        return [Price(item.name, len(item.name)) for item in items]

    return prices


def test_a_batch_is_asked_when_it_is_full_or_its_first_record_has_waited() -> None:
    sizes: list[int] = []
    answers = asked(setting(batched(sizes), batch=4, within_s=0.5), ["a", "bb", "ccc", "a", "bb", "ccc"])
    assert sizes == [4, 2]
    assert answers.prices() == [1, 2, 3, 1, 2, 3]
    assert [answers.at[0], answers.at[5]] == [0.0, pytest.approx(0.5)]


def test_a_record_waits_within_from_its_own_coming() -> None:
    sizes: list[int] = []

    async def run() -> Answers:
        answers = Answers()
        asking = Asking(setting(batched(sizes), batch=10, within_s=0.5), answers)
        for number in range(4):
            asking.ask([Question(number, str(number), Item("a"))])
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        await asking.close()
        return answers

    answers = run_virtually(run())
    assert sizes == [3, 1]
    assert answers.at == {0: pytest.approx(0.5), 1: pytest.approx(0.5), 2: pytest.approx(0.5), 3: pytest.approx(1.1)}


def test_a_batch_that_fails_is_a_failed_try_of_each_record() -> None:
    sizes: list[int] = []

    async def third(items: list[Item]) -> list[Price]:
        sizes.append(len(items))
        if len(items) > 1:
            raise ConnectionResetError("gone")
        return [Price(items[0].name, 5)]

    answers = asked(setting(third, batch=3, within_s=0.001, retries=1), ["a", "b", "c"])
    assert answers.prices() == [5, 5, 5]
    assert sizes == [3, 1, 1, 1]


def test_a_record_that_is_tried_again_waits_for_others_as_at_first() -> None:
    at: list[float] = []

    async def second(items: list[Item]) -> list[Price]:
        at.append(asyncio.get_running_loop().time())
        if len(at) == 1:
            raise ConnectionResetError("gone")
        return [Price(items[0].name, 5)]

    assert asked(setting(second, batch=3, within_s=0.5, retries=1), ["a"]).prices() == [5]
    assert at == [pytest.approx(0.5), pytest.approx(1.0 + pause_s("a", 1))]


@pytest.mark.parametrize(
    ("give", "found"),
    [
        (lambda items: [Price("a", 1)], "1 results"),
        (lambda items: None, "NoneType"),
        (lambda items: tuple(Price("a", 1) for _ in items), "tuple"),
    ],
)
def test_a_batch_with_a_wrong_number_of_results_fails(give: Callable[[list[Item]], Any], found: str) -> None:
    async def wrong(items: list[Item]) -> Any:
        return give(items)

    answers = asked(setting(wrong, batch=2), ["a", "b"])
    expected = CallFailed(f"returned {found} for a batch of 2, expected a list of 2", 1)
    assert [answers.failure(0), answers.failure(1)] == [expected, expected]


def test_a_record_of_a_batch_fails_alone_by_an_exception_or_a_wrong_result_in_its_place() -> None:
    tries: list[list[str]] = []

    async def some(items: list[Item]) -> list[Any]:
        tries.append([item.name for item in items])
        of_first = {"bad": ConnectionResetError("gone"), "no": CallRefused("unknown"), "odd": Item("odd")}
        return [of_first.pop(item.name, Price(item.name, 1)) if len(tries) == 1 else Price("", 2) for item in items]

    answers = asked(setting(some, batch=4, retries=1), ["good", "bad", "no", "odd"])
    assert answers.prices() == [1, 2, -1, 2]
    assert answers.failure(2) == CallFailed("refused: unknown", 1, "lowtide.calls.inside.CallRefused: unknown\n")
    assert sorted(name for names in tries[1:] for name in names) == ["bad", "odd"]


# -- keys ----------------------------------------------------------------------------------------------------------


def test_the_function_gets_the_call_key_as_its_argument_and_by_name() -> None:
    seen: list[tuple[Any, ...]] = []

    async def keyed(item: Item, key: str) -> Price:
        await asyncio.sleep(0)
        seen.append((item.name, key, call_key()))
        return Price(item.name, 1)

    async def all_keyed(items: list[Item], keys: list[str]) -> list[Price]:
        with pytest.raises(FlowError, match="keys"):
            call_key()
        seen.append((*keys,))
        return [Price("", 1) for _ in items]

    assert asked(setting(keyed, pass_keys=True), ["a", "b"]).prices() == [1, 1]
    assert asked(setting(all_keyed, pass_keys=True, batch=2), ["c", "d"]).prices() == [1, 1]
    assert seen == [("a", "a", "a"), ("b", "b", "b"), ("c", "d")]
    with pytest.raises(FlowError, match="outside a call"):
        call_key()


# -- resources -----------------------------------------------------------------------------------------------------


def test_a_resource_is_entered_once_and_exited_at_the_end() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def session() -> AsyncIterator[str]:
        events.append("enter")
        await asyncio.sleep(1)
        yield "session"
        events.append("exit")

    async def ask(item: Item, session: str, key: str) -> Price:
        events.append(f"{key} by {session}")
        return Price(item.name, 1)

    assert asked(setting(ask, resource=session, pass_keys=True), ["a", "b"]).prices() == [1, 1]
    assert events == ["enter", "a by session", "b by session", "exit"]


def test_a_resource_is_opened_before_the_first_question() -> None:
    events: list[str] = []

    async def run() -> None:
        asking = Asking(setting(priced, resource=lambda: events.append("made")), Answers())
        await asyncio.sleep(1)
        await asking.close()

    run_virtually(run())
    assert events == ["made"]


def test_a_resource_that_cannot_be_opened_is_a_failed_try_of_what_waits_for_it() -> None:
    made: list[int] = []

    def connect() -> str:
        made.append(1)
        if len(made) < 4:
            raise ConnectionRefusedError("nobody there")
        return "connection"

    async def ask(item: Item, connection: str) -> Price:
        return Price(item.name, 1)

    assert asked(setting(ask, resource=connect, retries=3), ["a"]).prices() == [1]
    made.clear()
    failure = asked(setting(ask, resource=connect, retries=1), ["a"]).failure()
    assert (failure.what, failure.tries) == ("its resource raised ConnectionRefusedError: nobody there", 2)
    assert "in connect\n" in failure.traceback_text


def test_a_resource_that_does_not_open_is_given_up_after_its_limit() -> None:
    @asynccontextmanager
    async def session() -> AsyncIterator[str]:
        await asyncio.sleep(10_000)
        yield ""

    answers = asked(setting(priced, resource=session), ["a"])
    assert answers.failure().what == "its resource raised TimeoutError: it did not open within 300 s"


def test_closing_ends_what_is_under_way_without_an_answer() -> None:
    async def slow(item: Item) -> Price:
        await asyncio.sleep(1.5)
        return Price(item.name, 1)

    assert asked(setting(slow), ["a", "b"], until_s=1.0).all == []


def test_tries_made_elsewhere_count() -> None:
    async def gone(item: Item) -> Price:
        raise ConnectionResetError("gone")

    async def run() -> tuple[dict[int, int], dict[int, int], Answers]:
        answers = Answers()
        asking = Asking(setting(gone, retries=4), answers)
        asking.ask([Question(0, "a", Item("a")), Question(1, "b", Item("b"))], {1: 3})
        await asyncio.sleep(0.01)
        before = asking.tries()
        await asyncio.sleep(100)
        after = asking.tries()
        await asking.close()
        assert asking.retries == 5
        return before, after, answers

    before, after, answers = run_virtually(run())
    assert (before, after) == ({0: 1, 1: 4}, {})
    assert [answers.failure(0).tries, answers.failure(1).tries] == [5, 5]
