"""Random flows, written in the words of the package that is given: Lowtide itself, or what stands in for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from math import inf, nan
from typing import Annotated, Any, Literal

from lowtide import Alias, Epoch, Header, Key, Moment, Offset, Partition, Timestamp, Tombstone, Topic

SINKS = ("key", "other", "number", "data", None)
PRIME = 1_000_003


@dataclass(frozen=True)
class Part:
    name: str
    weight: float = 1.5


class Mood(Enum):
    CALM = "calm"
    WILD = "wild"


@dataclass(frozen=True)
class Thing:
    key: str
    number: int
    other: int = 0
    note: str = ""
    parts: tuple[Part, ...] = ()
    mood: Mood = Mood.CALM
    at: datetime | None = None
    data: bytes = b""
    named: dict[str, float] = field(default_factory=dict)
    size: Literal["s", "l"] = "s"


@dataclass(frozen=True)
class Note:
    text: Annotated[str, Alias("says")]
    written: tuple[Annotated[datetime, Epoch("s")], ...] = ()


@dataclass(frozen=True)
class Letter:
    """With every marker; values of things are values of letters too."""

    id: Annotated[str | None, Key()]
    number: int
    at: Annotated[datetime, Timestamp()]
    topic: Annotated[str, Topic()]
    partition: Annotated[int, Partition()]
    offset: Annotated[int, Offset()]
    name: Annotated[str, Alias("key")] = ""
    since: Annotated[datetime | None, Epoch("ms")] = None
    trace: Annotated[str | None, Header("trace-id")] = None
    blob: Annotated[bytes | None, Header("blob")] = None
    notes: list[Note] = field(default_factory=list)
    gone: Annotated[bool, Tombstone()] = False


@dataclass(frozen=True)
class Total:
    count: int = 0
    trail: int = 0


@dataclass(frozen=True)
class Summary:
    key: str
    things: int
    amount: int
    last: str
    mood: Mood
    at: datetime | None
    data: bytes
    least: int
    weights: tuple[int, ...]
    kinds: int


def bumped(thing: Thing) -> Thing:
    return replace(thing, number=thing.number + 1, note=thing.note + "b")


def rekeyed(thing: Thing) -> Thing:
    return replace(thing, key=thing.key[::-1], other=thing.number % 3)


def adorned(thing: Thing) -> Thing:
    """Sets fields of every other type."""
    at = datetime(2026, 1, 31, 23, tzinfo=timezone(timedelta(hours=2))) + timedelta(
        minutes=thing.number, microseconds=7
    )
    mood = Mood.WILD if thing.number % 2 else Mood.CALM
    named = {thing.key[:1]: thing.number / 4, "n": 1}
    data = thing.key.encode()[:3]
    return replace(thing, mood=mood, at=None if thing.other else at, data=data, named=named, size="l")


def solar(thing: Thing) -> Thing:
    """Sets a time at an offset of seconds, which JSON cannot write: after an exchange it is in UTC."""
    offset = timezone(timedelta(minutes=19, seconds=32)) if thing.number % 3 == 1 else UTC
    return replace(thing, at=datetime(1890, 1, 31, 23, tzinfo=offset) + timedelta(minutes=thing.number))


def weighed(thing: Thing) -> Thing:
    """Sets floats that JSON cannot write."""
    weights = (nan, inf, -inf, 1.5, -0.0)
    weight, named = weights[thing.number % 5], weights[thing.other % 5]
    return replace(thing, parts=(*thing.parts, Part("w", weight)), named={thing.key[:1]: named, "half": 0.5})


def of_raw(message: Any) -> Thing:
    return Thing((message.key or b"none").hex(), len(message.value or b""), data=message.value or b"")


def of_letter(letter: Letter) -> Thing:
    where = f"{letter.topic}/{letter.partition}/{letter.offset}/{letter.trace}"
    return Thing(
        letter.name, letter.number, letter.offset, where, at=letter.since or letter.at, data=letter.blob or b""
    )


def to_letter(thing: Thing) -> Letter:
    at = thing.at or datetime(2026, 1, 31, tzinfo=UTC)
    notes = [Note(part.name, (at,) * thing.other) for part in thing.parts]
    blob = thing.data or None
    gone = thing.number % 4 == 2
    return Letter(thing.key, thing.number, at, "", 0, 0, thing.note, thing.at, thing.key or None, blob, notes, gone)


def refused(thing: Thing) -> Thing:
    if thing.number % 5 == 3:
        raise ValueError(thing.key)
    return thing


def careless(thing: Thing) -> Thing:
    return thing if thing.number % 7 else None  # type: ignore[return-value]


def parted(thing: Thing) -> Iterator[Thing]:
    for place in range(thing.number % 4):
        if place == 2 and thing.key == "b":
            raise RuntimeError("half way")
        yield replace(thing, number=thing.number + place, parts=(*thing.parts[-1:], Part(thing.note, place / 2)))


def even(thing: Thing) -> bool:
    return thing.number % 2 == 0


def unsure(thing: Thing) -> bool:
    return thing.number % 3 != 0 if thing.key != "a" else None  # type: ignore[return-value]


def followed(total: Total, thing: Thing) -> tuple[Total, Thing]:
    """What is sensitive to the order of every record before."""
    after = Total(total.count + 1, (total.trail * 31 + thing.number + thing.other) % PRIME)
    if after.trail % 11 == 7:
        raise ValueError("unlucky")
    return after, replace(thing, number=after.trail, other=after.count)


def newest(seen: int, thing: Thing) -> int:
    if thing.number % 13 == 5:
        raise ValueError("not this one")
    return (seen * 7 + thing.number) % PRIME


def compared(total: Total, thing: Thing, seen: int) -> tuple[Total, Thing]:
    return Total(total.count + 1, seen), replace(thing, other=seen % 100, note=f"{thing.note}/{total.trail % 10}")


def all_compared(total: Total, thing: Thing, seen: int) -> tuple[Total, list[Thing]]:
    after, made = compared(total, thing, seen)
    return after, [made] * (seen % 3)


def summed(window: tuple[Thing, ...]) -> Thing:
    if sum(thing.number for thing in window) % 17 == 4:
        raise ArithmeticError("seventeen")
    return replace(window[-1], number=sum(thing.number for thing in window) % PRIME, note=window[0].note)


def smaller(thing: Thing) -> Thing:
    return replace(thing, number=thing.number // 2, note=f"{thing.note}-")


def large(thing: Thing) -> bool:
    return thing.number > 2


def twice(thing: Thing) -> Iterator[Thing]:
    yield thing
    if thing.number % 2:
        yield replace(thing, number=thing.number - 1)


def either(total: Total, thing: Thing) -> tuple[Total, Iterator[Thing]]:
    """Any number of outputs; the state comes back to the initial one now and then."""
    if thing.number % 7 == 6:
        return Total(), iter(())
    return Total(total.count + 1, (total.trail * 7 + thing.number) % PRIME), shown(total, thing)


def shown(total: Total, thing: Thing) -> Iterator[Thing]:
    for place in range(total.count % 3):
        if place == 1 and thing.number % 5 == 2:
            raise RuntimeError("half way through")
        yield replace(thing, number=total.trail + place, note=f"{thing.note}{place}")


def joined(result: Thing, thing: Thing) -> Thing:
    if (result.number + thing.number) % 19 == 3:
        raise ValueError("not these two")
    return replace(
        thing, number=(result.number * 3 + thing.number) % PRIME, note=f"{result.note[-20:]}{thing.note[:1]}"
    )


def flagged(flag: bool, thing: Thing) -> tuple[bool, Thing]:
    """A state of two values: every other record of a key leaves nothing behind."""
    return not flag, replace(thing, size="l" if flag else "s")


def bare(summary: Summary) -> Thing:
    return Thing(
        summary.key, summary.amount, summary.things, summary.last, mood=summary.mood, at=summary.at, data=summary.data
    )


@dataclass(frozen=True)
class Timed:
    key: str
    number: int
    when: datetime
    tag: str | None = None


def timed(thing: Thing) -> Timed:
    """At a time near that of the log, which begins in 1970: some come too late."""
    millis = thing.number * 7 % 90 + (1_000 if thing.other % 2 else 0)
    when, tag = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis), thing.key[:1]
    return Timed(thing.key, thing.number, when, tag if thing.number % 3 else None)


@dataclass(frozen=True)
class Summed:
    window_start: datetime
    window_end: datetime
    name: str
    total: int
    timeds: int


def unsummed(summed: Summed) -> Timed:
    return Timed(summed.name, summed.total * 10 + summed.timeds, summed.window_end)


def untimed(timed: Timed) -> Thing:
    return Thing(timed.key, timed.number, at=timed.when)


def struck(moment: Moment) -> Thing:
    return Thing("clock", int(moment.at.timestamp() * 1000), at=moment.at)


def priced(thing: Thing, row: Thing) -> Thing:
    if (thing.number + row.number) % 13 == 4:
        raise ValueError("not with this row")
    return replace(thing, number=(thing.number * 5 + row.number) % PRIME, note=f"{thing.note[:9]}{row.note[:9]}")


def priced_or_not(thing: Thing, row: Thing | None) -> Thing:
    return replace(thing, note=f"{thing.note[:9]}-") if row is None else priced(thing, row)


@dataclass(frozen=True)
class Gone:
    name: str
    number: int
    is_gone: bool


def gone(thing: Thing) -> Gone:
    return Gone(thing.key, thing.number, thing.number % 4 == 1)


def with_gone(thing: Thing, row: Gone | None) -> Thing:
    return replace(thing, number=thing.number + (1_000 if row is None else row.number))


def either_of(total: Total, record: Thing | Gone) -> tuple[Total, Thing]:
    match record:
        case Gone():
            if record.number % 9 == 8:
                raise ValueError("eight")
            return Total(), Thing(record.name, total.trail)
        case Thing():
            return followed(total, record)


def all_of_either(total: Total, record: Thing | Gone) -> tuple[Total, list[Thing]]:
    after, made = either_of(total, record)
    return after, [made] * (made.number % 3)


def either_beside(total: Total, record: Thing | Gone, seen: int) -> tuple[Total, list[Thing]]:
    after, made = either_of(replace(total, trail=(total.trail + seen) % PRIME), record)
    return after, [made] * (made.number % 3)


def put_together(one: Timed, other: Timed) -> Timed:
    if (one.number + other.number) % 19 == 6:
        raise ValueError("not these two")
    return Timed(other.key, (one.number * 31 + other.number) % PRIME, max(one.when, other.when))


def pair_of(left: Timed, right: Timed) -> Timed:
    if (left.number * 3 + right.number) % 29 == 5:
        raise ValueError("not this pair")
    return Timed(f"{left.key[:9]}{right.key[:9]}", (left.number * 31 + right.number) % PRIME, left.when)


def left_pair(left: Timed, right: Timed | None) -> Timed:
    return pair_of(left, left if right is None else right)


def right_pair(left: Timed | None, right: Timed) -> Timed:
    return pair_of(right if left is None else left, right)


def outer_pair(left: Timed | None, right: Timed | None) -> Timed:
    some = left or right
    assert some is not None
    return pair_of(left or some, right or some)


PAIRED: dict[str, Any] = {"inner": pair_of, "left": left_pair, "right": right_pair, "outer": outer_pair}


def counted_on(state: int, timed: Timed) -> int:
    return (state * 31 + timed.number) % PRIME


def added_up(one: int, other: int) -> int:
    return (one * 7 + other) % PRIME


@dataclass(frozen=True)
class Asked:
    """A state that asks to be called, now and then in the past, and again after that."""

    key: str = ""
    count: int = 0
    trail: int = 0
    until: datetime | None = None


def asking(asked: Asked, timed: Timed) -> tuple[Asked, list[Timed]]:
    trail = (asked.trail * 31 + timed.number) % PRIME
    if trail % 13 == 6:
        raise ValueError("unlucky")
    if trail % 7 == 3:
        return Asked(), [timed]
    until = None if trail % 5 == 2 else timed.when + timedelta(milliseconds=trail % 40 - 10)
    return Asked(timed.key, asked.count + 1, trail, until), [replace(timed, number=trail)] * (trail % 2)


def asking_beside(asked: Asked, timed: Timed, seen: int) -> tuple[Asked, list[Timed]]:
    return asking(asked, replace(timed, number=timed.number + seen % 10))


def asks(asked: Asked) -> datetime | None:
    return asked.until


def called(asked: Asked, moment: datetime) -> tuple[Asked, Iterator[Timed]]:
    """Fails now and then, stands still now and then, gives up, or goes on."""
    if asked.trail % 17 == 5:
        raise ValueError("not when time calls")
    outs = (Timed(asked.key, asked.trail + number, moment) for number in range(asked.trail % 3))
    if asked.trail % 4 == 1 or asked.count > 9:
        return Asked(), outs
    step = timedelta(milliseconds=asked.trail % 9, microseconds=asked.trail % 3)
    return replace(asked, trail=asked.trail * 7 % PRIME, count=asked.count + 1, until=moment + step), outs


@dataclass(frozen=True)
class Followed:
    """The end of a substream."""

    number: int
    begun: datetime
    ended: datetime
    count: int
    closed_by: str


def opens(timed: Timed) -> bool:
    if timed.number % 11 == 6:
        raise ValueError("not this one")
    return timed.number % 3 != 1


def closes(timed: Timed) -> bool:
    """Says neither yes nor no now and then."""
    return timed.number % 4 == 1 if timed.number % 13 else None  # type: ignore[return-value]


def unfollowed(ended: Followed) -> Timed:
    span = (ended.ended - ended.begun) // timedelta(milliseconds=1)
    return Timed(ended.closed_by, ended.number * 10 + ended.count + span, ended.ended)


NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def left(asked: Asked) -> Iterator[Timed]:
    """Fails now and then; else gives none, one or two."""
    if asked.trail % 17 == 5:
        raise ValueError("not at the end")
    return (Timed(asked.key, asked.trail + number, asked.until or NEVER) for number in range(asked.trail % 3))


class Writer:
    """Writes one flow; with dice of the same seed the same flow, whatever the package."""

    def __init__(self, package: Any, seed: int) -> None:
        self._dice = random.Random(seed)
        self._package = package
        letters = package.kafka("letters", package.raw())
        self.flow = package.Flow(f"random-{seed}", dead_letters=letters)
        self._open: list[Any] = []
        """Streams that no step takes yet."""
        self._streams: list[Any] = []
        self._names = 0

    def write(self) -> Any:
        """The flow."""
        dice = self._dice
        for number in range(dice.choice([1, 1, 2, 3])):
            topic = f"topic-{number if dice.random() < 0.7 else 0}"
            if dice.random() < 0.7:
                self._add(self.flow.read(f"source{number}", self._package.kafka(topic, self._package.json(Thing))))
                continue
            if dice.random() < 0.5:
                letters = self.flow.read(f"source{number}", self._package.kafka(topic, self._package.json(Letter)))
                self._add(letters.map(of_letter, name=self._name("of_letter")))
                continue
            raw = self.flow.read(f"source{number}", self._package.kafka(topic, self._package.raw()))
            self._add(raw.map(of_raw, name=self._name("of_raw")))
        for _ in range(dice.randrange(1, 9)):
            self._step()
        for stream in list(self._open):
            self._end(stream)
        return self.flow

    def _name(self, word: str) -> str:
        self._names += 1
        return f"{word}{self._names}"

    def _add(self, stream: Any, *taken: Any) -> Any:
        self._open = [each for each in self._open if each not in taken] + [stream]
        self._streams.append(stream)
        return stream

    def _step(self) -> None:
        dice, stream = self._dice, self._dice.choice(self._streams)
        steps: list[Callable[[Any], Any]] = [
            self._plain,
            self._plain,
            self._keyed,
            self._keyed,
            self._merged,
            self._beside,
            self._windowed,
            self._tabled,
            self._connected,
            self._joined,
            self._joined,
            self._called,
            self._called,
            self._followed,
            self._struck,
            self._done,
            self._cycled,
        ]
        dice.choice(steps)(stream)

    def _plain(self, stream: Any) -> None:
        steps: list[tuple[str, list[Callable[..., Any]]]] = [
            ("map", [bumped, rekeyed, adorned, solar, weighed, refused, careless]),
            ("filter", [even, unsure]),
            ("flat_map", [parted]),
        ]
        kind, functions = self._dice.choice(steps)
        if kind == "filter" and self._dice.random() < 0.4:
            function = self._dice.choice(functions)
            for side in stream.split(function, name=self._name("split")):
                self._add(side, stream)
            return
        function = self._dice.choice(functions)
        self._add(getattr(stream, kind)(function, name=self._name(function.__name__)), stream)

    def _by_key(self, stream: Any) -> Any:
        columns = self._dice.choice(
            [("key",), ("other",), ("key", "other"), ("number",), ("mood", "at"), ("data",), ("at",), ("size", "key")]
        )
        return stream.key_by(*columns, name=self._name("by"))

    def _cycled(self, stream: Any) -> None:
        again, turns = self._dice.choice([(large, 3), (large, 5), (even, 3)])
        entering = self._by_key(stream) if self._dice.random() < 0.5 else stream
        self._add(entering.loop(self._name("round"), self._crossing_body, again, limit_turns=turns), stream)

    def _keyed(self, stream: Any) -> None:
        dice, kind, ttl = self._dice, self._dice.randrange(9), self._ttl()
        keyed = stream.key_by("key", name=self._name("by")) if kind == 6 else self._by_key(stream)
        if kind == 0:
            self._add(keyed.scan(self._name("followed"), followed, Total(), ttl=ttl), stream)
        elif kind == 1:
            partial = dice.random() < 0.6
            window = keyed.last(dice.choice([1, 2, 3]), partial=partial, ttl=ttl, name=self._name("last"))
            self._add(window.map(summed, name=self._name("summed")), stream)
        elif kind == 4:
            self._add(keyed.flat_scan(self._name("either"), either, Total(), ttl=ttl), stream)
        elif kind == 5:
            self._add(keyed.reduce(self._name("joined"), joined, ttl=ttl), stream)
        elif kind == 6:
            self._add(self._aggregated(keyed, ttl), stream)
        elif kind == 7:
            self._add(keyed.deduplicate(self._name("once"), within=ttl or self._package.days(1)), stream)
        elif kind == 8:
            self._add(keyed.scan(self._name("flagged"), flagged, False, ttl=ttl), stream)
        elif kind == 2:
            self._add(keyed.loop(self._name("loop"), self._body, large, limit_turns=dice.choice([2, 3])), stream)
        else:
            self._add(keyed, stream)

    def _ttl(self) -> Any:
        return self._dice.choice([None, None, self._package.millis(5), self._package.millis(20)])

    def _aggregated(self, keyed: Any, ttl: Any) -> Any:
        agg = self._package.agg
        summaries = keyed.aggregate(
            self._name("summary"),
            Summary,
            ttl=ttl,
            things=agg.count(),
            amount=agg.sum("number"),
            last=agg.latest("note"),
            mood=agg.first("mood"),
            at=agg.max("at"),
            data=agg.max_by("data", by="other"),
            least=agg.min("other"),
            weights=agg.collect("other"),
            kinds=agg.count_distinct("mood"),
        )
        return summaries.map(bare, name=self._name("bare"))

    def _body(self, inside: Any) -> Any:
        if self._dice.random() < 0.5:
            inside = inside.scan(self._name("inside"), followed, Total(), ttl=self._ttl())
        elif self._dice.random() < 0.3:
            inside = inside.flat_scan(self._name("inside"), either, Total(), ttl=self._ttl())
        if self._dice.random() < 0.4:
            inside = inside.flat_map(twice, name=self._name("twice"))
        return inside.map(smaller, name=self._name("smaller"))

    def _crossing_body(self, inside: Any) -> Any:
        """A body that gives records other keys, once or twice, at any place in it."""
        dice = self._dice
        if dice.random() < 0.3:
            inside = self._two_ways(inside) if dice.random() < 0.5 else inside.map(rekeyed, name=self._name("rekeyed"))
        for _ in range(dice.choice([1, 1, 2])):
            keyed = self._by_key(inside)
            kind, ttl = dice.randrange(5), self._ttl()
            if kind == 0:
                inside = keyed.scan(self._name("inside"), followed, Total(), ttl=ttl)
            elif kind == 1:
                inside = keyed.flat_scan(self._name("inside"), either, Total(), ttl=ttl)
            elif kind == 2:
                inside = keyed.last(dice.choice([1, 2, 3]), ttl=ttl, name=self._name("last"))
                inside = inside.map(summed, name=self._name("summed"))
            elif kind == 3:
                inside = keyed.deduplicate(self._name("once"), within=ttl or self._package.millis(40))
            else:
                inside = keyed.reduce(self._name("joined"), joined, ttl=ttl)
            if dice.random() < 0.5:
                inside = inside.map(rekeyed, name=self._name("rekeyed"))
        if dice.random() < 0.4:
            inside = inside.flat_map(twice, name=self._name("twice"))
        return inside.map(smaller, name=self._name("smaller"))

    def _two_ways(self, inside: Any) -> Any:
        """Some records change their key and the others do not."""
        some, others = inside.split(even, name=self._name("split"))
        keyed = some.key_by("key", name=self._name("by")).scan(self._name("inside"), followed, Total())
        return others.merge(keyed, name=self._name("merged"))

    def _merged(self, stream: Any) -> None:
        others = [each for each in self._streams if each is not stream]
        if not others:
            return self._plain(stream)
        chosen = self._dice.sample(others, self._dice.randint(1, min(2, len(others))))
        self._add(stream.merge(*chosen, name=self._name("merged")), stream, *chosen)
        return None

    def _beside(self, stream: Any) -> None:
        other = self._dice.choice(self._streams)
        first = self._dice.random() < 0.5
        keyed = None if first else self._by_key(stream)
        beside = other.broadcast(self._name("newest"), newest, 0)
        keyed, ttl = keyed or self._by_key(stream), self._ttl()
        if self._dice.random() < 0.3:
            scan = keyed.flat_scan(self._name("compared"), all_compared, Total(), ttl=ttl, broadcast=beside)
        else:
            scan = keyed.scan(self._name("compared"), compared, Total(), ttl=ttl, broadcast=beside)
        self._add(scan, stream, other)

    def _tabled(self, stream: Any) -> None:
        dice, other = self._dice, self._dice.choice(self._streams)
        ttl = self._ttl()
        if dice.random() < 0.5:
            made = other.map(gone, name=self._name("gone"))
            table = made.key_by("name", name=self._name("by")).table(self._name("table"), deleted="is_gone", ttl=ttl)
            function, how, columns = with_gone, "left", ["key"]
        else:
            columns = dice.choice([["key"], ["other", "key"], ["size"], ["at"], ["size", "at"]])
            table = other.key_by(*columns, name=self._name("by")).table(self._name("table"), ttl=ttl)
            how = dice.choice(["inner", "left"])
            function = priced_or_not if how == "left" else priced  # type: ignore[assignment]
        keyed = stream.key_by(*columns, name=self._name("by"))
        self._add(keyed.join_table(self._name("priced"), table, function, how=how), stream, other)

    def _joined(self, stream: Any) -> None:
        """Two streams, or one with itself."""
        dice, other = self._dice, self._dice.choice(self._streams)
        one, two = (each.map(timed, name=self._name("timed")) for each in (stream, other))
        columns = dice.choice([("key",), ("number",), ("key", "number"), ("tag",), ("tag",), ("tag", "key")])
        left = one.key_by(*columns, name=self._name("by"))
        right = left if dice.random() < 0.2 else two.key_by(*columns, name=self._name("by"))
        if right is left:
            self._add(two.map(untimed, name=self._name("untimed")), other)
        bounds = [timedelta(milliseconds=dice.choice([0, 3, 25, 60])) for _ in range(2)]
        rest: dict[str, Any] = {"before": bounds[0], "after": bounds[1]}
        in_log_time = dice.random() < 0.3
        if in_log_time:
            rest["after"] += timedelta(milliseconds=1)
        else:
            waits = [timedelta(milliseconds=dice.choice([0, 7, 40])) for _ in range(2)]
            times = [self._package.event_time("when", wait=wait) for wait in waits]
            rest["time"] = dice.choice([times[0], tuple(times)])
        if not in_log_time and dice.random() < 0.4:
            how, wait = dice.choice(["inner", "left"]), timedelta(milliseconds=dice.choice([0, 7, 40]))
            time = self._package.event_time("when", wait=wait)
            joined = left.join_asof(self._name("asof"), right, PAIRED[how], how=how, time=time, back=bounds[0])
            for given in [joined, joined.late, joined.late_other]:
                self._add(given.map(untimed, name=self._name("untimed")), stream, other)
            return
        how = dice.choice(["inner", "left", "right", "outer"])
        joined = left.join(self._name("pairs"), right, PAIRED[how], how=how, **rest)
        lates = [] if in_log_time else [joined.late, joined.late_other]
        for given in [joined, *lates]:
            self._add(given.map(untimed, name=self._name("untimed")), stream, other)

    def _connected(self, stream: Any) -> None:
        other = self._dice.choice(self._streams)
        made = other.map(gone, name=self._name("gone")).key_by("name", name=self._name("by"))
        keyed = stream.key_by("key", name=self._name("by"))
        one, two = self._dice.choice([(keyed, made), (made, keyed)])
        connected, ttl = one.connect(two), self._ttl()
        if self._dice.random() < 0.4:
            third = self._dice.choice(self._streams)
            beside = third.broadcast(self._name("newest"), newest, 0)
            scan = connected.flat_scan(self._name("either"), either_beside, Total(), ttl=ttl, broadcast=beside)
            self._add(scan, stream, other, third)
        elif self._dice.random() < 0.5:
            self._add(connected.scan(self._name("either"), either_of, Total(), ttl=ttl), stream, other)
        else:
            self._add(connected.flat_scan(self._name("either"), all_of_either, Total(), ttl=ttl), stream, other)

    def _called(self, stream: Any) -> None:
        """A scan that time calls."""
        dice = self._dice
        keyed = stream.map(timed, name=self._name("timed")).key_by(
            *dice.choice([("key",), ("number",), ("number", "key")]), name=self._name("by")
        )
        rest: dict[str, Any] = {"ttl": self._ttl(), "timer": asks, "on_timer": called}
        if rest["ttl"] is not None and dice.random() < 0.5:
            rest = {"ttl": rest["ttl"], "on_forgotten": left}
        if dice.random() < 0.3:
            other = self._dice.choice(self._streams)
            beside = other.broadcast(self._name("newest"), newest, 0)
            scan = keyed.flat_scan(self._name("asking"), asking_beside, Asked(), broadcast=beside, **rest)
            self._add(scan.map(untimed, name=self._name("untimed")), stream, other)
        else:
            scan = keyed.flat_scan(self._name("asking"), asking, Asked(), **rest)
            self._add(scan.map(untimed, name=self._name("untimed")), stream)

    def _followed(self, stream: Any) -> None:
        """Substreams of a key: what opens them, their ends, or both."""
        dice = self._dice
        columns = dice.choice([("number",), ("number", "key")])
        keyed = stream.map(timed, name=self._name("timed")).key_by(*columns, name=self._name("by"))
        rests: list[dict[str, Any]] = [
            {"closes": closes},
            {"idle": self._package.millis(12)},
            {"closes": closes, "idle": self._package.millis(30)},
        ]
        rest = dice.choice(rests)
        followed = keyed.substream(self._name("followed"), Followed, opens=opens, **rest)
        given = dice.choice(["begun", "ended", "both", "both"])
        if given != "begun":
            ended = followed.ended
            if dice.random() < 0.4:
                through = stream.map(bumped, name=self._name("bumped"))
                self._add(through, stream)
                ended = ended.when_done(self._name("done"), through=through, label=dice.choice(["number", None]))
            ended = ended.map(unfollowed, name=self._name("unfollowed"))
            self._add(ended.map(untimed, name=self._name("untimed")), stream)
        if given != "ended":
            self._add(followed.begun.map(untimed, name=self._name("untimed")), stream)

    def _struck(self, stream: Any) -> None:
        """A clock, and a stream that its strikes come between."""
        every = self._package.millis(self._dice.choice([15, 40, 250]))
        strikes = self.flow.clock(self._name("clock"), every).map(struck, name=self._name("struck"))
        self._add(stream.merge(strikes, name=self._name("merged")), stream)
        if self._dice.random() < 0.3:
            self._add(strikes)

    def _done(self, stream: Any) -> None:
        """Records again, when they or what stands beside them is through one or two steps."""
        dice = self._dice
        through = stream.flat_map(parted, name=self._name("parted"))
        for _ in range(dice.randrange(3)):
            through = self._by_key(through).scan(self._name("followed"), followed, Total())
            if dice.random() < 0.4:
                through = self._later(through, stream)
        self._add(through, stream)
        if dice.random() < 0.4:
            stream = stream.map(rekeyed, name=self._name("rekeyed"))
        label = dice.choice([None, None, "key", "number", ("at",), ("mood", "key"), ("number", "key", "at")])
        if dice.random() < 0.3:
            done = stream.when_done(self._name("after"), order="stream", label=label)
        else:
            done = stream.when_done(self._name("done"), through=through, label=label)
        self._add(done)
        if label is not None and dice.random() < 0.4:
            self._add(done.when_begun(self._name("begun"), label=label, keep=self._package.millis(40)))
        self._open = [each for each in self._open if each is not stream]

    def _later(self, through: Any, stream: Any) -> Any:
        """What comes of records later, as far as the flow says."""
        dice, package = self._dice, self._package
        kind, size = dice.randrange(5), package.millis(dice.choice([10, 25]))
        if kind == 0:
            done = through.when_done(self._name("done"), through=stream, label=dice.choice([None, "key"]))
            return through.merge(done, name=self._name("merged"))
        made = through.map(timed, name=self._name("timed")).key_by("number", name=self._name("by"))
        if kind < 3:
            cuts = [package.sliding(size, package.millis(7)), package.calendar("month", "Europe/Berlin")]
            cut = dice.choice([package.tumbling(size), *cuts])
            windowed = made.window(self._name("window"), cut, emit=dice.choice(["close", "close", "update"]))
            return windowed.reduce(put_together).map(untimed, name=self._name("untimed"))
        other = made
        if kind == 4:
            other = stream.map(timed, name=self._name("timed")).key_by("number", name=self._name("by"))
        how = dice.choice(["inner", "left", "right", "outer"])
        pairs = made.join(self._name("pairs"), other, PAIRED[how], how=how, before=size, after=package.millis(15))
        return pairs.map(untimed, name=self._name("untimed"))

    def _windowed(self, stream: Any) -> None:
        dice, package = self._dice, self._package
        made = stream.map(timed, name=self._name("timed"))
        keyed = made.key_by(*dice.choice([("key",), ("when", "number"), ("number",)]), name=self._name("by"))
        size, number = timedelta(milliseconds=dice.choice([10, 25, 60])), dice.randrange(4)
        every = timedelta(milliseconds=dice.choice([5, 7, 10]))
        cuts = [package.tumbling(size, offset=every), package.sliding(size, every), package.session(size)]
        windows = [*cuts, package.calendar("month", "Europe/Berlin")][number]
        rest: dict[str, Any] = {"emit": dice.choice(["close", "update"])} if number != 2 else {}
        in_log_time = dice.random() < 0.3
        if not in_log_time:
            rest["time"] = package.event_time("when", wait=timedelta(milliseconds=dice.choice([0, 7, 40])))
        windowed = keyed.window(self._name("window"), windows, **rest)
        lates = [] if in_log_time else [windowed.late]
        results = [
            lambda: windowed.reduce(put_together),
            lambda: windowed.fold(counted_on, 0, self._finish(), merge=added_up, returns=Timed),
            lambda: windowed.apply(self._listing(), returns=Timed),
            lambda: windowed.aggregate(
                Summed,
                name=package.agg.first("key"),
                total=package.agg.sum("number"),
                timeds=package.agg.count(),
            ).map(unsummed, name=self._name("unsummed")),
        ]
        for given in [dice.choice(results)(), *lates]:
            self._add(given.map(untimed, name=self._name("untimed")), stream)

    def _finish(self) -> Any:
        def finish(window: Any, state: int) -> Timed:
            return Timed(repr(window.key), state, window.start)

        return finish

    def _listing(self) -> Any:
        def listing(window: Any, timeds: tuple[Timed, ...]) -> Iterator[Timed]:
            for each in timeds[: len(timeds) % 3]:
                yield replace(each, number=sum(one.number for one in timeds))

        return listing

    def _end(self, stream: Any) -> None:
        topic = self._name("out")
        if self._dice.random() < 0.2:
            made, package = self._package.Raw, self._package
            raw = stream.map(
                lambda thing: made(thing.data or None, thing.key.encode()), name=f"raw-{topic}", returns=made
            )
            raw.write(topic, package.kafka(topic, package.raw()))
            return
        if self._dice.random() < 0.2:
            letters = stream.map(to_letter, name=self._name("to_letter"))
            letters.write(topic, self._package.kafka(topic, self._package.json(Letter)))
            return
        key = self._dice.choice(SINKS)
        if self._dice.random() < 0.3:
            odd = self._dice.choice([solar, weighed])
            stream = stream.map(odd, name=self._name(odd.__name__))
        stream.write(topic, self._package.kafka(topic, self._package.json(Thing), key=key))
