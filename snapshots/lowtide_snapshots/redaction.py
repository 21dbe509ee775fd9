"""Redaction: which settings are secrets by their names, and what is shown in their place.

The rule is Spark's own (`spark.redaction.regex`), with the names that stores and clouds use besides. A value is also
hidden where it assigns something of such a name itself, as Java's options do: `-Djavax.net.ssl.keyStorePassword=...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

PATTERN = (
    r"(?i)secret|password|passwd|passphrase|token|jaas|keystore[.]key|"
    r"(access|account|api|private|service)[._-]?key"
)
"""For `spark.redaction.regex`, so also Java's."""
HIDDEN = "*********(redacted)"
"""As Spark writes it."""
RULE = "spark.redaction.regex"
"""The property by which a job hides more; it never shows more."""

_NAMES = re.compile(PATTERN)
_ASSIGNS = re.compile(f"{PATTERN[:4]}({PATTERN[4:]})[^\\s=]*=")
_WHERE = ("_file", "_env", RULE)
"""Names that end so hold where a secret is, and not the secret."""
_LEAST_CHARS = 6
"""A shorter value is not searched for in texts: it may be a word that has nothing to do with it."""


def is_secret(name: str, value: object = "", rule: str = "") -> bool:
    """Return whether the value of a setting must not be shown.

    Args:
        name: the setting's.
        value: what it is set to.
        rule: the job's own `spark.redaction.regex`; one that Python cannot read hides everything.
    """
    if name.endswith(_WHERE):
        return False
    if _NAMES.search(name) or _ASSIGNS.search(str(value)):
        return True
    try:
        return bool(rule) and bool(re.search(rule, name) or re.search(rule, str(value)))
    except re.error:
        return True


def shown(name: str, value: object, rule: str = "") -> str:
    """Return a setting's value as a person may see it."""
    return HIDDEN if is_secret(name, value, rule) else str(value)


def redacted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command line as a person may see it, and the values that it hides; settings are `NAME=VALUE`."""
    rule = next((text.partition("=")[2] for text in arguments if text.startswith(f"{RULE}=")), "")
    seen: list[str] = []
    hidden: list[str] = []
    for text in arguments:
        name, equals, value = text.partition("=")
        secret = bool(equals) and is_secret(name, value, rule)
        seen.append(f"{name}={HIDDEN}" if secret else text)
        hidden += [value] * secret
    return seen, hidden


def without(text: str, hidden: Iterable[str]) -> str:
    """Return a text without the values that are hidden, longest first; those of less than 6 characters are left."""
    for value in sorted(hidden, key=len, reverse=True):
        if len(value) >= _LEAST_CHARS:
            text = text.replace(value, HIDDEN)
    return text
