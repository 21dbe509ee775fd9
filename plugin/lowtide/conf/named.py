"""Tables of the conf that users name, as `[postgres.NAME]`: the one that a flow's sink asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lowtide.errors import ConfError

T = TypeVar("T")


def named(tables: Mapping[str, T], kind: str, name: str, *, does: str, keys: str) -> T:
    """Return a table.

    Args:
        tables: Those of its kind, by name.
        kind: The part before the dot.
        name: The part after the dot.
        does: What the flow does, for the error, as "writes files".
        keys: The keys that such a table needs, in words.

    Raises:
        ConfError: the conf has no such table.
    """
    if (found := tables.get(name)) is not None:
        return found
    known = ", ".join(f"[{kind}.{each}]" for each in tables) or "none"
    raise ConfError(
        f"the flow {does}, and the conf has no [{kind}.{name}]",
        where=f"there is {known}",
        way_out=f"add [{kind}.{name}] with {keys}; `lowtide conf embedded` explains each key",
    )
