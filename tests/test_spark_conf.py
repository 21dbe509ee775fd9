"""Keys of Lowtide's conf in Spark's own: through spark-submit, and in a SparkConf of the program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

FLOW = """
import lowtide as lt
from lowtide import json, kafka, raw

flow = lt.Flow("small")
flow.read("in", kafka("in", raw())).write("out", kafka("out", raw()))

if __name__ == "__main__":
    lt.main(flow)
"""
SHOWS = """
import json, sys
from pathlib import Path
from lowtide.cli.options import with_conf
import click

if "session" in sys.argv:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder.config("spark.lowtide.epoch.duration_s", "9").config("spark.lowtide.python", "x").getOrCreate()
    sys.argv.remove("session")


@click.command()
@with_conf
def show(conf):
    print(json.dumps([conf.epoch.duration_s, conf.job.slack_ms, conf.worker.start_limit_s]))


show()
"""


def ran(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """What a command in the folder gave; spark-submit is that of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (folder / "flow.py").write_text(FLOW)
    (folder / "shows.py").write_text(SHOWS)
    (folder / "conf.toml").write_text("[epoch]\nduration_s = 7\n[job]\nslack_ms = 3\n[worker]\nstart_limit_s = 11\n")
    environment = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


GIVEN = ["--conf", "conf.toml", "--set", "job.slack_ms=5"]


def test_keys_of_spark_submit_win_over_the_file_and_set_wins_over_them(tmp_path: Path) -> None:
    keys = ["--conf", "spark.lowtide.epoch.duration_s=9", "--conf", "spark.lowtide.job.slack_ms=4"]
    answer = ran(tmp_path, "spark-submit", "--master", "local[1]", *keys, "shows.py", *GIVEN)
    assert json.loads(answer.stdout.splitlines()[-1]) == [9.0, 5, 11.0], answer.stderr


def test_keys_of_a_session_of_the_programs_own_count(tmp_path: Path) -> None:
    answer = ran(tmp_path, sys.executable, "shows.py", "session", *GIVEN)
    assert json.loads(answer.stdout.splitlines()[-1]) == [9.0, 5, 11.0], answer.stderr


def test_a_key_that_does_not_exist_is_refused_with_the_nearest(tmp_path: Path) -> None:
    keys = ["--master", "local[1]", "--conf", "spark.lowtide.job.paralelism=3"]
    answer = ran(tmp_path, "spark-submit", *keys, "flow.py", "check")
    # spark-submit prints all that the program prints as its own standard output.
    assert "unknown key `paralelism` in [job]" in answer.stdout
    assert "spark.lowtide.job.paralelism in Spark's conf" in answer.stdout
    assert "did you mean `parallelism`?" in answer.stdout
    assert answer.returncode != 0
