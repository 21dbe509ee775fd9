"""Command lines of launchers, and the refusal of starts that cannot run on a cluster."""

from __future__ import annotations

import signal
import stat
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_airflow.errors import SubmitFailed
from lowtide_airflow.job.program import Start, Supervised
from lowtide_airflow.job.spark_submit import SparkSubmit
from lowtide_airflow.job.submission import key_of
from lowtide_airflow.jobs_file import SparkEntry

YARN = SparkEntry("yarn", queue="streaming", archive="hdfs:///environment.tar.gz#environment", jars=("a.jar", "b.jar"))
KUBERNETES = SparkEntry("k8s://https://k:6443", namespace="streams", image="lowtide:1", service_account="spark")
STANDALONE = SparkEntry("spark://s:7077", python="/opt/lowtide/bin/python", jars=("local:///opt/shim.jar", "b.jar"))


def nobody(_text: object) -> None:
    pass


def pairs(arguments: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(arguments) if name == option]


def test_a_supervised_start_is_run_or_recover_with_its_key() -> None:
    lowtide = Supervised("lowtide")
    plain = Start("flow.py", "conf.toml", {"job.parallelism": 4, "spark.web_ui": True, "job.lanes": ""})
    assert lowtide.arguments(plain, "k") == [
        *("lowtide", "run", "flow.py", "--detach", "--json", "--conf", "conf.toml"),
        *("--set", "job.parallelism=4", "--set", "spark.web_ui=true", "--set", "job.submission=k"),
    ]
    assert lowtide.arguments(Start("flow.py", no_state=True), "k")[1:6] == [
        *("run", "flow.py", "--detach", "--json", "--allow-no-state"),
    ]
    assert lowtide.arguments(Start("flow.py", require_state=True), "k")[5] == "--require-state"
    chosen = Start("flow.py", commit="000001-0002", redeliver=True)
    assert lowtide.arguments(chosen, "k")[1:8] == [
        *("recover", "flow.py", "--detach", "--json", "--commit", "000001-0002", "--redeliver"),
    ]
    assert lowtide.arguments(Start("flow.py", time="2026-11-21T19:43:30"), "k")[1] == "recover"
    despite = replace(chosen, despite_readers=True)
    assert lowtide.arguments(despite, "k")[7:9] == ["--redeliver", "--despite-readers"]
    assert "--despite-readers" not in lowtide.arguments(replace(despite, redeliver=False), "k")


def test_a_key_is_the_same_in_all_tries_of_a_task_instance_and_of_no_other() -> None:
    assert key_of("dag", "run", "task") == "airflow:dag/run/task"
    assert key_of("dag", "run", "task", 0) == "airflow:dag/run/task[0]"
    long = {key_of("d" * 250, "r" * 250, "t" * 250, index) for index in range(3)}
    assert len(long) == 3
    assert {len(key) for key in long} == {160}


