"""The records of `inverted-index`: 1,000 documents of 20 words that return again and again, each time slightly changed.

The word at one place of a document changes in every version, at the next place in every second, third or fourth. So a
version adds and removes some words, and the counts of words in documents stay within bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from lowtide_bench.record import Int64s, out_of_step

DOCUMENTS = 1_000
WORDS = 20
VOCABULARY = 5_000


@dataclass(frozen=True, slots=True)
class Document:
    """One version of a document; `version` is the record's number, `sent_ns` the time at which it was due."""

    name: str
    text: str
    version: int
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Change:
    """Number of times that a version of a document adds or removes a word; `number` counts the changes of the word."""

    word: str
    document: str
    version: int
    sent_ns: int
    added: int
    removed: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Index:
    """Number of times that a word occurs in each document, after a number of changes."""

    documents: dict[str, int] = field(default_factory=dict)
    number: int = 0


def changes(versions: tuple[Document, ...]) -> Iterator[Change]:
    """Return what the newest version of a document adds and removes, in the order of the words."""
    newest = versions[-1]
    after = Counter(newest.text.split())
    before = Counter(versions[0].text.split()) if len(versions) > 1 else Counter[str]()
    for word in sorted(before | after):
        added = after[word] - before[word]
        if added:
            yield Change(word, newest.name, newest.version, newest.sent_ns, max(added, 0), max(-added, 0))


def update_index(index: Index, change: Change) -> tuple[Index, Change]:
    """Return the index of one word after a change, and the change with its number."""
    count = index.documents.get(change.document, 0) + change.added - change.removed
    others = {name: often for name, often in index.documents.items() if name != change.document}
    number = index.number + 1
    return Index({**others, change.document: count} if count else others, number), replace(change, number=number)


class Versions:
    """Documents that come out as they went in; see `Records`. The identity is the version's number."""

    width = 1

    def __init__(self) -> None:
        self._document = msgspec.json.Decoder(Document).decode

    def message(self, sequence: int, sent_ns: int) -> tuple[bytes | None, bytes]:
        """Return a version of a document as JSON; the key is its name. A probe is a document of one word."""
        name = f"d{sequence % DOCUMENTS:03}" if sequence >= 0 else f"probe{-sequence}"
        text = " ".join(f"w{word}" for word in words_of(sequence))
        return name.encode(), msgspec.json.encode(Document(name, text, sequence, sent_ns))

    def partition(self, sequence: int, partitions: int) -> int:
        """Send all versions of a document to the same partition."""
        return sequence % DOCUMENTS % partitions

    def read(self, values: list[bytes]) -> Int64s:
        """Version and due."""
        numbers = [(document.version, document.sent_ns) for document in map(self._document, values)]
        return np.array(numbers, np.int64).reshape(-1, 2).T

    def outputs(self, count: int) -> int:
        """Return `count`: one message for each record."""
        return count

    def faults(self, rest: Int64s) -> int | None:
        """Return None: faults cannot be seen here."""
        return None


class Documents(Versions):
    """The records of the index; see `Records`. The identity of a change is the version's and the word's number."""

    width = VOCABULARY

    def __init__(self) -> None:
        super().__init__()
        self._decode = msgspec.json.Decoder(Change).decode
        self._counts = [0]

    def read(self, values: list[bytes]) -> Int64s:
        """Version and word, and due; word and the change's number."""
        rows = []
        for change in map(self._decode, values):
            word = int(change.word[1:])
            rows.append((change.version * self.width + word, change.sent_ns, word, change.number))
        return np.array(rows, np.int64).reshape(-1, 4).T

    def outputs(self, count: int) -> int:
        """Return the number of words whose counts change from one version to the next."""
        for sequence in range(len(self._counts) - 1, count):
            self._counts.append(self._counts[-1] + len(changed_words(sequence)))
        return self._counts[count]

    def faults(self, rest: Int64s) -> int | None:
        """Count the changes whose number is not one more than that of the word's previous change."""
        return out_of_step(rest)

    def results(self, sequence: int) -> list[tuple[int, int]]:
        """Return identity and key of each result of a record; the key is the word's number."""
        return [(sequence * self.width + word, word) for word in changed_words(sequence)]


def words_of(sequence: int) -> list[int]:
    """Return the numbers of a record's words."""
    if sequence < 0:
        return [-sequence]
    version, name = divmod(sequence, DOCUMENTS)
    return [
        ((name * 7_919 + place * 104_729 + version // (place % 4 + 1) * 1_299_709) * 2_654_435_761 >> 16) % VOCABULARY
        for place in range(WORDS)
    ]


def changed_words(sequence: int) -> list[int]:
    """Return the numbers of the words whose counts a version of a document changes."""
    before = Counter(words_of(sequence - DOCUMENTS)) if sequence >= DOCUMENTS else Counter[int]()
    after = Counter(words_of(sequence))
    return [word for word in before.keys() | after.keys() if before[word] != after[word]]
