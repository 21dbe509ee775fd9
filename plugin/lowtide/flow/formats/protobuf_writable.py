"""Values that a Protobuf message cannot hold: numbers beyond their bits, all but one of a oneof, some None."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, get_args, get_origin

from google.protobuf.descriptor import FieldDescriptor

from lowtide.flow.formats.protobuf import bare_type
from lowtide.flow.formats.writable import (
    Findings,
    Rule,
    Writable,
    converted,
    never_none,
    of_each,
    of_fields,
    of_values,
    or_none,
    record_rule,
)
from lowtide.flow.formats.writable_numbers import FLOAT_32, ROUNDED, members_of, of_integers, stored, within
from lowtide.flow.schema.marks import Field, fields_of
from lowtide.flow.schema.wire import wire_of, wire_of_field


@cache
def protobuf_writable(record: Any, message: Any) -> Writable:
    """Compare a dataclass with a generated class: which records the message can hold."""
    findings = Findings()
    rule = record_rule(record, _record(record, message.DESCRIPTOR, findings))
    return Writable(record.__qualname__, rule, tuple(findings.never), tuple(findings.perhaps))


def _record(record: Any, message: Any, findings: Findings) -> Rule | None:
    """The rule for a record as a message, at the top or inside another."""
    inside = {field.alias or field.name: field for field in fields_of(record) if field.placed is None}
    lacking = [each.name for each in message.fields if each.is_required and each.name not in inside]
    if lacking:
        findings.never.append(
            f"message {message.full_name} requires {', '.join(lacking)}, which {record.__qualname__} lacks"
        )
    rules = {
        field.name: _field(f"{record.__qualname__}.{field.name}", field, message.fields_by_name[there], findings)
        for there, field in inside.items()
    }
    alternatives = [_one_of(record, oneof, inside, findings) for oneof in message.oneofs]
    return of_fields(rules, [rule for rule in alternatives if rule is not None])


def _field(qualname: str, field: Field, descriptor: Any, findings: Findings) -> Rule | None:
    hint = bare_type(field.hint)
    write = wire_of_field(field).write if field.epoch is not None else None
    rule = _whole(qualname, int if field.epoch is not None else hint, descriptor, findings)
    if write is not None and rule is not None:
        rule = converted(rule, write)
    if not _may_be_none(field.hint):
        return rule
    why = _no_none(field, descriptor)
    if why is None:
        return or_none(rule)
    findings.perhaps.append(f"{qualname}: None cannot be written: {why}")
    return never_none(rule, why)


def _may_be_none(hint: Any) -> bool:
    return type(None) in get_args(get_args(hint)[0] if hasattr(hint, "__metadata__") else hint)


def _no_none(field: Field, descriptor: Any) -> str | None:
    """The reason why None would not be read as None again; None if it would."""
    if descriptor.is_required:
        return f"field {descriptor.full_name} is required"
    if not descriptor.has_presence:
        zero = "as empty" if descriptor.is_repeated else "as zero"
        return f"field {descriptor.full_name} would read back {zero}; make it optional in the message"
    if field.has_default and not field.default_is_none:
        return "a message without the field reads back with the default; make the default None"
    return None


def _one_of(record: Any, oneof: Any, inside: dict[str, Field], findings: Findings) -> Rule | None:
    """The rule that at most one member of a oneof is there: of several only the last one would be written."""
    members = [inside[each.name] for each in oneof.fields if each.name in inside]
    if len(members) < 2:
        return None
    names = [member.name for member in members]
    always = [member.name for member in members if not _may_be_none(member.hint)]
    said = f"{', '.join(names)} are members of oneof {oneof.full_name}, which holds only one"
    if len(always) > 1:
        findings.never.append(f"{record.__qualname__}: {said}, but {' and '.join(always)} are never None")
    else:
        findings.perhaps.append(f"{record.__qualname__}: {said}: a record in which several are not None does not fit")

    def there(row: Any) -> list[str]:
        return [name for name in names if getattr(row, name) is not None]

    return Rule(
        lambda row: len(there(row)) < 2,
        lambda row: ("", f"{' and '.join(there(row))} are not None, but oneof {oneof.full_name} holds only one"),
    )


def _whole(qualname: str, hint: Any, descriptor: Any, findings: Findings) -> Rule | None:
    """The rule for a field's value, its type taken without `| None`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is dict:
        entry = descriptor.message_type.fields_by_name
        return of_values(_item(f"{qualname}{{}}", arguments[1], entry["value"], findings))
    if origin in (list, tuple):
        return of_each(_item(f"{qualname}[]", arguments[0], descriptor, findings))
    return _leaf(qualname, hint, descriptor, findings)


def _item(qualname: str, hint: Any, descriptor: Any, findings: Findings) -> Rule | None:
    """The rule for a value in a list or a map, which cannot hold None."""
    rule = _leaf(qualname, bare_type(hint), descriptor, findings)
    epochs = _written(hint)
    if epochs is not None and rule is not None:
        rule = converted(rule, epochs)
    if not _may_be_none(hint):
        return rule
    findings.perhaps.append(f"{qualname}: None cannot be written: a message's lists and maps cannot hold it")
    return never_none(rule, "a message's lists and maps cannot hold it")


def _written(hint: Any) -> Any:
    """Return the function that turns a time marked as an integer into one."""
    return wire_of(hint).write if bare_type(hint) is int else None


def _leaf(qualname: str, hint: Any, descriptor: Any, findings: Findings) -> Rule | None:
    """The rule for a single value that is not None; add new cases here."""
    if descriptor.message_type is not None:
        return None if hint is datetime else _record(hint, descriptor.message_type, findings)
    if descriptor.cpp_type == descriptor.CPPTYPE_FLOAT:
        findings.perhaps.append(f"{qualname}: {ROUNDED}")
        return FLOAT_32
    members = members_of(hint)
    if descriptor.enum_type is not None:
        if members and type(stored(members[0])) is str:
            return None  # The codec has checked that the message has these names.
        rule = _symbols(descriptor.enum_type)
    elif descriptor.cpp_type in _BOUNDS:
        rule = within(*_BOUNDS[descriptor.cpp_type])
    else:
        return None
    if not members:
        findings.perhaps.append(
            f"{qualname}: field {descriptor.full_name} is narrower than an int: not every value fits"
        )
    return of_integers(qualname, members, rule, findings)


def _symbols(enum: Any) -> Rule:
    """The rule for an enum's numbers: any if the enum is open, else its own."""
    if not enum.is_closed:
        return within(-(2**31), 2**31 - 1, "the numbers of an enum")
    return Rule(enum.values_by_number.__contains__, lambda value: ("", f"enum {enum.full_name} has no number {value}"))


_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1, "int32"),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1, "uint32"),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1, "uint64"),
}
"""Field types that do not hold all integers of 64 bits with a sign."""
