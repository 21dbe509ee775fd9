"""Loopback, the machine's own name, and the ports of the embedded services."""

import socket

from lowtide.doctor.check import Answer, Surroundings
from lowtide.embedded import KafkaServer, Server, ZooKeeperServer
from lowtide.embedded.ports import HOST, is_free, port_owner

CONNECT_TIMEOUT_S = 2.0


def loopback(_: Surroundings) -> Answer:
    """A connection over loopback comes about, and Spark can find an address for the machine's name."""
    try:
        with socket.create_server((HOST, 0)) as server:
            socket.create_connection(server.getsockname(), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return Answer("fail", f"no connection over {HOST}: {error}", "bring the loopback up: ip link set lo up")
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return Answer(
            "warn",
            f"{HOST} works, but this machine's name {name} has no address, which Spark asks for",
            f"set SPARK_LOCAL_IP={HOST}, or add the name to /etc/hosts",
        )
    return Answer("ok", f"{HOST} works; {name} is {address}")


def ports(surroundings: Surroundings) -> Answer:
    """The embedded services' ports are free, or held by these services."""
    embedded = surroundings.conf.embedded
    if not embedded.enabled:
        return Answer("ok", "no embedded services wanted ([embedded].enabled)")
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
