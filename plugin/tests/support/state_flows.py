"""Small flows with state, of every kind of step, and records for them: for tests and simulations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from proto_messages import add_field, generated_by

from lowtide import (
    Flow,
    Moment,
    Window,
    agg,
    days,
    event_time,
    json,
    kafka,
    millis,
    protobuf,
    session,
    sliding,
    tumbling,
)


@dataclass(frozen=True)
class Document:
    name: str
    text: str


@dataclass(frozen=True)
class Change:
    word: str
    document: str
    added: int
    removed: int


@dataclass(frozen=True)
class Index:
    documents: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    key: str
    count: int


@dataclass(frozen=True)
class Word:
    key: str
    count: int
    at: datetime


@dataclass(frozen=True)
class Spell:
    key: str
    window_start: datetime
    window_end: datetime
    words: int
    total: int | None


@dataclass(frozen=True)
class Sum:
    window_start: datetime
    spells: int
    total: int | None


def changes(versions: tuple[Document, ...]) -> Iterator[Change]:
    before, now = (Counter(version.text.split()) for version in (versions[0], versions[-1]))
    before = before if len(versions) == 2 else Counter()
    for word in sorted(before | now):
        if before[word] != now[word]:
            yield Change(word, versions[-1].name, now[word], before[word])


def update(index: Index, change: Change) -> tuple[Index, Change]:
    documents = {name: count for name, count in index.documents.items() if name != change.document}
    if change.added:
        documents[change.document] = change.added
    return Index(documents), Change(change.word, ",".join(documents), change.added, len(documents))


def words(document: Document) -> Iterator[Count]:
    for word in document.text.split():
        yield Count(word, 1)


def letters(count: Count) -> Iterator[Count]:
    for letter in count.key:
        yield Count(letter, count.count)


def total(state: int, count: Count) -> tuple[int, Count]:
    return state + count.count, Count(count.key, state + count.count)


def louder(count: Count) -> Count:
    return Count(count.key.upper(), count.count)


def quiet(count: Count) -> bool:
    return count.key.islower()


def consecutive(state: int, count: Count) -> tuple[int, Count]:
    if count.count < state:
        raise ValueError(f"{count.count} after {state}")
    return count.count, count


def size(document: Document) -> Count:
    return Count(document.name, len(document.text))


def longest(state: int, document: Document) -> int:
    return max(state, len(document.text))


def with_longest(state: int, document: Document, most: int) -> tuple[int, Count]:
    return state + 1, Count(document.name, (state + 1) * 1000 + most)


def halve(state: int, count: Count) -> tuple[int, Count]:
    return state + 1, Count(count.key, count.count // 2)


def above_one(count: Count) -> bool:
    return count.count > 1


def source(flow: Flow, name: str = "documents") -> Any:
    return flow.read(name, kafka(name, json(Document)))


def index(flow: Flow) -> None:
    latest = source(flow).key_by("name").last(2, name="versions").flat_map(changes)
    latest.key_by("word").scan("index", update, Index()).write("out", kafka("out", json(Change), key="word"))


def note(state: int, change: Change) -> tuple[int, Change]:
    return state + 1, Change(change.word, change.document, state + 1, change.removed)


def index_by_document(flow: Flow) -> None:
    latest = source(flow).key_by("name").last(2, name="versions").flat_map(changes)
    # A version that is replaced had other words, so its parts come back together from other workers.
    noted = latest.key_by("word").scan("index", note, 0)
    noted.key_by("document").scan("notes", note, 0).write("out", kafka("out", json(Change)))


def diamond(flow: Flow) -> None:
    counted = source(flow).flat_map(words)
    loud = counted.filter(quiet, name="quiet").map(louder)
    loud.merge(counted, name="both").key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def keyed_diamond(flow: Flow) -> None:
    keyed = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    keyed.map(louder).merge(keyed, name="both").write("out", kafka("out", json(Count)))


def across_levels(flow: Flow) -> None:
    counted = source(flow).flat_map(words)
    totals = counted.key_by("key").scan("total", total, 0).map(louder)
    totals.merge(counted, name="both").key_by("key").scan("again", total, 0).write("out", kafka("out", json(Count)))


def two_sources(flow: Flow) -> None:
    both = source(flow).merge(source(flow, "more"), name="both")
    both.flat_map(words).flat_map(letters).key_by("key").scan("total", total, 0).write(
        "out", kafka("out", json(Count), key="key")
    )


def three_levels(flow: Flow) -> None:
    counted = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    lettered = counted.flat_map(letters).key_by("key").scan("by-letter", total, 0)
    lettered.key_by("count").last(3, name="same", partial=False).map(first).write("out", kafka("out", json(Count)))


def two_levels_of_sinks(flow: Flow) -> None:
    totals = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    totals.write("totals", kafka("totals", json(Count)))
    again = totals.flat_map(letters).key_by("key").scan("by-letter", total, 0)
    again.write("out", kafka("out", json(Count)))


def first(window: tuple[Count, ...]) -> Count:
    return Count("".join(count.key for count in window), window[0].count)


def failing(flow: Flow) -> None:
    sized = source(flow).map(size)
    sized.key_by("key").scan("order", consecutive, 0).write("out", kafka("out", json(Count)))


def heaped(state: int, count: Count) -> tuple[int, Count]:
    """Sums that soon are too large for 32 bits; it fails with some, which hang on the order."""
    if (state + count.count) % 3 == 1:
        raise ValueError(f"{count.count} after {state}")
    after = state + count.count
    return after, Count(count.key, after << 28)


def narrow(flow: Flow) -> None:
    """A sink that cannot write all that it is given, after a step of the same name that fails, too."""
    heaps = source(flow).map(size).key_by("key").scan("heap", heaped, 0)
    heaps.write("heap", kafka("heap", protobuf(Count, NARROW), key="key"))


def _narrow(_file: Any, message: Any) -> None:
    add_field(message, "key", "string")
    add_field(message, "count", "int32")


NARROW = generated_by(_narrow)


def beside(flow: Flow) -> None:
    most = source(flow, "more").broadcast("longest", longest, 0)
    source(flow).key_by("name").scan("seen", with_longest, 0, broadcast=most).write("out", kafka("out", json(Count)))


def loop(flow: Flow) -> None:
    keyed = source(flow).map(size).key_by("key")
    keyed.loop("halving", lambda s: s.scan("halve", halve, 0), again=above_one, limit_turns=4).write(
        "out", kafka("out", json(Count))
    )


def passed_on(state: int, count: Count) -> tuple[int, list[Count]]:
    """Hangs on the order of all before, and tells other keys of it: two where it is odd, none where nothing is left."""
    after = (state * 31 + count.count + len(count.key)) % 1009
    left = count.count // 2
    return after, [Count("abcdef"[(after + each) % 6], left * 2 + after % 2) for each in range(after % 3)]


def cycle(flow: Flow) -> None:
    """A loop at one level: it begins with a key_by."""
    looped = (
        source(flow)
        .map(size)
        .loop("telling", lambda s: s.key_by("key").flat_scan("told", passed_on, 0), again=above_one, limit_turns=4)
    )
    looped.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def cycle_of_levels(flow: Flow) -> None:
    """A loop over two levels, after a step with state, and a branch beside it."""
    keyed = source(flow).map(size).key_by("key")
    counted = keyed.scan("counted", total, 0)
    looped = counted.key_by("key", name="again-by-key").loop(
        "telling",
        lambda s: s.flat_scan("told", passed_on, 0).key_by("count").last(2).map(newer),
        above_one,
        limit_turns=20,
    )
    looped.write("out", kafka("out", json(Count)))
    keyed.scan("seen", total, 0).write("beside", kafka("beside", json(Count)))


def newer(counts: tuple[Count, ...]) -> Count:
    return Count(counts[0].key, counts[-1].count // 2)


def wander(state: int, count: Count) -> tuple[int, Count]:
    return state + 1, Count(count.key + "a", count.count // 2)


def changed_keys(flow: Flow) -> None:
    keyed = source(flow).map(size).key_by("key")
    keyed.loop("halving", lambda s: s.scan("halve", wander, 0), again=above_one, limit_turns=4).write(
        "out", kafka("out", json(Count))
    )


def with_most(state: int, count: Count, most: int) -> tuple[int, Count]:
    return state + 1, Count(count.key, (state + 1) * 1000 + most)


def beside_behind_a_level(flow: Flow) -> None:
    most = source(flow, "more").broadcast("longest", longest, 0)
    totals = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    totals.key_by("count").scan("seen", with_most, 0, broadcast=most).write("out", kafka("out", json(Count)))


def timed(document: Document) -> Iterator[Word]:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=1_000 + 31 * len(document.text))
    for place, word in enumerate(document.text.split()):
        yield Word(word, place, moment + timedelta(milliseconds=13 * place))


def spelt(spell: Spell) -> Count:
    return Count(spell.key, spell.words * 100 + (spell.total or 0))


def sat(window: Any, records: tuple[Word, ...]) -> Iterator[Spell]:
    for word in records:
        yield Spell(word.key, window.start, window.end, len(records), word.count)


def windows(flow: Flow) -> None:
    worded = source(flow).flat_map(timed).key_by("key")
    spells = worded.window("spells", tumbling(millis(40))).aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    spells.write("spells", kafka("spells", json(Spell), key="key"))
    spells.map(spelt).key_by("count").scan("total", total, 0).write("out", kafka("out", json(Count)))


def cycle_of_windows(flow: Flow) -> None:
    """Records that time brings go round: a loop over two levels, whose head is after one window and before another."""
    worded = source(flow).flat_map(timed).key_by("key")
    spells = worded.window("spells", tumbling(millis(40))).aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    looped = spells.map(spelt).loop(
        "telling", lambda s: s.map(same).key_by("key").flat_scan("told", passed_on, 0), again=above_one, limit_turns=4
    )
    after = looped.key_by("key", name="after").window("sums", tumbling(millis(30)))
    summed = after.aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    summed.write("out", kafka("out", json(Spell), key="key"))


def same(count: Count) -> Count:
    return count


def windows_of_windows(flow: Flow) -> None:
    """The second close at the very ticks at which the first give what is the last for them."""
    spells = (
        source(flow)
        .flat_map(timed)
        .key_by("key")
        .window("spells", sliding(millis(60), millis(20)), time=event_time("at", wait=millis(50)))
    )
    spells.late.write("late", kafka("late", json(Word), key="key"))
    made = spells.aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    sums = made.key_by("window_start").window(
        "sums", tumbling(millis(40)), time=event_time("window_start", wait=millis(90), late="drop")
    )
    sums.aggregate(Sum, spells=agg.count(), total=agg.sum("total")).write("out", kafka("out", json(Sum)))


def wavering(state: int | None, word: Word) -> int | None:
    """A state that is None after every third record or so, and 0 now and then."""
    return None if (state or 0) + word.count == 2 else ((state or 0) * 7 + word.count) % 5


def wavered(one: int | None, other: int | None) -> int | None:
    return one if one == other else None


def sat_through(window: Window, state: int | None) -> Count:
    return Count(window.key[0], -1 if state is None else state)


def sessions(flow: Flow) -> None:
    """Two kinds over the same records; the states of one are None now and then."""
    worded = source(flow).flat_map(timed).key_by("key")
    spells = worded.window("sat", session(millis(25)), time=event_time("at", wait=millis(30), late="drop")).apply(sat)
    spells.map(spelt).key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))
    wavering_ones = worded.window("wavering", session(millis(15)), time=event_time("at", wait=millis(30)))
    wavering_ones.late.write("late", kafka("late", json(Word)))
    folded = wavering_ones.fold(wavering, None, sat_through, merge=wavered)
    folded.write("sat-through", kafka("sat-through", json(Count)))


def windows_of_records(flow: Flow) -> None:
    """Windows that keep their records, which may be on disk, and are in the order in which they came."""
    worded = source(flow).flat_map(timed).key_by("key")
    spells = worded.window("sat", sliding(millis(80), millis(40)), time=event_time("at", wait=millis(50), late="drop"))
    spells.apply(sat).map(spelt).key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


@dataclass(frozen=True)
class Asked:
    words: int = 0
    calls: int = 0
    until: datetime | None = None


def asking(asked: Asked, word: Word) -> tuple[Asked, list[Count]]:
    """Every third record of a key leaves nothing to be asked for."""
    if asked.words == 2:
        return Asked(), [Count(word.key, -1)]
    return Asked(asked.words + 1, 0, word.at + timedelta(milliseconds=17 * (word.count % 5))), []


def asks(asked: Asked) -> datetime | None:
    return asked.until


def called(asked: Asked, moment: datetime) -> tuple[Asked, list[Count]]:
    after = Asked() if asked.calls == 3 else Asked(asked.words, asked.calls + 1, moment + timedelta(milliseconds=11))
    return after, [Count("x" * number, asked.calls) for number in range(asked.words)]


def timers(flow: Flow) -> None:
    worded = source(flow).flat_map(timed).key_by("key")
    scan = worded.flat_scan("asking", asking, Asked(), timer=asks, on_timer=called, ttl=millis(60))
    scan.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def paired(state: int, count: Count) -> tuple[int, list[Count]]:
    """A state that is the initial one again after every third record."""
    return (0, []) if state == 2 else (state + 1, [Count(count.key, state)] * (len(count.key) % 2 + 1))


def forgetting(flow: Flow) -> None:
    lettered = source(flow).flat_map(words).flat_map(letters)
    once = lettered.key_by("key").deduplicate("once", within=millis(8))
    pairs = once.key_by("key", name="again").flat_scan("pairs", paired, 0, ttl=millis(20))
    pairs.key_by("count").last(3, ttl=millis(16), name="same").map(first).write("out", kafka("out", json(Count)))


def kept(state: Count, count: Count) -> tuple[Count, list[Count]]:
    """A state that is the initial one again after a count that divides by 7."""
    return (Count("", 0) if count.count % 7 == 0 else Count(count.key, state.count + count.count)), []


def left(state: Count) -> list[Count]:
    return [Count(state.key[:1], state.count)] * (1 + state.count % 2)


def leaving(flow: Flow) -> None:
    """The sums of keys at the ends of their lives, between what is counted of others."""
    lettered = source(flow).flat_map(words).flat_map(letters)
    ends = lettered.key_by("key", "count").flat_scan("ends", kept, Count("", 0), on_forgotten=left, ttl=millis(14))
    both = ends.merge(lettered, name="both")
    both.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def is_long(count: Count) -> bool:
    return count.count > 12


def larger(one: Count, other: Count) -> Count:
    return other if other.count >= one.count else one


def aggregating(flow: Flow) -> None:
    long, short = source(flow).map(size).split(is_long)
    totals = long.key_by("key").aggregate("sums", Count, ttl=millis(30), count=agg.sum("count"))
    most = short.key_by("key").reduce("most", larger, ttl=millis(30))
    totals.merge(most, name="both").write("out", kafka("out", json(Count)))


def branches(flow: Flow) -> None:
    """Two branches of one source and one of another, each with a sink; two of them meet again a level further."""
    worded = source(flow).flat_map(timed)
    spells = (
        worded.key_by("key")
        .window("spells", tumbling(millis(40)))
        .aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    )
    spells.write("spells", kafka("spells", json(Spell), key="key"))
    totals = source(flow, "more").flat_map(words).key_by("key").scan("total", total, 0)
    totals.write("totals", kafka("totals", json(Count)))
    source(flow, "others").map(size).key_by("key").reduce("most", larger).write("largest", kafka("most", json(Count)))
    both = spells.map(spelt).merge(totals, name="both")
    both.key_by("key").scan("again", total, 0).write("out", kafka("out", json(Count)))


def near(one: Word | None, other: Word | None) -> Count:
    either = one or other
    assert either is not None
    return Count(either.key, 100 * (-1 if one is None else one.count) + (-1 if other is None else other.count))


def joined(flow: Flow) -> None:
    """Pairs, what stays alone and what is late, and a state that hangs on their order."""
    left = source(flow).flat_map(timed).key_by("key")
    right = source(flow, "more").flat_map(timed, name="others").key_by("key")
    pairs = left.join(
        "near", right, near, before=millis(9), after=millis(21), time=event_time("at", wait=millis(40)), how="outer"
    )
    pairs.late.write("late", kafka("late", json(Word), key="key"))
    pairs.late_other.write("late-other", kafka("late-other", json(Word), key="key"))
    pairs.key_by("count").scan("total", total, 0).write("out", kafka("out", json(Count)))


def near_both(one: Word, other: Word) -> Count:
    if (one.count + other.count) % 13 == 6:
        raise ValueError("not these two")
    return Count(one.key, 100 * one.count + other.count)


def joined_pairs(flow: Flow) -> None:
    """Pairs alone: what waits for partners may be on disk."""
    left = source(flow).flat_map(timed).key_by("key")
    right = source(flow, "more").flat_map(timed, name="others").key_by("key")
    pairs = left.join("near", right, near_both, before=millis(60), after=millis(90))
    pairs.key_by("count").scan("total", total, 0).write("out", kafka("out", json(Count)))


@dataclass(frozen=True)
class Row:
    key: str
    count: int
    gone: bool


def row(document: Document) -> Iterator[Row]:
    for place, word in enumerate(document.text.split()):
        yield Row(word, 10 * len(document.text) + place, len(document.text) % 3 == 0)


def with_row(count: Count, row: Row | None) -> Count:
    return count if row is None else Count(count.key, row.count)


def tabled(flow: Flow) -> None:
    table = source(flow, "more").flat_map(row).key_by("key").table("rows", deleted="gone", ttl=millis(60))
    seen = source(flow).flat_map(words).key_by("key").join_table("with-row", table, with_row, how="left")
    seen.key_by("count").scan("total", total, 0).write("out", kafka("out", json(Count)))


def strike(moment: Moment) -> Count:
    return Count("to", moment.at.microsecond // 1_000)


def clocks(flow: Flow) -> None:
    """Strikes between the records of two sources, and a sink of their own; another clock after a zone's midnight."""
    counted = source(flow).flat_map(words)
    strikes = flow.clock("strikes", millis(40))
    strikes.write("moments", kafka("moments", json(Moment)))
    flow.clock("days", days(1), tz="Africa/Monrovia").write("midnights", kafka("midnights", json(Moment)))
    both = strikes.map(strike).merge(counted, source(flow, "more").map(size), name="both")
    both.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def through(flow: Flow) -> None:
    """Documents again, once their words are counted: with a label, without, and between what is counted after them."""
    documents = source(flow)
    totals = documents.flat_map(words).key_by("key").scan("total", total, 0)
    lettered = totals.flat_map(letters).key_by("key").scan("by-letter", total, 0)
    done = documents.when_done("done", through=totals, label="name", keep=millis(30))
    done.write("done", kafka("done", json(Document), key="name"))
    far = documents.map(size).when_done("far", through=lettered)
    far.merge(lettered, name="both").key_by("key").scan("again", total, 0).write("out", kafka("out", json(Count)))


