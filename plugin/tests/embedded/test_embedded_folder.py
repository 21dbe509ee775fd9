"""The services' folder: invisible to git, locked by one at a time."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lowtide.embedded.errors import FolderInUse
from lowtide.embedded.folder import locked, make_folder

HOLDER = """
import sys, time
from pathlib import Path
from lowtide.embedded.folder import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_folder_is_invisible_to_git(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / ".gitignore").read_text() == "*\n"


def test_a_file_in_the_folders_place_is_refused_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderInUse, match=r"(?s)cannot use the services' folder.*\[embedded\]\.folder"):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize("name", ["a,b", "a$b", "a\\b"])
def test_a_path_that_means_something_to_the_servers_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FolderInUse, match="the path of the services' folder has"):
        make_folder(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_held_by_one_and_freed_by_death(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FolderInUse, match=f"process {holder.pid} has been starting"), locked(tmp_path, 0.2):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locked(tmp_path, 0.2):
        pass


def test_the_lock_holds_between_threads_of_one_process(tmp_path: Path) -> None:
    inside = []
    most = []

    def enter() -> None:
        with locked(tmp_path):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]
