"""Rules for what a format can write, where its types hold less than the dataclass's fields.

An `int` has 64 bits and Protobuf's int32 has not; RFC 3339 offsets have no seconds. Whether a record fits is checked
before the barrier (`core/operators/plain/sink.py`, `local/interpreter.py`). One that does not is a failure of the sink
like any other step's: a dead letter, or the end of the life. Encoding, after the barrier, then never fails.

To add what a format cannot write: a case in the function that gives its rules by type (`json_rule` in
`json_writable.py`, `_leaf` in `avro_writable.py` and in `protobuf_writable.py`). It returns a `Rule`: whether a value
fits, and the fault of one that does not; or None if the type proves that every value fits. Fields and records without a
rule cost nothing. `of_each`, `of_values`, `or_none` and `of_fields` handle lists, dicts, `T | None` and nested records.
The law that finds what is missing is in `tests/flow/test_writable.py`: what is written reads back equal, or is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, get_args, get_origin

_BITS_64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Rule:
    """A demand of the written type on a value that already fits its field.

    Attributes:
        fits: True if a value can be written; called for each record, so preferably a C function like `math.isfinite`.
        fault: For a value that does not fit: the path to the part at fault, empty for the value itself, and the reason.
        unless: An expression of `{0}`, the value, and perhaps `UTC`, true only if the value fits; for a field it
            is evaluated without a call.
    """

    fits: Callable[[Any], bool]
    fault: Callable[[Any], tuple[str, str]]
    unless: str = ""


@dataclass(slots=True)
class Findings:
    """Findings about a record's type and the written one.

    Attributes:
        never: Reasons why no record can be written, or part of each would be lost.
        perhaps: Values that some records may hold and that cannot be written, or are rounded.
    """

    never: list[str] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Writable:
    """The records of one dataclass that a format can write.

    Attributes:
        record: The dataclass's name.
        rule: The rule for a record; None if its type proves that every record fits.
        never: Reasons why none can be written: the flow is refused.
        perhaps: Values that may not fit, or are rounded: notes of `lowtide check`.
    """

    record: str = ""
    rule: Rule | None = None
    never: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()

    def fault(self, row: Any) -> str | None:
        """The fault of a record, with the field; None if it can be written."""
        if self.rule is None or self.rule.fits(row):
            return None
        path, what = self.rule.fault(row)
        return f"{self.record}{path}: {what}"


def or_none(rule: Rule | None) -> Rule | None:
    """The rule for a value that may be None, where None can be written."""
    if rule is None:
        return None
    fits = rule.fits
    unless = f"{{0}} is None or {rule.unless}" if rule.unless else "{0} is None"
    return Rule(lambda value: value is None or fits(value), rule.fault, unless)


def never_none(rule: Rule | None, why: str) -> Rule:
    """The rule for a value that may be None, where None cannot be written."""
    fits = None if rule is None else rule.fits

    def fault(value: Any) -> tuple[str, str]:
        if value is None or rule is None:
            return "", f"None cannot be written: {why}"
        return rule.fault(value)

    return Rule(lambda value: value is not None and (fits is None or fits(value)), fault)


def converted(rule: Rule, write: Callable[[Any], Any]) -> Rule:
    """The rule for a value that is written in another form."""
    fits, fault = rule.fits, rule.fault
    return Rule(lambda value: fits(write(value)), lambda value: fault(write(value)))


def of_each(rule: Rule | None) -> Rule | None:
    """The rule for a list or tuple of such values."""
    if rule is None:
        return None
    fits = rule.fits

    def fault(values: Sequence[Any]) -> tuple[str, str]:
        path, what = rule.fault(next(value for value in values if not fits(value)))
        return f"[]{path}", what

    return Rule(lambda values: all(map(fits, values)), fault)


def of_values(rule: Rule | None) -> Rule | None:
    """The rule for a dict with such values."""
    if rule is None:
        return None
    fits = rule.fits

    def fault(values: Mapping[str, Any]) -> tuple[str, str]:
        path, what = rule.fault(next(value for value in values.values() if not fits(value)))
        return f"{{}}{path}", what

    return Rule(lambda values: all(map(fits, values.values())), fault)


def of_fields(rules: Mapping[str, Rule | None], also: Sequence[Rule] = ()) -> Rule | None:
    """The rule for a record with such fields.

    Args:
        rules: By field; those without a rule may be left out.
        also: Rules for the record as a whole.
    """
    kept = {name: rule for name, rule in rules.items() if rule is not None}
    if not kept and not also:
        return None
    names: dict[str, Any] = {f"f{index}": rule.fits for index, rule in enumerate([*kept.values(), *also])}
    parts = []
    for index, (name, rule) in enumerate(kept.items()):
        call, value = f"f{index}(r.{name})", f"r.{name}"
        parts.append(f"({rule.unless.format(value)} or {call})" if rule.unless else call)
    parts += [f"f{index}(r)" for index in range(len(kept), len(kept) + len(also))]
    # Made of field names, which are identifiers, and of expressions from this package.
    names["UTC"] = UTC
    fits: Callable[[Any], bool] = eval(f"lambda r: {' and '.join(parts)}", names)  # noqa: S307

    def fault(row: Any) -> tuple[str, str]:
        for name, rule in kept.items():
            value = getattr(row, name)
            if not rule.fits(value):
                path, what = rule.fault(value)
                return f".{name}{path}", what
        return next(rule.fault(row) for rule in also if not rule.fits(row))

    return Rule(fits, fault)


def record_rule(record: Any, rule: Rule | None) -> Rule | None:
    """The rule for a message's record: a tombstone writes no value, so it always fits."""
    from lowtide.flow.schema.markers import Tombstone
    from lowtide.flow.schema.marks import fields_of

    tombstone = next((field.name for field in fields_of(record) if isinstance(field.placed, Tombstone)), None)
    if rule is None or tombstone is None:
        return rule
    fits = rule.fits
    return Rule(lambda row: getattr(row, tombstone) or fits(row), rule.fault)


