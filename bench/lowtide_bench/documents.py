"""The records of `inverted-index`: 1,000 documents of 20 words that return again and again, each time slightly changed.

The word at one place of a document changes in every version, at the next place in every second, third or fourth. So a
version adds and removes some words, and the counts of words in documents stay within bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from lowtide_bench.record import Int64s

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
    """Number of times that a version of a document adds or removes a word."""

    word: str
    document: str
    version: int
    sent_ns: int
    added: int
    removed: int


@dataclass(frozen=True, slots=True)
class Index:
    """Number of times that a word occurs in each document."""

    documents: dict[str, int] = field(default_factory=dict)


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
    """Return the index of one word after a change, and the change itself."""
    count = index.documents.get(change.document, 0) + change.added - change.removed
    others = {name: often for name, often in index.documents.items() if name != change.document}
    return Index({**others, change.document: count} if count else others), change


class Documents:
    """The records; see `Records`. The identity of a change is the version's and the word's number."""

    width = VOCABULARY

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(Change).decode
        self._counts = [0]

    def message(self, sequence: int, sent_ns: int) -> tuple[bytes | None, bytes]:
        """Return a version of a document as JSON; the key is its name. A probe is a document of one word."""
        name = f"d{sequence % DOCUMENTS:03}" if sequence >= 0 else f"probe{-sequence}"
        words = words_of(sequence) if sequence >= 0 else [-sequence]
        text = " ".join(f"w{word}" for word in words)
        return name.encode(), msgspec.json.encode(Document(name, text, sequence, sent_ns))

    def partition(self, sequence: int, partitions: int) -> int:
        """Send all versions of a document to the same partition."""
        return sequence % DOCUMENTS % partitions

    def read(self, values: list[bytes]) -> Int64s:
        """Version and word, and due."""
        changed = map(self._decode, values)
        numbers = [(change.version * self.width + int(change.word[1:]), change.sent_ns) for change in changed]
        return np.array(numbers, np.int64).reshape(-1, 2).T

    def outputs(self, count: int) -> int:
        """Return the number of words whose counts change from one version to the next."""
        for sequence in range(len(self._counts) - 1, count):
            before = Counter(words_of(sequence - DOCUMENTS)) if sequence >= DOCUMENTS else Counter[int]()
            after = Counter(words_of(sequence))
            changed = sum(before[word] != after[word] for word in before.keys() | after.keys())
            self._counts.append(self._counts[-1] + changed)
        return self._counts[count]

    def faults(self, rest: Int64s) -> int | None:
        """Return None: faults cannot be seen here."""
        return None


class Versions(Documents):
    """The same without changes of an index: for the bare loop."""

    width = 1

    def __init__(self) -> None:
        super().__init__()
        self._document = msgspec.json.Decoder(Document).decode

    def read(self, values: list[bytes]) -> Int64s:
        """Version and due."""
        numbers = [(document.version, document.sent_ns) for document in map(self._document, values)]
        return np.array(numbers, np.int64).reshape(-1, 2).T

    def outputs(self, count: int) -> int:
        """Return `count`: one message for each record."""
        return count


def words_of(sequence: int) -> list[int]:
    """Return the numbers of a record's words."""
    version, name = divmod(sequence, DOCUMENTS)
    return [
        ((name * 7_919 + place * 104_729 + version // (place % 4 + 1) * 1_299_709) * 2_654_435_761 >> 16) % VOCABULARY
        for place in range(WORDS)
    ]
