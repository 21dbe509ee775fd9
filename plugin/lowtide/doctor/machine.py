"""The machine: memory, slots, folders, ports."""

import os
import shutil
import socket
from pathlib import Path

from lowtide.cache import cache_folder
from lowtide.doctor.check import Answer, Surroundings
from lowtide.doctor.services import unreachable
from lowtide.embedded import KafkaServer, Server, ZooKeeperServer
from lowtide.embedded import kafka as kafka_server
from lowtide.embedded import zookeeper as zookeeper_server
from lowtide.embedded.ports import HOST, is_free, port_owner
from lowtide.process.doors import DoorKind, Doors
from lowtide.process.sockets_folder import SocketsRefused
from lowtide_tracker.unix import connected

MIB = 1 << 20
UNIT_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
# Spark's JVM beyond its heap, and a few Python workers.
BESIDE_HEAP_MIB = 1024
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


def memory(surroundings: Surroundings) -> Answer:
    """Check that the driver, the workers and the embedded services fit into the free memory."""
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
    from lowtide.driver.preflight import check_slots, slots_needed, slots_offered

    master = surroundings.conf.spark.master
    have = slots_offered(master)
    found = f"{master}: {'the cluster knows how many' if have is None else have} slots"
    plan = surroundings.plan
    if plan is None:
        return Answer("ok", f"{found}; name a flow to see how many it needs")
    if unreachable(surroundings):
        return Answer("warn", f"{found}; how many the flow needs depends on its topics", "fix the broker first")
    fronts = preflight.look(plan, surroundings.conf).fronts
    check_slots(plan, fronts, have, master)
    return Answer("ok", f"{found}, {slots_needed(plan, fronts)} needed")


def tracker(surroundings: Surroundings) -> Answer:
    """A tracker in shards has a core for each of them; with fewer they only wait for each other."""
    shards, cores = surroundings.conf.tracker.shards, _cores()
    if shards == 1:
        return Answer("ok", "one process")
    found = f"{shards} shards and their merge, on {cores} cores"
    if shards > cores:
        return Answer("warn", found, f"lower [tracker].shards in conf to {max(1, cores // 2)} or less")
    return Answer("ok", found)


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


MIB = 1 << 20
LEAST_MIB = 256
ENOUGH_MIB = 2048


def folders(surroundings: Surroundings) -> Answer:
    """They can be written to, and their disks have room."""
    conf = surroundings.conf
    wanted = {
        "[embedded].folder": Path(conf.embedded.folder),
        "[job].folder": Path(conf.job.folder),
        "[spark].checkpoint_folder": Path(conf.spark.checkpoint_folder),
        "LOWTIDE_CACHE": cache_folder(),
    }
    least = None
    for setting, folder in wanted.items():
        there = _existing(folder.absolute())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            return Answer("fail", f"cannot write to {there}", f"fix its permissions, or set {setting} to another")
        free = shutil.disk_usage(there).free // MIB
        if least is None or free < least[0]:
            least = (free, there, setting)
    assert least is not None
    free, there, setting = least
    found = f"all can be written to; {free} MiB free at {there}"
    if free < ENOUGH_MIB:
        return Answer("fail" if free < LEAST_MIB else "warn", found, f"free space there, or set {setting} to another")
    return Answer("ok", found)


def state(surroundings: Surroundings) -> Answer:
    """State on disk has its library, and a folder on a disk with room."""
    conf = surroundings.conf
    if conf.state.backend == "memory" and "disk" not in conf.state.steps.values():
        return Answer("ok", "in memory")
    from lowtide.disk.folder import NETWORK, file_system_of
    from lowtide.disk.store import lmdb
    from lowtide.driver.state import steps_on_disk

    library = lmdb()
    folder = Path(conf.state.folder).absolute()
    there, kind = _existing(folder), file_system_of(folder)
    steps = "" if surroundings.plan is None else f": {', '.join(steps_on_disk(surroundings.plan, conf)) or 'no step'}"
    free_gb = shutil.disk_usage(there).free / 1e9
    found = f"on disk{steps}; lmdb {library.__version__}, {kind} with {free_gb:,.1f} GB free at {there}"
    if kind in NETWORK:
        return Answer("fail", found, "set [state].folder to one on a disk of each machine: a network's is refused")
    if not os.access(there, os.W_OK | os.X_OK):
        return Answer("fail", f"cannot write to {there}", "fix its permissions, or set [state].folder to another")
    if free_gb < conf.state.disk_max_gb + conf.state.copies_max_gb:
        wanted = f"[state].disk_max_gb is {conf.state.disk_max_gb:g}, for each process"
        if conf.state.copies_max_gb:
            wanted += f", and copies_max_gb {conf.state.copies_max_gb:g}"
        return Answer("warn", f"{found}; {wanted}", "free space there, or lower it: a job that needs more ends")
    return Answer("ok", found)


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


CONNECT_TIMEOUT_S = 2.0


def loopback(_: Surroundings) -> Answer:
    """Connections over loopback and a Unix socket come about, and Spark finds an address for the machine's name."""
    try:
        with socket.create_server((HOST, 0)) as server:
            socket.create_connection(server.getsockname(), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return Answer("fail", f"no connection over {HOST}: {error}", "bring the loopback up: ip link set lo up")
    try:
        _connect_over_unix_socket()
    except SocketsRefused as error:
        return Answer("fail", ": ".join(filter(None, (error.what, error.where))), error.way_out)
    except OSError as error:
        return Answer(
            "fail", f"no connection over a Unix socket: {error}", "find out what denies it: SELinux, seccomp?"
        )
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return Answer(
            "warn",
            f"{HOST} works, but this machine's name {name} has no address, which Spark asks for",
            f"set SPARK_LOCAL_IP={HOST}, or add the name to /etc/hosts",
        )
    return Answer("ok", f"{HOST} and Unix sockets work; {name} is {address}")


def _connect_over_unix_socket() -> None:
    doors = Doors(DoorKind.UNIX, "")
    try:
        listener, at = doors.open("doctor")
        with listener, connected(at, CONNECT_TIMEOUT_S):
            pass
    finally:
        doors.close()


def ports(surroundings: Surroundings) -> Answer:
    """The embedded services' ports are free, or held by these services."""
    embedded = surroundings.conf.embedded
    if not embedded.enabled:
        return Answer("ok", "embedded services are off ([embedded].enabled)")
    found = []
    kinds: list[tuple[type[Server], int]] = [
        (KafkaServer, embedded.kafka_port),
        (ZooKeeperServer, embedded.zookeeper_port),
    ]
    for kind, port in kinds:
        service = surroundings.services[kind.name]
        if service.address is not None:
            found.append(f"{kind.name} holds {service.address.rpartition(':')[2]}")
        elif port == 0:
            found.append(f"{kind.name} takes a free one")
        elif is_free(port):
            found.append(f"{port} is free for {kind.name}")
        else:
            owner = port_owner(port) or "a process that /proc does not show"
            taken = f"port {port} for {kind.name} is held by {owner}"
            return Answer("fail", taken, f"stop that process, or set another port with {kind.setting} in conf")
    return Answer("ok", ", ".join(found))
