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

from lowtide.cli.main import run
from lowtide.flow.raw_record import Raw
from lowtide.flow.schema import schema_of
from lowtide.local.trial import SAMPLES, samples_of

FLOW = """
import itertools, random, time
from dataclasses import dataclass
from lowtide import Flow, json, kafka

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

def sound(word: Word) -> Word:
    print("heard")
    return Word(word.text.upper(), sorted(set(word.tags)))

flow = Flow("tried")
words = flow.read("words", kafka("words", json(Word)))
"""


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("words.flat_map(sets)", "sets is not deterministic: with Word("),
        ("words.map(randoms)", "randoms is not deterministic: with Word("),
        ("words.map(counts)", "counts is not deterministic: with Word("),
        ("words.map(sound).map(randoms, name='later')", '"later": randoms is not deterministic'),
        ("words.key_by('text').scan('hidden', hidden, [])", "hidden is not deterministic: with Word("),
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
    assert '"picky" failed with each record it was tried with' in capfd.readouterr().out
    assert run(["check", str(file), "--samples", f"words={words}"]) == 3
    assert "picky is not deterministic: with Word(text='real', tags=[])" in capfd.readouterr().out


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
    assert "no source is named texts; the flow reads words" in capfd.readouterr().err
    assert run(["check", str(file), "--samples", f"words={tmp_path / 'none'}"]) == 3
    assert "there is no file" in capfd.readouterr().err


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
