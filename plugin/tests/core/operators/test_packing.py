"""A state that was packed comes back as from a snapshot: whatever fields its type may have."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from random import Random
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest

import lowtide as lt
from lowtide.core.operators.state.packing import Packing
from lowtide.flow.schema.fields import is_made_by_code, saves_of
from lowtide.flow.schema.kinds import encode_strictly
from lowtide.flow.schema.schema import kind_of


class Colour(Enum):
    RED = "red"
    NONE = ""


class Grade(IntEnum):
    LOW = -1
    HIGH = 1 << 40


class Side(StrEnum):
    LEFT = "left"


Price = Annotated[Decimal, lt.Precision(18, 2)]


@dataclasses.dataclass(frozen=True)
class Inner:
    text: str | None
    numbers: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Every:
    text: str
    number: int
    ratio: float
    flag: bool
    data: bytes
    day: date
    at: datetime
    clock: time
    price: Price
    name: UUID
    colour: Colour
    grade: Grade
    side: Side
    word: Literal["a", "b"]
    level: Literal[1, 2]
    inner: Inner | None
    many: list[Inner]
    named: dict[str, float]
    deep: dict[str, list[Inner | None]]
    prices: tuple[Price, ...]
    maybe: datetime | None


EARLY, LATE = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
MOMENTS = (EARLY, LATE, datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC))
TEXTS = ("", "\0", "é\U0001f600", "x" * 300)
NUMBERS = (0, -1, 127, 128, 1 << 31, -(1 << 63), (1 << 63) - 1)
RATIOS = (0.0, -0.0, 1.5, 3.0, 5e-324, float("inf"), float("-inf"), float("nan"))
PRICES = (Decimal("0.00"), Decimal("-12.34"), Decimal("9999999999999999.99"))


def an_inner(chosen: Random) -> Inner:
    numbers = tuple(chosen.choices(NUMBERS, k=chosen.randrange(3)))
    return Inner(chosen.choice((None, *TEXTS)), numbers)


def a_state(chosen: Random) -> Every:
    one = chosen.choice
    inners = [an_inner(chosen) for _ in range(chosen.randrange(3))]
    return Every(
        text=one(TEXTS),
        number=one(NUMBERS),
        ratio=one(RATIOS),
        flag=one((False, True)),
        data=one((b"", b"\0\xff")),
        day=one((date.min, date.max, date(1970, 1, 1))),
        at=one(MOMENTS) if chosen.random() < 0.5 else EARLY + timedelta(microseconds=chosen.randrange(10**17)),
        clock=one((time.min, time.max, time(1, 2, 3, 4))),
        price=one(PRICES),
        name=UUID(int=chosen.getrandbits(128)),
        colour=one(list(Colour)),
        grade=one(list(Grade)),
        side=Side.LEFT,
        word=one(("a", "b")),
        level=one((1, 2)),
        inner=one((None, an_inner(chosen))),
        many=inners,
        named={text: one(RATIOS) for text in chosen.sample(TEXTS, chosen.randrange(4))},
        deep={text: [one((None, an_inner(chosen)))] for text in chosen.sample(TEXTS, chosen.randrange(3))},
        prices=tuple(chosen.choices(PRICES, k=chosen.randrange(3))),
        maybe=one((None, *MOMENTS)),
    )


def packed_and_back(hint: Any, value: Any) -> Any:
    packing = Packing('step "seen"', 1, 8, several=False, key=str, state=hint)
    key, again = packing.unpack(packing.pack("ada", value))
    assert key == "ada"
    return again


def saved_and_back(hint: Any, value: Any) -> Any:
    kind = kind_of(hint, "a state")
    assert saves_of(kind)(value)
    return kind.decode(encode_strictly(kind, [value], ""))[0]


@pytest.mark.parametrize("seed", range(4))
def test_a_state_comes_back_as_from_a_snapshot(seed: int) -> None:
    chosen = Random(seed)
    for _ in range(100):
        state = a_state(chosen)
        assert repr(packed_and_back(Every, state)) == repr(saved_and_back(Every, state)) == repr(state)


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (int, NUMBERS),
        (int | None, (None, 0)),
        (float, RATIOS),
        (str | None, (None, *TEXTS)),
        (bytes, (b"", b"\xc0")),
        (datetime, MOMENTS),
        (Price, PRICES),
        (Colour, list(Colour)),
        (tuple[int | None, ...], ((), (None, 0))),
        (list[dict[str, int]], ([], [{}], [{"b": 1, "a": 2}])),
        (dict[str, Inner | None], ({}, {"": None, "a": Inner(None)})),
    ],
)
def test_so_does_a_state_that_is_no_dataclass(hint: Any, values: Any) -> None:
    for value in values:
        assert repr(packed_and_back(hint, value)) == repr(saved_and_back(hint, value)) == repr(value)


@pytest.mark.parametrize(
    "key", [None, "", "a", 0, -1, True, b"\0", date.min, EARLY, UUID(int=5), Colour.RED, Grade.HIGH, Side.LEFT]
)
def test_a_key_comes_back_as_it_was(key: Any) -> None:
    hint = type(key) if key is not None else str | None
    packing = Packing('step "seen"', 1, 8, several=False, key=hint, state=int)
    again, _ = packing.unpack(packing.pack(key, 1))
    assert (type(again), again, hash(again)) == (type(key), key, hash(key))
    assert packing.place(3, again) == packing.place(3, key)


def test_what_the_users_code_makes_is_known() -> None:
    @dataclasses.dataclass
    class Made:
        number: int

        def __post_init__(self) -> None:
            self.twice = 2 * self.number

    own: list[Any] = [Made, Made | None, list[Made], dict[str, Made]]
    plain: list[Any] = [Every, int, list[Inner]]
    assert all(is_made_by_code(kind_of(hint, "a state")) for hint in own)
    assert not any(is_made_by_code(kind_of(hint, "a state")) for hint in plain)
