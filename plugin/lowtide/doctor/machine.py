"""Cores, memory, and the task slots that Spark is given."""

import os
from pathlib import Path

from lowtide.doctor.check import Answer, Surroundings
from lowtide.doctor.kafka import unreachable
from lowtide.embedded import kafka as kafka_server
from lowtide.embedded import zookeeper as zookeeper_server

MIB = 1 << 20
UNIT_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
# Spark's JVM beyond its heap, and a few Python workers.
BESIDE_HEAP_MIB = 1024
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


def memory(surroundings: Surroundings) -> Answer:
    """What the driver, the workers and the embedded services take fits into what is free."""
    free = free_mib()
    heap = surroundings.conf.spark.driver_memory
    needed = int(int(heap[:-1]) * UNIT_MIB[heap[-1]]) + BESIDE_HEAP_MIB
    if surroundings.conf.embedded.enabled:
        states = surroundings.services
        needed += kafka_server.HEAP_MB if states["kafka"].state != "running" else 0
        needed += zookeeper_server.HEAP_MB if states["zookeeper"].state != "running" else 0
    found = f"{free} MiB free, about {needed} MiB wanted; {_cores()} cores"
    if free < needed:
        return Answer("warn", found, "end other programs, or lower [spark].driver_memory in conf")
    return Answer("ok", found)


def slots(surroundings: Surroundings) -> Answer:
    """Spark has a slot for every worker of every level, as Real-Time Mode runs all levels at once."""
    from lowtide.driver import preflight
    from lowtide.driver.slots import check, needed, offered

    master = surroundings.conf.spark.master
    have = offered(master)
    found = f"{master}: {'the cluster knows how many' if have is None else have} slots"
    plan = surroundings.plan
    if plan is None:
        return Answer("ok", f"{found}; name a flow to hear how many it needs")
    if unreachable(surroundings):
        return Answer("warn", f"{found}; how many the flow needs depends on its topics", "mend the broker first")
    fronts = preflight.look(plan, surroundings.conf).fronts
    check(plan, fronts, have, master)
    return Answer("ok", f"{found}, {needed(plan, fronts)} needed")


def free_mib() -> int:
    """Memory that could be had now, in MiB: the machine's, or what the container's limit leaves."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:"))
    try:
        limit, used = CGROUP_LIMIT.read_text().strip(), int(CGROUP_USED.read_text())
    except OSError:
        return free
    return free if limit == "max" else min(free, (int(limit) - used) // MIB)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
