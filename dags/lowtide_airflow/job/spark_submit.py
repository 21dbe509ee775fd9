"""Launcher for clusters: runs `spark-submit --deploy-mode cluster`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from lowtide_airflow.errors import SubmitFailed
from lowtide_airflow.job.clusters import Cluster, cluster_of, path_of
from lowtide_airflow.job.program import LIMIT_S, Log, Start, run_command
from lowtide_airflow.jobs_file import SparkEntry
from lowtide_snapshots.redaction import redacted

OURS = (
    "spark.submit.deployMode",
    "spark.driver.supervise",
    "spark.yarn.maxAppAttempts",
    "spark.yarn.submit.waitAppCompletion",
    "spark.kubernetes.submission.waitAppCompletion",
    "spark.standalone.submit.waitAppCompletion",
)
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
        seen, _ = redacted(self.arguments(start, "preview"))
        log(" ".join(seen))
        return None

    def arguments(self, start: Start, key: str) -> list[str]:
        """Return the command line.

        Raises:
            SubmitFailed: an argument is missing, or a cluster does not support it; nothing was started.
        """
        spark, cluster = self.spark, self._checked(start)
        shipped = cluster.shipped(start)
        seen = Start(start.flow, path_of(start.conf, shipped), start.settings)
        known = {"spark.plugins": PLUGIN, **cluster.properties()}
        properties = {name: value for name, value in known.items() if value} | dict(spark.properties)
        return [
            self.command,
            *("--master", spark.master, "--deploy-mode", "cluster", "--name", self.job),
            *(["--queue", spark.queue] if spark.queue else []),
            *(["--archives", spark.archive] if spark.archive else []),
            *(["--jars", ",".join(spark.jars)] if spark.jars else []),
            *(["--files", ",".join(shipped)] if shipped else []),
            *(text for name, value in properties.items() for text in ("--conf", f"{name}={value}")),
            *cluster.program(start.flow),
            *(["recover"] if start.chosen else []),
            *start.options(),
            *seen.conf_options(key),
        ]

    def _checked(self, start: Start) -> Cluster:
        spark, cluster = self.spark, cluster_of(self.spark)
        if cluster is None:
            raise self._refused(
                f"master is {spark.master!r}, which cannot run the driver",
                'give "yarn", "k8s://https://host:port" or "spark://host:port"; elsewhere a job runs "supervised"',
            )
        if ":" in PurePosixPath(start.flow).name:
            raise self._refused(
                f"flow is {start.flow!r}, but spark-submit needs a file",
                "give the file; it runs its flow with lowtide.main(flow)",
            )
        if spark.archive and not re.fullmatch(r"[^#]+#[\w.-]+", spark.archive):
            raise self._refused(
                f"archive is {spark.archive!r}", "give path#name: the program finds it unpacked under that name"
            )
        if taken := sorted(set(spark.properties) & set(OURS)):
            raise self._refused(f"properties set {', '.join(taken)}", "leave them out: Lowtide sets them")
        for what, way_out in cluster.faults(start):
            raise self._refused(what, way_out)
        return cluster

    def _refused(self, what: str, way_out: str) -> SubmitFailed:
        return SubmitFailed(what, where=f'job "{self.job}", [job.spark] of the jobs file', way_out=way_out, code=USAGE)
