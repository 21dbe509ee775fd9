"""Small flows with calls, before and after other kinds of step: for simulations, which answer as the services would."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from state_flows import Count, Spell, Word, letters, louder, near, quiet, size, source, spelt, timed, total, words

from lowtide import Flow, agg, event_time, json, kafka, millis, seconds, sliding, tumbling
from lowtide.flow.steps.steps import CallFailed


def ask(count: Count) -> Count:
    raise AssertionError(f"nobody is there to answer {count}")


def ask_about_word(word: Word) -> Word:
    raise AssertionError(f"nobody is there to answer {word}")


def instead(count: Count, failure: CallFailed) -> Count:
    if failure.tries == 3:
        raise ValueError("no value either")
    return Count(count.key, -failure.tries)


def asked(stream: Any, name: str = "ask", function: Any = ask, **options: Any) -> Any:
    return stream.call(name, function, timeout=seconds(1), **options)


def call_at_once(flow: Flow) -> None:
    asked(source(flow).map(size), concurrency=3).write("out", kafka("out", json(Count)))


def call_then_steps(flow: Flow) -> None:
    """Steps behind a call at its level, which may fail, and sinks there; and one of each before it."""
    counts = source(flow).flat_map(words).key_by("key")
    counts.map(louder, name="before").write("loud", kafka("loud", json(Count)))
    answered = asked(counts, concurrency=4)
    answered.filter(quiet).write("hushed", kafka("hushed", json(Count)))
    answered.map(louder).write("out", kafka("out", json(Count), key="key"))


def call_before_scan(flow: Flow) -> None:
    counts = asked(source(flow).flat_map(words))
    counts.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count), key="key"))


def call_after_scan(flow: Flow) -> None:
    """A sink before it at its level, and what it was answered again at a further one."""
    totals = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    totals.write("totals", kafka("totals", json(Count)))
    counts = asked(totals, concurrency=2)
    counts.write("counts", kafka("counts", json(Count)))
    counts.flat_map(letters).key_by("key").scan("by-letter", total, 0).write("out", kafka("out", json(Count)))


def call_far_down(flow: Flow) -> None:
    counted = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    lettered = counted.flat_map(letters).key_by("key").scan("by-letter", total, 0)
    asked(lettered).key_by("key").scan("again", total, 0).write("out", kafka("out", json(Count)))


def call_around_windows(flow: Flow) -> None:
    """Before a window, and after it: what is asked about comes when time brings it."""
    worded = asked(source(flow).flat_map(timed), "words", ask_about_word).key_by("key")
    spells = worded.window("spells", tumbling(millis(40))).aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    counts = asked(spells.map(spelt), "spells-asked", concurrency=2)
    counts.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def call_before_join(flow: Flow) -> None:
    left = asked(source(flow).flat_map(timed), "one", ask_about_word).key_by("key")
    right = asked(source(flow, "more").flat_map(timed, name="others"), "other", ask_about_word).key_by("key")
    pairs = left.join(
        "near", right, near, before=millis(9), after=millis(21), time=event_time("at", wait=millis(40), late="drop")
    )
    pairs.key_by("count").scan("total", total, 0).write("out", kafka("out", json(Count)))


def calls_in_a_row(flow: Flow) -> None:
    """One that gives another value when it fails, and one that gives none; they need dead letters."""
    first = asked(source(flow).flat_map(words), "first", failed="value", otherwise=instead, concurrency=2)
    second = asked(first.map(louder), "second", failed="letter")
    second.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


def call_repeatable(flow: Flow) -> None:
    """One whose answers nobody keeps, between two others."""
    same = asked(asked(source(flow).map(size), "before"), "same", repeatable=True)
    same.write("beside", kafka("beside", json(Count)))
    same.key_by("key").scan("total", total, 0).call("after", ask, timeout=seconds(1), failed="letter").write(
        "out", kafka("out", json(Count))
    )


def calls_beside(flow: Flow) -> None:
    """Two branches of one level, and one that asks nobody; all meet again."""
    keyed = source(flow).flat_map(words).key_by("key").scan("total", total, 0)
    one, other = asked(keyed, "one"), asked(keyed.filter(quiet), "other", concurrency=1)
    both = one.merge(other, keyed.map(louder), name="both")
    both.write("out", kafka("out", json(Count)))
    more = source(flow, "more").map(size, name="sizes")
    both.merge(more, name="all").key_by("key").scan("again", total, 0).write(
        "all-again", kafka("all-again", json(Count))
    )


def call_as_answers_come(flow: Flow) -> None:
    """Steps behind it at its level, which may fail, and a sink there; then what the order of the answers decides."""
    answered = asked(source(flow).flat_map(words), order="answer", concurrency=3)
    answered.map(louder).write("beside", kafka("beside", json(Count), key="key"))
    answered.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count), key="key"))


def call_as_answers_come_alone(flow: Flow) -> None:
    """Nothing behind it but a sink of its level."""
    asked(source(flow).map(size), order="answer", concurrency=100).write("out", kafka("out", json(Count)))


def call_as_answers_come_before_windows(flow: Flow) -> None:
    """Beside records that come at once; windows go by the ticks of the answers."""
    worded = source(flow).flat_map(timed)
    some = asked(worded, "words", ask_about_word, order="answer", concurrency=5).key_by("key")
    spells = some.window("spells", tumbling(millis(40))).aggregate(Spell, words=agg.count(), total=agg.sum("count"))
    counts = asked(spells.map(spelt), "spells-asked", concurrency=2)
    more = source(flow, "more").flat_map(words, name="others")
    both = counts.merge(asked(more, "more-asked", order="answer", failed="letter"), name="both")
    both.key_by("key").scan("total", total, 0).write("out", kafka("out", json(Count)))


CALLING: list[Callable[[Flow], None]] = [
    call_at_once,
    call_then_steps,
    call_before_scan,
    call_after_scan,
    call_far_down,
    call_around_windows,
    call_before_join,
    calls_in_a_row,
    call_repeatable,
    calls_beside,
    call_as_answers_come,
    call_as_answers_come_alone,
    call_as_answers_come_before_windows,
]


DRAWN = "drawn-"
"""The names of random flows begin with it, and end with a number."""


def may_fail(name: str) -> bool:
    """Whether calls of a random flow give dead letters: every other flow's."""
    return int(name.removeprefix(DRAWN)) % 2 == 1


