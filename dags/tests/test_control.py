"""The control API of a running job, asked by the provider's own client: a real server, with a view of the test's."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from lowtide_airflow.control import Control
from lowtide_airflow.errors import ControlRefused, ControlUnreachable, TokenRefused

# Not imported by their names: the provider may know of the job's formats alone, not of its code.
support, seen = pytest.importorskip("controlled"), pytest.importorskip("seen")


@pytest.fixture(name="served")
def _served() -> Iterator[Any]:
    events = import_module("lowtide.events")
    with support.controlled(seen.SHAPE, events.EventLog("index", 3, io.StringIO())) as job:
        job.watch.look(0.0, seen.moment(5000))
        yield job


@pytest.fixture(name="control")
def _control(served: Any) -> Control:
    return Control(served.address, support.TOKEN)


def test_a_status_and_a_history_are_what_the_job_tells(control: Control) -> None:
    status = control.status()
    assert (status["job"], status["incarnation"]) == ("index", 3)
    assert control.history() is not None


def test_a_snapshot_is_asked_for_with_name_and_key(control: Control, served: Any) -> None:
    views = import_module("lowtide.service.job_view")
    began = "2026-11-21T12:00:00.000Z"
    served.taking = [
        views.SnapshotView(
            id="000003-0001", name="n", phase=phase, min_time_ms=None, parts=0, parts_done=0, rows=0, bytes=0,
            began=began, took_s=0.0, waits_for=[], why="",
        )
        for phase in ("taking", "sealed")
    ]  # fmt: skip
    assert control.take_snapshot(name="n", key="k", commit=False)["id"] == "000003-0001"
    assert served.asked == [("n", False)]
    assert [view["phase"] for view in control.snapshots() + control.snapshots()] == ["taking", "sealed"]


def test_a_job_is_asked_to_stop(control: Control, served: Any) -> None:
    control.stop()
    assert served.stops == ["stop"]


def test_a_wrong_token_is_refused_with_where_the_right_one_comes_from(served: Any) -> None:
    with pytest.raises(TokenRefused, match=r"\[control\].token_file"):
        Control(served.address, "another").status()


def test_what_a_job_refuses_is_said_as_it_says_it(control: Control) -> None:
    with pytest.raises(ControlRefused, match="the body is not understood"):
        control.take_snapshot(name="n" * 201)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:no"])
def test_a_job_that_does_not_answer_is_named(address: str) -> None:
    with pytest.raises(ControlUnreachable, match=address):
        Control(address, "token", 0.5).status()


def test_a_server_that_is_no_control_api_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ControlUnreachable, match="no JSON: 'hello'"):
            Control(f"127.0.0.1:{other.getsockname()[1]}", "token").status()
