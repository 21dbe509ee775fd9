"""Asks of each kind of connection what protects it on its way between machines."""

from __future__ import annotations

from lowtide.conf import Conf
from lowtide.doctor.check import Answer, Surroundings
from lowtide.doctor.services import is_local
from lowtide.driver.assignments import seals_frames
from lowtide.driver.session import has_executors

PLAIN = "in the clear"
SPARKS = ("spark.authenticate", "spark.network.crypto.enabled")


def network(surroundings: Surroundings) -> Answer:
    """Each connection that leaves a machine is protected, or named."""
    conf = surroundings.conf
    if not has_executors(conf.spark.master):
        return Answer("ok", f"all of a job is on this machine; {_kafka(conf)}; {_zookeeper(conf)}")
    sealed = seals_frames(conf)
    spark = [key for key in SPARKS if conf.spark.properties.get(key, "false").lower() != "true"]
    found = [
        f"frames: {'sealed' if sealed else PLAIN}",
        f"Spark's own: {f'without {spark[0]}' if spark else 'encrypted'}",
        "tracker, service and workers: authenticated, in the clear",
        _kafka(conf),
        _zookeeper(conf),
    ]
    ways = []
    if not sealed:
        ways.append("leave [exchange].sealed at auto")
    if spark:
        ways.append(f"set {' and '.join(spark)} in [spark.properties], as the job's secret goes there")
    local = all(is_local(each.strip()) for each in conf.kafka.bootstrap_servers.split(","))
    if not local and "SSL" not in conf.kafka.security_protocol:
        ways.append("set [kafka].security_protocol")
    if ways:
        return Answer("warn", "; ".join(found), "; ".join(ways) + "; or keep the network to yourself")
    return Answer("ok", "; ".join(found))


def _kafka(conf: Conf) -> str:
    protocol = conf.kafka.security_protocol
    return f"Kafka: {protocol if 'SSL' in protocol else f'{protocol}, {PLAIN}'}"


def _zookeeper(conf: Conf) -> str:
    owned = conf.zookeeper.auth_file or conf.zookeeper.auth_env
    return f"ZooKeeper: {'nodes of one user, ' if owned else 'nodes open to all, '}{PLAIN}"
