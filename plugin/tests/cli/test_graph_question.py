"""Readers of what a job is about to deliver again, as the graph's tracker knows them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lowtide.cli import graph_question
from lowtide.cli.graph_question import readers_of, refuse_readers
from lowtide.conf import Conf
from lowtide.errors import FlowError
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
    monkeypatch.setattr(graph_question, "ask_graph", lambda conf, question: whole)
    monkeypatch.setattr(graph_question, "Topics", lambda kafka_conf: kafka)


def conf(**more: Any) -> Conf:
    return Conf.load(None, {"tracker.graph": "127.0.0.1:7", "tracker.secret_file": "s", **more})


@pytest.mark.usefixtures("graph")
def test_a_redelivery_that_others_read_is_refused_with_what_to_do() -> None:
    with pytest.raises(FlowError) as raised:
        refuse_readers(conf(), "a", ["t", "late"])
    said = str(raised.value)
    assert '"b" reads t; "c" reads t' in said
    assert "now t: 0: 7, 1: 7" in said
    assert "--despite-readers" in said
    refuse_readers(conf(), "d", ["z"])


def test_a_job_by_itself_asks_nobody() -> None:
    refuse_readers(Conf.load(None), "a", ["t"])
