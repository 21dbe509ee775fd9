"""Latency of one job over a cluster's hosts and over loopback, in one run: `make infra-bench`. Root only.

The job of `story/` counts 1,000 orders per second. On the hosts its frames and the messages of Kafka and ZooKeeper go
from namespace to namespace, over TLS. On loopback everything runs on the host `driver`, without encryption, also on two
executors. Both have one broker and one ZooKeeper, and brokers with the same compilers, so that they differ only in the
network and its encryption: three brokers with replication 3 keep two cores busy by themselves (`--var kafka_brokers=3`
shows it). The last line is JSON.
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
ALIKE = ("airflow=false", "kafka_brokers=1", "kafka_optimises=true", "zookeeper_nodes=1")
"""Variables for Terraform, so that the two differ in their network alone; `--var` overrides them."""
PORTS = {"kafka": 19092, "zookeeper": 12181}


@dataclass(frozen=True)
class Latency:
    """Milliseconds from a record's timestamp until it was durable in the sink: medians over the measured time."""

    p50_ms: float
    p99_ms: float


def measured(job: ClusterJob) -> Latency:
    """Run the job under load; return its own figures of latency."""
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
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1, 10), help="Of both, one by one.")
@click.option("--var", "settings", multiple=True, metavar="KEY=VALUE", help="A variable of Terraform's.")
def main(rounds: int, settings: tuple[str, ...]) -> None:
    """Measure both in turn, on a cluster that is made for it and destroyed afterwards."""
    cluster.make((*ALIKE, *settings))
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
        jobs = [("loopback", loopback), ("hosts", hosts)]
        for number in range(1, rounds + 1):
            # Alternate which comes first: the later one finds warmer services.
            for name, job in jobs if number % 2 else reversed(jobs):
                found[name].append(measured(job))
                click.echo(f"round {number}, {name}: {found[name][-1]}")
    finally:
        cluster.destroy()
    figures = {name: _median(all_) for name, all_ in found.items()}
    pairs = zip(found["hosts"], found["loopback"], strict=True)
    ratios = [Latency(one.p50_ms / other.p50_ms, one.p99_ms / other.p99_ms) for one, other in pairs]
    figures["hosts_to_loopback"] = _median(ratios)
    sys.stdout.write(json.dumps(figures) + "\n")


def _median(found: list[Latency]) -> dict[str, float]:
    """Return the median over the rounds; a ratio is taken within its round, since the machine varies between rounds."""
    return {
        "p50_ms": round(statistics.median(each.p50_ms for each in found), 2),
        "p99_ms": round(statistics.median(each.p99_ms for each in found), 2),
    }


if __name__ == "__main__":
    main()
