"""Readers of what a job writes, as the graph's tracker knows them: named, or a reason to refuse a redelivery."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lowtide.cli import graph_readers
from lowtide.cli.graph_readers import Readers, readers_in_graph, readers_of, refuse_readers
from lowtide.conf import Conf
from lowtide.errors import FlowError, ServiceUnavailable
from lowtide.service.graph.messages import Whole
from lowtide_tracker.job_graph import JobKnown


def known(job: str, reads: str = "", writes: str = "", *, runs: bool = True) -> JobKnown:
    return JobKnown(job=job, life=1, reads=frozenset(reads.split()), writes=frozenset(writes.split()), runs=runs)


JOBS = (known("a", "", "t late"), known("b", "t x", "u", runs=False), known("c", "u t", "v"), known("d", "w", "z"))


def test_readers_near_and_far_are_named_with_the_topics_that_reach_them() -> None:
    assert readers_of(JOBS, "a", ["t", "late"]) == {"b": ["t"], "c": ["t"]}
    assert readers_of(JOBS, "b", ["u"]) == {"c": ["u"]}
    far = (JOBS[0], JOBS[1], known("c", "u", "v"), known("e", "v"))
    assert readers_of(far, "a", ["t"]) == {"b": ["t"], "c": ["u"], "e": ["v"]}
    assert readers_of(JOBS, "c", ["v"]) == {}


@pytest.fixture(name="graph")
def _graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands where the graph's tracker and Kafka are."""
    whole = Whole(jobs=JOBS, chains={}, delivered_ms=None)
    kafka = SimpleNamespace(
        describe_all=list, ends=lambda names: {(name, part): 7 for name in names for part in (0, 1)}
    )
    monkeypatch.setattr(graph_readers, "ask_graph", lambda conf, question: whole)
    monkeypatch.setattr(graph_readers, "Topics", lambda kafka_conf: kafka)


def conf(**more: Any) -> Conf:
    return Conf.load(None, {"tracker.graph": "127.0.0.1:7", "tracker.secret_file": "s", **more})


@pytest.mark.usefixtures("graph")
def test_a_redelivery_that_others_read_is_refused_with_what_to_do() -> None:
    with pytest.raises(FlowError) as raised:
        refuse_readers(conf(), "a", ["t", "late"], readers_in_graph(conf(), "a", ["t", "late"]))
    said = str(raised.value)
    assert '"b" reads t; "c" reads t' in said
    assert "now t: 0: 7, 1: 7" in said
    assert "--despite-readers" in said
    refuse_readers(conf(), "d", ["z"], readers_in_graph(conf(), "d", ["z"]))


def test_a_job_by_itself_asks_nobody() -> None:
    alone = Conf.load(None)
    readers = readers_in_graph(alone, "a", ["t"])
    refuse_readers(alone, "a", ["t"], readers)
    assert (readers.as_object(), list(readers.lines("sees nothing"))) == ({}, [])


@pytest.mark.usefixtures("graph")
def test_each_reader_is_named_with_what_it_sees() -> None:
    readers = readers_in_graph(conf(), "a", ["t", "late"])
    assert list(readers.lines("gets nothing twice")) == [
        'job "b" of the graph reads t: it gets nothing twice',
        'job "c" of the graph reads t: it gets nothing twice',
    ]
    assert readers.as_object() == {"b": ["t"], "c": ["t"]}


def test_a_tracker_that_is_away_is_said_and_refuses_a_redelivery(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Whole:
        raise ServiceUnavailable("the graph's tracker does not answer")

    monkeypatch.setattr(graph_readers, "ask_graph", away)
    readers = readers_in_graph(conf(), "a", ["t"])
    assert list(readers.lines("")) == [
        "which jobs of the graph read what it writes is not known: the graph's tracker does not answer"
    ]
    assert readers.as_object() is None
    with pytest.raises(ServiceUnavailable):
        refuse_readers(conf(), "a", ["t"], readers)
    refuse_readers(conf(), "a", ["t"], Readers({}))