def in_order(flow: Flow) -> None:
    """Documents at their beginning, and after their tick, between what is counted of them."""
    documents = source(flow).map(size)
    begun = documents.when_begun("begun", label=("key", "count"), keep=millis(20))
    after = documents.when_done("after", order="stream", label=("key", "count"), keep=millis(30))
    both = after.merge(begun, documents, name="both")
    both.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def in_order_at_last(flow: Flow) -> None:
    """Counts again, after their tick, at the level that delivers: no worker need wait there for another."""
    counted = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    after = counted.when_done("after", order="stream")
    after.merge(counted, name="both").write("out", kafka("out", json(Count)))


def opens(word: Word) -> bool:
    return word.count % 3 != 1


def closes(word: Word) -> bool:
    return word.count % 4 == 3


@dataclass(frozen=True)
class Visit:
    key: str
    begun: datetime
    ended: datetime
    count: int
    closed_by: str


def opened(word: Word) -> Count:
    return Count(word.key, -word.count)


def visited(visit: Visit) -> Count:
    return Count(visit.key, (visit.ended - visit.begun) // timedelta(milliseconds=1) * 10 + visit.count)


def visits(flow: Flow) -> None:
    """Substreams that records open and close, or time, and what is done by then, between what is counted of them."""
    worded = source(flow).flat_map(timed)
    followed = worded.key_by("key").substream("visits", Visit, opens=opens, closes=closes, idle=millis(18))
    counted = worded.map(opened, name="charges").key_by("key").scan("charged", total, 0)
    done = followed.ended.when_done("billed", through=counted, label="key", keep=millis(30)).map(visited)
    both = done.merge(followed.begun.map(opened), counted, name="both")
    both.key_by("count").scan("total", total, 0).write("out", kafka("out", json(Count)))


def one_of_two(one: Count, other: Count | None) -> Count:
    return one if other is None else Count(one.key, one.count - other.count)


def between(flow: Flow) -> None:
    """Documents again, once windows and pairs of their words are there, between what is counted of these."""
    documents = source(flow)
    worded = documents.flat_map(timed)
    spells = (
        worded.key_by("key")
        .window("spells", sliding(millis(30), millis(12)))
        .aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    )
    ones = spells.map(spelt).key_by("key", name="by-key")
    pairs = ones.join("pairs", worded.map(opened, name="others").key_by("key"), one_of_two, after=millis(9), how="left")
    counted = pairs.key_by("count").scan("total", total, 0)
    done = documents.when_done("done", through=counted, label="name", keep=millis(30)).map(size)
    done.merge(counted, name="both").key_by("key").scan("again", total, 0).write("out", kafka("out", json(Count)))


FLOWS: list[Callable[[Flow], None]] = [
    index,
    index_by_document,
    diamond,
    keyed_diamond,
    across_levels,
    two_sources,
    three_levels,
    two_levels_of_sinks,
    failing,
    narrow,
    beside,
    beside_behind_a_level,
    loop,
    changed_keys,
    cycle,
    cycle_of_levels,
    cycle_of_windows,
    windows,
    windows_of_windows,
    sessions,
    timers,
    forgetting,
    aggregating,
    branches,
    joined,
    tabled,
    clocks,
    through,
]
