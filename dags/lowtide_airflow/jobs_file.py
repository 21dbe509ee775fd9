"""The jobs file: the jobs that Airflow runs, each with a DAG per purpose.

It is `conf/airflow.toml` beside the folder of the DAG files, or the file that LOWTIDE_AIRFLOW_CONF names. It is read
whenever Airflow parses the DAG files; no other file or service is.

A job's mistake stays that job's, and takes from it only the DAGs that need the key: a wrong schedule of snapshots
leaves its recovery. `lowtide_jobs_file.py`, a DAG file without DAGs, shows every mistake as one import error.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from lowtide_airflow.errors import JobsFileRefused

VARIABLE = "LOWTIDE_AIRFLOW_CONF"
DEFAULT = "conf/airflow.toml"
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_AGE = re.compile(r"([0-9]+)\s*(second|minute|hour|day)s?")
_CRON = (
    (0, 59, ""),
    (0, 23, ""),
    (1, 31, "l"),
    (1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    (0, 7, "sun mon tue wed thu fri sat"),
)
"""By field of a cron expression the least and the greatest number, and its names."""
_CRON_PART = re.compile(r"(\*|(?P<first>\w+)(-(?P<last>\w+))?)(/(?P<step>\d+))?")
_NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
MOST_CHARS = 200
"""Of a job's name: Airflow's ids of DAGs have at most 250."""
_STARTS = ("submit", "recover", "rewind", "rescale")
PURPOSES = (*_STARTS, "snapshot", "hour_complete", "hourly_report")
"""The purposes of a job's DAGs, as in their ids."""
_NEEDED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("flow", "submit", "conf", "settings", "spark"), _STARTS),
    **dict.fromkeys(("snapshot", "keep", "max_age"), ("snapshot",)),
    "recover": ("recover",),
    "hour_complete": ("hour_complete", "hourly_report"),
    **dict.fromkeys(("owner", "contact", "notify"), ()),
}
"""By key the DAGs that need it; all of them need any other."""
_WRITTEN = "correct it; `python -m lowtide_airflow jobs-file FILE` writes every key"


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
        dags: the purposes of its DAGs, as in their ids; without any, all. What has no DAG is done by hand.
        recover: whether to restart a dead job from its last good commit.
        owner: the owner shown in Airflow.
        contact: whom to notify when a person is needed; free text, shown with the question.
        notify: notifiers that are called when a run of one of its DAGs has failed, each "package.module:name" that the
            DAG processor can import: an instance of a notifier, or a function of the context.
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
    dags: tuple[str, ...] = ()
    recover: bool = True
    owner: str = "lowtide"
    contact: str = ""
    notify: tuple[str, ...] = ()
    hour_complete: bool = False
    spark: SparkEntry | None = None

    @property
    def dag_name(self) -> str:
        """The job's name in ids of DAGs, which have only letters, digits, `_`, `-` and `.`."""
        return name_in_ids(self.name)

    def has(self, purpose: str) -> bool:
        """Return whether the job is to have the DAG of a purpose."""
        return not self.dags or purpose in self.dags

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


def name_in_ids(name: str) -> str:
    """Return a name as it is in ids of Airflow."""
    return re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)


def read_jobs(dags_folder: Path | str | None = None, purpose: str | None = None) -> tuple[JobEntry, ...]:
    """Read the jobs that have the DAG of a purpose. A mistake in a job takes from it the DAGs that need that key.

    Args:
        dags_folder: the folder of the DAG files; `conf/` is beside it. By default `conf/` is in the working directory.
        purpose: what the DAG does, as in its id; None for the jobs without any mistake.

    Returns:
        Its jobs; none if the default file does not exist.

    Raises:
        JobsFileRefused: the file that LOWTIDE_AIRFLOW_CONF names does not exist, or a file is not TOML.
    """
    listed = _read(dags_folder).listed
    if purpose is None:
        return tuple(each.job for each in listed if not each.without)
    return tuple(each.job for each in listed if purpose not in each.without and each.job.has(purpose))


