"""Launcher for clusters: runs `spark-submit --deploy-mode cluster` for YARN and Kubernetes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lowtide_airflow.errors import SubmitFailed
from lowtide_airflow.job.program import LIMIT_S, Log, Start, run_command
from lowtide_airflow.jobs_file import SparkEntry

__all__ = ["SparkSubmit"]

YARN_WAITS = "spark.yarn.submit.waitAppCompletion"
KUBERNETES_WAITS = "spark.kubernetes.submission.waitAppCompletion"
OURS = ("spark.submit.deployMode", "spark.yarn.maxAppAttempts", YARN_WAITS, KUBERNETES_WAITS)
PLUGIN = "io.lowtide.LowtidePlugin"
USAGE = 2


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """Submits the program to a cluster and returns when the cluster has accepted it; it never waits for the job.

    Attributes:
        job: the application's name.
        spark: where the cluster runs it.
        command: `spark-submit`.
        folder: its working directory; empty for this process's.
        limit_s: how long the cluster may take to accept it.
    """

    job: str
    spark: SparkEntry
    command: str = "spark-submit"
    folder: str = ""
    limit_s: float = LIMIT_S

    def submit(self, start: Start, key: str, log: Log) -> None:
        """See `Launcher.submit`; returns when the cluster has accepted it."""
        run_command(self.arguments(start, key), self.folder, self.limit_s, log)

    def preview(self, start: Start, log: Log) -> dict[str, Any] | None:
        """See `Launcher.preview`: for a cluster only the arguments can be checked."""
        log(" ".join(self.arguments(start, "preview")))
        return None

    def arguments(self, start: Start, key: str) -> list[str]:
        """Return the command line.

        Raises:
            SubmitFailed: an argument is missing, or a cluster does not support it; nothing was started.
        """
        self._check(start)
        spark = self.spark
        lists = [("--jars", spark.jars), ("--files", self._files(start))]
        return [
            self.command,
            *("--master", spark.master, "--deploy-mode", "cluster", "--name", self.job),
            *(["--queue", spark.queue] if spark.queue else []),
            *(["--archives", spark.archive] if spark.archive else []),
            *(text for option, names in lists if names for text in (option, ",".join(names))),
            *(text for name, value in self._properties().items() for text in ("--conf", f"{name}={value}")),
            start.flow,
            *(["recover"] if start.chosen else []),
            *start.options(),
            *self._on_the_cluster(start).conf_options(key),
        ]

    def _properties(self) -> dict[str, str]:
        spark = self.spark
        yarn = spark.master == "yarn"
        python = spark.python or (f"./{self._archive_name()}/bin/python" if yarn else "")
        known = {
            "spark.plugins": PLUGIN,
            # A job does not end by itself, so waiting for its end would never return.
            YARN_WAITS if yarn else KUBERNETES_WAITS: "false",
            # A second attempt by the cluster itself would be a life that was never submitted.
            **({"spark.yarn.maxAppAttempts": "1"} if yarn else {}),
            "spark.pyspark.python": python,
            "spark.pyspark.driver.python": python,
        }
        if yarn:
            known |= {"spark.yarn.appMasterEnv.PYSPARK_PYTHON": python, "spark.executorEnv.PYSPARK_PYTHON": python}
        else:
            known |= {
                "spark.kubernetes.container.image": spark.image,
                "spark.kubernetes.namespace": spark.namespace,
                "spark.kubernetes.authenticate.driver.serviceAccountName": spark.service_account,
            }
        return {name: value for name, value in known.items() if value} | dict(spark.properties)

    def _files(self, start: Start) -> tuple[str, ...]:
        """The files to ship: with the conf, unless the cluster has it already."""
        conf = [start.conf] if start.conf and not _on_cluster(start.conf) and self.spark.master == "yarn" else []
        return tuple(dict.fromkeys([*self.spark.files, *conf]))

    def _on_the_cluster(self, start: Start) -> Start:
        """The start as the program sees it: shipped files lie in its working directory."""
        conf = start.conf.removeprefix("local://")
        if start.conf in self._files(start):
            conf = PurePosixPath(start.conf).name
        return Start(start.flow, conf, start.settings)

    def _archive_name(self) -> str:
        return self.spark.archive.partition("#")[2]

    def _check(self, start: Start) -> None:
        spark, kubernetes = self.spark, self.spark.master.startswith("k8s://")
        taken = sorted(set(spark.properties) & set(OURS))
        python = spark.python or self._archive_name()
        for wrong, what, way_out in (
            (
                not kubernetes and spark.master != "yarn",
                f"master is {spark.master!r}, on which no Python program runs in cluster mode",
                'give "yarn" or "k8s://https://host:port"; a job on another cluster runs "supervised"',
            ),
            (kubernetes and not spark.image, "image is missing", "name the container image that holds Lowtide"),
            (
                kubernetes and not _on_cluster(start.flow),
                f"flow is {start.flow!r}, which the driver's pod cannot see",
                "give local:///path of the image, or a URL that Spark can read",
            ),
            (
                kubernetes and bool(start.conf) and not start.conf.startswith("local://"),
                f"conf is {start.conf!r}, which the driver's pod cannot see",
                "give local:///path of the image or of a volume",
            ),
            (
                ":" in PurePosixPath(start.flow).name,
                f"flow is {start.flow!r}, and spark-submit runs a file",
                "give the file; it runs its flow with lowtide.main(flow)",
            ),
            (
                bool(spark.archive) and not re.fullmatch(r"[^#]+#[\w.-]+", spark.archive),
                f"archive is {spark.archive!r}",
                "give path#name: the program finds it unpacked under that name",
            ),
            (not python and not kubernetes, "archive is missing", 'give "hdfs:///environment.tar.gz#environment"'),
            (bool(taken), f"properties set {', '.join(taken)}", "leave them out: Lowtide sets them"),
        ):
            if wrong:
                raise SubmitFailed(
                    what, where=f'job "{self.job}", [job.spark] of the jobs file', way_out=way_out, code=USAGE
                )


def _on_cluster(path: str) -> bool:
    """Whether a path is on the cluster rather than on this machine."""
    return "://" in path and not path.startswith("file:")
