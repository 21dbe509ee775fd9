"""A flow that is edited between two lives, on the real thing: corrected where it failed, refused where records move."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.judging import Judge

from lowtide import Flow, kafka
from lowtide import json as as_json
from lowtide.cli.recovery import look
from lowtide.errors import FlowError, LifeEnded
from lowtide.spark.job import Job
from lowtide.spark.recovering import StartFrom

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]

COUNT = 400
BAD = 170


@dataclass(frozen=True)
class Document:
    number: int


@dataclass(frozen=True)
class Word:
    word: str
    number: int
    total: int = 0


def words(document: Document) -> Iterator[Word]:
    for place in range(6):
        yield Word(f"word-{(document.number * 7 + place) % 31}", document.number)


def no_words(document: Document) -> Iterator[Word]:
    """Forgets one case, which the step behind it finds out."""
    return words(document) if document.number != BAD else iter([Word("none", -1)])


def add(total: int, word: Word) -> tuple[int, Word]:
    if word.number < 0:
        raise ValueError("there is no such document")
    return total + word.number, Word(word.word, word.number, total + word.number)


@dataclass(frozen=True)
class Topics:
    name: str
    source: str
    sink: str

    def flow(self, step: Callable[[Document], Iterator[Word]] = words, key: str = "word") -> Flow:
        flow = Flow(self.name)
        documents = flow.read("documents", kafka(self.source, as_json(Document)))
        counted = documents.flat_map(step, name="words").key_by("word").scan("add", add, 0)
        counted.write("out", kafka(self.sink, as_json(Word), key=key))
        return flow


@pytest.fixture
def topics(spark: Spark) -> Topics:
    name = f"edited-{uuid.uuid4().hex[:8]}"
    return Topics(name, spark.kafka.topic("documents", 2), spark.kafka.topic("out", 2))


def test_a_function_that_is_corrected_upstream_of_where_it_failed_loses_nothing(spark: Spark, topics: Topics) -> None:
    """R6: no lane has passed the record that ended the life, though all were given what lies behind it."""
    conf = spark.conf(job__lanes=2)
    for partition in (0, 1):
        documents = [{"number": number} for number in range(partition, COUNT, 2)]
        spark.kafka.produce(topics.source, documents, partition=partition)
    with spark.job(topics.flow(no_words), job__lanes=2) as job, pytest.raises(LifeEnded, match="no such document"):
        job.wait()
    with spark.job(topics.flow(), job__lanes=2):
        assert Judge(topics.flow(), conf).right() == COUNT * 6


def test_another_key_is_refused_before_the_first_commit_and_without_state(spark: Spark, topics: Topics) -> None:
    """R12: other lanes' `last` says nothing about a record that moves there."""
    conf = spark.conf(job__lanes=2)
    spark.kafka.produce(topics.source, [{"number": number} for number in range(20)], partition=0)
    with spark.job(topics.flow(), job__lanes=2):
        assert Judge(topics.flow(), conf).right() == 120
    for start in (StartFrom(), StartFrom(no_state=True)):
        with pytest.raises(FlowError, match=r'(?s)"out" goes by number \(int64\), and went by word \(string\)'):
            Job.start(topics.flow(key="number"), conf, start=start)
        foretold = look(topics.flow(key="number"), conf, start, lambda *_: None)
        assert 'it cannot begin from here: the flow is not the one that delivered: "out" goes by' in foretold.page()
        with pytest.raises(FlowError, match=r'"out" goes by number \(int64\), and went by word \(string\)'):
            foretold.refuse()
    as_it_was = look(topics.flow(), conf, StartFrom(), lambda *_: None)
    as_it_was.refuse()
    assert as_it_was.as_object()["refused"] is None
    with spark.job(topics.flow(), job__lanes=2):
        spark.kafka.produce(topics.source, [{"number": number} for number in range(20, 30)], partition=1)
        assert Judge(topics.flow(), conf).right() == 180
