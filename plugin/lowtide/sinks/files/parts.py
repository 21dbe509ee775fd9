"""Parts: folders by the values of columns, as `country=DE/`, which Spark, Hive and DuckDB read as columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from typing import Any
from uuid import UUID

from lowtide.flow.formats.writable import Rule, or_none
from lowtide.flow.schema.kinds import Choice
from lowtide.flow.schema.marks import Field, bare_of, fields_of
from lowtide.flow.schema.schema import schema_of
from lowtide.sinks.staged.contract import StagedRow

NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose value is None, or an empty text: a path cannot tell them apart."""
TEXT_LIMIT = 200
"""The length in bytes, once escaped, that a value may have: names of files have at most 255 bytes."""
_PLAIN = (str, int, bool, date, UUID)
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{}\[\]^]""")


def part_faults(record: type, columns: Sequence[str]) -> list[str]:
    """Return why files cannot be partitioned by these columns."""
    fields = {each.name: each for each in fields_of(record)}
    found = []
    for name in columns:
        field = fields.get(name)
        if field is None:
            found.append(f"{record.__qualname__} has no field {name!r}, which partition_by names")
        elif field.placed is not None:
            found.append(f"partition_by names {name!r}, which is not in the records' values")
        elif not _is_plain(record, field):
            kinds = "str, int, bool, date, UUID, Enum and Literal"
            found.append(f"files cannot be partitioned by {name!r}: columns may be {kinds}, perhaps | None")
    return found if len(set(columns)) == len(columns) else [*found, f"partition_by names a field twice: {columns}"]


def part_rules(record: type, columns: Sequence[str]) -> list[tuple[str, Rule]]:
    """Return by column the rule that a text is short enough to be a folder's name."""
    hints = {each.name: each.hint for each in fields_of(record)}
    return [
        (name, rule if bare_of(hints[name]) is hints[name] else or_none(rule) or rule)
        for name in columns
        if bare_of(hints.get(name)) is str
        for rule in [Rule(_is_short, _too_long)]
    ]


@cache
def parts_of(record: Any, columns: tuple[str, ...]) -> Callable[[Sequence[StagedRow]], list[str]]:
    """Return the function that returns each row's part; it reads only these columns of the JSON."""
    import msgspec

    aliases = {each.name: each.alias or each.name for each in fields_of(record)}
    names = [aliases[name] for name in columns]
    wanted = msgspec.defstruct(
        "Wanted", [(f"f{place}", Any, None) for place in range(len(names))], rename=_rename(names)
    )
    decode = msgspec.json.Decoder(wanted).decode
    known: dict[Any, str] = {}

    def part(values: tuple[Any, ...]) -> str:
        return "".join(f"{name}={_text(value)}/" for name, value in zip(names, values, strict=True))

    def parts(rows: Sequence[StagedRow]) -> list[str]:
        found = []
        for row in rows:
            # As text, since True equals 1.
            values = tuple(map(_plain, msgspec.structs.astuple(decode(row.value))))
            text = known.get(values)
            if text is None:
                if len(known) >= KNOWN_LIMIT:
                    known.clear()
                text = known[values] = part(values)
            found.append(text)
        return found

    return parts


KNOWN_LIMIT = 10_000


def _rename(names: Sequence[str]) -> Callable[[str], str]:
    return lambda field: names[int(field[1:])]


def _plain(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return str(value).lower()


def _text(value: str | None) -> str:
    return escaped(value) if value else NOTHING


def escaped(text: str) -> str:
    """Return a text as part of a name, with `%2F` for a slash and so on, as Hive and Spark write it."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _is_plain(record: type, field: Field) -> bool:
    if field.epoch is not None or hasattr(field.hint, "__metadata__"):
        return False
    kind = schema_of(record).kinds[field.name]
    return bare_of(field.hint) in _PLAIN or isinstance(getattr(kind, "inner", kind), Choice)


def _is_short(text: str) -> bool:
    return len(text) * 4 <= TEXT_LIMIT or len(escaped(text).encode()) <= TEXT_LIMIT


def _too_long(text: str) -> tuple[str, str]:
    return "", f"it names a folder, and has more than {TEXT_LIMIT} bytes: {text[:40]!r}..."
