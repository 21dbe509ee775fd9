"""The folders of state: one for each process, and those of dead ones go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.disk import folder as folders
from lowtide.disk.folder import FolderRefused, StateFolder, file_system_of

HOLDS = """
import sys
from pathlib import Path
from lowtide.disk.folder import StateFolder
folder = StateFolder(Path(sys.argv[1]), "job", int(sys.argv[2]), "1/0")
(folder.path / "data.mdb").write_bytes(b"x")
print("made", flush=True)
sys.stdin.read()
"""


def holder(root: Path, incarnation: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(root), str(incarnation)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    return process


def test_dead_processes_folders_go_and_living_ones_stay(tmp_path: Path) -> None:
    dead, living = holder(tmp_path, 1), holder(tmp_path, 2)
    dead.kill()
    dead.wait()
    StateFolder(tmp_path, "another", 3, "1/0")
    assert (tmp_path / "job/1/1-0/data.mdb").exists()
    third = StateFolder(tmp_path, "job", 3, "1/0")
    assert not (tmp_path / "job/1").exists()
    assert (tmp_path / "job/2/1-0/data.mdb").exists()
    assert third.path.stat().st_mode & 0o777 == 0o700
    living.communicate()


def test_a_folder_of_the_same_name_is_made_anew(tmp_path: Path) -> None:
    """ZooKeeper was emptied: incarnations begin again."""
    dead = holder(tmp_path, 1)
    dead.kill()
    dead.wait()
    folder = StateFolder(tmp_path, "job", 1, "1/0")
    assert [each.name for each in folder.path.iterdir()] == ["lock"]


def test_a_folder_that_is_closed_is_gone(tmp_path: Path) -> None:
    one, other = StateFolder(tmp_path, "job", 1, "1/0"), StateFolder(tmp_path, "job", 1, "1/1")
    (one.path / "data.mdb").write_bytes(b"x")
    one.close()
    assert [each.name for each in (tmp_path / "job/1").iterdir()] == ["1-1"]
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_system_of(tmp_path / "not/there") not in folders.NETWORK
    assert file_system_of(Path("/proc/self")) == "proc"
    monkeypatch.setattr(folders, "file_system_of", lambda _: "nfs4")
    with pytest.raises(FolderRefused, match="nfs4"):
        StateFolder(tmp_path, "job", 1, "1/0")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(b"")
    with pytest.raises(FolderRefused) as caught:
        StateFolder(tmp_path, "job", 1, "1/0")
    assert "state.folder" in caught.value.way_out
