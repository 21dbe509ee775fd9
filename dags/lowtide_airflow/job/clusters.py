"""The needs of `spark-submit --deploy-mode cluster` on YARN, on Kubernetes and on Spark's own standalone cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from lowtide_airflow.job.program import Start
from lowtide_airflow.jobs_file import SparkEntry

LOCAL = "local://"
DRIVER_PYTHON, EXECUTOR_PYTHON = "spark.pyspark.driver.python", "spark.pyspark.python"
PYTHON_RUNNER = "org.apache.spark.deploy.PythonRunner"

Fault = tuple[str, str]
"""The problem, and the way out."""


class Cluster(Protocol):
    """A kind of cluster, for one job."""

    def properties(self) -> dict[str, str]:
        """Return the properties without which a driver there does not run, or is waited for, or started twice."""
        ...

    def shipped(self, start: Start) -> tuple[str, ...]:
        """Return the files that go with the program."""
        ...

    def program(self, flow: str) -> list[str]:
        """Return spark-submit's arguments that name the program."""
        ...

    def faults(self, start: Start) -> Iterator[Fault]:
        """Return what it does not support, and what is missing."""
        ...


@dataclass(frozen=True, slots=True)
class Yarn:
    """YARN: the environment is shipped as an archive, the conf as a file."""

    spark: SparkEntry

    def properties(self) -> dict[str, str]:
        """See `Cluster.properties`."""
        python = self.spark.python or packed_python(self.spark)
        return {
            "spark.yarn.submit.waitAppCompletion": "false",
            # A second attempt by the cluster itself would be a life that was never submitted.
            "spark.yarn.maxAppAttempts": "1",
            EXECUTOR_PYTHON: python,
            DRIVER_PYTHON: python,
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": python,
            "spark.executorEnv.PYSPARK_PYTHON": python,
        }

    def shipped(self, start: Start) -> tuple[str, ...]:
        """See `Cluster.shipped`: the conf too, unless the cluster has it already."""
        conf = [start.conf] if start.conf and not is_on_cluster(start.conf) else []
        return tuple(dict.fromkeys([*self.spark.files, *conf]))

    def program(self, flow: str) -> list[str]:
        """See `Cluster.program`."""
        return [flow]

    def faults(self, start: Start) -> Iterator[Fault]:
        """See `Cluster.faults`."""
        if not self.spark.python and not packed_python(self.spark):
            yield "archive is missing", 'give "hdfs:///environment.tar.gz#environment"'


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Kubernetes: the image has the environment, the flow and the conf."""

    spark: SparkEntry

    def properties(self) -> dict[str, str]:
        """See `Cluster.properties`."""
        return {
            "spark.kubernetes.submission.waitAppCompletion": "false",
            EXECUTOR_PYTHON: self.spark.python,
            DRIVER_PYTHON: self.spark.python,
            "spark.kubernetes.container.image": self.spark.image,
            "spark.kubernetes.namespace": self.spark.namespace,
            "spark.kubernetes.authenticate.driver.serviceAccountName": self.spark.service_account,
        }

    def shipped(self, start: Start) -> tuple[str, ...]:
        """See `Cluster.shipped`."""
        return self.spark.files

    def program(self, flow: str) -> list[str]:
        """See `Cluster.program`."""
        return [flow]

    def faults(self, start: Start) -> Iterator[Fault]:
        """See `Cluster.faults`."""
        if not self.spark.image:
            yield "image is missing", "name the container image that holds Lowtide"
        if not is_on_cluster(start.flow):
            yield (
                f"flow is {start.flow!r}, which the driver's pod cannot see",
                "give local:///path of the image, or a URL that Spark can read",
            )
        if start.conf and not start.conf.startswith(LOCAL):
            yield (
                f"conf is {start.conf!r}, which the driver's pod cannot see",
                "give local:///path of the image or of a volume",
            )


@dataclass(frozen=True, slots=True)
class Standalone:
    """Spark's own cluster: the workers' hosts have the environment, the jars, the flow and the conf.

    spark-submit refuses Python programs there, because it would have to ship them. It takes any class of a jar, and the
    class with which Spark runs Python programs elsewhere runs one that lies on the host.
    """

    spark: SparkEntry

    def properties(self) -> dict[str, str]:
        """See `Cluster.properties`."""
        return {
            "spark.standalone.submit.waitAppCompletion": "false",
            # The master would restart the program: a life that was never submitted.
            "spark.driver.supervise": "false",
            EXECUTOR_PYTHON: packed_python(self.spark) or self.spark.python,
            DRIVER_PYTHON: self.spark.python,
        }

    def shipped(self, start: Start) -> tuple[str, ...]:
        """See `Cluster.shipped`."""
        return ()

    def program(self, flow: str) -> list[str]:
        """See `Cluster.program`: a class, the jar that a worker loads, the file, and what it imports besides."""
        jar = self.spark.jars[0].replace(LOCAL, "file://", 1)
        return ["--class", PYTHON_RUNNER, jar, flow.removeprefix(LOCAL), ""]

    def faults(self, start: Start) -> Iterator[Fault]:
        """See `Cluster.faults`."""
        if not self.spark.python.startswith("/"):
            yield "python is missing", "give the path of the environment's interpreter on the workers' hosts"
        if not self.spark.jars:
            yield "jars are missing", "give the paths that `lowtide submit-args` prints on the workers' hosts"
        if self.spark.files:
            yield "files are set, but none are shipped to a driver there", "put them on the workers' hosts"
        for name, path in (("flow", start.flow), ("conf", start.conf)):
            if path and not path.startswith(LOCAL):
                yield f"{name} is {path!r}, which is not shipped there", "give local:///path on the workers' hosts"


def cluster_of(spark: SparkEntry) -> Cluster | None:
    """Return the kind of cluster that a master names; None if there is no driver on such."""
    kinds: dict[str, Callable[[SparkEntry], Cluster]] = {"k8s://": Kubernetes, "spark://": Standalone, "yarn": Yarn}
    return next((kind(spark) for prefix, kind in kinds.items() if spark.master.startswith(prefix)), None)


def packed_python(spark: SparkEntry) -> str:
    """Return the interpreter in the archive, relative to the program's folder; empty without an archive."""
    name = spark.archive.partition("#")[2]
    return f"./{name}/bin/python" if name else ""


def is_on_cluster(path: str) -> bool:
    """Return whether a path is on the cluster rather than on this machine."""
    return "://" in path and not path.startswith("file:")


def path_of(path: str, shipped: tuple[str, ...]) -> str:
    """Return a path as the program sees it: shipped files are in its working directory."""
    return PurePosixPath(path).name if path in shipped else path.removeprefix(LOCAL)
