"""Lookup of a word's documents, from the delivered topic alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from lowtide.local.oracle import Output


def documents_with(word: str, delivered: Iterable[Output]) -> Counter[str]:
    """Count a word in each document that has it: the sum of all changes of the word."""
    counts: Counter[str] = Counter()
    key = word.encode()
    for output in delivered:
        if output.key == key and output.value is not None:
            change = json.loads(output.value)
            counts[change["document"]] += change["added"] - change["removed"]
    return +counts


def answer(word: str, counts: Counter[str]) -> str:
    """Return the answer in words."""
    most = ", ".join(f"{name} ({count})" for name, count in counts.most_common(3))
    return f'"{word}" stands in {len(counts):,} documents, most often in {most}' if counts else f'"{word}": nowhere'
