"""Faults, one function each; a fault is over when its function returns."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import create_connection

from lowtide_hosts.errors import HostsError
from lowtide_hosts.host import Host
from lowtide_hosts.program import Program
from packets import Packets

from .attacks import change, pour, replay
from .errors import Undone
from .schedule import BETWEEN, LINKS, Fault

FLAP_S = 0.7
"""Seconds that a flapping link is down, and then up."""
ZOOKEEPER_PORT = 2181
ANSWER_LIMIT_S = 5.0
LEADER_LIMIT_S = 60.0
STRANGER = "zookeeper-1"
"""The host from which nothing connects to Spark or to a job."""
CHANGED = {"forged-frame": "frame", "repeated-frame": "repeat", "changed-record": "record"}
"""For each kind of `BETWEEN`, what `between.py` changes."""

Mend = Callable[[], object]


def do(network: str, fault: Fault, mend: Mend, packets: Packets) -> None:
    """Do one fault, and undo it unless it is permanent.

    Args:
        network: The cluster's network.
        fault: The fault.
        mend: Recreates what has died.
        packets: What has gone over the network so far.

    Raises:
        Undone: a host it needs is not up, or an attack was not noticed.
    """
    if fault.kind in LINKS:
        _cut(fault, host_of(network, fault.host), host_of(network, fault.other))
    elif fault.kind in BETWEEN:
        ends = host_of(network, fault.host), host_of(network, fault.other)
        change(CHANGED[fault.kind], *ends, host_of(network, STRANGER), _logs(network))
    elif fault.kind.startswith("stranger-"):
        pour(host_of(network, STRANGER), host_of(network, fault.host))
    elif fault.kind.startswith("replayed-"):
        replay(host_of(network, STRANGER), host_of(network, fault.host), Host.all(network), packets)
    elif fault.kind == "worker-lost":
        host_of(network, fault.host).lose()
    elif fault.kind.endswith("-killed"):
        host = host_of(network, _chosen(network, fault))
        program = Program.running(host, "zookeeper" if "zookeeper" in fault.kind else "kafka")
        if program is None:
            raise Undone(f"nothing to kill runs on {host.name}")
        program.signal(signal.SIGKILL)
        time.sleep(fault.lasts_s)
        mend()
    else:
        with frozen(host_of(network, _chosen(network, fault))):
            time.sleep(fault.lasts_s)


@contextmanager
def frozen(host: Host) -> Iterator[None]:
    """Freeze a host for the duration of the block."""
    host.freeze()
    try:
        yield
    finally:
        host.thaw()


def host_of(network: str, name: str) -> Host:
    """Return the host of that name; Undone if it is not up."""
    host = Host.find(network, name)
    if host is None:
        raise Undone(f"host {name} is not up")
    return host


def _logs(network: str) -> list[Host]:
    """Return the hosts that have logs of a job's processes."""
    return [
        host for host in Host.all(network) if host.name.rpartition("-")[0].endswith("worker") or "driver" in host.name
    ]


def _cut(fault: Fault, host: Host, other: Host) -> None:
    ends = {"out": [(host, other)], "in": [(other, host)]}.get(fault.way, [(host, other), (other, host)])
    deadline = time.monotonic() + fault.lasts_s
    while (left_s := deadline - time.monotonic()) > 0:
        with _cut_off(ends):
            time.sleep(min(left_s, FLAP_S) if fault.way == "flapping" else left_s)
        if fault.way == "flapping":
            time.sleep(FLAP_S)


@contextmanager
def _cut_off(ends: list[tuple[Host, Host]]) -> Iterator[None]:
    for one, other in ends:
        one.cut(other)
    try:
        yield
    finally:
        for one, other in ends:
            one.mend(other)


def _chosen(network: str, fault: Fault) -> str:
    return _leader(network) if "leader" in fault.kind else fault.host


def _leader(network: str) -> str:
    """Return the host of ZooKeeper's leader, which the servers name on request."""
    deadline = time.monotonic() + LEADER_LIMIT_S
    while time.monotonic() < deadline:
        for host in Host.all(network):
            if host.name.startswith("zookeeper-") and "Mode: leader" in _asked(host.address):
                return host.name
        time.sleep(0.5)
    raise Undone(f"ZooKeeper had no leader for {LEADER_LIMIT_S:.0f} s")


def _asked(address: str) -> str:
    try:
        with create_connection((address, ZOOKEEPER_PORT), ANSWER_LIMIT_S) as connection:
            connection.settimeout(ANSWER_LIMIT_S)
            connection.sendall(b"srvr")
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    except OSError:
        return ""


def mended(network: str) -> None:
    """Resume every host and let every packet arrive, whatever has failed."""
    hosts = Host.all(network)
    for host in hosts:
        host.thaw()
        for other in hosts:
            try:
                host.mend(other)
            except HostsError:  # It was not cut.
                continue
