"""Turns the cause of a life's end, as the driver plugin or Spark's query gives it, into an error."""

from __future__ import annotations

import msgspec

from lowtide.errors import InterpreterMismatch, LifeEnded, LowtideError, TooFewSlots
from lowtide_snapshots.cause import Cause


def error_of(text: str) -> LowtideError:
    """The error of a cause, a `Cause` as JSON; it has the cause's kind."""
    cause = msgspec.json.decode(text, type=Cause)
    kind = InterpreterMismatch if cause.kind == "interpreter" else LifeEnded
    error: LowtideError = kind(cause.what, where=cause.where, way_out=cause.way_out, details=cause.details)
    error.kind = cause.kind
    return error


def error_of_query(text: str) -> LowtideError:
    """The error of a query that has ended, from its exception's text; empty if it has none."""
    if not text:
        text = "the query was stopped from outside"
    if "CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT" in text:
        return TooFewSlots(
            "Spark has too few free slots to run all levels at once",
            where=_first_line(text),
            way_out="give Spark more slots (executors times cores), or lower job.parallelism",
        )
    return LifeEnded(f"Spark ended the query: {_first_line(text)}", way_out="see the log; start the job again")


def exception_of(error: Exception) -> str:
    """Return the class of the Java exception that py4j wraps; empty for any other error."""
    thrown = getattr(error, "java_exception", None)
    return str(thrown.getClass().getName()) if thrown is not None else ""


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:400] if lines else ""
