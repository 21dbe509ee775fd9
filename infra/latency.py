"""Latency of one job over a cluster's hosts and over loopback, in one run: `make infra-bench`. Root only.

The job of `story/` counts 1,000 orders a second. On the hosts its frames, Kafka's and ZooKeeper's messages go from
namespace to namespace, over TLS and to three brokers; on loopback everything runs on the host `driver`, with one broker
and no encryption, on two executors as well. The last line is JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass

import click
import cluster
from cluster_job import ClusterJob

RATE = 1000.0
WARM_S = 25.0
MEASURED_S = 25.0
START_LIMIT_S = 300.0
POLL_S = 1.0
LOOPBACK = """
[job]
folder = "/home/loopback/jobs"
parallelism = 2
start_limit_s = 180.0
[embedded]
folder = "/home/loopback/services"
kafka_port = {kafka}
zookeeper_port = {zookeeper}
[kafka]
bootstrap_servers = "127.0.0.1:{kafka}"
[zookeeper]
hosts = "127.0.0.1:{zookeeper}"
[spark]
master = "local-cluster[2,6,1024]"
checkpoint_folder = "/tmp/loopback"
[spark.properties]
"spark.driver.extraJavaOptions" = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"spark.executor.extraJavaOptions" = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
[snapshots]
url = "/home/loopback/snapshots"
[control]
host = "0.0.0.0"
"""
PORTS = {"kafka": 19092, "zookeeper": 12181}


@dataclass(frozen=True)
class Latency:
    """Milliseconds from a record's timestamp until it was durable in the sink: medians over the time measured."""

    p50_ms: float
    p99_ms: float


def measured(job: ClusterJob) -> Latency:
    """Run the job under load, and see what it says of its latency."""
    job.start(limit_s=START_LIMIT_S)
    job.feed(RATE, WARM_S + MEASURED_S + START_LIMIT_S)
    job.until("delivered", lambda view: view.totals.delivered > RATE, START_LIMIT_S)
    time.sleep(WARM_S)
    seen = []
    deadline = time.monotonic() + MEASURED_S
    while time.monotonic() < deadline:
        view = job.view()
        latency = None if view is None else view.latency_ms
        if latency is not None and latency.p50 is not None and latency.p99 is not None:
            seen.append((latency.p50, latency.p99))
        time.sleep(POLL_S)
    job.fed(0.0)
    job.stop()
    return Latency(*(statistics.median(values) for values in zip(*seen, strict=True)))


@click.command()
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(1, 10), help="Of both, one by one.")
@click.option("--var", "settings", multiple=True, metavar="KEY=VALUE", help="A variable of Terraform's.")
def main(rounds: int, settings: tuple[str, ...]) -> None:
    """Measure both in turn, on a cluster that is made for it and destroyed afterwards."""
    cluster.make(("airflow=false", *settings))
    network = cluster.name()
    try:
        hosts, loopback = ClusterJob(network), ClusterJob(network, conf="loopback/lowtide.toml")
        folder = hosts.driver.home / "loopback"
        folder.mkdir(exist_ok=True)
        (folder / "lowtide.toml").write_text(LOOPBACK.format(**PORTS))
        loopback.place()
        loopback.command("lowtide up --conf /home/loopback/lowtide.toml")
        found: dict[str, list[Latency]] = {"hosts": [], "loopback": []}
        for job in (hosts, loopback):
            job.make_topics()
        for number in range(1, rounds + 1):
            for name, job in (("loopback", loopback), ("hosts", hosts)):
                found[name].append(measured(job))
                click.echo(f"round {number}, {name}: {found[name][-1]}")
    finally:
        cluster.destroy()
    # The lowest of the rounds: what a quieter moment of the machine shows.
    told = {
        name: {"p50_ms": min(each.p50_ms for each in all_), "p99_ms": min(each.p99_ms for each in all_)}
        for name, all_ in found.items()
    }
    told["hosts_to_loopback"] = {key: round(told["hosts"][key] / told["loopback"][key], 2) for key in told["hosts"]}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
