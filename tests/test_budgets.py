"""A run of all tests tells what they cost and what it leaves out, and fails for its cost only if asked."""

import os
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
pythonpath = {" ".join(str(folder) for folder in HERE.glob("*/tests/support"))}
markers =
    spark
    nightly
    timeout
budgets =
    spark: 60
    unit: 0
"""
SOME = """
import pytest

def test_unit() -> None:
    pass

@pytest.mark.spark
def test_spark() -> None:
    pass

@pytest.mark.nightly
def test_long() -> None:
    pass
"""
BUSY = r"""
import subprocess
import sys

WORK = "import time\nwhile time.process_time() < 1: pass"

def test_child_that_ends() -> None:
    subprocess.run([sys.executable, "-c", WORK], check=True)

def test_child_that_goes_on() -> None:
    child = subprocess.Popen([sys.executable, "-c", WORK + "\nprint(flush=True)\ninput()"], stdin=-1, stdout=-1)
    child.stdout.readline()
"""
KILLED = """
import os
import signal

import pytest

@pytest.mark.parametrize("nth", range(20))
def test_unit(nth: int) -> None:
    pass

def test_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

def test_after() -> None:
    pass
"""


def run(folder: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests with the root's conftest.py, and with no plugins but those asked for: to import all takes as long."""
    shutil.copy(HERE / "conftest.py", folder)
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_some.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("options", "status"),
    [([], 0), (["--hold-budgets", "-p", "xdist", "-n", "2"], 1)],
    ids=["alone", "shared"],
)
def test_a_run_of_all_names_what_cost_too_much_and_the_nightly_tests_that_it_leaves_out(
    tmp_path: Path, options: list[str], status: int
) -> None:
    done = run(tmp_path, SOME, *options)
    over = [line.split()[0] for line in done.stdout.splitlines() if "OVER ITS BUDGET" in line]
    assert (done.returncode, over) == (status, ["unit"]), done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "make test-nightly: 1 tests" in done.stdout
    assert "test_some.py::test_long" in done.stdout


@pytest.mark.parametrize("options", [["-m", "nightly"], ["test_some.py::test_long"], ["-k", "long"]])
def test_a_nightly_test_runs_where_it_is_asked_for(tmp_path: Path, options: list[str]) -> None:
    done = run(tmp_path, SOME, *options)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_test_costs_what_the_processes_below_it_cost(tmp_path: Path) -> None:
    done = run(tmp_path, BUSY)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("unit "))
    assert 2 <= float(line.split()[1]) < 4, done.stdout + done.stderr


def test_a_process_that_is_killed_costs_the_run_one_test(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / f"test_{name}.py").write_text("def test_it() -> None:\n    pass\n")
    done = run(tmp_path, KILLED, "-p", "xdist", "-n", "2", "--dist", "loadscope")
    assert "1 failed, 29 passed" in done.stdout, done.stdout + done.stderr
    assert "test_some.py::test_killed" in done.stdout
