"""What functions may do with records and states: `run_locally`, the oracle and the programs of a job say the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from programs import Programs, by_lane

from lowtide import Flow, KeyedStream, Stream, json, kafka, raw
from lowtide.core.operators.faults.failure import UserError
from lowtide.core.operators.faults.watch import WATCHED_BYTES, Watch
from lowtide.core.operators.order.order import Position
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.schema.fields import saves_of
from lowtide.flow.schema.kinds import Mismatch, encode_strictly
from lowtide.flow.schema.schema import kind_of
from lowtide.local.run import Message, run_log


@dataclass(frozen=True)
class Sale:
    user: str
    amount: int
    items: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Posted:
    user: str
    text: str


@dataclass(frozen=True)
class Ratio:
    user: str
    value: float


@dataclass
class Loose:
    count: int = 0


@dataclass(frozen=True)
class Upper:
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name + "!")


SALES, POSTED, DEAD = kafka("sales", json(Sale)), kafka("posted", json(Posted)), kafka("dead", raw())
VALUES = [b'{"user":"ann","amount":1,"items":["gin"]}', b'{"user":"bob","amount":2,"items":["tea"]}']

Build = Callable[[KeyedStream[Sale]], Stream[Any]]


def outcomes(
    build: Build, *, values: list[bytes] = VALUES, sink: Any = POSTED, grouping: str = "optimistic"
) -> list[Any]:
    """What `run_locally`, the oracle and a job's programs make of messages: what comes out, or how they fail."""

    def found(run: Callable[[Flow], object]) -> object:
        flow = Flow("test", dead_letters=DEAD)
        build(flow.read("sales", SALES).key_by("user")).write("out", sink)
        try:
            return run(flow)
        except UserError as error:
            return (error.vertex, str(error.position), error.what, error.way_out)

    log = [Message(Position(0, index), index, None, value) for index, value in enumerate(values)]

    def locally(flow: Flow) -> object:
        written = flow.run_locally(sales=values)
        return sink.format.encode(written["out"]), [dead.error for dead in written["dead-letters"]]

    def oracle(flow: Flow) -> object:
        written, dead = run_log(compile_flow(flow, parallelism=1), {"sales": log})
        return [one.value for one in written["out"]], [one.error for one in dead]

    def programs(flow: Flow) -> object:
        job = Programs(compile_flow(flow, parallelism=1), grouping=grouping)
        for message in log:
            job.feed("sales", [message])
            job.run()
        job.finish()
        return [value for _, value, _ in job.delivered["out"].get(0, [])], [one.error for one in job.dead]

    return [found(locally), found(oracle), found(programs)]


def alike(found: list[Any]) -> Any:
    assert found[0] == found[1] == found[2]
    return found[0]


def cart(state: dict[str, int], sale: Sale) -> tuple[dict[str, int], Posted]:
    state[sale.items[0]] = sale.amount
    return state, Posted(sale.user, " ".join(state))


def failing_cart(state: dict[str, int], sale: Sale) -> tuple[dict[str, int], Posted]:
    state[sale.items[0]] = sale.amount
    raise ValueError("too late")


def counted(state: Loose, sale: Sale) -> tuple[Loose, Posted]:
    state.count += 1
    return state, Posted(sale.user, str(state.count))


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize(("function", "initial"), [(cart, {}), (failing_cart, {}), (counted, Loose())])
def test_a_state_changed_in_place_ends_a_run_of_either_kind(function: Any, initial: Any, grouping: str) -> None:
    """Without it bob's cart would hold ann's gin: the initial state is one object for all keys of a worker."""
    vertex, position, what, way_out = alike(
        outcomes(lambda keyed: keyed.scan("cart", function, initial), grouping=grouping)
    )
    assert (vertex, position) == ("cart", "front 0, offset 0")
    assert what == f'step "cart": changed its state in place, in {function.__name__}'
    assert way_out.startswith("make a new state")


def test_a_repair_sees_a_state_changed_in_place_too() -> None:
    def late(state: dict[str, int], sale: Sale) -> tuple[dict[str, int], Posted]:
        if sale.amount == 1:
            state["gin"] = 1
        return state, Posted(sale.user, "")

    flow = Flow("test")
    empty: dict[str, int] = {}
    flow.read("sales", SALES).key_by("user").scan("cart", late, empty).write("out", POSTED)
    job = Programs(compile_flow(flow, parallelism=1, slack_ms=1))
    job.feed("sales", [Message(Position(0, 5), 9, None, b'{"user":"ann","amount":2}')])
    job.run()
    job.feed("sales", [Message(Position(1, 5), 3, None, b'{"user":"ann","amount":1}')])
    with pytest.raises(UserError, match=r"changed its state in place, in .*late"):
        job.run()


def first_item(sale: Sale) -> Posted:
    return Posted(sale.user, sale.items.pop())


def sort_items(sale: Sale) -> bool:
    sale.items.insert(0, "new")
    return True


def listed(sale: Sale) -> list[Posted]:
    sale.items.clear()
    return []


def scanned(state: int, sale: Sale) -> tuple[int, Posted]:
    sale.items.append("more")
    return state + 1, Posted(sale.user, str(state))