def jobs_to_recover(dags_folder: Path | str | None = None) -> tuple[JobEntry, ...]:
    """Read the jobs of which is known how they are to be recovered, by a DAG or by hand.

    Arguments and errors are those of `read_jobs`.
    """
    return tuple(each.job for each in _read(dags_folder).listed if "recover" not in each.without)


def read_mistakes(dags_folder: Path | str | None = None) -> tuple[JobsFileRefused, ...]:
    """Return every mistake of the jobs file, with its job, its place and the DAGs that the job lacks by it.

    Arguments and errors are those of `read_jobs`.
    """
    return _read(dags_folder).mistakes


@dataclass(frozen=True, slots=True)
class _Listed:
    """A job, and the purposes for which it has no DAG."""

    job: JobEntry
    without: frozenset[str]


@dataclass(frozen=True, slots=True)
class _JobsFile:
    listed: tuple[_Listed, ...] = ()
    mistakes: tuple[JobsFileRefused, ...] = ()


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A mistake in the value of a key, or in a key that may have been meant; "" for any."""

    key: str
    what: str
    way_out: str


def _read(dags_folder: Path | str | None) -> _JobsFile:
    named = os.environ.get(VARIABLE)
    beside = Path(dags_folder).resolve().parent if dags_folder else Path()
    file = Path(named) if named else beside / DEFAULT
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        if named:
            raise JobsFileRefused("no such file", where=str(file), way_out=f"correct {VARIABLE}") from None
        return _JobsFile()
    except (OSError, ValueError) as error:
        raise JobsFileRefused(f"cannot read it: {error}", where=str(file), way_out="correct the file") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobsFileRefused(
            f"the file is not TOML, so no job has DAGs: {error}", where=str(file), way_out="correct that line"
        ) from error
    return _jobs(values, str(file))


def _jobs(values: dict[str, Any], file: str) -> _JobsFile:
    """The file's jobs. Of two whose DAGs have the same ids the first keeps them."""
    mistakes = [JobsFileRefused(each.what, where=file, way_out=each.way_out) for each in _unknown(values, ("job",))]
    found = values.get("job", [])
    if not isinstance(found, list):
        refused = JobsFileRefused("[job] is a single table", where=file, way_out="write [[job]], once for each job")
        return _JobsFile((), (*mistakes, refused))
    listed: dict[str, _Listed] = {}
    for number, each in enumerate(found, 1):
        name = each.get("name") if isinstance(each, dict) else None
        where = f"{file}, job {name!r}" if name else f"{file}, [[job]] number {number}"
        job, wrong = _entry(each)
        if job is not None and job.dag_name in listed:
            what = f"an earlier job has DAGs with the same ids, which end in {job.dag_name}"
            job, wrong = None, [*wrong, _Mistake("name", what, "remove one of them, or rename it")]
        without = frozenset(purpose for mistake in wrong for purpose in _NEEDED_BY.get(mistake.key, PURPOSES))
        lacks = f"these DAGs are missing: {', '.join(sorted(without))}" if without else "it has all of its DAGs"
        what = "it has no DAGs" if without == set(PURPOSES) else lacks
        mistakes += [JobsFileRefused(f"{each.what}; {what}", where=where, way_out=each.way_out) for each in wrong]
        if job is not None:
            listed[job.dag_name] = _Listed(job, without)
    return _JobsFile(tuple(listed.values()), tuple(mistakes))


