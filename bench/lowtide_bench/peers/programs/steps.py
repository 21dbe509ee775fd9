"""Word count and inverted index as plain functions, for all peers that run Python; needs the standard library only.

An item is a key and bytes. A flow is a function that makes items of a message's value, and steps: each takes the state
of an item's key, None at first, and the item, and returns the next state and items. States go through JSON unchanged.
"""

import json
from collections import Counter
from typing import Any

Item = tuple[str, bytes]


def occurrences(value: bytes) -> list[Item]:
    """Return the words of a document, each with its place."""
    document = json.loads(value)
    origin = document["version"], document["sent_ns"]
    head = b'{"word":"%s","version":%d,"sent_ns":%d,"place":%d}'
    return [(word, head % (word.encode(), *origin, place)) for place, word in enumerate(document["text"].split())]


def count(seen: int | None, item: Item) -> tuple[int, list[Item]]:
    """Return the word's count so far, and the occurrence with it."""
    word, occurrence = item
    number = (seen or 0) + 1
    return number, [(word, occurrence[:-1] + b',"count":%d}' % number)]


def document(value: bytes) -> list[Item]:
    """Return the document by its name."""
    return [(json.loads(value)["name"], value)]


def changes(text: str | None, item: Item) -> tuple[str, list[Item]]:
    """Return the document's new text, and by word what it adds and removes."""
    name, value = item
    newest = json.loads(value)
    before, after = Counter((text or "").split()), Counter(newest["text"].split())
    changed = {word: after[word] - before[word] for word in sorted(before | after)}
    origin = name.encode(), newest["version"], newest["sent_ns"]
    body = b'{"word":"%s","document":"%s","version":%d,"sent_ns":%d,"added":%d,"removed":%d}'
    return newest["text"], [
        (word, body % (word.encode(), *origin, max(added, 0), max(-added, 0)))
        for word, added in changed.items()
        if added
    ]


def update(index: list[Any] | None, item: Item) -> tuple[list[Any], list[Item]]:
    """Return the word's number of changes and how often it occurs in each document, and the change with its number."""
    word, value = item
    number, documents = index or [0, {}]
    change = json.loads(value)
    name = change["document"]
    often = documents.get(name, 0) + change["added"] - change["removed"]
    others = {other: times for other, times in documents.items() if other != name}
    held = {**others, name: often} if often else others
    return [number + 1, held], [(word, value[:-1] + b',"number":%d}' % (number + 1))]


STEPS: dict[str, tuple[Any, ...]] = {
    "word-count": (occurrences, count),
    "inverted-index": (document, changes, update),
}