def window(sales: tuple[Sale, ...]) -> Posted:
    sales[0].items.append("more")
    return Posted(sales[0].user, "")


@pytest.mark.parametrize(
    ("build", "step"),
    [
        (lambda keyed: keyed.map(first_item), "first_item"),
        (
            lambda keyed: keyed.filter(sort_items).map(
                lambda sale: Posted(sale.user, ""), name="posted", returns=Posted
            ),
            "sort_items",
        ),
        (lambda keyed: keyed.flat_map(listed), "listed"),
        (lambda keyed: keyed.scan("scanned", scanned, 0), "scanned"),
        (lambda keyed: keyed.last(2).map(window), "window"),
    ],
)
def test_a_record_changed_in_place_ends_a_run_of_either_kind(build: Build, step: str) -> None:
    """Branches, windows and replays have the same object: what they see would hang on what ran before them."""
    vertex, position, what, way_out = alike(outcomes(build))
    assert (vertex, position) == (step, "front 0, offset 0")
    assert what == f'step "{step}": changed its record in place, in {step}'
    assert way_out.startswith("make a new record")


def test_the_record_of_a_batch_that_was_changed_is_named() -> None:
    def third(sale: Sale) -> Sale:
        if sale.amount == 3:
            sale.items.append("x")
        return sale

    flow = Flow("test")
    flow.read("sales", SALES).map(third).write("out", SALES)
    job = Programs(compile_flow(flow, parallelism=1))
    values = [b'{"user":"u","amount":%d}' % number for number in range(20)]
    with pytest.raises(UserError) as caught:
        job.feed("sales", [Message(Position(0, 10 + index), 0, None, value) for index, value in enumerate(values)])
    assert caught.value.position == Position(0, 13)


def largest(state: float, sale: Sale) -> tuple[float, Ratio]:
    state = max(state, sale.amount)
    return state, Ratio(sale.user, state)


def far(state: dict[str, int], sale: Sale) -> tuple[dict[str, int], Posted]:
    return {"far": 1 << 63}, Posted(sale.user, "")


def nested(state: list[int], sale: Sale) -> tuple[list[int], Posted]:
    return ["1"], Posted(sale.user, "")  # type: ignore[list-item]


def local_time(state: datetime, sale: Sale) -> tuple[datetime, Posted]:
    return datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), Posted(sale.user, "")


@pytest.mark.parametrize(
    ("function", "initial", "sink", "text"),
    [
        (largest, 0.0, kafka("posted", json(Ratio)), "cannot be saved as it is: 1 comes back from a snapshot as 1.0"),
        (far, {}, POSTED, "cannot be saved: state{} is 9223372036854775808, expected int that int64 can hold"),
        (nested, [], POSTED, "cannot be saved: state[] is '1', expected int"),
        (local_time, datetime(2026, 1, 1, tzinfo=UTC), POSTED, "comes back from a snapshot as datetime.datetime(2025"),
    ],
)
@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
def test_a_state_that_no_snapshot_gives_back_ends_a_run_of_either_kind(
    function: Any, initial: Any, sink: Any, text: str, grouping: str
) -> None:
    """In spite of dead letters: output went on, while every snapshot failed, or gave other bytes after a recovery."""
    found = outcomes(lambda keyed: keyed.scan("step", function, initial), sink=sink, grouping=grouping)
    vertex, position, what, way_out = alike(found)
    assert (vertex, position) == ("step", "front 0, offset 0")
    assert text in what
    assert "dead_letters" not in way_out


def test_a_state_that_never_was_ends_nothing() -> None:
    """What an optimistic step makes of a record too early is taken back."""

    def over(state: int, sale: Sale) -> tuple[int, Posted]:
        return (1 << 63 if state == 0 and sale.amount == 2 else state + sale.amount), Posted(sale.user, str(state))

    flow = Flow("test")
    flow.read("sales", SALES).key_by("user").scan("over", over, 0).write("out", POSTED)
    plan = compile_flow(flow, parallelism=1, slack_ms=1)
    log = [
        Message(Position(0, 5), 9, None, b'{"user":"ann","amount":2}'),
        Message(Position(1, 5), 3, None, b'{"user":"ann","amount":1}'),
    ]
    job = Programs(plan)
    for message in log:
        job.feed("sales", [message])
        job.run()
    job.finish()
    assert job.delivered == by_lane(run_log(plan, {"sales": log})[0])


def look_it_up(state: int, sale: Sale, prices: dict[str, int]) -> tuple[int, Posted]:
    prices.clear()
    return state, Posted(sale.user, "")


def price(state: dict[str, int], sale: Sale) -> dict[str, int]:
    return {**state, sale.user: sale.amount}


def price_in_place(state: dict[str, int], sale: Sale) -> dict[str, int]:
    state[sale.user] = sale.amount
    return state


def price_nested(state: dict[str, int], sale: Sale) -> dict[str, int]:
    return {"a": None}  # type: ignore[dict-item]


def share(state: int, sale: Sale, prices: dict[str, int]) -> tuple[int, Posted]:
    return state, Posted(sale.user, str(prices))


