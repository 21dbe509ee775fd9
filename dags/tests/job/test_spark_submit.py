"""The real spark-submit with the provider's arguments: its plan for Kubernetes and for YARN.

For Kubernetes an API server of the test's takes the driver's pod. YARN's resource manager is not there to be asked:
what is seen is how spark-submit has understood the command.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide_airflow.job.program import Start
from lowtide_airflow.job.spark_submit import SparkSubmit
from lowtide_airflow.jobs_file import SparkEntry

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEY = "airflow:lowtide_submit__orders/manual__2026-11-21T22:30:14+00:00/run"


class Cluster:
    """As much of a Kubernetes API server as takes what is made in it.

    Attributes:
        made: by kind what was made.
        asked: the paths of what was posted.
    """

    def __init__(self) -> None:
        self.made: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(length))
                body.setdefault("metadata", {}).update({"uid": "1", "resourceVersion": "1"})
                cluster.asked.append(self.path)
                cluster.made.setdefault(body.get("kind", ""), []).append(body)
                self._answer(201, body)

            def do_PATCH(self) -> None:
                self.do_POST()

            def do_GET(self) -> None:
                self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

            def _answer(self, status: int, value: dict[str, Any]) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def master(self) -> str:
        return f"k8s://http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(name="cluster")
def _cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture(name="command")
def _command(monkeypatch: pytest.MonkeyPatch) -> str:
    folder = str(Path(sys.executable).parent)
    found = shutil.which("spark-submit", path=folder)
    assert found is not None, "pyspark brings it"
    # The script looks for the Python that has pyspark.
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return found


def test_on_kubernetes_the_drivers_pod_runs_the_flow_with_its_key_and_nobody_waits(
    cluster: Cluster, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    spark = SparkEntry(
        cluster.master, namespace="streams", image="lowtide:1", service_account="spark",
        python="/opt/lowtide/bin/python", jars=("local:///opt/lowtide/shim.jar",),
        properties={"spark.executor.instances": "3"},
    )  # fmt: skip
    said: list[object] = []
    start = Start("local:///opt/orders.py", "local:///etc/orders.toml", {"job.lanes": 4})
    SparkSubmit("orders", spark, command, limit_s=HANGS_S).submit(start, KEY, said.append)
    (pod,) = cluster.made["Pod"]
    assert any(path.startswith("/api/v1/namespaces/streams/pods") for path in cluster.asked)
    assert pod["spec"]["serviceAccountName"] == "spark"
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "lowtide:1"
    arguments = container["args"]
    program = arguments.index("local:///opt/orders.py")
    assert arguments[program + 1 :] == [
        *("--conf", "/etc/orders.toml", "--set", "job.lanes=4", "--set", f"job.submission={KEY}"),
    ]
    (properties,) = [
        made["data"]["spark.properties"] for made in cluster.made["ConfigMap"] if "spark.properties" in made["data"]
    ]
    for setting in (
        "spark.plugins=io.lowtide.LowtidePlugin",
        "spark.executor.instances=3",
        "spark.pyspark.python=/opt/lowtide/bin/python",
        "spark.kubernetes.submission.waitAppCompletion=false",
    ):
        assert setting in properties


def test_for_yarn_spark_submit_understands_the_command(command: str, tmp_path: Path) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    (tmp_path / "orders.py").write_text("")
    (tmp_path / "environment.tar.gz").write_bytes(b"")
    (tmp_path / "orders.toml").write_text("")
    spark = SparkEntry("yarn", queue="streaming", archive=f"{tmp_path}/environment.tar.gz#environment")
    submit = SparkSubmit("orders", spark, command)
    first, *rest = submit.arguments(Start(str(tmp_path / "orders.py"), str(tmp_path / "orders.toml")), KEY)
    process = subprocess.Popen(
        [first, "--verbose", *rest],
        env={**os.environ, "HADOOP_CONF_DIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    timer = threading.Timer(HANGS_S, process.kill)
    timer.start()
    said = ""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if "Classpath elements:" in line:
                break
    finally:
        timer.cancel()
        process.kill()
        process.wait(HANGS_S)
    parsed = dict(re.findall(r"^  (\w+) +(\S.*)$", said, re.MULTILINE))
    assert (parsed["master"], parsed["deployMode"], parsed["queue"]) == ("yarn", "cluster", "streaming")
    assert parsed["childArgs"] == f"[--conf orders.toml --set job.submission={KEY}]"
    assert "org.apache.spark.deploy.yarn.YarnClusterApplication" in said
    assert "(spark.yarn.submit.waitAppCompletion,false)" in said
    assert f"{tmp_path}/environment.tar.gz#environment" in said