def _entry(values: Any) -> tuple[JobEntry | None, list[_Mistake]]:
    """One job and its mistakes; a key of the wrong type has its default. None for one without a name."""
    if not isinstance(values, dict):
        return None, [_Mistake("name", "it is not a table", "write [[job]] and keys below it")]
    mistakes = _unknown(values, _names(JobEntry))
    if isinstance(spark := values.get("spark"), dict):
        unknown = _unknown(spark, _names(SparkEntry))
        mistakes += [_Mistake("spark", f"spark.{each.what}", each.way_out) for each in unknown]
    known = {"name": "", "flow": ""}
    for key, value in values.items():
        if key not in _names(JobEntry) or key in {mistake.key for mistake in mistakes}:
            continue
        try:
            msgspec.convert({"name": "", "flow": "", key: value}, JobEntry)
        except msgspec.ValidationError as error:
            mistakes.append(_Mistake(key, str(error), _WRITTEN))
        else:
            known[key] = value
    wrong = {mistake.key for mistake in mistakes}
    missing = [key for key in ("name", "flow") if key not in values and key not in wrong]
    mistakes += [_Mistake(key, f"{key} is missing", _WRITTEN) for key in missing]
    job = msgspec.convert(known, JobEntry)
    wrong.update(missing)
    for key, what, way_out in _checked(job):
        if key not in wrong and not (key == "spark" and "submit" in wrong):
            mistakes.append(_Mistake(key, what, way_out))
    return (job if job.name.strip() else None), mistakes


def _checked(job: JobEntry) -> Iterator[tuple[str, str, str]]:
    """Each key whose value cannot be, with what is wrong and the way out."""
    for wrong, key, what, way_out in (
        (not job.name.strip(), "name", "name is empty", "give the flow's name"),
        (len(job.name) > MOST_CHARS, "name", f"name has {len(job.name)} characters", f"use at most {MOST_CHARS}"),
        (not job.flow.strip(), "flow", "flow is empty", "give the path of the flow's file"),
        (job.keep < 1, "keep", f"keep is {job.keep}", "keep at least one commit"),
        (
            bool(job.max_age) and not _seconds(job.max_age),
            "max_age",
            f"max_age is {job.max_age!r}",
            'write "36 hours" or "7 days"',
        ),
        (
            not set(job.dags) <= set(PURPOSES),
            "dags",
            f"dags is {list(job.dags)!r}",
            f"name some of {', '.join(PURPOSES)}; without the key, the job has all",
        ),
        (
            not all(_NAMED.fullmatch(each) for each in job.notify),
            "notify",
            f"notify is {list(job.notify)!r}",
            'write ["package.module:name"], which the DAG processor can import',
        ),
        (
            job.snapshot != "never" and not _seconds(job.snapshot) and not _is_cron(job.snapshot),
            "snapshot",
            f"snapshot is {job.snapshot!r}",
            'write "10 minutes", a cron expression like "*/10 * * * *", or "never"',
        ),
        (
            (job.submit == "spark-submit") != (job.spark is not None),
            "spark",
            f"submit is {job.submit!r} {'without' if job.spark is None else 'with'} a table [job.spark]",
            'give submit = "spark-submit" and [job.spark] together, or neither',
        ),
    ):
        if wrong:
            yield key, what, way_out


def _is_cron(text: str) -> bool:
    """True if a text is a cron expression of five fields."""
    given = text.split()
    return len(given) == len(_CRON) and all(
        _is_cron_field(each, *bounds) for each, bounds in zip(given, _CRON, strict=True)
    )


def _is_cron_field(text: str, low: int, high: int, names: str) -> bool:
    for part in text.lower().split(","):
        found = _CRON_PART.fullmatch(part)
        if found is None or found["step"] == "0":
            return False
        for value in (found["first"], found["last"]):
            if value and value not in names.split() and not (value.isdigit() and low <= int(value) <= high):
                return False
    return True


def _seconds(text: str) -> float | None:
    """A length of time in seconds; None if the text is not one."""
    found = _AGE.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2]] if found else None


def _names(kind: type[JobEntry | SparkEntry]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _unknown(values: dict[str, Any], known: tuple[str, ...]) -> list[_Mistake]:
    """A mistake for each key that is none; it concerns the key that was probably meant."""
    found = []
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            way_out = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            found.append(_Mistake(near[0] if near else "", f"{key} is not a key", way_out))
    return found
