"""The image file and the chart, as far as no container is needed: what they name is what this clone has."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lowtide.conf import Conf
from lowtide.version import __version__

ROOT = Path(__file__).parents[2]
IMAGE, CHART = ROOT / "infra/image", ROOT / "infra/helm/lowtide"
CONTAINERFILE = (IMAGE / "Containerfile").read_text()
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
PLUGIN: dict[str, Any] = tomllib.loads((ROOT / "plugin/pyproject.toml").read_text())["project"]
PRINTS = '#!/bin/sh\nprintf "%s\\n" "$@"\n'
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_CORES": "4",
    "SPARK_EXECUTOR_MEMORY": "2g",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "pod-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_image_and_chart_have_the_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    assert VALUES["image"].rpartition(":")[2] == __version__
    assert f"ARG VERSION={__version__}\n" in CONTAINERFILE
    spark = re.search(r"sparkVersion: (.*)", (CHART / "templates/job.yaml").read_text())
    assert spark is not None
    assert f"pyspark=={spark[1]}" in PLUGIN["dependencies"]


def test_the_chart_names_the_jars_of_a_job_and_a_conf_that_is_one(tmp_path: Path) -> None:
    lock = (ROOT / "plugin/lowtide/jars/jars.lock").read_text()
    assert VALUES["jars"] == sorted([*re.findall(r" connector/(\S+)", lock), "lowtide-shim.jar"])
    (tmp_path / "lowtide.toml").write_text(VALUES["conf"])
    assert not Conf.load(tmp_path / "lowtide.toml").embedded.enabled


def test_nothing_in_the_image_runs_as_root() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", CONTAINERFILE, re.MULTILINE)
    assert int(user) > 0
    assert f"useradd --uid {user} " in CONTAINERFILE
    assert f"runAsUser: {user}\n" in (CHART / "templates/_names.tpl").read_text()


@pytest.fixture(name="stand_ins")
def _stand_ins(tmp_path: Path) -> Path:
    """A folder with a Java and a spark-submit that print their arguments."""
    for name in ("java", "spark-submit"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(PRINTS)
        program.chmod(0o755)
    return tmp_path


def called(folder: Path, *arguments: str, **variables: str) -> list[str]:
    """The command that the entry point starts, an argument each."""
    known = {"PATH": os.environ["PATH"], "JAVA_HOME": str(folder), "SPARK_HOME": str(folder)}
    return subprocess.check_output([IMAGE / "entrypoint", *arguments], env=known | variables, text=True).splitlines()


def test_the_entry_point_starts_an_executor_with_all_that_spark_tells_it(stand_ins: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dspark.number={number} of many" for number in range(11)}
    said = called(stand_ins, "executor", **EXECUTOR, **options)
    assert said[:11] == list(options.values())
    at = said.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert said[11:at] == ["-Xms2g", "-Xmx2g", "-cp", f"/opt/spark/conf:{stand_ins}/jars/*"]
    given = dict(zip(said[at + 1 :: 2], said[at + 2 :: 2], strict=True))
    assert given == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "7",
        "--cores": "4",
        "--app-id": "app",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "pod-7",
    }


def test_the_entry_point_starts_a_driver_and_anything_else_as_it_is(stand_ins: Path) -> None:
    said = called(stand_ins, "driver", "--class", "a b", "local:///flow.py", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    assert said == [
        *("--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.1"),
        *("--class", "a b", "local:///flow.py"),
    ]
    assert called(stand_ins, "printf", "%s", "lowtide") == ["lowtide"]


def test_an_executor_without_a_driver_does_not_start(stand_ins: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        called(stand_ins, "executor", **{key: value for key, value in EXECUTOR.items() if key != "SPARK_DRIVER_URL"})