def drawn(name: str) -> Callable[[Flow], None]:
    """Return the random flow of a name: one call or several among other steps, behind windows and joins or before."""

    def build(flow: Flow) -> None:
        _Drawn(flow, Random(name), fails=may_fail(name)).write()

    return build


class _Drawn:
    """Writes one random flow."""

    def __init__(self, flow: Flow, rng: Random, *, fails: bool) -> None:
        self._flow = flow
        self._rng = rng
        self._fails = fails
        self._steps = 0

    def write(self) -> None:
        rng = self._rng
        begin = rng.choice([self._words, self._words, self._windowed, self._windowed, self._joined])
        counts = begin()
        for number in range(rng.randint(2, 4)):
            asks = number == 0 or rng.random() < 0.4
            certain = number == 0 and begin == self._words
            counts = self._asked(counts, certain=certain) if asks else self._further(counts)
            if rng.random() < 0.25:
                name = self._name("beside")
                counts.write(name, kafka(name, json(Count)))
        counts.write("out", kafka("out", json(Count)))

    def _name(self, word: str) -> str:
        self._steps += 1
        return f"{word}-{self._steps}"

    def _asked(self, counts: Any, *, certain: bool) -> Any:
        rng = self._rng
        failed: dict[str, Any] = {}
        if self._fails:
            failed = rng.choice([{}, {"failed": "letter"}, {"failed": "value", "otherwise": instead}])
        if certain and rng.random() < 0.5:
            failed["order"] = "answer"
        elif rng.random() < 0.15:
            failed["repeatable"] = True
        return asked(counts, self._name("ask"), concurrency=rng.choice([1, 2, 5, 100]), **failed)

    def _asked_word(self, stream: Any, chance: float) -> Any:
        if self._rng.random() >= chance:
            return stream
        failed = {"failed": "letter"} if self._fails and self._rng.random() < 0.5 else {}
        if self._rng.random() < 0.4:
            failed["order"] = "answer"
        return asked(stream, self._name("ask"), ask_about_word, concurrency=self._rng.choice([2, 100]), **failed)

    def _words(self) -> Any:
        return source(self._flow).flat_map(words)

    def _windowed(self) -> Any:
        worded = self._asked_word(source(self._flow).flat_map(timed), 0.6).key_by("key")
        if self._rng.random() < 0.5:
            worded = worded.window("spells", tumbling(millis(self._rng.choice([10, 40, 100]))))
        else:
            worded = worded.window("spells", sliding(millis(60), every=millis(20)))
        return worded.aggregate(Spell, words=agg.count(), total=agg.sum("count")).map(spelt)

    def _joined(self) -> Any:
        rng = self._rng
        left = self._asked_word(source(self._flow).flat_map(timed), 0.6).key_by("key")
        others = source(self._flow, "more").flat_map(timed, name="others")
        right = self._asked_word(others, 0.6).key_by("key")
        time = event_time("at", wait=millis(rng.choice([0, 40])), late="drop")
        return left.join("near", right, near, before=millis(9), after=millis(rng.choice([0, 21])), time=time)

    def _further(self, counts: Any) -> Any:
        kind = self._rng.randrange(5)
        if kind == 0:
            return counts.map(louder, name=self._name("louder"))
        if kind == 1:
            return counts.flat_map(letters, name=self._name("letters"))
        if kind == 2:
            return counts.filter(quiet, name=self._name("quiet"))
        return counts.key_by("key").scan(self._name("total"), total, 0)
