"""Asks of each kind of connection what protects it on its way between machines."""

from __future__ import annotations

from lowtide.doctor.check import Answer, Surroundings
from lowtide.doctor.services import is_local
from lowtide.driver.assignments import seals_frames
from lowtide.driver.connections import missing_of_spark, protections_of
from lowtide.driver.session import has_executors, master_of, under_tls
from lowtide.process.credentials import TLS, secured


def network(surroundings: Surroundings) -> Answer:
    """Each connection that leaves a machine is protected, or named."""
    conf = surroundings.conf
    found = "; ".join(f"{kind}: {protection}" for kind, protection in protections_of(conf).items())
    if not has_executors(master_of(conf)):
        return Answer("ok", found)
    ways = []
    if not seals_frames(conf):
        ways.append("leave [exchange].sealed at auto")
    if not under_tls(conf):
        ways.append("leave [exchange].tls at auto")
    if conf.tracker.graph is not None and not secured(conf.tracker.graph) and not is_local(conf.tracker.graph):
        ways.append(f'set [tracker].graph = "{TLS}{conf.tracker.graph}", the same for its jobs and for lowtide tracker')
    if missing := missing_of_spark(conf):
        ways.append(f"set {' and '.join(missing)} in [spark.properties], as the job's secret goes there")
    local = all(is_local(each.strip()) for each in conf.kafka.bootstrap_servers.split(","))
    if not local and "SSL" not in conf.kafka.security_protocol:
        ways.append("set [kafka].security_protocol")
    hosts = conf.zookeeper.hosts
    if conf.zookeeper.ssl_ca_file is None and not all(is_local(each.strip()) for each in hosts.split(",")):
        ways.append("set [zookeeper].ssl_ca_file, and the secure ports in hosts")
    if ways:
        return Answer("warn", found, "; ".join(ways) + "; or keep the network to yourself")
    return Answer("ok", found)
