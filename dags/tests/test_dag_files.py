"""The DAG files: the DAGs of a jobs file, and their survival in Airflow's store."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from lowtide_airflow.jobs_file import VARIABLE

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("airflow_home")]

DAGS = Path(__file__).parents[1]
JOBS = """
[[job]]
name = "orders"
flow = "/opt/orders.py"
snapshot = "*/5 * * * *"
keep = 3
contact = "orders on call"
hour_complete = true
settings = { "job.parallelism" = 4, "job.lanes" = 8 }

[[job]]
name = "clicks of today"
flow = "local:///opt/clicks.py"
submit = "spark-submit"
recover = false
snapshot = "never"
[job.spark]
master = "k8s://https://k:6443"
image = "lowtide:1"
"""
PURPOSES = {"submit", "snapshot", "recover", "rewind", "rescale"}


@pytest.fixture(name="bag", scope="module")
def _bag(airflow_home: Path) -> Any:
    from airflow_names import DagBag

    (airflow_home / "jobs.toml").write_text(JOBS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(VARIABLE, str(airflow_home / "jobs.toml"))
        return DagBag(dag_folder=str(DAGS))


def test_each_job_has_a_dag_for_each_purpose(bag: Any) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {
        *(f"lowtide_{purpose}__orders" for purpose in {*PURPOSES, "hour_complete", "hourly_report"}),
        *(f"lowtide_{purpose}__clicks_of_today" for purpose in PURPOSES),
    }


def test_every_dag_is_described_typed_and_stored(bag: Any) -> None:
    from airflow_names import DagSerialization

    for dag in bag.dags.values():
        assert "**Job**" in dag.doc_md
        # A question that waits for a person does not keep later deaths waiting.
        assert dag.max_active_runs == (3 if "_recover__" in dag.dag_id else 1)
        assert all(task.retries >= 1 or task.task_id == "ask_a_person" for task in dag.tasks), dag.dag_id
        assert not dag.catchup
        assert {"lowtide"} < dag.tags
        for name in dag.params:
            parameter = dag.params.get_param(name)
            assert parameter.schema.get("type"), (dag.dag_id, name)
            assert parameter.description, (dag.dag_id, name)
        stored = DagSerialization.serialize_dag(dag)
        assert json.dumps(DagSerialization.to_dict(dag)), "as Airflow keeps it"
        assert DagSerialization.deserialize_dag(stored).dag_id == dag.dag_id
    assert "orders on call" in bag.dags["lowtide_recover__orders"].doc_md


def test_every_argument_of_an_operator_is_stored_with_its_task(bag: Any) -> None:
    from airflow_names import DagSerialization

    from lowtide_airflow.operators.base import LowtideOperator

    seen = set()
    for dag in bag.dags.values():
        stored = {task["__var"]["task_id"]: task["__var"] for task in DagSerialization.serialize_dag(dag)["tasks"]}
        for task in dag.tasks:
            if not isinstance(task, LowtideOperator):
                continue
            seen.add(task.task_type)
            kinds = [kind for kind in type(task).__mro__ if issubclass(kind, LowtideOperator)]
            named = {name for kind in kinds for name in inspect.signature(vars(kind).get("__init__", kind)).parameters}
            named -= {"self", "kwargs", "args"}
            assert named <= set(task.template_fields), task
            for name in named:
                if getattr(task, name) is not None:
                    assert name in stored[task.task_id], (task, name)
    from lowtide_airflow import operators

    assert seen == set(operators.__all__)


SECRET = "hunter2-of-a-test"
WITH_SECRETS = f"""
[[job]]
name = "hiding"
flow = "local:///opt/orders.py"
submit = "spark-submit"
settings = {{ "spark.properties.spark.ssl.keyPassword" = "{SECRET}" }}
[job.spark]
master = "k8s://https://k:6443"
image = "lowtide:1"
[job.spark.properties]
"spark.executor.instances" = "4"
"spark.hadoop.fs.s3a.secret.key" = "{SECRET}"
"spark.executorEnv.AWS_ACCESS_KEY_ID" = "{SECRET}"
"spark.driver.extraJavaOptions" = "-Xss4m -Djavax.net.ssl.trustStorePassword={SECRET}"
"spark.hadoop.fs.azure.account.key.lake" = "{{{{ '{SECRET}'[:3] }}}}{SECRET[3:]}"
"""


def test_no_secret_of_a_job_is_stored_or_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
    from airflow_names import DagBag, DagSerialization

    from lowtide_airflow.job.spark_submit import SparkSubmit
    from lowtide_airflow.operators import PreviewFlowOperator
    from lowtide_airflow.operators.job import StartOperator

    (tmp_path / "jobs.toml").write_text(WITH_SECRETS)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "jobs.toml"))
    monkeypatch.setenv("AIRFLOW_CONN_LOWTIDE_DEFAULT", '{"conn_type": "lowtide", "host": "zk"}')
    bag = DagBag(dag_folder=str(DAGS))
    starting: list[StartOperator] = []
    for dag in bag.dags.values():
        stored = json.dumps(DagSerialization.to_dict(dag))
        assert SECRET[3:] not in stored
        starting += [task for task in dag.tasks if isinstance(task, StartOperator)]
    assert len(starting) > len(bag.dags) - 2
    for task in starting:
        task.template_fields = ("settings", "spark_properties")
        task.render_template_fields({"var": {"value": {}}, "params": {"parallelism": 4}})
        assert SECRET not in json.dumps(_serialize_rendered_fields(task))
        assert SECRET not in repr(task.spark_properties)
    preview = next(task for task in starting if isinstance(task, PreviewFlowOperator))
    launcher = preview.launcher()
    assert isinstance(launcher, SparkSubmit)
    said: list[object] = []
    arguments = launcher.arguments(preview.start_point(), "k")
    assert sum(SECRET in text for text in arguments) == 5
    assert f"spark.hadoop.fs.azure.account.key.lake={SECRET}" in arguments
    launcher.preview(preview.start_point(), said.append)
    assert SECRET not in repr((launcher, preview.start_point(), said))
    assert "spark.executor.instances=4" in str(said[0])


def test_snapshots_are_scheduled_as_the_jobs_file_says(bag: Any) -> None:
    assert type(bag.dags["lowtide_snapshot__orders"].timetable).__name__ == "CronTriggerTimetable"
    assert bag.dags["lowtide_snapshot__clicks_of_today"].schedule is None
    assert bag.dags["lowtide_snapshot__orders"].params["keep"] == 3


def test_a_death_starts_a_recovery_unless_the_jobs_file_says_no(bag: Any) -> None:
    (died,) = bag.dags["lowtide_recover__orders"].schedule
    (watcher,) = died.watchers
    assert watcher.trigger.serialize()[1]["job"] == "orders"
    assert bag.dags["lowtide_recover__clicks_of_today"].schedule is None


def test_a_parallelism_that_was_set_by_rescaling_goes_before_the_jobs_file(bag: Any) -> None:
    run = bag.dags["lowtide_submit__orders"].get_task("run")
    assert run.settings == {
        "job.lanes": 8,
        "job.parallelism": "{{ var.value.get('lowtide_parallelism__orders', '4') }}",
    }


def test_without_a_jobs_file_there_are_no_dags_and_a_wrong_one_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_names import DagBag

    monkeypatch.delenv(VARIABLE, raising=False)
    assert DagBag(dag_folder=str(DAGS)).dags == {}
    wrong = tmp_path / "jobs.toml"
    wrong.write_text('[[job]]\nname = "o"\nflw = "f"\n')
    monkeypatch.setenv(VARIABLE, str(wrong))
    (error,) = DagBag(dag_folder=str(DAGS)).import_errors.items()
    assert Path(error[0]).name == "lowtide_jobs_file.py"
    assert "did you mean flow" in error[1]
    wrong.write_text("[[job]\nname = 'o'\n")
    errors = DagBag(dag_folder=str(DAGS)).import_errors
    assert {Path(file).name for file in errors} == {file.name for file in DAGS.glob("lowtide_*.py")}
    assert all("the file is not TOML, so no job has DAGs" in error for error in errors.values())


@pytest.mark.parametrize(
    ("mistake", "missing"),
    [
        ('snapshott = "never"', {"snapshot"}),
        ('snapshot = "61 * * * *"', {"snapshot"}),
        ("keep = 0", {"snapshot"}),
        ('max_age = "1 week"', {"snapshot"}),
        ("recvoer = false", {"recover"}),
        ('hour_complete = "yes"', {"hour_complete", "hourly_report"}),
        ("contact = 5", set()),
        ('confg = "x.toml"', {"submit", "recover", "rewind", "rescale"}),
        ('submit = "yarn"', {"submit", "recover", "rewind", "rescale"}),
        ('conection = "elsewhere"', {*PURPOSES, "hour_complete", "hourly_report"}),
        ("zzz = 1", {*PURPOSES, "hour_complete", "hourly_report"}),
    ],
)
def test_a_jobs_mistake_stays_that_jobs_and_takes_the_dags_that_need_the_key(
    mistake: str, missing: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_names import DagBag

    both = ({*PURPOSES, "hour_complete", "hourly_report"}, PURPOSES)
    good = '[[job]]\nname = "good"\nflow = "f"\n'
    wrong = f'[[job]]\nname = "wrong"\nflow = "f"\n{mistake}\n'
    announced = "" if "hour_complete" in mistake else "hour_complete = true\n"
    (tmp_path / "jobs.toml").write_text(f"{wrong}{announced}{good}")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "jobs.toml"))
    bag = DagBag(dag_folder=str(DAGS))
    assert set(bag.dags) == {
        *(f"lowtide_{purpose}__wrong" for purpose in both[0] - missing),
        *(f"lowtide_{purpose}__good" for purpose in both[1]),
    }
    (file,) = bag.import_errors
    assert Path(file).name == "lowtide_jobs_file.py"
    assert "job 'wrong'" in bag.import_errors[file]
    assert mistake.partition(" = ")[0] in bag.import_errors[file]
