"""Kinds of plain values that Arrow, or text, holds in a form of its own: exact decimals and UUIDs."""

from __future__ import annotations

from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

import pyarrow as pa

from lowtide.flow.schema.kinds import Kind, Mismatch, refuse_types

DIGITS_LIMIT = 38
"""The digits that decimal128 holds."""


class Fixed(Kind):
    """A `Decimal` with exactly `scale` digits after the point, and at most `precision` in all.

    Exactly, as a column gives back: Decimal("1.5") and Decimal("1.50") are equal, but print differently.
    """

    def __init__(self, precision: int, scale: int) -> None:
        self.precision = precision
        self.scale = scale
        self.name = f"Decimal of {scale} digits after the point and at most {precision} in all"
        self.arrow = pa.decimal128(precision, scale)
        self._unit = Decimal(1).scaleb(-scale)
        self._context = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def fits(self, value: object) -> bool:
        """Return whether a value is of this kind."""
        if type(value) is not Decimal:
            return False
        sign, digits, exponent = value.as_tuple()
        return exponent == -self.scale and len(digits) <= self.precision and (bool(value) or not sign)

    def exactly(self, value: Decimal) -> Decimal:
        """Return the same number with the digits of this kind; raises ValueError if it has more than fit."""
        try:
            found = value.quantize(self._unit, context=self._context)
        except DecimalException:
            raise ValueError(f"{value} is not a {self.name}") from None
        if not found.is_finite():
            raise ValueError(f"{value} is not a {self.name}")
        return found if found else self._unit * 0

    def encode(self, values: list[Any]) -> pa.Array:
        """Check each value, then let Arrow copy them."""
        refuse_types(values, Decimal, self.name)
        for value in values:
            if value is not None and not self.fits(value):
                raise Mismatch("", value, f"{self.name}; make it so with .quantize(Decimal('{self._unit}'))")
        return pa.array(values, self.arrow)

    def decode(self, column: pa.Array) -> list[Any]:
        """Let Arrow make them."""
        values: list[Any] = column.to_pylist()
        return values


class Identifier(Kind):
    """A `UUID`, as text."""

    name = "UUID"
    arrow = pa.string()

    @property
    def can_be_key(self) -> bool:
        """True, as its text can be one."""
        return True

    def encode(self, values: list[Any]) -> pa.Array:
        """Make text of them."""
        refuse_types(values, UUID, self.name)
        return pa.array([None if value is None else str(value) for value in values], self.arrow)

    def decode(self, column: pa.Array) -> list[Any]:
        """Parse the text; raises Mismatch."""
        return [None if text is None else _parsed(text) for text in column.to_pylist()]

    def holds(self, column: pa.Array) -> bool:
        """Only text as UUIDs are written."""
        try:
            return column.null_count == 0 and bool(self.encode(self.decode(column)).equals(column))
        except Mismatch:
            return False


def _parsed(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Mismatch("", text, "UUID") from None
