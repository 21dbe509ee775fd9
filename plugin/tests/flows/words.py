"""Two branches, two levels, two sinks, and a sink for what fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from letters import clean  # type: ignore[import-not-found]  # it lies beside this file

import lowtide as lt
from lowtide import Flow, Raw, json, kafka, raw


@dataclass(frozen=True)
class Document:
    name: str
    text: str


@dataclass(frozen=True)
class Word:
    word: str
    document: str


def words(document: Document) -> Iterator[Word]:
    for word in document.text.split():
        if word == "poison":
            raise ValueError(f"{document.name} holds poison")
        yield Word(clean(word), document.name)


def is_long(word: Word) -> bool:
    return len(word.word) > 2


def as_bytes(document: Document) -> Raw:
    return Raw(document.name.encode(), document.text.encode())


flow = Flow("words", dead_letters=kafka("words-dead", raw()))
documents = flow.read("documents", kafka("documents", json(Document)))
(
    documents.flat_map(words)
    .key_by("word")
    .filter(is_long)
    .key_by("document", "word")
    .write("index", kafka("index", json(Word), key="word"))
)
documents.map(as_bytes).write("copies", kafka("copies", raw()))

if __name__ == "__main__":
    lt.main(flow)
