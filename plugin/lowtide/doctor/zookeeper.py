"""The embedded ZooKeeper."""

from lowtide.doctor.check import Answer, Surroundings
from lowtide.embedded.ports import HOST
from lowtide.embedded.zookeeper import four_letters


def zookeeper(surroundings: Surroundings) -> Answer:
    """It answers, and says its version."""
    embedded = surroundings.conf.embedded
    if not embedded.enabled:
        return Answer("ok", "no embedded services wanted ([embedded].enabled)")
    service = surroundings.services["zookeeper"]
    if service.address is None:
        return Answer("warn", f"the embedded ZooKeeper is {service.state}", "start it: lowtide up")
    said = four_letters(HOST, int(service.address.rpartition(":")[2]), b"srvr")
    if not said:
        way_out = f"read {service.log}, then: lowtide down, lowtide up"
        return Answer("fail", f"process {service.pid} runs, but does not answer at {service.address}", way_out)
    version = said.removeprefix("Zookeeper version: ").partition("-")[0]
    return Answer("ok", f"ZooKeeper {version} answers at {service.address}")
