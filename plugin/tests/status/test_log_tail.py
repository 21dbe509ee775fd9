"""The file of a job's log."""

from __future__ import annotations

import os
from pathlib import Path

from lowtide.status.log_tail import log_of


def test_the_log_of_a_process_is_the_file_that_it_writes_to(tmp_path: Path) -> None:
    with (tmp_path / "log").open("a") as log:
        assert log_of(os.getpid(), log.fileno()) == tmp_path / "log"
        (tmp_path / "log").rename(tmp_path / "log.1")
        assert log_of(os.getpid(), log.fileno()) == tmp_path / "log.1"
        (tmp_path / "log.1").unlink()
        assert log_of(os.getpid(), log.fileno()) is None
        assert log_of(os.getpid(), log.fileno() + 1_000) is None
    read, write = os.pipe()
    try:
        assert log_of(os.getpid(), write) is None
    finally:
        os.close(read)
        os.close(write)
