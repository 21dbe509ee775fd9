"""Secrets that the conf names and does not hold: in an environment variable or a file, read at the moment of use."""

from __future__ import annotations

import os
from pathlib import Path

from lowtide.errors import ConfError


def read_secret(table: str, name: str, variable: str | None, file: str | None) -> str | None:
    """Return the secret, or None where the conf names none.

    Args:
        table: The conf's table, for messages.
        name: What its two keys begin with: `NAME_env`, `NAME_file`.
        variable: The environment variable that holds it.
        file: The file that holds it.

    Raises:
        ConfError: both are named, or what is named cannot be read.
    """
    if variable is not None and file is not None:
        raise _wrong(table, f"both {name}_env and {name}_file are set", "leave one out")
    if variable is not None:
        value = os.environ.get(variable)
        if not value:
            what = f"{name}_env names the environment variable {variable}, which is not set"
            raise _wrong(table, what, f"set {variable}")
        return value
    # Editors end a file with a newline, which is not part of the secret.
    return None if file is None else read_text(table, f"{name}_file", file).rstrip("\r\n")


def read_text(table: str, key: str, file: str) -> str:
    """Return what a file holds; ConfError without a word of it where that cannot be had."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        # The error's own text may quote the file, which is a secret.
        what = f"{key} names {file}, which cannot be read as text ({type(error).__name__})"
        raise _wrong(table, what, "fix it") from None


def _wrong(table: str, what: str, way_out: str) -> ConfError:
    return ConfError(what, where=f"[{table}] of the conf", way_out=way_out)
