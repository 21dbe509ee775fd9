"""The states of keys of a running job, as `lt.state` and `lowtide state` give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lowtide.status.control_client import ControlClient

Asked = str | int | float | datetime | Mapping[str, Any]
"""A key as it is asked for: its value, or its columns by name."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of one key of a step.

    Attributes:
        key: Its columns by name, as asked for or as found.
        min_time: The moment that the state is as of: every record before it counts, no later one does.
        rows: What a snapshot would have of it: of a scan one row with `state`, of `last` and of windows several;
            none if the key has no state.

    Example:
        >>> rows = [{"key": {"user": "ann"}, "state": 7}]
        >>> lt.KeyState({"user": "ann"}, datetime(2026, 1, 2, tzinfo=UTC), rows).key
        {'user': 'ann'}
    """

    key: dict[str, Any]
    min_time: datetime
    rows: list[dict[str, Any]]

    @property
    def state(self) -> Any:
        """The value that a `scan` or its kin keeps: the `state` of the only row; None if there is none.

        Example:
            >>> rows = [{"key": {"user": "ann"}, "state": 7}]
            >>> lt.KeyState({"user": "ann"}, datetime(2026, 1, 2, tzinfo=UTC), rows).state
            7
        """
        return self.rows[0].get("state") if len(self.rows) == 1 else None


def states_of(client: ControlClient, step: str, keys: Iterable[Asked]) -> list[KeyState]:
    """Return the states of keys, in their order."""
    asked = [texts_of(key) for key in keys]
    found = client.states(step, asked)
    return [_state(each, texts) for each, texts in zip(found, asked, strict=True)]


def states_around(client: ControlClient, step: str, unit: int | None, limit: int) -> tuple[list[KeyState], bool]:
    """Return the first keys of a step that have a state, of one hash unit or of any, and whether there are more."""
    found = client.states_around(step, unit, limit)
    return [_state({**each, "min_time_ms": found["min_time_ms"]}, {}) for each in found["keys"]], found["more"]


def texts_of(key: Asked) -> dict[str, str]:
    """Return a key as text by column; the only column of a key is ""."""
    if isinstance(key, Mapping):
        return {name: _text(value) for name, value in key.items()}
    return {"": _text(key)}


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _state(found: Mapping[str, Any], asked: Mapping[str, str]) -> KeyState:
    rows = found["rows"]
    key = rows[0].get("key", {}) if rows else dict(asked)
    return KeyState(key, datetime.fromtimestamp(found["min_time_ms"] / 1000, UTC), rows)