def test_on_yarn_the_driver_runs_in_the_cluster_and_nobody_waits_for_it() -> None:
    submit = SparkSubmit("orders", YARN, "/opt/spark/bin/spark-submit")
    arguments = submit.arguments(Start("/opt/orders.py", "/etc/orders.toml", {"job.lanes": 4}), "airflow:d/r/t")
    assert arguments[:9] == [
        *("/opt/spark/bin/spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "--name", "orders"),
        *("--queue", "streaming"),
    ]
    assert pairs(arguments, "--archives") == ["hdfs:///environment.tar.gz#environment"]
    assert pairs(arguments, "--jars") == ["a.jar,b.jar"]
    assert pairs(arguments, "--files") == ["/etc/orders.toml"]
    program = arguments.index("/opt/orders.py")
    assert arguments[program:] == [
        *("/opt/orders.py", "--conf", "orders.toml", "--set", "job.lanes=4"),
        *("--set", "job.submission=airflow:d/r/t"),
    ]
    properties = dict(each.split("=", 1) for each in pairs(arguments[:program], "--conf"))
    assert properties == {
        "spark.plugins": "io.lowtide.LowtidePlugin",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.maxAppAttempts": "1",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": "./environment/bin/python",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
        "spark.executorEnv.PYSPARK_PYTHON": "./environment/bin/python",
    }


def test_on_a_cluster_too_a_job_begins_from_a_chosen_commit() -> None:
    arguments = SparkSubmit("orders", YARN).arguments(
        Start("/opt/orders.py", commit="000001-0002", redeliver=True), "k"
    )
    assert arguments[arguments.index("/opt/orders.py") :] == [
        *("/opt/orders.py", "recover", "--commit", "000001-0002", "--redeliver", "--set", "job.submission=k"),
    ]


def test_on_kubernetes_the_image_has_the_flow_and_the_conf() -> None:
    submit = SparkSubmit("orders", KUBERNETES)
    start = Start("local:///opt/orders.py", "local:///etc/lowtide.toml", no_state=True)
    arguments = submit.arguments(start, "k")
    program = arguments.index("local:///opt/orders.py")
    assert arguments[program:] == [
        *("local:///opt/orders.py", "--allow-no-state", "--conf", "/etc/lowtide.toml", "--set", "job.submission=k"),
    ]
    assert "--files" not in arguments
    properties = dict(each.split("=", 1) for each in pairs(arguments[:program], "--conf"))
    assert properties == {
        "spark.plugins": "io.lowtide.LowtidePlugin",
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.container.image": "lowtide:1",
        "spark.kubernetes.namespace": "streams",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
    }


def test_on_a_standalone_cluster_the_workers_hosts_have_the_program() -> None:
    start = Start("local:///opt/orders.py", "local:///etc/lowtide.toml", no_state=True)
    arguments = SparkSubmit("orders", STANDALONE).arguments(start, "k")
    program = arguments.index("--class")
    assert arguments[program:] == [
        *("--class", "org.apache.spark.deploy.PythonRunner", "file:///opt/shim.jar", "/opt/orders.py", ""),
        *("--allow-no-state", "--conf", "/etc/lowtide.toml", "--set", "job.submission=k"),
    ]
    properties = dict(each.split("=", 1) for each in pairs(arguments[:program], "--conf"))
    assert properties == {
        "spark.plugins": "io.lowtide.LowtidePlugin",
        "spark.standalone.submit.waitAppCompletion": "false",
        "spark.driver.supervise": "false",
        "spark.pyspark.python": "/opt/lowtide/bin/python",
        "spark.pyspark.driver.python": "/opt/lowtide/bin/python",
    }


@pytest.mark.parametrize(
    ("spark", "start", "says"),
    [
        (SparkEntry("mesos://m:5050"), Start("f.py"), "cannot run the driver"),
        (STANDALONE, Start("/opt/f.py"), "flow is '/opt/f.py', which is not shipped there"),
        (STANDALONE, Start("local:///f.py", "conf.toml"), "conf is 'conf.toml', which is not shipped there"),
        (replace(STANDALONE, python="python3"), Start("local:///f.py"), "python is missing"),
        (replace(STANDALONE, jars=()), Start("local:///f.py"), "jars are missing"),
        (replace(STANDALONE, files=("a.csv",)), Start("local:///f.py"), "none are shipped"),
        (
            replace(STANDALONE, properties={"spark.driver.supervise": "true"}),
            Start("local:///f.py"),
            "properties set spark.driver.supervise",
        ),
        (SparkEntry("yarn"), Start("f.py"), "archive is missing"),
        (SparkEntry("yarn", archive="environment.tar.gz"), Start("f.py"), "give path#name"),
        (SparkEntry("k8s://x"), Start("local:///f.py"), "image is missing"),
        (KUBERNETES, Start("/opt/f.py"), "cannot see"),
        (KUBERNETES, Start("local:///f.py", "/etc/c.toml"), "conf is '/etc/c.toml'"),
        (YARN, Start("f.py:flow"), "spark-submit needs a file"),
        (
            SparkEntry("yarn", python="python3", properties={"spark.submit.deployMode": "client"}),
            Start("f.py"),
            "properties set spark.submit.deployMode",
        ),
    ],
)
def test_what_a_cluster_cannot_do_is_refused_before_it_is_called(spark: SparkEntry, start: Start, says: str) -> None:
    submit = SparkSubmit("orders", spark, "/nowhere/spark-submit")
    with pytest.raises(SubmitFailed, match=says) as raised:
        submit.submit(start, "k", nobody)
    assert raised.value.code == 2


@pytest.fixture(name="command")
def _command(tmp_path: Path) -> Any:
    def made(script: str) -> str:
        file = tmp_path / "command"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)

    return made


