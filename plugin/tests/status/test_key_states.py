"""The states of keys, as programs and commands ask a running job for them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest
from controlled import ControlledJob, controlled
from seen import SHAPE, moment

from lowtide.cli.state import key_of
from lowtide.events import EventLog
from lowtide.status.key_state import KeyState, states_around, states_of
from lowtide_snapshots.errors import ControlRefused


@pytest.fixture(name="job")
def _job() -> Iterator[ControlledJob]:
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        job.watch.look(0.0, moment(5000))
        yield job


def test_the_states_of_keys_are_given_in_one_answer_or_a_few(job: ControlledJob) -> None:
    job.states = {"ann": 7, "bob": 9}
    client = job.client()
    assert client.state("total", {"user": "ann"}) == {
        "step": "total", "key": {"user": "ann"}, "min_time_ms": 4000, "rows": [{"key": {"user": "ann"}, "state": 7}],
    }  # fmt: skip
    ann, eve, bob = states_of(client, "total", ["ann", {"user": "eve"}, {"user": "bob"}])
    assert ann == KeyState({"user": "ann"}, datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC), ann.rows)
    assert (ann.state, eve.state, bob.state) == (7, None, 9)
    assert (eve.key, eve.rows) == ({"user": "eve"}, [])
    assert len(job.questions) == 2
    long = [f"user-{number:0500}" for number in range(1_000)]
    assert [each.key[""] for each in states_of(client, "total", long)] == long
    assert 10 < len(job.questions) < 20, "a body has a size"
    assert len(states_of(client, "total", list(range(2_500)))) == 2_500
    assert states_of(client, "total", []) == []


def test_the_first_keys_of_a_step(job: ControlledJob) -> None:
    job.states = {"ann": 7, "bob": 9}
    client = job.client()
    found, more = states_around(client, "total", None, 1)
    assert ([(each.key, each.state) for each in found], more) == ([({"user": "ann"}, 7)], True)
    assert states_around(client, "total", 7, 5)[1] is False
    assert job.questions == [(None, 1), (7, 5)]


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"keys": [1]}', b'{"limit": 0}', b'{"unit": -1}', b'{"limit": 1001}', b'{"of": 1}']
)
def test_a_question_for_states_that_is_none_is_refused(job: ControlledJob, body: bytes) -> None:
    with pytest.raises(ControlRefused, match="cannot read the body"):
        job.client()._ask("POST", "/state/total", body)
    assert job.questions == []


def test_a_value_of_any_type_is_asked_for_as_text(job: ControlledJob) -> None:
    states_of(job.client(), "total", [7, datetime(2026, 1, 2, tzinfo=UTC), {"a": 1, "b": "x"}])
    assert job.questions == [[{"": "7"}, {"": "2026-01-02T00:00:00+00:00"}, {"a": "1", "b": "x"}]]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("ann", "ann"),
        ("a,b", "a,b"),
        ("user=ann", {"user": "ann"}),
        ("user=ann,item=a=b", {"user": "ann", "item": "a=b"}),
        ("user=ann, the first,item=b", {"user": "ann, the first", "item": "b"}),
        ('{"user": "a=b,c=d", "item": 7}', {"user": "a=b,c=d", "item": 7}),
    ],
)
def test_a_key_is_written_as_a_value_or_its_columns(text: str, key: object) -> None:
    assert key_of(text) == key


def test_a_key_that_is_no_json_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is no JSON object"):
        key_of("{user")
