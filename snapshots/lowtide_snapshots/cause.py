"""The cause of an end, as values; text only where people read it.

A life, a snapshot and a program end with one. It travels as JSON, made by msgspec and read by `Cause.of`, and is kept
so in ZooKeeper, in a job's state file and in the control API's answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, get_args

Kind = Literal["flow", "interpreter", "loss", "stop", "other"]
"""The kind of a cause, which decides how to continue.

"flow": a function or a record of the flow; it would end the next life as well.
"interpreter": an executor cannot run the driver's Python.
"loss": a process, a connection, a frame or a service was lost; another life may continue.
"stop": it was asked for.
"other": all else, and what an older version wrote as text.
"""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of an end; its text is what an error prints.

    Attributes:
        kind: see `Kind`.
        what: one sentence, with the figures.
        where: file, step, record, host and port; empty where `what` says it already.
        way_out: what the reader can do now; empty only where nothing can be done.
        details: a traceback, as Python prints it; empty if there is none.
    """

    kind: Kind
    what: str
    where: str = ""
    way_out: str = ""
    details: str = ""

    def __str__(self) -> str:
        way_out = f"\n  what to do: {self.way_out}" if self.way_out else ""
        details = f"\n\n{self.details.rstrip()}" if self.details else ""
        return self.story + way_out + details

    @property
    def story(self) -> str:
        """The event and its place, as text."""
        return self.what + (f"\n  where: {self.where}" if self.where else "")

    def prefixed(self, text: str) -> Self:
        """Return it with a text in front of the event: its victim, or what it prevented."""
        return replace(self, what=text + self.what)

    @classmethod
    def of(cls, value: object) -> Self | None:
        """Read a cause that was kept; None if there is none.

        Args:
            value: an object with its fields, or a text as older versions wrote it. What a newer version added is left
                out, and a kind that only that knows is "other".
        """
        if not value:
            return None
        if not isinstance(value, Mapping):
            return cls("other", str(value))
        known: dict[str, Any] = {each.name: str(value.get(each.name, "")) for each in fields(cls)}
        return cls(**known | {"kind": known["kind"] if known["kind"] in get_args(Kind) else "other"})
