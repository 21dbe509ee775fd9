"""The end of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide_snapshots.job.log_tail import MOST_BYTES, last_lines


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
