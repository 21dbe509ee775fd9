"""Unix sockets are for this user's processes alone, and none is left on the disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowtide.process.sockets_folder import PREFIX, SocketsFolder, SocketsRefused
from lowtide_tracker.unix import connected, listen_at, why_refused

NOBODY = 65534
KILLED = """
import sys, time
from pathlib import Path
from lowtide.process.sockets_folder import SocketsFolder
folder = SocketsFolder(Path(sys.argv[1]))
listening = folder.listen("door")
print(folder.path, flush=True)
time.sleep(600)
"""


@pytest.fixture(name="root")
def _root() -> Iterator[Path]:
    """A folder with a short path."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_the_folder_is_this_users_alone_and_goes_when_it_is_closed(root: Path) -> None:
    folder = SocketsFolder(root)
    listener, address = folder.listen("door")
    found = folder.path.stat()
    assert (found.st_uid, found.st_mode & 0o777) == (os.geteuid(), 0o700)
    with listener, connected(address, 5):
        pass
    folder.close()
    assert list(root.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_and_what_a_living_one_has_is_not(root: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        SocketsFolder(root).close()
        assert [each.name[:4] for each in left.iterdir()] == ["door"]
        other.send_signal(signal.SIGKILL)
    SocketsFolder(root).close()
    assert not left.exists()


def test_a_path_that_is_too_long_is_refused_with_the_way_out(root: Path) -> None:
    long = root / ("x" * 100)
    long.mkdir()
    with pytest.raises(SocketsRefused, match="too long") as refused:
        SocketsFolder(long)
    assert "TMPDIR" in refused.value.way_out
    with pytest.raises(OSError, match="107 at most"):
        listen_at(str(long / "door"))


def test_a_folder_that_others_may_enter_is_refused(root: Path) -> None:
    wide = root / f"{PREFIX}wide"
    wide.mkdir(mode=0o700)
    wide.chmod(0o750)
    with pytest.raises(PermissionError, match="mode 0750, and has to be"):
        listen_at(str(wide / "door"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what is another user's")
def test_a_folder_of_somebody_else_is_refused(root: Path) -> None:
    theirs = root / f"{PREFIX}theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match=f"of user {NOBODY}"):
        listen_at(str(theirs / "door"))
    SocketsFolder(root).close()
    assert theirs.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_process_of_another_user_is_refused_by_what_the_kernel_says(root: Path) -> None:
    """With a connection that was made for it, too: no folder's mode is in the way here."""
    near, far = socket.socketpair()
    assert why_refused(far) == ""
    near.close()
    far.close()
    path = root / "door"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    os.chmod(path, 0o777)
    child = os.fork()
    if child == 0:
        try:
            os.fchdir(folder)
            os.fchmod(folder, 0o755)
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX) as theirs:
                theirs.connect("door")
                theirs.recv(1)
        finally:
            os._exit(0)
    connection, _ = listener.accept()
    said = why_refused(connection)
    connection.close()
    listener.close()
    os.close(folder)
    os.waitpid(child, 0)
    assert f"process {child} is of user {NOBODY}" in said
