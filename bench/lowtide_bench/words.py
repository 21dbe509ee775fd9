"""The records of `word-count`: the documents of `inverted-index`, each of whose 20 words is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from lowtide_bench.documents import WORDS, Document, Versions, words_of
from lowtide_bench.record import Int64s, out_of_step


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Word at a place, from 0, of a document; `count` says how often the word has occurred so far."""

    word: str
    version: int
    place: int
    sent_ns: int
    count: int = 0


def occurrences(document: Document) -> Iterator[Occurrence]:
    """Return the words of a document."""
    for place, word in enumerate(document.text.split()):
        yield Occurrence(word, document.version, place, document.sent_ns)


def count_word(seen: int, occurrence: Occurrence) -> tuple[int, Occurrence]:
    """Return the count so far, and the occurrence with it."""
    return seen + 1, replace(occurrence, count=seen + 1)


class Words(Versions):
    """The records; see `Records`. The identity of a result is the version's number and the place."""

    width = WORDS

    def __init__(self) -> None:
        super().__init__()
        self._decode = msgspec.json.Decoder(Occurrence).decode

    def read(self, values: list[bytes]) -> Int64s:
        """Version and place, and due; word and count."""
        rows = [
            (each.version * self.width + each.place, each.sent_ns, int(each.word[1:]), each.count)
            for each in map(self._decode, values)
        ]
        return np.array(rows, np.int64).reshape(-1, 4).T

    def outputs(self, count: int) -> int:
        """Return the number of words."""
        return count * self.width

    def faults(self, rest: Int64s) -> int | None:
        """Count the counts that are not one more than their word's previous count."""
        return out_of_step(rest)

    def results(self, sequence: int) -> list[tuple[int, int]]:
        """Return identity and key of each result of a record; the key is the word's number."""
        return [(sequence * self.width + place, word) for place, word in enumerate(words_of(sequence))]
