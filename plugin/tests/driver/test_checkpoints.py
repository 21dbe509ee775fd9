"""Where Spark's checkpoints lie: a killed life's go when the job's next life has begun, nobody else's ever do."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.driver import checkpoints
from lowtide.driver.checkpoints import CheckpointFolder
from lowtide.errors import ConfError
from lowtide.process import folder_locks

LIFE = """
import sys
from pathlib import Path
from lowtide.driver.checkpoints import CheckpointFolder

folder = CheckpointFolder(Path(sys.argv[1]), sys.argv[2])
(folder.path / "offsets").mkdir()
(folder.path / "offsets/0").write_text("v1")
print(folder.path, flush=True)
input()
"""


def living(parent: Path, job: str) -> tuple[Path, subprocess.Popen[str]]:
    """A life in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", LIFE, str(parent), job], stdin=-1, stdout=-1, text=True)
    assert process.stdout is not None
    return Path(process.stdout.readline().strip()), process


def killed(parent: Path, job: str) -> Path:
    """What a life that was killed leaves."""
    path, process = living(parent, job)
    process.kill()
    process.communicate()
    assert (path / "offsets/0").exists()
    return path


def test_a_killed_lifes_folder_goes_with_the_next_life_and_a_running_ones_never(tmp_path: Path) -> None:
    left = killed(tmp_path, "orders")
    runs, process = living(tmp_path, "orders")
    own = CheckpointFolder(tmp_path, "orders")
    assert left.exists(), "the job's next life has not begun"
    own.remove_left()
    assert {*tmp_path.iterdir()} == {runs, own.path}
    assert (runs / "offsets/0").exists()
    process.kill()
    process.communicate()
    own.remove_left()
    assert {*tmp_path.iterdir()} == {own.path}
    own.close()
    assert not own.path.exists()


def test_what_other_jobs_have_left_and_what_is_no_lifes_stays(tmp_path: Path) -> None:
    for job in ("orders-eu", "orders-backfill", "order", "my-orders"):
        other = CheckpointFolder(tmp_path, job)
        assert other._lock is not None
        os.close(other._lock)  # Its process has been killed.
    for name in ("orders", "orders-", "orders-by-hand", "orders-12345678.old", "orders-ABCDEFGH", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "orders-12345678").write_text("a file")
    (tmp_path / "orders-87654321").symlink_to(tmp_path / "elsewhere")
    before = {*tmp_path.iterdir()}
    own = CheckpointFolder(tmp_path, "orders")
    own.remove_left()
    assert {*tmp_path.iterdir()} == {*before, own.path}


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, made = folder_locks.locked, list[Path]()

    def late(path: Path) -> int | None:
        made.append(path)
        match len(made):
            case 1:  # It is gone.
                path.rmdir()
            case 2:  # Another life is about to remove it.
                return None
            case 3:  # That has removed it.
                descriptor = lock(path)
                path.rmdir()
                return descriptor
        return lock(path)

    monkeypatch.setattr(checkpoints, "locked", late)
    own = CheckpointFolder(tmp_path, "orders")
    assert own.path == made[3]
    assert own.path.is_dir()


def test_where_nothing_can_be_locked_every_life_has_a_folder_and_removes_its_own_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.EBADF, "as NFS says of a folder")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = CheckpointFolder(tmp_path, "orders"), CheckpointFolder(tmp_path, "orders")
    second.remove_left()
    assert first.path.is_dir()
    second.close()
    assert [*tmp_path.iterdir()] == [first.path]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfError, match="the checkpoint folder cannot be used: Not a directory"):
        CheckpointFolder(tmp_path / "file/below", "orders")