def test_a_command_that_fails_says_what_it_said(command: Any, tmp_path: Path) -> None:
    submit = Supervised(command('echo "error: no broker" >&2; exit 4'), str(tmp_path))
    said: list[object] = []
    with pytest.raises(SubmitFailed, match=r"it ended with 4: no broker(?s:.*)run flow.py --detach") as raised:
        submit.submit(Start("flow.py"), "k", said.append)
    assert raised.value.code == 4
    assert said[1:] == ["error: no broker"]


def test_what_a_command_says_is_passed_on_while_it_goes_on(command: Any, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = f'echo "starting Spark" >&2; until [ -e {heard} ]; do sleep 0.01; done; echo "ready" >&2'
    said: list[object] = []

    def say(line: object) -> None:
        said.append(line)
        if line == "starting Spark":
            heard.touch()

    Supervised(command(script), limit_s=HANGS_S).submit(Start("flow.py"), "k", say)
    assert said[1:] == ["starting Spark", "ready"]


def test_a_command_is_killed_with_the_task_that_called_it(command: Any) -> None:
    """Airflow ends a task by an exception; it must not wait for what the task has called."""
    main = threading.get_ident()

    def say(line: object) -> None:
        if line == "starting Spark":
            signal.pthread_kill(main, signal.SIGALRM)

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ended)
    began_s = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            Supervised(command('echo "starting Spark" >&2; exec sleep 1000')).submit(Start("flow.py"), "k", say)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began_s < HANGS_S


def test_no_secret_is_logged_or_raised(command: Any, tmp_path: Path) -> None:
    secret = "hunter2-of-a-test"
    script = 'for each in "$@"; do echo "got $each" >&2; done; echo "error: cannot read $*" >&2; exit 3'
    properties = {"spark.hadoop.fs.s3a.secret.key": secret, "spark.x": f"-Da.password={secret}"}
    start = Start(
        "local:///opt/orders.py", settings={"kafka.sasl_password": secret, "kafka.sasl_password_file": "/etc/word"}
    )
    on_a_cluster = SparkSubmit("orders", replace(STANDALONE, properties=properties), command(script))
    for launcher in (on_a_cluster, Supervised(command(script)), Supervised(str(tmp_path / "nowhere"))):
        said: list[object] = []
        with pytest.raises(SubmitFailed) as raised:
            launcher.submit(start, "k", said.append)
        assert secret in " ".join(launcher.arguments(start, "k"))
        assert secret not in f"{raised.value} {raised.value!r} {said}"
        assert "kafka.sasl_password_file=/etc/word" in str(said[0])


def test_a_command_that_hangs_is_killed(command: Any) -> None:
    with pytest.raises(SubmitFailed, match=r"did not return within 0\.2 s"):
        Supervised(command("exec sleep 1000"), limit_s=0.2).submit(Start("flow.py"), "k", nobody)


def test_a_command_that_is_not_there_is_named() -> None:
    with pytest.raises(SubmitFailed, match="cannot run /nowhere/lowtide: No such file"):
        Supervised("/nowhere/lowtide").submit(Start("flow.py"), "k", nobody)


def test_what_a_job_would_begin_with_is_what_the_dry_run_says(command: Any) -> None:
    submit = Supervised(command("""echo '{"records": 17}'; echo "$@" >&2"""))
    said: list[object] = []
    assert submit.preview(Start("flow.py", "c.toml", commit="x"), said.append) == {"records": 17}
    assert said[1] == "recover flow.py --dry-run --json --commit x --conf c.toml"
    assert SparkSubmit("orders", YARN).preview(Start("f.py"), said.append) is None
