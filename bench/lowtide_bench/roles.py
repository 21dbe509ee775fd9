"""Roles of a run's processes, from the process tree and the command lines."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from lowtide_bench.processes import command, descendants, parents

FORK_SERVER = "lowtide.worker.forkserver"
WORKERS = "workers"
_OF_COMMAND = (
    # The first that occurs in a command line decides.
    (FORK_SERVER, "fork_server"),
    ("lowtide.service.tracker.main", "tracker"),
    ("lowtide.service.carriers.main", "carriers"),
    ("lowtide.service", "service"),
    ("kafka.Kafka", "kafka"),
    ("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zookeeper"),
    ("org.apache.spark.deploy.SparkSubmit", "jvm"),
    ("org.apache.spark.executor.CoarseGrainedExecutorBackend", "jvm"),
    ("lowtide_bench.bare", "loop"),
    ("lowtide_bench.skeleton.worker", WORKERS),
    ("lowtide_bench.skeleton.program", "driver"),
    ("lowtide_bench.program", "driver"),
    ("lowtide_bench.generator", "generator"),
    ("lowtide_bench.reader", "reader"),
    ("lowtide_bench.called", "called"),
    ("redis-server", "redis"),
    ("bin/postgres ", "postgres"),
    ("postgres: ", "postgres"),
)
OF_SYSTEM = frozenset({"loop", "jvm", WORKERS, "tracker", "carriers", "service", "fork_server"})
"""Roles of the processes of the system under measurement. Around it are Kafka, generator, reader, a service that is
called, and the Spark driver's Python, which is mostly the bench itself."""


def roles(beside: Collection[int] = ()) -> dict[int, str]:
    """Return the role of each process of this run and of the trees beside it; it is itself the `driver`."""
    parent_of = parents()
    return roles_of({pid: command(pid) for pid in descendants({os.getpid(), *beside}, parent_of)}, parent_of)


def roles_of(commands: Mapping[int, str], parent_of: Mapping[int, int]) -> dict[int, str]:
    """Return the role of each process, given its command line and everyone's parent.

    A fork server's children are workers, and a worker's children count with it, though all have one command line. A
    process with an empty command line, as of one that has just ended, has its parent's role.
    """

    def role(pid: int) -> str:
        if pid not in commands:
            return "driver"
        parent = parent_of.get(pid, 0)
        if FORK_SERVER in commands.get(parent, ""):
            return WORKERS
        return next((role for part, role in _OF_COMMAND if part in commands[pid]), None) or role(parent)

    return {pid: role(pid) for pid in commands}
