"""Real text in two versions: the Python standard library's sources, or the text files of a folder."""

from __future__ import annotations

import os
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

MAX_DOCUMENTS = 1_200
MAX_CHARACTERS = 2_500
"""Characters of one document, up to the end of a line: the whole makes some hundred thousand changes of the index."""
SUFFIXES = frozenset((".c", ".csv", ".h", ".html", ".java", ".js", ".json", ".md", ".py", ".rst", ".tex", ".txt"))
FOREIGN = frozenset(("site-packages", "dist-packages", "__pycache__"))
DROP_EVERY = 7
ADD_EVERY = 9
NEW_WORDS = ("lowtide", "revised", "tide", "ebb")


@dataclass(frozen=True)
class Text:
    """One document's two versions, and the partition that both go to."""

    name: str
    first: str
    second: str
    partition: int

    def changes(self) -> tuple[int, int]:
        """Return the number of changes of the index that each version makes."""
        return _different("", self.first), _different(self.first, self.second)


@dataclass(frozen=True)
class Corpus:
    """All texts, with a description of their origin and of any cuts."""

    texts: list[Text]
    said: str

    def changes(self) -> int:
        """Return the number of changes of the index that both versions of all texts make, in any order of documents."""
        return sum(sum(text.changes()) for text in self.texts)

    def documents_with(self, word: str) -> Counter[str]:
        """Count a word in the second version of each document that has it."""
        counts = {text.name: text.second.split().count(word) for text in self.texts}
        return Counter({name: count for name, count in counts.items() if count})


def read_corpus(folder: Path | None, partitions: int) -> Corpus:
    """Read the standard library, or a folder; always the same texts in the same order while the files are the same."""
    root = folder or Path(sysconfig.get_paths()["stdlib"])
    suffixes = SUFFIXES if folder else frozenset((".py",))
    files = sorted(_files(root, suffixes))
    if not files:
        raise SystemExit(f"demo: no text in {root}; looked for {', '.join(sorted(suffixes))}")
    # Spread over all of them: a folder's first files are often all of a kind.
    step = max(1.0, len(files) / MAX_DOCUMENTS)
    chosen = [files[int(place * step)] for place in range(min(len(files), MAX_DOCUMENTS))]
    texts, size = [], 0
    for file in chosen:
        data = file.read_bytes()
        size += len(data)
        text = _cut(data.decode("utf-8", "replace"))
        name = file.relative_to(root).as_posix()
        texts.append(Text(name, text, edited(name, text), crc32(name.encode()) % partitions))
    kept = sum(len(text.first) for text in texts)
    said = (
        f"{len(texts):,} of {len(files):,} files in {root}, the first {MAX_CHARACTERS:,} characters of each at most: "
    )
    return Corpus(texts, f"{said}{kept / 1e6:.1f} of their {size / 1e6:.1f} million")


def edited(name: str, text: str) -> str:
    """Return the second version of a text: every seventh line is dropped, and words are added to every ninth."""
    start = crc32(name.encode())
    lines = []
    for number, line in enumerate(text.split("\n"), start):
        if number % DROP_EVERY == 0:
            continue
        added = f" {NEW_WORDS[number // ADD_EVERY % len(NEW_WORDS)]}" if number % ADD_EVERY == 0 else ""
        lines.append(line + added)
    return "\n".join(lines)


def _files(root: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in FOREIGN and not name.startswith(".")]
        yield from (Path(folder) / name for name in names if Path(name).suffix.lower() in suffixes)


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return text[: text.rfind("\n", 0, MAX_CHARACTERS) + 1] or text[:MAX_CHARACTERS]


def _different(before: str, after: str) -> int:
    old, new = Counter(before.split()), Counter(after.split())
    return sum(old[word] != new[word] for word in old.keys() | new.keys())
