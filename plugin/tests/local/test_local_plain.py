"""Records that a run here and now does not take through columns: only those that would come back as they are."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

import pytest

from lowtide.flow.schema.schema import schema_of
from lowtide.local.plain_records import is_plain


class Size(IntEnum):
    SMALL = 1


class Text(str):
    pass


@dataclass(frozen=True)
class Plain:
    text: str
    number: int
    data: bytes = b""
    yes: bool = False
    perhaps: int | None = None


@dataclass
class Changeable:
    text: str


@dataclass(frozen=True)
class Cleaned:
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text + "!")


@dataclass(frozen=True)
class Floats:
    value: float


@dataclass(frozen=True)
class Times:
    at: datetime = field(default_factory=datetime.now)


@dataclass(frozen=True)
class Heir(Plain):
    pass


@pytest.mark.parametrize(
    "record", [Plain("a", -(1 << 63)), Plain("ü\0€", (1 << 63) - 1, b"\xff", True, 7), Heir("a", 1)]
)
def test_a_plain_record_comes_back_from_columns_as_it_is(record: Plain) -> None:
    assert is_plain(type(record), record)
    schema = schema_of(type(record))
    assert repr(schema.rows(schema.columns([record]))) == repr([record])


NOT_PLAIN: list[Any] = [
    Plain("a", 1 << 63),
    Plain("\udc80", 1),
    Plain("a", True),
    Plain("a", 1, yes=1),  # type: ignore[arg-type]
    Plain("a", Size.SMALL),
    Plain(Text("a"), 1),
    Plain("a", 1, perhaps=True),
    Plain(None, 1),  # type: ignore[arg-type]
    Plain("a", 1, bytearray(b"a")),  # type: ignore[arg-type]
    Changeable("a"),
    Cleaned("a"),
    Floats(1),
    Times(datetime(2026, 1, 1)),
]


@pytest.mark.parametrize("record", NOT_PLAIN, ids=repr)
def test_whatever_columns_may_refuse_or_change_is_looked_at(record: Any) -> None:
    assert not is_plain(type(record), record)


def test_a_record_of_another_type_is_not_plain() -> None:
    assert not is_plain(Plain, Heir("a", 1))