def of_type(record: Any, leaf: Callable[[Any], Rule | None]) -> Rule | None:
    """The rule for a record's value, where its type alone decides.

    Args:
        record: The dataclass.
        leaf: Gives the rule for a type that is neither a list, a dict, a dataclass nor may be None.
    """
    from lowtide.flow.schema.marks import fields_of

    rules = {
        each.name: _of_hint(each.hint, leaf) if each.epoch is None else _of_epoch(each.hint, each.epoch)
        for each in fields_of(record)
        if each.placed is None
    }
    return of_fields(rules)


def _of_epoch(hint: Any, epoch: Any) -> Rule | None:
    """The rule for a time stored as an integer: of those that a datetime holds only nanoseconds may exceed 64 bits."""
    from lowtide.flow.schema.marks import bare_of
    from lowtide.flow.schema.wire import wire_of

    if epoch.unit != "ns":
        return None
    write: Any = wire_of(Annotated[datetime, epoch]).write
    fault = "nanoseconds since 1970 have more than 64 bits before 1678 and after 2261"
    rule = Rule(lambda value: -_BITS_64 <= write(value) < _BITS_64, lambda value: ("", f"{value}: {fault}"))
    return rule if bare_of(hint) is hint else or_none(rule)


def _of_hint(hint: Any, leaf: Callable[[Any], Rule | None]) -> Rule | None:
    from lowtide.flow.schema.markers import Epoch
    from lowtide.flow.schema.marks import bare_of

    if hasattr(hint, "__metadata__"):
        inner = get_args(hint)[0]
        epoch = next((mark for mark in hint.__metadata__ if isinstance(mark, Epoch)), None)
        if epoch is not None:
            return _of_epoch(inner, epoch)
        return _of_hint(inner, leaf)
    bare = bare_of(hint)
    if bare is not hint:
        return or_none(_of_hint(bare, leaf))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple):
        return of_each(_of_hint(arguments[0], leaf))
    if origin is dict:
        return of_values(_of_hint(arguments[1], leaf))
    return of_type(hint, leaf) if is_dataclass(hint) else leaf(hint)
