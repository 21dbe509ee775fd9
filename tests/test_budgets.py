"""A run that takes long says so, and fails only where that is asked for."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
INI = f"""
[pytest]
addopts = --strict-markers
testpaths = .
pythonpath = {HERE / "snapshots/tests/support"}
markers = spark
budgets =
    spark: 60
    unit: 0
"""
ONE_OF_EACH = """
import pytest

def test_unit() -> None:
    pass

@pytest.mark.spark
def test_spark() -> None:
    pass
"""


@pytest.mark.parametrize(("options", "status"), [([], 0), (["--hold-budgets"], 1)])
def test_what_took_too_long_is_named_and_fails_a_run_only_if_asked(
    tmp_path: Path, options: list[str], status: int
) -> None:
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_one_of_each.py").write_text(ONE_OF_EACH)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    over = [line.split()[0] for line in done.stdout.splitlines() if "OVER ITS BUDGET" in line]
    assert (done.returncode, over) == (status, ["unit"]), done.stdout + done.stderr
