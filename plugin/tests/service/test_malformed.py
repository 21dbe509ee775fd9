"""Messages that cannot be read: the sender learns the field, and the service goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from idle_stage import IdleStage, StageDeployment

from lowtide.assignment.messages import (
    Find,
    Fork,
    ForkServerHello,
    JobState,
    Refused,
    Status,
    WorkerHello,
    encode,
    read_answer,
)
from lowtide.process.interpreter import versions
from lowtide.process.wire import Kind, connect, receive, send

if TYPE_CHECKING:
    from process_life import Life

SECRET = b"the secret of a test, 32 bytes.."
pytestmark = pytest.mark.zookeeper


def test_a_question_that_cannot_be_read_is_refused_and_the_next_one_is_answered(life: Life) -> None:
    with connect(life.address, SECRET) as connection:
        for question, named in (
            (b'{"type": "find"}', "`worker`"),
            (b'{"type": "guess"}', "'guess'"),
            (b"{", "truncated"),
        ):
            send(connection, Kind.ASK, question)
            answer = read_answer(receive(connection)[1])
            assert isinstance(answer, Refused)
            assert named in answer.cause
        send(connection, Kind.ASK, encode(Status()))
        assert isinstance(read_answer(receive(connection)[1]), JobState)


def test_a_host_that_sends_what_cannot_be_read_ends_its_life_alone(life: Life) -> None:
    life.begin(StageDeployment(IdleStage))
    found = life.ask(Find(worker="1/0", level=1, epoch=0, incarnation=life.incarnation, index=0, count=1, executor="0"))
    assert isinstance(found, Fork)
    hello = WorkerHello(
        worker="1/0", number=found.number, incarnation=life.incarnation, address="127.0.0.1:9", near="", pid=1
    )
    with connect(life.address, SECRET) as connection:
        send(connection, Kind.ASK, encode(hello))
        assert receive(connection)[0] == Kind.PLAN
        send(connection, Kind.ASK, b'{"type": "gauges", "gauges": {"1/0": {"records_in": "many"}}}')
        cause = life.cause()
    assert cause.startswith("worker 1/0: the service cannot read a message")
    assert "Expected `int`, got `str` - at `$.gauges[...].records_in`" in cause
    life.incarnation += 1
    life.begin(StageDeployment(IdleStage))
    assert not life.status().cause


def test_a_fork_server_that_sends_what_cannot_be_read_ends_the_life_and_is_named(life: Life) -> None:
    life.begin(StageDeployment(IdleStage))
    hello = ForkServerHello(executor="9", host="h", executable="python", python=versions())
    with connect(life.address, SECRET) as connection:
        send(connection, Kind.ASK, encode(hello))
        send(connection, Kind.ASK, b'{"type": "hostdied", "incarnation": 7}')
        assert "executor 9: the service cannot read a message: Object missing required field `workers`" in life.cause()


def test_an_order_that_a_fork_server_cannot_read_is_answered(life: Life) -> None:
    process = life.executors["0"]
    assert process.stdin is not None
    process.stdin.write('{"type": "makeworker", "worker": "1/0"}\n')
    process.stdin.flush()
    answer = life._hear(process)
    assert answer["type"] == "failed"
    assert "`level`" in answer["cause"]["what"]
    life.begin(StageDeployment(IdleStage))
    assert not isinstance(life.attach("1/0", 0), str), "it makes workers all the same"
