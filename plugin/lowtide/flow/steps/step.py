"""One step of a flow, of any kind: its traits, for the rest of the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from lowtide.flow.site import Function
from lowtide.flow.steps.signature import NOTHING, Signature, accepts, said, signature_of

if TYPE_CHECKING:
    from lowtide.flow.schema.kinds import Kind
    from lowtide.flow.steps.windows import Delay


@dataclass(frozen=True, slots=True)
class Saved:
    """Form of a step's state in a snapshot.

    Attributes:
        kind: One of `lowtide_snapshots.format.parts.KINDS`.
        content: The type of the state's values.
        port: Where the records come in by whose key it is kept.
        ttl: How long a key stays without a record.
        longer: So many ticks longer it stays: until it has been called for its end.
        setting: What else decides what the state means.
        tz: The zone by whose days it goes; empty for none.
        initial: The state of a key that has none.
    """

    kind: str
    content: Any
    port: int = 0
    ttl: timedelta | None = None
    longer: int = 0
    setting: str = ""
    tz: str = ""
    initial: Any = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a flow. All that others need to know of its kind is here and in its class, and nowhere else.

    Attributes:
        word: Its name in the user's code.
        reads: Its records come in from a source.
        writes: Its records go out to a sink.
        delivers: Its records wait at a barrier, and go to a store from there.
        outside: Its function may ask the outside world.
        silent: It takes a parent's records on the side, and has no number in a child path.
        own: Its functions are Lowtide's own: they do not fail.
        stateful: Its work needs to be in order, and so min time.
        waits: Its output waits for time, as a window's does: for a record it may be of a later tick.
        exchange: Its records are sent by another level: the one before its own, or a loop's tail.
        to_all: It sends every record to every hash unit.
        appends: It appends an element to the child path of each record.
        sides: The number of states it keeps, one for each port.
        by_port: It tells apart the streams it takes.
        takes_windows: It takes the tuples of records that `last` gives.
        takes_connected: It takes what `connect` brings together.
        mixed: Its records are of several types: what `connect` brings together.
        per_record: It calls its `function` with each record that it takes, perhaps beside a state.
        batched: It calls its `function` with a batch, so that a failure is that of no single record.
        looks: It needs records whose fields are what they are declared to be, as all exchanges do.
        suffix: What follows the name that the user gave, which may be another step's, too.
        no_loop: The reason why it cannot be in a loop, with `{word}` and `{loop}`; None if it can.
        whole: A record that fails in it may always end the life: the record at fault is unknown, or its state cannot
            be saved.
    """

    word: ClassVar[str]
    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = False
    delivers: ClassVar[bool] = False
    outside: ClassVar[bool] = False
    silent: ClassVar[bool] = False
    own: ClassVar[bool] = False
    stateful: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    exchange: ClassVar[bool] = False
    to_all: ClassVar[bool] = False
    appends: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    sides: ClassVar[int] = 1
    by_port: ClassVar[bool] = False
    takes_windows: ClassVar[bool] = False
    takes_connected: ClassVar[bool] = False
    mixed: ClassVar[bool] = False
    per_record: ClassVar[bool] = False
    batched: ClassVar[bool] = False
    looks: ClassVar[bool] = False
    suffix: ClassVar[str] = ""
    no_loop: ClassVar[str | None] = None

    @property
    def clocked(self) -> bool:
        """True if it sends records that time alone causes, and says what is due (R6b)."""
        return self.waits

    @property
    def later(self) -> bool:
        """True if its output for a record may be of a later tick."""
        return self.waits

    def delayed(self, port: int, delay: Delay | None) -> Delay | None:
        """Return what comes last of the records of a tick after it, given what of these comes in last at a port.

        Raises:
            LookupError: that hangs on records.
        """
        if self.later:
            raise LookupError(self.word)
        return delay

    @property
    def ends_life(self) -> bool:
        """True if a record that fails in it ends the life, whatever becomes of others that fail."""
        return self.whole

    @property
    def by(self) -> tuple[str, ...]:
        """The columns by which it sends records to hash units; empty if they go by what they have."""
        return ()

    @property
    def by_unit(self) -> bool:
        """True if it keeps its state by hash unit and not by key."""
        return False

    @property
    def functions(self) -> dict[str, Function]:
        """The user's functions that it calls, by the arguments that they were given as."""
        return {} if self.own else functions_in(self)

    @property
    def durations(self) -> dict[str, timedelta]:
        """The durations that must be at least a tick, by the arguments that they were given as."""
        ttl = getattr(self, "ttl", None)
        return {} if ttl is None else {"ttl": ttl}

    def depth(self, arriving: int) -> int:
        """Return the longest child path that a record can have after it, given the longest that arrives."""
        return arriving + self.appends

    def made_name(self, parents: Sequence[str]) -> str | None:
        """Return its name if the user gave none, made of its parents' names; None if it needs one."""
        return None

    def gives(self, asked: Asked) -> Any:
        """Return the type of the records that come out; None if a fault hides it.

        Raises:
            Unreadable: what does not fit, to follow its function's name.
            FlowError: something else does not fit.
        """
        return asked.takes[0]

    def saved(self, takes: Sequence[Any], port: int = 0) -> Saved | None:
        """Return how the state is saved that it keeps of a port, given its parents' types; None if it keeps none."""
        return None

    def taken(self, parents: Sequence[int]) -> Sequence[int]:
        """Return those of its parents whose records it takes."""
        return () if self.silent else parents

    def unused(self, parents: Sequence[str]) -> str | None:
        """Return what to do if nothing takes its records; None if that is fine."""
        return "nothing takes these records; end the stream with .write(...), or remove the step"

    def explained(self, takes: Sequence[str], names: Sequence[str], gives: str, others: Sequence[str]) -> str:
        """Describe it for `check --explain`; arguments as of `takes` and `shows`."""
        return f"{self.does}: {self.takes(takes, names)}{self.shows(gives, others)}"

    def takes(self, gives: Sequence[str], names: Sequence[str]) -> str:
        """Describe what it takes, by the types and names of its parents, for `check --explain`."""
        return f"{gives[0]} of {names[0]}"

    @property
    def does(self) -> str:
        """Describe what it does, for `check --explain`."""
        return self.word

    def shows(self, gives: str, others: Sequence[str]) -> str:
        """Describe what it makes of its records, for `check --explain`.

        Args:
            gives: The type of what comes out.
            others: The names of what it takes at ports from 1 up; for a loop's tail that of its head.
        """
        return ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The facts that a step needs to infer the type it gives.

    Attributes:
        takes: The types of the records that arrive, by port; None if a fault hides it.
        names: The names of the steps that they come from.
        fault: Notes something that does not fit; inference goes on.
        record: Gives the record class of a type (errors: SchemaRefused).
        kinds: The kinds of a class's columns, by their names.
    """

    takes: Sequence[Any]
    names: Sequence[str]
    fault: Callable[[str], None]
    record: Callable[[Any], type]
    kinds: Callable[[type], Mapping[str, Kind]]


def functions_in(holder: object) -> dict[str, Function]:
    """Return the functions among a value's fields, by their names."""
    words = ("function", "timer", "on_timer", "on_forgotten", "merge", "finish")
    found = {word: getattr(holder, word, None) for word in words}
    return {word: function for word, function in found.items() if function is not None}


def check_predicate(function: Function, asked: Asked, takes: Any) -> None:
    """Note what is wrong with a function that returns True or False for a record."""
    returns = signature_of_record(function, asked, takes).returns
    if returns not in (NOTHING, bool):
        asked.fault(f"{called(function)} must return bool, its annotation says {said(returns)}")


def called(function: object) -> str:
    """Return the name of a function for messages."""
    return str(getattr(function, "__name__", None) or repr(function))


def signature_of_record(function: Function, asked: Asked, takes: Any) -> Signature:
    """Return a function's annotations; note if it does not take the record that arrives."""
    signature = signature_of(function, "the record")
    if takes is not None and not accepts(signature.takes[0], takes):
        asked.fault(f"{called(function)} takes {said(signature.takes[0])}, but {said(takes)} arrives")
    return signature


def said_ttl(ttl: timedelta | None) -> str:
    """Describe when a key is forgotten, for `check --explain`."""
    return "" if ttl is None else f", forgotten after {ttl}"
