"""`lowtide init`: a small flow to start from, its conf and its test."""

from __future__ import annotations

from pathlib import Path

import click

from lowtide.errors import LowtideError

FLOW = '''\
"""Counts words: reads the topic "words", writes the topic "counts"."""

from dataclasses import dataclass

import lowtide as lt


@dataclass(frozen=True)
class Word:
    word: str


@dataclass(frozen=True)
class Count:
    word: str
    seen: int


def count(seen: int, word: Word) -> tuple[int, Count]:
    """Count a word: the new count is both the state and the output."""
    return seen + 1, Count(word.word, seen + 1)


flow = lt.Flow("counts")
(
    flow.read("words", lt.kafka("words", lt.json(Word)))
    .key_by("word")
    .scan("count", count, 0)
    .write("counts", lt.kafka("counts", lt.json(Count), key="word"))
)

if __name__ == "__main__":
    lt.main(flow)
'''

CONF = """\
# What differs from the defaults; an unknown key is an error that names the nearest one.

[job]
parallelism = 2             # workers of each level after the first; a topic that is written needs as many partitions

[kafka]
bootstrap_servers = "127.0.0.1:9092"

[zookeeper]
hosts = "127.0.0.1:2181"

[embedded]
kafka_port = 9092           # 0: a free one
zookeeper_port = 2181
"""

TEST = '''\
"""Runs the flow here and now: no Spark, no services."""

from flow import Count, Word, flow


def test_every_word_is_counted_by_itself() -> None:
    delivered = flow.run_locally(words=[Word("to"), Word("be"), Word("to")])
    assert delivered["counts"] == [Count("to", 1), Count("be", 1), Count("to", 2)]
'''

FILES = {"flow.py": FLOW, "lowtide.toml": CONF, "test_flow.py": TEST}

NEXT = """\
  pytest                                       the flow's own test, without services
  lowtide check flow.py --explain              faults, and what runs where
  lowtide up                                   Kafka and ZooKeeper on this machine
  lowtide topic create flow.py                 the topics that it reads and writes
  lowtide run flow.py --conf lowtide.toml      until Ctrl-C"""


class WouldOverwrite(LowtideError):
    """Take another folder, or remove the file: Lowtide overwrites nothing."""

    exit_code = 2


class NotWritable(LowtideError):
    """Name a folder that can be made and written to."""

    exit_code = 2


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def init(folder: Path) -> None:
    """Write flow.py, lowtide.toml and test_flow.py into FOLDER (here by default); overwrites nothing."""
    try:
        _write_into(folder)
    except OSError as error:
        raise NotWritable(
            f"the files cannot be written there: {error.strerror or error}",
            where=str(Path(error.filename or folder).absolute()),
            way_out="name a folder that you may write to: lowtide init FOLDER",
        ) from None
    change = "" if folder.resolve() == Path.cwd() else f"  cd {folder}\n"
    click.echo(f"next:\n{change}{NEXT}")


def _write_into(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise WouldOverwrite(
            f"{' and '.join(there)} would be overwritten",
            where=str(folder.absolute()),
            way_out="name another folder: lowtide init FOLDER",
        )
    for name, content in FILES.items():
        # "x": even a file that has appeared this moment is not overwritten.
        with (folder / name).open("x", encoding="utf-8") as file:
            file.write(content)
        click.echo(f"wrote {folder / name}")
