"""Checks early that Kafka's address answers, so that a refusal is shown at once, with the way out."""

from __future__ import annotations

import socket
from pathlib import Path

from lowtide.conf import Conf
from lowtide.embedded.services import service_status
from lowtide.errors import ServiceUnavailable

LIMIT_S = 2.0


def check_broker(conf: Conf) -> None:
    """Refuse a start while no server listens at any address of `kafka.bootstrap_servers`.

    Only a refused connection counts: slow brokers, and names that cannot be resolved, are left to Kafka's client.

    Raises:
        ServiceUnavailable: it names `lowtide up` if the conf uses the embedded services.
    """
    if not all(_refuses(address) for address in conf.kafka.bootstrap_servers.split(",")):
        return
    way_out = "start the broker, or correct kafka.bootstrap_servers"
    if conf.embedded.enabled:
        way_out = "start the embedded one: lowtide up; or correct kafka.bootstrap_servers"
        runs = [service for service in service_status(Path(conf.embedded.folder)) if service.name == "kafka"]
        if runs and runs[0].state == "running":
            way_out = f"the embedded one runs at {runs[0].address}: set kafka.bootstrap_servers to that"
    raise ServiceUnavailable(
        "no Kafka broker runs",
        where=f"{conf.kafka.bootstrap_servers} refuses connections (kafka.bootstrap_servers)",
        way_out=way_out,
    )


def _refuses(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), LIMIT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
