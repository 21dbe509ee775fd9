"""The provider's client of a running job's control API: a real server, with a status of the test's."""

from __future__ import annotations

import io
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_airflow.job.control import Control
from lowtide_snapshots.errors import ControlRefused, ControlUnreachable, TokenRefused
from lowtide_snapshots.job.control_address import ControlAddress, fingerprint

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
    return Control(served.at, support.TOKEN)


def test_a_status_and_a_history_are_what_the_job_tells(control: Control) -> None:
    status = control.status()
    assert (status["job"], status["incarnation"]) == ("index", 3)
    assert control.history() is not None


def test_a_snapshot_is_asked_for_with_name_and_key(control: Control, served: Any) -> None:
    views = import_module("lowtide.status.job_view")
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
        Control(served.at, "another").status()
    proved = published(served.address, served.at.certificate, "another")
    with pytest.raises(TokenRefused, match=r"does not accept this token[\s\S]*\[control\].token_file"):
        Control(proved, "another").status()


def test_what_a_job_refuses_is_said_as_it_says_it(control: Control) -> None:
    with pytest.raises(ControlRefused, match="cannot read the body"):
        control.take_snapshot(name="n" * 201)


def published(address: str, certificate: str, token: str = support.TOKEN) -> ControlAddress:
    """As a life does that knows the token."""
    return ControlAddress.proved(token, job="index", incarnation=3, address=address, certificate=certificate)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:no"])
def test_a_job_that_does_not_answer_is_named(address: str) -> None:
    with pytest.raises(ControlUnreachable, match=address):
        Control(published(address, "0" * 64), support.TOKEN, 0.5).status()


@contextmanager
def imposter(heard: list[bytes]) -> Iterator[tuple[str, str]]:
    """Somebody who answers to everything; the address, and what is shown there."""
    certificate = import_module("lowtide.status.certificate").made_certificate("127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with suppress(OSError), certificate.tls.wrap_socket(connection, server_side=True) as secured:
                heard.append(secured.recv(4096))
                secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{other.getsockname()[1]}", fingerprint(ssl.PEM_cert_to_DER_cert(certificate.pem))
        thread.join(HANGS_S)


def test_who_shows_another_certificate_hears_nothing() -> None:
    """As at the port that a dead life has left."""
    heard: list[bytes] = []
    with imposter(heard) as (address, _), pytest.raises(ControlUnreachable, match="another certificate"):
        Control(published(address, "0" * 64), support.TOKEN).stop()
    assert b"".join(heard) == b""


def test_a_server_that_is_no_control_api_is_not_believed() -> None:
    with imposter([]) as (address, shown), pytest.raises(ControlUnreachable, match="not JSON: 'hello'"):
        Control(published(address, shown), support.TOKEN).status()
