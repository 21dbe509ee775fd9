"""Asks of each kind of connection what protects it on its way between machines."""

from __future__ import annotations

from lowtide.conf import Conf
from lowtide.doctor.check import Answer, Surroundings
from lowtide.doctor.services import is_local
from lowtide.driver.assignments import seals_frames
from lowtide.driver.session import has_executors, under_tls
from lowtide.process.credentials import TLS, secured

PLAIN = "in the clear"
SPARKS = ("spark.authenticate", "spark.network.crypto.enabled")


def network(surroundings: Surroundings) -> Answer:
    """Each connection that leaves a machine is protected, or named."""
    conf = surroundings.conf
    sealed, tls = seals_frames(conf), under_tls(conf)
    if not has_executors(conf.spark.master):
        here = "all of a job is on this machine" + ("; service, tracker and workers: TLS 1.3, mutual" if tls else "")
        return Answer("ok", f"{here}; {_kafka(conf)}; {_zookeeper(conf)}")
    spark = [key for key in SPARKS if conf.spark.properties.get(key, "false").lower() != "true"]
    found = [
        f"frames: {'sealed' if sealed else PLAIN}",
        f"Spark's own: {f'without {spark[0]}' if spark else 'encrypted'}",
        f"service, tracker, its shards and workers: {'TLS 1.3, mutual' if tls else f'authenticated, {PLAIN}'}",
        *_graph(conf),
        "control API: TLS, its certificate pinned",
        _kafka(conf),
        _zookeeper(conf),
    ]
    ways = []
    if not sealed:
        ways.append("leave [exchange].sealed at auto")
    if not tls:
        ways.append("leave [exchange].tls at auto")
    if conf.tracker.graph is not None and not secured(conf.tracker.graph) and not is_local(conf.tracker.graph):
        ways.append(f'set [tracker].graph = "{TLS}{conf.tracker.graph}", the same for its jobs and for lowtide tracker')
    if spark:
        ways.append(f"set {' and '.join(spark)} in [spark.properties], as the job's secret goes there")
    local = all(is_local(each.strip()) for each in conf.kafka.bootstrap_servers.split(","))
    if not local and "SSL" not in conf.kafka.security_protocol:
        ways.append("set [kafka].security_protocol")
    hosts = conf.zookeeper.hosts
    if conf.zookeeper.ssl_ca_file is None and not all(is_local(each.strip()) for each in hosts.split(",")):
        ways.append("set [zookeeper].ssl_ca_file, and the secure ports in hosts")
    if ways:
        return Answer("warn", "; ".join(found), "; ".join(ways) + "; or keep the network to yourself")
    return Answer("ok", "; ".join(found))


def _graph(conf: Conf) -> list[str]:
    graph = conf.tracker.graph
    if graph is None:
        return []
    return [f"the graph's tracker: {'TLS 1.3, mutual' if secured(graph) else f'authenticated, {PLAIN}'}"]


def _kafka(conf: Conf) -> str:
    protocol = conf.kafka.security_protocol
    return f"Kafka: {protocol if 'SSL' in protocol else f'{protocol}, {PLAIN}'}"


def _zookeeper(conf: Conf) -> str:
    owned = conf.zookeeper.auth_file or conf.zookeeper.auth_env
    on_the_way = PLAIN if conf.zookeeper.ssl_ca_file is None else "TLS"
    return f"ZooKeeper: {'nodes of one user' if owned else 'nodes open to all'}, {on_the_way}"
