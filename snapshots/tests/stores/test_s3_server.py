"""Without a real S3 server the tests of S3 fail, unless moto is asked for: then the last lines of the run say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="boto3 is an extra")
pytestmark = pytest.mark.s3

CLONE = Path(__file__).resolve().parents[3]
ONE = "snapshots/tests/stores/test_s3_store.py::TestS3Store::test_a_check_leaves_nothing"


def _run(**environment: str) -> tuple[int, list[str]]:
    inherited = {name: value for name, value in os.environ.items() if name != "S3"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ONE],
        check=False,
        cwd=CLONE,
        env=inherited | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_without_a_server_the_run_fails_and_says_what_to_do(tmp_path: Path) -> None:
    code, lines = _run(LOWTIDE_CACHE=str(tmp_path))
    assert code == 1
    assert any("make s3-server" in line and "S3=moto" in line for line in lines)


def test_with_moto_the_last_lines_say_so(tmp_path: Path) -> None:
    code, lines = _run(LOWTIDE_CACHE=str(tmp_path), S3="moto")
    assert code == 0
    assert "1 tests of S3 ran against moto, not against a real S3 server" in lines[-2]


def test_where_there_is_no_go_moto_is_chosen_and_what_is_asked_for_wins(tmp_path: Path) -> None:
    without_go = tmp_path / "bin"
    without_go.mkdir()
    for name in ("bash", "dirname", "env", "realpath"):
        (without_go / name).symlink_to(str(shutil.which(name)))

    def chosen(**environment: str) -> str:
        given = {"LOWTIDE_CACHE": str(tmp_path), "PATH": str(without_go), **environment}
        done = subprocess.run(["tools/s3-server", "chosen"], check=True, cwd=CLONE, env=given, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    assert chosen() == "moto"
    assert chosen(S3="real") == "real"
    assert chosen(S3="moto") == "moto"
