"""Topics of a job's own: what brokers deny for a moment, and what is gone; on real Kafka in `test_staged_topics.py`."""

from __future__ import annotations

from itertools import chain, repeat

import pytest

from lowtide.conf import KafkaConf
from lowtide.connectors.topics import Topic, Topics
from lowtide.errors import TopicUnknown
from lowtide.sinks import own_topics
from lowtide.sinks.errors import LastsLost
from lowtide.sinks.own_topics import OwnTopic, open_topics

OWN = OwnTopic("lowtide.shop.answers.risk", "the answers of a call are kept", "call risk", "", "restore it")
KAFKA = KafkaConf(bootstrap_servers="127.0.0.1:1")
RECORD_BYTES = 4 << 20


def deny(monkeypatch: pytest.MonkeyPatch, denials: int, within_s: float) -> None:
    """Let the topic be unknown to brokers so many times."""
    answers = chain(repeat(None, denials), repeat(Topic(OWN.name, 2, "CreateTime", "delete", "its id")))

    def describe(_: Topics, name: str) -> Topic:
        found = next(answers)
        if found is None:
            raise TopicUnknown(f'there is no topic "{name}"')
        return found

    monkeypatch.setattr(Topics, "describe", describe)
    monkeypatch.setattr(own_topics, "GONE_S", within_s)


def test_a_broker_that_denies_a_topic_for_a_moment_has_not_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, 2, within_s=60)
    assert open_topics({"risk": OWN}, KAFKA, 2, {"risk": "its id"}, RECORD_BYTES) == {"risk": "its id"}


def test_a_topic_that_brokers_go_on_denying_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, 1_000_000, within_s=0.1)
    with pytest.raises(LastsLost, match=r'"lowtide\.shop\.answers\.risk", in which .* is gone'):
        open_topics({"risk": OWN}, KAFKA, 2, {"risk": "its id"}, RECORD_BYTES)


def test_a_topic_just_made_may_be_denied_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker that is asked may hear of it later than the one that made it."""
    deny(monkeypatch, 2, within_s=0)
    monkeypatch.setattr(Topics, "create", lambda *_, **__: None)
    monkeypatch.setattr(Topics, "ends", lambda *_, **__: {})
    assert open_topics({"risk": OWN}, KAFKA, 2, {}, RECORD_BYTES) == {"risk": "its id"}
