"""Arguments of operators that hold secrets, hidden where Airflow stores or shows them.

Airflow stores a task's arguments twice: with the DAG, and rendered, for its page. Both write `str(value)` of a type
that they do not know, so a secret is held in a value whose text tells nothing. It is still a template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide_snapshots.redaction import HIDDEN, RULE, is_secret


class Hidden:
    """A secret; its text is that of something redacted.

    Attributes:
        value: the secret, which may be a template.
    """

    template_fields = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hidden) and other.value == self.value

    def __hash__(self) -> int:
        return hash(str(self.value))


def conceal(given: Any) -> Any:
    """Return an operator's argument with its secrets hidden: a mapping of settings, at any depth; else as it is."""
    if not isinstance(given, Mapping):
        return given
    rule = str(given.get(RULE, ""))
    return {name: _concealed(str(name), value, rule) for name, value in given.items()}


def _concealed(name: str, value: Any, rule: str) -> Any:
    if isinstance(value, Mapping):
        return conceal(value)
    return Hidden(value) if isinstance(value, str) and value and is_secret(name, value, rule) else value


def reveal(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `conceal` was given, with templates rendered."""
    return {
        name: value.value if isinstance(value, Hidden) else reveal(value) if isinstance(value, Mapping) else value
        for name, value in given.items()
    }


def secrets_of(given: Any) -> list[str]:
    """Return the values that `conceal` has hidden."""
    if isinstance(given, Hidden):
        return [str(given.value)]
    return [text for value in given.values() for text in secrets_of(value)] if isinstance(given, Mapping) else []
