"""The commands that write what Airflow reads, without Airflow: `python -m lowtide_airflow`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lowtide_airflow.cli import dag_files
from lowtide_airflow.jobs_file import read_jobs

DAGS = Path(__file__).parents[1]
NEVER_LOADED = "import sys, lowtide_airflow.cli; print(sorted({'airflow', 'pyspark', 'lowtide'} & sys.modules.keys()))"


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lowtide_airflow", *arguments], check=False, capture_output=True, text=True
    )


def test_the_commands_need_neither_airflow_nor_spark() -> None:
    assert subprocess.check_output([sys.executable, "-c", NEVER_LOADED], text=True) == "[]\n"


def test_dag_files_are_written_whole_and_again_at_no_loss(tmp_path: Path) -> None:
    folder = tmp_path / "dags"
    assert command("install-dags", folder).returncode == 0
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == {path.name: path.read_text() for path in DAGS.glob("lowtide_*.py")}
    assert len(written) == 8
    assert "nothing to write" in command("install-dags", folder).stdout


def test_a_changed_dag_file_is_replaced_on_demand_only(tmp_path: Path) -> None:
    changed = tmp_path / "lowtide_submit.py"
    changed.write_text("mine")
    refused = command("install-dags", tmp_path)
    assert refused.returncode == 2
    assert "error: these files would be overwritten: lowtide_submit.py" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["lowtide_submit.py"]
    assert command("install-dags", tmp_path, "--replace").returncode == 0
    assert changed.read_bytes() == (DAGS / "lowtide_submit.py").read_bytes()
    assert len(list(tmp_path.iterdir())) == len(dag_files())


def test_a_jobs_file_is_written_that_can_be_read_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "conf/airflow.toml"
    assert command("jobs-file", file).returncode == 0
    assert read_jobs(tmp_path / "dags") == ()
    file.write_text("[[job]]\n")
    assert command("jobs-file", file).returncode == 2
    assert file.read_text() == "[[job]]\n"


def test_a_place_that_cannot_be_written_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = command("install-dags", tmp_path / "file/dags")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
