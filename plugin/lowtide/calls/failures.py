"""A failed try in words."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, NamedTuple

from lowtide.calls.inside import CallRefused
from lowtide.flow.schema.fields import encode_rows, fits_of
from lowtide.flow.schema.schema import schema_of

_PACKAGE = str(Path(__file__).parent)
_LIMIT_FRAMES = 30
_LIMIT_CHARACTERS = 8_000
_LINE_CHARACTERS = 1_000


class FailedTry(NamedTuple):
    """A try that gave no answer.

    Attributes:
        what: The error, in one line.
        traceback_text: The user's part of the traceback; empty if nothing was raised.
        final: True if there shall be no other try.
    """

    what: str
    traceback_text: str = ""
    final: bool = False


def raised(error: BaseException, by: str = "") -> FailedTry:
    """Make the failure of a try that raised, with the traceback below our own frames.

    Args:
        error: The exception.
        by: What raised it, before "raised"; empty for the call's function.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace, limit=-_LIMIT_FRAMES)
    text = _writable("".join(lines)[-_LIMIT_CHARACTERS:])
    if isinstance(error, CallRefused):
        return FailedTry(f"refused: {_words(error)}", text, final=True)
    return FailedTry(f"{by}raised {named(error)}", text)


def named(error: BaseException) -> str:
    """Return an exception's class and what it says, in UTF-8 and not too long."""
    return f"{type(error).__name__}: {_words(error)}"


def checked(result: Any, gives: type) -> bytes | FailedTry:
    """Return a result encoded, as `encode_rows` does a list of it, or the failure that it is."""
    try:
        if fits_of(gives)(result):
            return encode_rows([result])
        if isinstance(result, BaseException):
            return raised(result)
        if type(result) is not gives:
            found = "None" if result is None else type(result).__qualname__
            return FailedTry(f"returned {found}, expected {gives.__qualname__}")
        fault = schema_of(gives).fault(result)
        assert fault is not None, "a look finds what the schema does"
        return FailedTry(_writable(fault.what))
    except Exception as error:  # noqa: BLE001 - a field that is not there, or whose repr raises
        return FailedTry(f"returned a {gives.__qualname__} that cannot be read: {named(error)}")


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever the user's class does
        return "(its text cannot be made)"
    return _writable(text if len(text) <= _LINE_CHARACTERS else f"{text[:_LINE_CHARACTERS]}…")


def _writable(text: str) -> str:
    """Return text without lone surrogates, which has a UTF-8 form."""
    return text.encode(errors="backslashreplace").decode()
