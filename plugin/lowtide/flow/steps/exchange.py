"""Exchanges: records go to another level, by key or as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from lowtide.flow.steps.signature import said
from lowtide.flow.steps.step import Asked, Step


@dataclass(frozen=True, slots=True)
class KeyBy(Step):
    """Brings records with equal values in `columns` together; without columns, those of one front."""

    word: ClassVar[str] = "key_by"
    exchange: ClassVar[bool] = True

    columns: tuple[str, ...]

    @override
    def made_name(self, parents: Sequence[str]) -> str | None:
        return f"{parents[0]}/by-{'-'.join(self.columns)}"

    @override
    def gives(self, asked: Asked) -> Any:
        check_columns(self.columns, asked)
        _check_keys(self.columns, asked)
        return asked.takes[0]

    @property
    @override
    def by(self) -> tuple[str, ...]:
        return self.columns

    @property
    @override
    def does(self) -> str:
        return f"exchange by {', '.join(self.columns) or 'source partition'}"


@dataclass(frozen=True, slots=True)
class Relay(Step):
    """Sends records on to the next level in the hash unit they have; at level 0 their front gives them one."""

    word: ClassVar[str] = "relay"
    exchange: ClassVar[bool] = True

    @property
    @override
    def does(self) -> str:
        return "exchange to the next level"


def check_columns(columns: tuple[str, ...], asked: Asked) -> None:
    """Note columns that the records lack, and columns named twice."""
    takes = asked.takes[0]
    if takes is None:
        return
    known = asked.kinds(takes)
    for column in columns:
        if column not in known:
            asked.fault(f"{said(takes)} has no column {column!r}; it has {', '.join(known)}")
    if len(set(columns)) < len(columns):
        asked.fault(f"a column is named twice: {', '.join(columns)}")


def _check_keys(columns: tuple[str, ...], asked: Asked) -> None:
    kinds = {} if asked.takes[0] is None else asked.kinds(asked.takes[0])
    for column in columns:
        if column in kinds and not kinds[column].can_be_key:
            message = f"{column!r} is {kinds[column].name}, which cannot be a key"
            asked.fault(f"{message}; use str, int, bool, bytes, date, datetime, UUID, Enum or Literal")
