"""The kinds of connections of a job, and what protects each on its way between machines."""

from __future__ import annotations

from lowtide.conf import Conf
from lowtide.driver.assignments import seals_frames
from lowtide.driver.session import has_executors, master_of, under_tls
from lowtide.process.credentials import secured

PLAIN = "in the clear"
MUTUAL = "TLS 1.3, mutual"
SOCKETS = "Unix sockets"
"""Of the job's user alone, on one machine."""
SPARKS = ("spark.authenticate", "spark.network.crypto.enabled")
"""What keeps Spark's own connections from strangers, in the order in which one needs the other."""


def protections_of(conf: Conf) -> dict[str, str]:
    """Return by kind of connection what protects it; those between a job's own processes first.

    Where all of these are on one machine they are one kind.
    """
    tls = under_tls(conf)
    if has_executors(master_of(conf)):
        missing = missing_of_spark(conf)
        own = {
            "frames": "sealed" if seals_frames(conf) else PLAIN,
            "Spark's own": f"without {missing[0]}" if missing else "encrypted",
            "service, tracker, its shards and workers": MUTUAL if tls else f"authenticated, {PLAIN}",
            "tasks and workers of one executor": SOCKETS,
        }
    else:
        own = {"service, tracker and workers": f"on this machine, {MUTUAL if tls else SOCKETS}"}
    graph = conf.tracker.graph
    if graph is not None:
        own["the graph's tracker"] = MUTUAL if secured(graph) else f"authenticated, {PLAIN}"
    protocol = conf.kafka.security_protocol
    owned = conf.zookeeper.auth_file or conf.zookeeper.auth_env
    zookeeper = PLAIN if conf.zookeeper.ssl_ca_file is None else "TLS"
    return own | {
        "control API": "TLS, its certificate pinned",
        "Kafka": protocol if "SSL" in protocol else f"{protocol}, {PLAIN}",
        "ZooKeeper": f"{'nodes of one user' if owned else 'nodes open to all'}, {zookeeper}",
    }


def missing_of_spark(conf: Conf) -> list[str]:
    """Return what Spark's own connections lack, of `SPARKS`."""
    return [key for key in SPARKS if conf.spark.properties.get(key, "false").lower() != "true"]
