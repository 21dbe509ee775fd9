"""Keeps an inverted index: which words stand in which documents, how often, and what every new version changes.

Reads documents from the topic "documents"; a document may come again, with another text. Writes every change of the
index to the topic "index", with the word as the key.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import lowtide as lt


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
    documents: dict[str, int] = field(default_factory=dict)  # count of the word in each


def changes(versions: tuple[Document, ...]) -> Iterator[Change]:
    """Return what the newest version of a document adds and removes, in the order of the words."""
    newest = versions[-1]
    after = Counter(newest.text.split())
    before = Counter(versions[0].text.split()) if len(versions) > 1 else Counter[str]()
    for word in sorted(before | after):
        added, removed = after[word] - before[word], before[word] - after[word]
        if added or removed:
            yield Change(word, newest.name, max(added, 0), max(removed, 0))


def update_index(index: Index, change: Change) -> tuple[Index, Change]:
    """Return the index of one word after a change, and the change itself."""
    count = index.documents.get(change.document, 0) + change.added - change.removed
    others = {name: often for name, often in index.documents.items() if name != change.document}
    return Index({**others, change.document: count} if count else others), change


flow = lt.Flow("inverted-index")
(
    flow.read("documents", lt.kafka("documents", lt.json(Document)))
    .key_by("name").last(2).flat_map(changes)            # previous and current version of a document
    .key_by("word").scan("index", update_index, Index()) # (state, record) -> (state, output), per key, in order
    .write("index", lt.kafka("index", lt.json(Change), key="word"))
)  # fmt: skip

if __name__ == "__main__":
    lt.main(flow)
