"""The jobs file: every key, and every fault with its place."""

import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from lowtide_airflow.errors import JobsFileRefused
from lowtide_airflow.jobs_file import (
    PURPOSES,
    VARIABLE,
    JobEntry,
    SparkEntry,
    jobs_to_recover,
    read_jobs,
    read_mistakes,
)

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
    (mistake,) = read_mistakes()
    assert "'supervised' with a table [job.spark]" in str(mistake)
    file.write_text("\n".join(lines).replace('submit = "supervised"', 'submit = "spark-submit"'))
    (job,) = read_jobs()
    assert (job.name, job.settings, job.max_age_s) == ("orders", {"job.parallelism": 4}, 604_800)
    assert isinstance(job.spark, SparkEntry)
    assert job.spark.properties == {"spark.executor.instances": "4"}
    named = {name for name in JobEntry.__dataclass_fields__ if any(line.startswith(f"{name} =") for line in lines)}
    assert named == set(JobEntry.__dataclass_fields__) - {"spark"}


def test_the_example_as_it_lies_there_has_no_job() -> None:
    assert read_jobs(EXAMPLE.parents[1] / "dags") == ()


def test_a_job_has_only_the_dags_that_its_line_names(file: Path) -> None:
    file.write_text('[[job]]\nname = "o"\nflow = "f"\ndags = ["snapshot"]\n')
    assert {purpose for purpose in PURPOSES if read_jobs(None, purpose)} == {"snapshot"}
    assert [each.name for each in jobs_to_recover()] == ["o"]
    file.write_text('[[job]]\nname = "o"\nflow = "f"\ndags = ["snapshots"]\n')
    (mistake,) = read_mistakes()
    assert "dags is ['snapshots']" in str(mistake)
    assert "name some of submit, recover" in str(mistake)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("jobs = 1", r"jobs is not a key(?s:.*)did you mean job"),
        ("job = 1", r"write \[\[job\]\]"),
        ("job = [1]", r"it is not a table(?s:.*)\[\[job\]\] number 1"),
        ('[[job]]\nflow = "f"', r"name is missing(?s:.*)\[\[job\]\] number 1"),
        ('[[job]]\nname = "o"', r"flow is missing(?s:.*)job 'o'"),
        ('[[job]]\nname = 5\nflow = "f"', r"Expected `str`, got `int` - at `\$.name`; it has no DAGs"),
        ('[[job]]\nname = "o"\nflw = "f"', r"flw is not a key(?s:.*)did you mean flow"),
        ('[[job]]\nname = "o"\nflow = "f"\nkeep = "3"', r"Expected `int`, got `str` - at `\$.keep`"),
        ('[[job]]\nname = "o"\nflow = "f"\nkeep = 0', "keep is 0"),
        ('[[job]]\nname = "o"\nflow = "f"\nkeep = true', "Expected `int`"),
        ('[[job]]\nname = "o"\nflow = "f"\nsnapshot = "often"', "snapshot is 'often'"),
        ('[[job]]\nname = "o"\nflow = "f"\nsnapshot = "* 24 * * *"', "these DAGs are missing: snapshot"),
        (f'[[job]]\nname = "{"o" * 201}"\nflow = "f"', "name has 201 characters"),
        ('[[job]]\nname = "o"\nflow = "f"\ncontact = 5', "it has all of its DAGs"),
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
            r"an earlier job has DAGs with the same ids, which end in a_b(?s:.*)job 'a_b'",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    (mistake,) = read_mistakes()
    assert re.search(says, str(mistake))
    assert str(file) in str(mistake)


def test_a_file_that_is_not_toml_is_refused_as_a_whole(file: Path) -> None:
    file.write_text('[[job]]\nname = o\nflow = "f"\n')
    for read in (read_jobs, read_mistakes):
        with pytest.raises(JobsFileRefused, match=r"the file is not TOML, so no job has DAGs: .*line 2") as raised:
            read()
        assert str(file) in str(raised.value)


KEYS = [each.name for each in fields(JobEntry)]


@pytest.mark.parametrize("key", KEYS)
def test_whatever_is_wrong_with_a_key_is_no_other_jobs_matter(file: Path, key: str) -> None:
    others = [f'[[job]]\nname = "{name}"\nflow = "f"\n' for name in ("before", "after")]
    good = {"name": '"wrong"', "flow": '"f"'}
    for change in ({key: "[[1]]"}, {f"{key}x": '"?"'}, {f"zz{key}zz": "1"}, {key: '""'}, {key: None}):
        wrong = [f"{name} = {value}" for name, value in {**good, **change}.items() if value is not None]
        file.write_text("\n".join([others[0], "[[job]]", *wrong, others[1]]))
        for purpose in PURPOSES:
            there = {each.name for each in read_jobs(None, purpose)}
            assert {"before", "after"} <= there
            assert "wrong" in there or read_mistakes()


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("*/5 * * * *", True),
        ("0 3,15 1-7 jan-mar mon", True),
        ("30 4 L * *", True),
        ("60 * * * *", False),
        ("* * * * 8", False),
        ("*/0 * * * *", False),
        ("a b c d e", False),
        ("* * * *", False),
    ],
)
def test_a_cron_expression_is_read_before_airflow_reads_it(file: Path, text: str, is_one: bool) -> None:
    file.write_text(f'[[job]]\nname = "o"\nflow = "f"\nsnapshot = "{text}"\n')
    assert bool(read_jobs(None, "snapshot")) == is_one
    assert len(read_jobs(None, "recover")) == 1


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
