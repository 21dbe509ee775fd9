"""Labels of substreams as text: a value of the only column, or a JSON object of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


def label_text(columns: Mapping[str, str]) -> str:
    """Return a label as text, given the text of each column: the same whatever their order."""
    if len(columns) == 1:
        return next(iter(columns.values()))
    return msgspec.json.encode(dict(sorted(columns.items()))).decode()


def label_columns(names: Sequence[str], text: str) -> dict[str, str] | None:
    """Return the text of each column of a label, in the order of the names; None if it is not one of these columns."""
    if len(names) == 1:
        return {names[0]: text}
    try:
        found = msgspec.json.decode(text, type=dict[str, str | int])
    except msgspec.MsgspecError:
        return None
    return {name: str(found[name]) for name in names} if found.keys() == set(names) else None
