"""A timer's functions: when a key wants to be called, what a call gives, and what is wrong with either.

Workers and `run_locally` call them alike; when that is, each says for itself.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from typing_extensions import override

from lowtide.core.operators.faults.failure import Failure, raised, shortened
from lowtide.core.operators.keyed.scan import Listing
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.state.states import States
from lowtide.core.operators.windows.folding import Refused
from lowtide.flow.plan.plan import Vertex
from lowtide.flow.site import Function
from lowtide.flow.steps.signature import said
from lowtide.flow.steps.steps import TimedScan
from lowtide.flow.time.durations import ticks_of
from lowtide.flow.time.moments import FIRST_US, LAST_US, micros_of, moment, tick_due

_LATER = "return None or a later moment from timer= for the state that on_timer= returns"


class Timing:
    """The timer of one step; moments are in microseconds.

    Args:
        vertex: The step.
        slack_ms: How long a tick is.
    """

    def __init__(self, vertex: Vertex[TimedScan], slack_ms: int) -> None:
        step = vertex.step
        self._slack_us = slack_ms * 1_000
        self._word, self._function = self._called(step)
        self._listing = Listing(self._listed(step), vertex.gives)
        self._gives = vertex.gives.__qualname__
        self._states = States(vertex, step.state)
        self._timer = step.timer

    def _called(self, step: TimedScan) -> tuple[str, Function]:
        """Return the function that time calls, after its argument."""
        assert step.on_timer is not None, "half a timer is refused"
        return "on_timer", step.on_timer

    def _listed(self, step: TimedScan) -> Function:
        """Return the same as a function of state and moment that returns state and outputs."""
        return self._function

    def fires(self, asked: int, tick: int) -> int:
        """The tick at which a moment is due that was asked for at a tick: one in the past comes one tick on."""
        return max(tick_due(asked, self._slack_us), tick + 1)

    def fires_again(self, asked: int, tick: int) -> int:
        """The same of a moment that was asked for before a tick and had not come at it: of a state that was saved."""
        return max(tick_due(asked, self._slack_us), tick)

    def put_off(self, asked: int, touched: int) -> int | None:
        """Return the later moment of a key that was to be called at one, and touched at a tick; None if that stays."""
        return None

    def asks(self, state: Any, record: object, position: Position, touched: int | None) -> int | None:
        """Return when a state wants to be called; None for never.

        Args:
            state: The state; the initial one never does, and its function is not asked.
            record: What it failed with if the function fails.
            position: Where that stands.
            touched: The tick at which its key was touched last; None if that is unknown.

        Raises:
            Refused: the function raised, or gave no moment.
            UserError: it changed the state in place.
        """
        if self._states.is_initial(state):
            return None
        assert self._timer is not None, "half a timer is refused"
        looked = self._looked(state)
        try:
            asked = self._timer(state)
            if asked is None:
                return None
            if not isinstance(asked, datetime):
                raise Refused(Failure(0, record, f"timer= gave {said(type(asked))}, expected datetime or None"))
            if asked.tzinfo is None:
                raise Refused(Failure(0, record, f"timer= gave {asked!r}, which has no time zone"))
            at = micros_of(asked)
            if not FIRST_US <= at <= LAST_US:
                raise Refused(
                    Failure(0, record, f"timer= gave {asked!r}, which is not a time in the years 1 to 9999 UTC")
                )
            return at
        except Refused:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            raise Refused(raised(0, record, error)) from None
        finally:
            self._check(self._timer, state, looked, record, position)

    def fire(self, key: Any, state: Any, due: int, position: Position) -> tuple[Any, tuple[Any, ...], int | None]:
        """Call a key: the state after that, the outputs, and when it wants to be called next.

        Raises:
            Refused: a function raised, gave what it must not, or asks for a moment that is over.
            UserError: one changed the state in place.
        """
        at = moment(due)
        shown = {"key": key, "time": at, "state": state}
        looked = self._looked(state)
        try:
            after, outs = self._listing(state, at)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
            raise Refused(raised(0, shown, error)) from None
        finally:
            self._check(self._function, state, looked, shown, position)
        if type(outs) is not tuple:
            found = "None" if outs[0] is None else type(outs[0]).__qualname__
            raise Refused(Failure(0, shown, f"{self._word}= gave {found}, expected {self._gives}"))
        failure = self._states.fault(shown, after, looked)
        if failure is not None:
            raise Refused(failure)
        again = self.asks(after, shown, position, due // self._slack_us)
        if again is not None and again <= due:
            text = f"the timer of key {shortened(key)} fired for {at} and asks for {moment(again)} again"
            raise Refused(Failure(0, shown, f"{text}, so it would never go on: {_LATER}"))
        return after, outs, again

    def _looked(self, state: Any) -> bytes | None:
        return None if self._states.fixed else self._states.look([state])

    def _check(self, function: Function, state: Any, looked: bytes | None, record: object, position: Position) -> None:
        if not self._states.same([state], looked):
            raise self._states.changed(function, position, record)


class Forgetting(Timing):
    """The timer of a step that says what it forgets: a key is called when its `ttl` is over, and has no state then.

    Args:
        vertex: The step.
        slack_ms: How long a tick is.
    """

    def __init__(self, vertex: Vertex[TimedScan], slack_ms: int) -> None:
        super().__init__(vertex, slack_ms)
        assert vertex.step.ttl is not None, "it is refused without"
        self._ttl = ticks_of(vertex.step.ttl, slack_ms)

    @override
    def _called(self, step: TimedScan) -> tuple[str, Function]:
        assert step.on_forgotten is not None, "it has this timer for it"
        return "on_forgotten", step.on_forgotten

    @override
    def _listed(self, step: TimedScan) -> Function:
        function, initial = self._function, step.initial
        return lambda state, _moment: (initial, function(state))

    @override
    def put_off(self, asked: int, touched: int) -> int | None:
        later = self._over(touched)
        return later if later > asked else None

    @override
    def asks(self, state: Any, record: object, position: Position, touched: int | None) -> int | None:
        if touched is None or self._states.is_initial(state):
            return None
        over = self._over(touched)
        return over if over <= LAST_US else None

    def _over(self, touched: int) -> int:
        return (touched + self._ttl) * self._slack_us


def timing_of(vertex: Vertex[TimedScan], slack_ms: int) -> Timing:
    """Return the timer of a step."""
    return (Timing if vertex.step.on_forgotten is None else Forgetting)(vertex, slack_ms)
