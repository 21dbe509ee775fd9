"""`lowtide check` calls functions: which are named, and with which records."""

from __future__ import annotations

import json as as_json
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from textwrap import dedent
from typing import Literal

import pytest
from hanging import HANGS_S

from lowtide.cli.main import run
from lowtide.flow.schema.raw_record import Raw
from lowtide.flow.schema.schema import schema_of
from lowtide.local import trial
from lowtide.local.judging import LISTED
from lowtide.local.samples import SAMPLES, samples_of

FLOW = """
import itertools, random, time
from dataclasses import dataclass
from datetime import UTC, datetime
from lowtide import Flow, Window, json, kafka, minutes, tumbling

@dataclass(frozen=True)
class Word:
    text: str
    tags: list[str]

counter = itertools.count()

def sets(word: Word) -> list[Word]:
    return [Word(tag, []) for tag in set("abcdefgh")]

def randoms(word: Word) -> Word:
    return Word(str(random.random()), [])

def counts(word: Word) -> Word:
    return Word(str(next(counter)), [])

def hidden(state: list[str], word: Word) -> tuple[list[str], Word]:
    return list(set("abcdefgh")), word

def changes(word: Word) -> Word:
    word.tags.append("x")
    return word

def fails(word: Word) -> Word:
    raise ValueError(word.text)

def picky(word: Word) -> Word:
    assert word.text == "real"
    return Word(str(time.time_ns()), [])

def numbers(word: Word) -> Word:
    return Word(str(int(word.text)), [])

def sound(word: Word) -> Word:
    print("heard")
    return Word(word.text.upper(), sorted(set(word.tags)))

def adds(count: int, word: Word) -> int:
    return count + 1

def adds_more(count: int, word: Word) -> int:
    return count + next(counter)

def ends(window: Window, count: int) -> Word:
    return Word(str(count), [])

def ends_anyhow(window: Window, count: int) -> Word:
    return Word("".join(set("abcdefgh")), [])

def picks(one: Word, other: Word) -> Word:
    return Word("".join(set("abcdefgh")), [])

def lists(window: Window, words: tuple[Word, ...]) -> list[Word]:
    return sorted(words, key=lambda word: next(counter) * 7 % 5)

def asking(state: int, word: Word) -> tuple[int, list[Word]]:
    return state + 1, []

def asks(state: int) -> datetime | None:
    return datetime(2026, 1, 1, 0, state % 60, tzinfo=UTC)

def asks_anyhow(state: int) -> datetime | None:
    return datetime(2026, 1, 1, 0, next(counter) % 60, tzinfo=UTC)

def asks_on(state: int) -> datetime | None:
    return datetime(2026, 1, 1, tzinfo=UTC) + minutes(state)

def called_on(state: int, now: datetime) -> tuple[int, list[Word]]:
    return state + 1, []

def called(state: int, now: datetime) -> tuple[int, list[Word]]:
    return 0, [Word(letter, []) for letter in set("abcdefgh")]

flow = Flow("tried")
words = flow.read("words", kafka("words", json(Word)))
"""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests keep the machine busy."""
    monkeypatch.setattr(trial, "CALLED_WITHIN_S", HANGS_S)


WINDOW = "words.key_by('text').window('w', tumbling(minutes(1)))"
SCAN = "words.key_by('text').flat_scan('s', asking, 0, "


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("words.flat_map(sets)", "sets is not deterministic: with Word("),
        ("words.map(randoms)", "randoms is not deterministic: with Word("),
        ("words.map(counts)", "counts is not deterministic: with Word("),
        ("words.map(sound).map(randoms, name='later')", '"later": randoms is not deterministic'),
        ("words.key_by('text').scan('hidden', hidden, [])", "hidden is not deterministic: with Word("),
        (f"{WINDOW}.fold(adds_more, 0, ends)", "adds_more is not deterministic: with (0, Word("),
        (f"{WINDOW}.fold(adds, 0, ends_anyhow)", "ends_anyhow is not deterministic: with (Window("),
        (f"{WINDOW}.reduce(picks)", "picks is not deterministic: with (Word("),
        (f"{WINDOW}.apply(lists)", "lists is not deterministic: with (Window("),
        (f"{SCAN}timer=asks_anyhow, on_timer=called)", "asks_anyhow is not deterministic: with (1,)"),
        (f"{SCAN}timer=asks, on_timer=called)", "called is not deterministic: with ("),
        ("words.map(changes)", "changed its record in place, in changes"),
    ],
)
def test_a_function_that_gives_something_else_is_named_with_its_record(
    step: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.py"
    file.write_text(f"{dedent(FLOW)}\n{step}.write('out', kafka('out', json(Word)))\n")
    assert run(["check", str(file)]) == 3
    text = capfd.readouterr().out
    assert said in text
    assert f"{file}:" in text
    assert run(["check", str(file), "--no-calls"]) == 0


def test_a_sound_flow_is_called_and_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flow.py"
    file.write_text(f"{dedent(FLOW)}\nwords.map(sound).write('out', kafka('out', json(Word)))\n")
    assert run(["check", str(file)]) == 0
    assert capfd.readouterr().out == 'flow "tried" is sound: 3 steps\n'
    assert run(["check", str(file), "--json"]) == 0
    assert as_json.loads(capfd.readouterr().out)["called"] is True


def test_a_step_that_fails_with_all_samples_is_named_and_gets_real_ones(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, words = tmp_path / "flow.py", tmp_path / "words.jsonl"
    file.write_text(f"{dedent(FLOW)}\nwords.map(picky).write('out', kafka('out', json(Word)))\n")
    words.write_text('{"text":"made","tags":[]}\n{"text":"real","tags":[]}\n')
    assert run(["check", str(file)]) == 0
    assert '"picky" failed with every sample record: raised AssertionError' in capfd.readouterr().out
    assert run(["check", str(file), "--json"]) == 0
    assert [each["step"] for each in as_json.loads(capfd.readouterr().out)["failing"]] == ["picky"]
    assert run(["check", str(file), "--samples", f"words={words}"]) == 3
    assert "picky is not deterministic: with Word(text='real', tags=[])" in capfd.readouterr().out


@pytest.mark.parametrize("step", ["words.map(sound)", f"{SCAN}timer=asks_on, on_timer=called_on)"])
def test_samples_that_cannot_be_read_are_listed_with_the_reason_of_their_dead_letters(
    step: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, words = tmp_path / "flow.py", tmp_path / "words.jsonl"
    file.write_text(f"{dedent(FLOW)}\n{step}.write('out', kafka('out', json(Word)))\n")
    words.write_bytes(b'garbage\n{"text":"tea","tags":[]}\n{"text":7,"tags":[]}\n\n')
    assert run(["check", str(file), "--samples", f"words={words}"]) == 3
    text = capfd.readouterr().out
    assert f'{words}:1: "words": cannot be read as JSON of Word: JSON is malformed' in text
    assert f'{words}:3: "words": cannot be read as JSON of Word: Expected `str`, got `int` - at `$.text`' in text
    assert f'{words}:4: "words": cannot be read as JSON of Word: ' in text
    assert "sound" not in text


def test_of_many_samples_that_cannot_be_read_some_are_listed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, words = tmp_path / "flow.py", tmp_path / "words.jsonl"
    file.write_text(f"{dedent(FLOW)}\nwords.map(sound).write('out', kafka('out', json(Word)))\n")
    words.write_text("garbage\n" * (LISTED + 5))
    assert run(["check", str(file), "--samples", f"words={words}"]) == 3
    text = capfd.readouterr().out
    assert text.count("cannot be read") == LISTED
    assert '"words": and 5 more samples' in text
    words.write_text("")
    assert run(["check", str(file), "--samples", f"words={words}"]) == 3
    assert "has no messages" in capfd.readouterr().err


def test_a_sample_that_a_step_fails_with_is_noted_and_all_are_a_fault(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, words = tmp_path / "flow.py", tmp_path / "words.jsonl"
    file.write_text(f"{dedent(FLOW)}\nwords.map(numbers).write('out', kafka('out', json(Word)))\n")
    words.write_text('{"text":"7","tags":[]}\n{"text":"seven","tags":[]}\n')
    assert run(["check", str(file), "--samples", f"words={words}"]) == 0
    text = capfd.readouterr().out
    assert 'flow "tried" is sound' in text
    assert f'note: {words}:2: "numbers": raised ValueError: invalid literal for int()' in text
    words.write_text('{"text":"seven","tags":[]}\n')
    assert run(["check", str(file), "--samples", f"words={words}"]) == 3
    assert '"numbers": it failed with every sample: raised ValueError: invalid' in capfd.readouterr().out


def test_a_sink_with_another_key_than_its_records_were_grouped_by_is_noted(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.py"
    write = "words.map(sound).key_by('text').scan('s', lambda s, w: (s, w), 0, returns=Word).map(sound, name='x')"
    flow = FLOW.replace("tags: list[str]", "tags: list[str]\n    other: str = ''")
    for key, noted in (("other", 1), ("text", 0)):
        file.write_text(f"{dedent(flow)}\n{write}.write('out', kafka('out', json(Word), key='{key}'))\n")
        assert run(["check", str(file), "--no-calls"]) == 0
        assert capfd.readouterr().out.count("note: ") == noted
        assert run(["check", str(file), "--no-calls", "--json"]) == 0
        notes = as_json.loads(capfd.readouterr().out)["notes"]
        assert ["go to partitions by text" in note["message"] for note in notes] == [True] * noted


def test_samples_that_do_not_fit_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flow.py"
    file.write_text(f"{dedent(FLOW)}\nwords.map(sound).write('out', kafka('out', json(Word)))\n")
    assert run(["check", str(file), "--samples", "words"]) == 2
    assert "'words' is not SOURCE=FILE" in capfd.readouterr().err
    assert run(["check", str(file), "--samples", f"texts={file}"]) == 3
    assert "the flow has no source texts; it reads words" in capfd.readouterr().err
    assert run(["check", str(file), "--samples", f"words={tmp_path / 'none'}"]) == 3
    assert "does not exist" in capfd.readouterr().err


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    number: int | None


@dataclass(frozen=True)
class Every:
    text: str
    data: bytes
    ratio: float
    flag: bool
    day: date
    moment: datetime
    colour: Colour
    side: Literal["left", "right"]
    inner: Inner
    many: list[Inner]
    named: dict[str, int]
    pair: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(self.number)


@pytest.mark.parametrize("record", [Every, Raw])
def test_samples_fit_their_schema_and_differ(record: type) -> None:
    made = samples_of(record)
    assert len(made) == SAMPLES
    assert made == samples_of(record)
    assert len(set(map(repr, made))) > 4
    assert not [schema_of(record).fault(each) for each in made if schema_of(record).fault(each)]


def test_samples_that_a_constructor_refuses_are_left_out() -> None:
    made = samples_of(Positive)
    assert made
    assert all(each.number >= 1 for each in made)
