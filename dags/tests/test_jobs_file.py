"""The jobs file: every key, and every fault with its place."""

from datetime import timedelta
from pathlib import Path

import pytest

from lowtide_airflow.errors import JobsFileRefused
from lowtide_airflow.jobs_file import VARIABLE, JobEntry, SparkEntry, read_jobs

EXAMPLE = Path(__file__).parents[2] / "conf/airflow.toml"


@pytest.fixture(name="file")
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "jobs.toml"
    monkeypatch.setenv(VARIABLE, str(file))
    return file


def test_a_job_has_defaults_and_ids(file: Path) -> None:
    file.write_text('[[job]]\nname = "orders of today"\nflow = "/opt/orders.py"\n')
    (job,) = read_jobs()
    assert job == JobEntry(name="orders of today", flow="/opt/orders.py")
    assert (job.schedule, job.max_age_s, job.keep, job.recover) == (timedelta(minutes=10), None, 10, True)
    assert job.dag_id("snapshot") == "lowtide_snapshot__orders_of_today"


def test_the_example_is_one_with_every_line_a_key(file: Path) -> None:
    lines = [line.removeprefix("# ") for line in EXAMPLE.read_text().splitlines()[6:]]
    file.write_text("\n".join(lines))
    with pytest.raises(JobsFileRefused, match=r"'supervised' with a table \[job.spark\]"):
        read_jobs()
    file.write_text("\n".join(lines).replace('submit = "supervised"', 'submit = "spark-submit"'))
    (job,) = read_jobs()
    assert (job.name, job.settings, job.max_age_s) == ("orders", {"job.parallelism": 4}, 604_800)
    assert isinstance(job.spark, SparkEntry)
    assert job.spark.properties == {"spark.executor.instances": "4"}
    named = {name for name in JobEntry.__dataclass_fields__ if any(line.startswith(f"{name} =") for line in lines)}
    assert named == set(JobEntry.__dataclass_fields__) - {"spark"}


def test_the_example_as_it_lies_there_has_no_job() -> None:
    assert read_jobs(EXAMPLE.parents[1] / "dags") == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs = 1", r"jobs is not a key(?s:.*)did you mean job"),
        ("job = 1", r"write \[\[job\]\]"),
        ('[[job]]\nname = "o"', r"missing required field `flow`(?s:.*)job 'o'"),
        ('[[job]]\nname = "o"\nflw = "f"', r"flw is not a key(?s:.*)did you mean flow"),
        ('[[job]]\nname = "o"\nflow = "f"\nkeep = "3"', r"Expected `int`, got `str` - at `\$.keep`"),
        ('[[job]]\nname = "o"\nflow = "f"\nkeep = 0', "keep is 0"),
        ('[[job]]\nname = "o"\nflow = "f"\nkeep = true', "Expected `int`"),
        ('[[job]]\nname = "o"\nflow = "f"\nsnapshot = "often"', "snapshot is 'often'"),
        ('[[job]]\nname = "o"\nflow = "f"\nmax_age = "1 week"', "max_age is '1 week'"),
        ('[[job]]\nname = "o"\nflow = "f"\nsubmit = "yarn"', "Invalid enum value 'yarn'"),
        ('[[job]]\nname = "o"\nflow = "f"\nsubmit = "spark-submit"', r"without a table \[job.spark\]"),
        ('[[job]]\nname = " "\nflow = "f"', "name is empty"),
        (
            '[[job]]\nname = "o"\nflow = "f"\n[job.spark]\nmastr = "yarn"',
            r"mastr is not a key(?s:.*)mean master",
        ),
        (
            '[[job]]\nname = "a b"\nflow = "f"\n[[job]]\nname = "a_b"\nflow = "f"',
            "DAGs with the same id: a_b",
        ),
        ("[[job", "it is not TOML"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(JobsFileRefused, match=says) as raised:
        read_jobs()
    assert str(file) in str(raised.value)


def test_a_file_that_is_named_must_be_there_and_the_default_need_not(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobsFileRefused, match="no such file"):
        read_jobs()
    monkeypatch.delenv(VARIABLE)
    assert read_jobs(tmp_path / "dags") == ()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/airflow.toml").write_text('[[job]]\nname = "o"\nflow = "f"\nsnapshot = "*/5 * * * *"\n')
    (job,) = read_jobs(tmp_path / "dags")
    assert job.schedule == "*/5 * * * *"
