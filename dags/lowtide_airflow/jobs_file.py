"""The jobs file: the jobs that Airflow runs, each with a DAG per purpose.

It is `conf/airflow.toml` beside the folder of the DAG files, or the file that LOWTIDE_AIRFLOW_CONF names. It is read
whenever Airflow parses the DAG files; no other file or service is.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from lowtide_airflow.errors import JobsFileRefused

__all__ = ["VARIABLE", "JobEntry", "SparkEntry", "read_jobs"]

VARIABLE = "LOWTIDE_AIRFLOW_CONF"
DEFAULT = "conf/airflow.toml"
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_AGE = re.compile(r"(\d+)\s*(second|minute|hour|day)s?")
_CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class SparkEntry:
    """The arguments of spark-submit for one job, the table `[job.spark]`.

    Attributes:
        master: "yarn", "k8s://https://host:port" or "spark://host:port".
        queue: YARN's queue.
        namespace: of Kubernetes.
        image: the container image with Lowtide and the flow, on Kubernetes.
        service_account: the one under which the driver creates its executors, on Kubernetes.
        archive: the packed environment, `path#name`, on YARN; its `bin/python` runs the driver and the executors.
        python: the interpreter, as a path on the cluster; on a standalone one that of the driver.
        jars: the paths that `lowtide submit-args` prints, as the cluster sees them.
        files: files to ship with the program: the conf.
        properties: Spark properties, passed through unchanged; no log shows the values of those that hold secrets.
    """

    master: str
    queue: str = ""
    namespace: str = "default"
    image: str = ""
    service_account: str = ""
    archive: str = ""
    python: str = ""
    jars: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One `[[job]]`.

    Attributes:
        name: the job's name, which is its flow's.
        flow: flow.py, or flow.py:name; a path on the machine that starts it.
        connection: the Airflow connection of type lowtide.
        submit: where the driver runs: "supervised" on the host of Airflow's worker, or "spark-submit" on a cluster.
        conf: the job's conf file; by default the connection's.
        settings: keys of the conf to override, `"job.parallelism" = 4`.
        snapshot: how often to take and commit a snapshot: "10 minutes", or a cron expression; "never": only by hand.
        keep: how many commits to keep.
        max_age: drop commits older than this, "7 days"; empty for no limit.
        recover: whether to restart a dead job from its last good commit.
        owner: the owner shown in Airflow.
        contact: whom to notify when a person is needed; free text, shown with the question.
        hour_complete: whether to announce each complete hour, which triggers the example of a batch DAG.
        spark: the arguments of spark-submit.
    """

    name: str
    flow: str
    connection: str = "lowtide_default"
    submit: Literal["supervised", "spark-submit"] = "supervised"
    conf: str = ""
    settings: dict[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    snapshot: str = "10 minutes"
    keep: int = 10
    max_age: str = ""
    recover: bool = True
    owner: str = "lowtide"
    contact: str = ""
    hour_complete: bool = False
    spark: SparkEntry | None = None

    @property
    def dag_name(self) -> str:
        """The job's name in ids of DAGs, which have only letters, digits, `_`, `-` and `.`."""
        return re.sub(r"[^\w.-]", "_", self.name, flags=re.ASCII)

    def dag_id(self, purpose: str) -> str:
        """Return the id of the job's DAG for a purpose."""
        return f"lowtide_{purpose}__{self.dag_name}"

    @property
    def schedule(self) -> timedelta | str | None:
        """The schedule of snapshots, in Airflow's form."""
        if self.snapshot == "never":
            return None
        seconds = _seconds(self.snapshot)
        return self.snapshot if seconds is None else timedelta(seconds=seconds)

    @property
    def max_age_s(self) -> float | None:
        """The greatest age of a commit in seconds; None for no limit."""
        return _seconds(self.max_age) if self.max_age else None


def read_jobs(dags_folder: Path | str | None = None) -> tuple[JobEntry, ...]:
    """Read the jobs file.

    Args:
        dags_folder: the folder of the DAG files; `conf/` is beside it. By default `conf/` is in the working directory.

    Returns:
        Its jobs; none if the default file does not exist.

    Raises:
        JobsFileRefused: the file that LOWTIDE_AIRFLOW_CONF names does not exist, or a file has a mistake.
    """
    named = os.environ.get(VARIABLE)
    beside = Path(dags_folder).resolve().parent if dags_folder else Path()
    file = Path(named) if named else beside / DEFAULT
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named:
            raise JobsFileRefused("there is no such file", where=str(file), way_out=f"correct {VARIABLE}") from None
        return ()
    except (OSError, ValueError) as error:
        raise JobsFileRefused(f"it cannot be read: {error}", where=str(file), way_out="correct the file") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobsFileRefused(f"it is not TOML: {error}", where=str(file), way_out="correct that line") from error
    return _jobs(values, str(file))


def _jobs(values: dict[str, Any], file: str) -> tuple[JobEntry, ...]:
    _must_be_known(values, ("job",), file)
    found = values.get("job", [])
    if not isinstance(found, list):
        raise JobsFileRefused("job is one table", where=file, way_out="write [[job]], once for each job")
    jobs = []
    for number, each in enumerate(found, 1):
        name = each.get("name") if isinstance(each, dict) else None
        where = f"{file}, job {name!r}" if name else f"{file}, [[job]] number {number}"
        job = _entry(each, where)
        _check(job, where)
        jobs.append(job)
    ids = [job.dag_name for job in jobs]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise JobsFileRefused(
            f"two jobs have DAGs with the same id: {twice[0]}",
            where=file,
            way_out="remove one of them, or rename it",
        )
    return tuple(jobs)


def _check(job: JobEntry, where: str) -> None:
    for wrong, what, way_out in (
        (not job.name.strip(), "name is empty", "give the flow's name"),
        (not job.flow.strip(), "flow is empty", "give the path of the flow's file"),
        (job.keep < 1, f"keep is {job.keep}", "keep one commit at least"),
        (
            bool(job.max_age) and not _seconds(job.max_age),
            f"max_age is {job.max_age!r}",
            'write "36 hours" or "7 days"',
        ),
        (
            job.snapshot != "never" and not _seconds(job.snapshot) and len(job.snapshot.split()) != _CRON_FIELDS,
            f"snapshot is {job.snapshot!r}",
            'write "10 minutes", a cron expression like "*/10 * * * *", or "never"',
        ),
        (
            (job.submit == "spark-submit") != (job.spark is not None),
            f"submit is {job.submit!r} {'without' if job.spark is None else 'with'} a table [job.spark]",
            'give submit = "spark-submit" and [job.spark] together, or neither',
        ),
    ):
        if wrong:
            raise JobsFileRefused(what, where=where, way_out=way_out)


def _seconds(text: str) -> float | None:
    """A length of time in seconds; None if the text is not one."""
    found = _AGE.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2]] if found else None


def _entry(values: Any, where: str) -> JobEntry:
    """One job; every key and type is checked against the class."""
    if not isinstance(values, dict):
        raise JobsFileRefused("it is not a table", where=where, way_out="write [[job]] and keys below it")
    _must_be_known(values, _names(JobEntry), where)
    if isinstance(spark := values.get("spark"), dict):
        _must_be_known(spark, _names(SparkEntry), f"{where}, spark")
    try:
        return msgspec.convert(values, JobEntry)
    except msgspec.ValidationError as error:
        raise JobsFileRefused(
            str(error), where=where, way_out="correct it; `python -m lowtide_airflow jobs-file FILE` writes every key"
        ) from error


def _names(kind: type[JobEntry | SparkEntry]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _must_be_known(values: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            way_out = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise JobsFileRefused(f"{key} is not a key", where=where, way_out=way_out)