@pytest.mark.parametrize(
    ("broadcast", "scan", "what"),
    [
        (price, look_it_up, 'step "prices": changed its state in place, in look_it_up'),
        (price_in_place, share, 'step "prices": changed its state in place, in price_in_place'),
        (price_nested, share, 'step "prices": returned a state that cannot be saved: state{} is None, expected int'),
    ],
)
def test_the_state_of_a_broadcast_is_looked_at_too(broadcast: Any, scan: Any, what: str) -> None:
    def build(keyed: KeyedStream[Sale]) -> Stream[Any]:
        return keyed.scan("share", scan, 0, broadcast=keyed.broadcast("prices", broadcast, {}))

    assert alike(outcomes(build))[2] == what


def test_a_loop_keeps_records_as_columns_give_them_back() -> None:
    def again(ratio: Ratio) -> bool:
        return ratio.value > 1

    def whole(ratio: Ratio) -> Ratio:
        return Ratio("u", int(ratio.value) - 1)

    def body(keyed: KeyedStream[Ratio]) -> Stream[Ratio]:
        spied.append(0)
        return keyed.last(2, name="two").map(spy).map(whole)

    spied: list[int] = []
    kept: list[str] = []

    def spy(window: tuple[Ratio, ...]) -> Ratio:
        kept.append(repr([one.value for one in window]))
        return window[-1]

    results = []
    for run in ("local", "job"):
        kept.clear()
        flow = Flow("test")
        ratios = kafka("ratios", json(Ratio))
        flow.read("ratios", ratios).key_by("user").loop("round", body, again, limit_turns=5).write("out", ratios)
        value = b'{"user":"u","value":3.0}'
        if run == "local":
            flow.run_locally(ratios=[value])
        else:
            job = Programs(compile_flow(flow, parallelism=1))
            job.feed("ratios", [Message(Position(0, 0), 0, None, value)])
            job.finish()
        results.append(list(kept))
    assert results[0] == results[1] == ["[3.0]", "[3.0, 2.0]"]


@pytest.mark.parametrize(
    ("hint", "saved", "not_saved"),
    [
        (float, [0.5, 3.0], [3, True, None, "1"]),
        (int, [3, -(1 << 63)], [3.0, True, 1 << 63]),
        (float | None, [None, 0.5], [1]),
        (
            datetime,
            [datetime(2026, 1, 1, tzinfo=UTC)],
            [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone.max)],
        ),
        (list[float], [[], [1.0]], [[1], (1.0,), [None]]),
        (dict[str, float], [{}, {"a": 1.0}], [{"a": 1}, {1: 1.0}]),
        (Ratio, [Ratio("u", 1.0)], [Ratio("u", 1), Posted("u", "")]),
        (list[Ratio], [[Ratio("u", 1.0)]], [[Ratio("u", 1)]]),
        (Loose, [Loose(1)], [Loose(1.0)]),  # type: ignore[arg-type]
        (Upper, [], [Upper("a")]),
    ],
)
def test_what_a_look_lets_through_comes_back_as_it_is(hint: Any, saved: list[Any], not_saved: list[Any]) -> None:
    kind = kind_of(hint, "a test's")
    saves = saves_of(kind)
    for value in saved:
        assert saves(value)
        assert repr(kind.decode(encode_strictly(kind, [value], ""))) == repr([value])
    for value in not_saved:
        assert not saves(value)
        try:
            assert repr(kind.decode(encode_strictly(kind, [value], ""))) != repr([value])
        except Mismatch:
            continue


def test_large_states_are_looked_at_in_turn() -> None:
    watch = Watch()
    small, large = [{"a": 1}], [{"a": "x" * (10 * WATCHED_BYTES)}]
    assert all(watch.look(small) is not None for _ in range(5))
    seen = [watch.look(large) is not None for _ in range(110)]
    assert seen[0]
    assert 9 <= sum(seen) <= 11


@dataclass(frozen=True)
class Visit:
    user: str
    at: datetime


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59.999999-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_datetime_that_has_no_utc_is_a_dead_letter(at: str) -> None:
    def passed(visit: Visit) -> Visit:
        return visit

    visits = kafka("visits", json(Visit))
    values = [b'{"user":"u","at":"%b"}' % at.encode(), b'{"user":"u","at":"9999-12-31T23:59:59.999999+14:00"}']
    flow = Flow("test", dead_letters=DEAD)
    flow.read("visits", visits).map(passed).key_by("user").write("out", visits)
    log = [Message(Position(0, index), index, None, value) for index, value in enumerate(values)]
    plan = compile_flow(flow, parallelism=1)
    written, dead = run_log(plan, {"visits": log})
    job = Programs(plan)
    job.feed("visits", log)
    job.finish()
    assert [one.error for one in dead] == [one.error for one in job.dead]
    assert "expected datetime with a time zone, in UTC of the years 1 to 9999" in dead[0].error
    assert [one.position for one in dead] == [Position(0, 0)]
    assert job.delivered == by_lane(written)
    assert len(flow.run_locally(visits=values)["dead-letters"]) == 1
