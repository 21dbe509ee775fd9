"""A host has a Unix socket where it can have one, and where others come from other machines nothing depends on it."""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from lowtide.process.doors import DoorKind, Doors
from lowtide.process.sockets_folder import SocketsRefused
from lowtide.worker.host_doors import OVER_TCP, HostDoors
from lowtide_tracker.unix import UNIX

NOWHERE = "/proc"
"""Nobody makes a folder there."""


def kinds(doors: HostDoors) -> list[DoorKind]:
    """Of a host's, which are closed again."""
    with ExitStack() as opened:
        return [DoorKind.of(address) for _, address in doors.open(opened)]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (DoorKind.UNIX, [DoorKind.UNIX]),
        (DoorKind.TLS, [DoorKind.UNIX, DoorKind.TLS]),
        (DoorKind.TCP, [DoorKind.UNIX, DoorKind.TCP]),
    ],
)
def test_a_host_has_a_unix_socket_and_what_others_reach(kind: DoorKind, expected: list[DoorKind]) -> None:
    doors = HostDoors(kind, "127.0.0.1")
    assert kinds(doors) == expected
    doors.close()


def test_the_doors_of_a_process_that_is_called_otherwise_say_so() -> None:
    """The tracker's as well as the service's, with a driver that binds all addresses."""
    listener, address = Doors(DoorKind.TLS, "0.0.0.0", called="driver").open("tracker")
    with listener:
        assert address == f"tls:driver:{listener.getsockname()[1]}"


def test_where_no_folder_can_be_made_all_come_over_tcp(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", NOWHERE)
    with caplog.at_level(logging.WARNING):
        doors = HostDoors(DoorKind.TLS, "127.0.0.1")
    assert f"{OVER_TCP}: a folder for Unix sockets cannot be made" in caplog.text
    assert kinds(doors) == [DoorKind.TLS]
    with pytest.raises(SocketsRefused, match="cannot be made"):
        HostDoors(DoorKind.UNIX, "")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [NOWHERE])
    with pytest.raises(SocketsRefused, match="no folder for temporary files"):
        HostDoors(DoorKind.UNIX, "")


def test_where_somebody_has_removed_the_folder_all_come_over_tcp(caplog: pytest.LogCaptureFixture) -> None:
    far, near = HostDoors(DoorKind.TCP, "127.0.0.1"), HostDoors(DoorKind.UNIX, "")
    for doors in (far, near):
        with ExitStack() as opened:
            _, address = doors.open(opened)[0]
        shutil.rmtree(Path(address.removeprefix(UNIX)).parent)
    with caplog.at_level(logging.WARNING):
        assert kinds(far) == [DoorKind.TCP]
    assert "no Unix socket can be opened" in caplog.text
    with pytest.raises(SocketsRefused, match="no Unix socket can be opened"):
        kinds(near)
    far.close()
    near.close()
