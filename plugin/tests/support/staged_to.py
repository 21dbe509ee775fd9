"""A sink whose records are staged and taken nowhere: for what comes before its carrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lowtide.conf import Conf
from lowtide.flow.formats.formats import JsonFormat
from lowtide.flow.formats.writable import Writable
from lowtide.sinks.staged.contract import Carriage, Carrier


@dataclass(frozen=True, slots=True)
class StagedTo:
    """A place, and the dataclass of its records."""

    place: str
    record: type
    key: str | None = None
    mark_every_ms: int = 1000
    staged: ClassVar[bool] = True
    store: ClassVar[str] = "kafka"
    form: ClassVar[str] = "a line"

    @property
    def key_column(self) -> str | None:
        return self.key

    @property
    def by_key(self) -> bool:
        return self.key is not None

    @property
    def writable(self) -> Writable:
        return JsonFormat(self.record).writable

    def faults(self) -> Sequence[str]:
        return ()

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        return {}

    def carrier(self, carriage: Carriage) -> Carrier:
        raise AssertionError(f"nothing takes {carriage.sink} on")
