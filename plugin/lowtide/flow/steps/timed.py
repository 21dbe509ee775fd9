"""Steps with timers: scans with a timer, and clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from lowtide.flow.site import Function
from lowtide.flow.steps.keyed import FlatScan
from lowtide.flow.steps.signature import said
from lowtide.flow.steps.step import Saved, Step, said_ttl

if TYPE_CHECKING:
    from lowtide.flow.steps.clocks import Striking


@dataclass(frozen=True, slots=True)
class TimedScan(FlatScan):
    """A flat scan whose keys time calls, too; it always runs in order.

    Attributes:
        timer: `timer(state)` returns when a key wants to be called: a moment of log time, or None.
        on_timer: `on_timer(state, moment) -> (state, outputs)`.
        on_forgotten: `on_forgotten(state) -> outputs`, once `ttl` has forgotten a key; then it has no other timer.
    """

    waits: ClassVar[bool] = True
    no_loop: ClassVar[str | None] = (
        "a timer cannot be in the loop {loop}: it is due later than one turn; put it before or after the loop"
    )

    timer: Function | None = None
    on_timer: Function | None = None
    on_forgotten: Function | None = None

    @property
    def longer(self) -> int:
        """The ticks for which a key stays after its `ttl`, so that it can be called."""
        return int(self.on_forgotten is not None)

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        return replace(FlatScan.saved(self, takes), longer=self.longer)

    @override
    def shows(self, gives: str, others: Sequence[str]) -> str:
        beside = "".join(f" beside {other}" for other in others)
        return f"{beside} -> {gives}, with the state {said(self.state)}{self._said_timer}{said_ttl(self.ttl)}"

    @property
    def _said_timer(self) -> str:
        return ", with a timer" if self.on_forgotten is None else ", with outputs for a key that is"


@dataclass(frozen=True, slots=True)
class Sign(Step):
    """Turns each front's first record in each span of a clock into a sign for it.

    It takes the records of all sources on the side: no child path has its number.

    Attributes:
        striking: The clock's.
    """

    word: ClassVar[str] = "sign"
    silent: ClassVar[bool] = True
    own: ClassVar[bool] = True

    striking: Striking

    @property
    @override
    def does(self) -> str:
        return "a sign for the clock of each span that has records"


@dataclass(frozen=True, slots=True)
class Clock(TimedScan):
    """Gives a record for each multiple of a duration that log time reaches; as written it takes no stream.

    Attributes:
        striking: Its functions, which are Lowtide's.
    """

    word: ClassVar[str] = "clock"
    own: ClassVar[bool] = True

    striking: Striking | None = None

    @property
    @override
    def durations(self) -> dict[str, timedelta]:
        return {} if self.striking is None else {"every": self.striking.every.duration}

    @override
    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved:
        assert self.striking is not None, "a clock has its functions"
        every = self.striking.every
        return replace(TimedScan.saved(self, takes), setting=f"a clock {every}", tz=every.tz or "")

    @property
    @override
    def does(self) -> str:
        return f"clock {self.striking and self.striking.every}"
