"""The end of a log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lowtide.status.log_tail import MOST_BYTES, last_lines, log_of


@pytest.mark.parametrize(("count", "expected"), [(0, []), (2, ["b", "c"]), (5, ["a", "b", "c"])])
def test_so_many_of_the_last_lines(tmp_path: Path, count: int, expected: list[str]) -> None:
    file = tmp_path / "log"
    file.write_text("a\nb\nc\n")
    assert last_lines(file, count) == expected


def test_of_a_large_file_the_end_is_read_and_no_half_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * MOST_BYTES + b"\n" + b"\xff is no text\nlast")
    assert last_lines(file, 10) == ["\N{REPLACEMENT CHARACTER} is no text", "last"]


def test_a_log_that_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "log", 10) == []


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
