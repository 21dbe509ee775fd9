"""What needs root says so before it does anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hanging import HANGS_S

ROOT = Path(__file__).parents[2]
SAID = "error: this needs root: it makes network devices and namespaces"


@pytest.fixture(name="environment")
def _environment(tmp_path: Path) -> dict[str, str]:
    """One in which nobody is root, and nothing can be built."""
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": "/nowhere/python3"}


@pytest.mark.parametrize(
    "target", ["infra-up", "infra-plan", "infra-shell", "infra-down", "infra-bench", "infra-demo", "chaos HOSTS=1"]
)
def test_a_target_that_needs_root_says_so_in_its_first_line(environment: dict[str, str], target: str) -> None:
    done = subprocess.run(
        ["make", "-C", ROOT, "--no-print-directory", *target.split()],
        env=environment, capture_output=True, text=True, check=False, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.splitlines()[:2] == [SAID, f"       sudo make {target.partition(' ')[0]} ..."]
