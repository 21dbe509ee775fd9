"""Latency of one job over a cluster's hosts, and of another beside it, in one run: `make infra-bench`. Root only.

The job of `story/` counts orders. On the hosts its frames and the messages of Kafka and ZooKeeper go from namespace to
namespace, over TLS. Beside it, in turn, runs either the same job over loopback, all on the host `driver`, without
encryption, also on two executors; or the same over the same hosts with its own frames and connections in the clear.
There is one broker and one ZooKeeper, and brokers have the same compilers, so that jobs differ only in the network or
its encryption: three brokers with replication 3 keep two cores busy by themselves (`--var kafka_brokers=3` shows it).
The last line is JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass

import click
import cluster
from cluster_job import ClusterJob

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


CLEAR = ("exchange.sealed=never", "exchange.tls=never")


@dataclass(frozen=True)
class Latency:
    """Milliseconds from a record's timestamp until it was durable in the sink, and what that took of the machine.

    All are means over the measured time; `cores` counts whatever runs on the machine, the load and the brokers too.
    """

    p50_ms: float
    p99_ms: float
    cores: float


@dataclass(frozen=True)
class Contender:
    """A job that is measured in turn with another.

    Attributes:
        name: Its name in the figures.
        job: The job.
        settings: The keys of its conf that differ, as `TABLE.KEY=VALUE`.
    """

    name: str
    job: ClusterJob
    settings: tuple[str, ...] = ()


def measured(contender: Contender, rate: float) -> Latency:
    """Run the job under load, in records per second; return its own figures of latency."""
    job = contender.job
    job.start(*contender.settings, limit_s=START_LIMIT_S)
    job.feed(rate, WARM_S + MEASURED_S + START_LIMIT_S)
    job.until("delivered", lambda view: view.totals.delivered > rate, START_LIMIT_S)
    time.sleep(WARM_S)
    seen = []
    began, worked_s = time.monotonic(), _worked_s()
    deadline = began + MEASURED_S
    while time.monotonic() < deadline:
        view = job.view()
        latency = None if view is None else view.latency_ms
        if latency is not None and latency.p50 is not None and latency.p99 is not None:
            seen.append((latency.p50, latency.p99))
        time.sleep(POLL_S)
    cores = (_worked_s() - worked_s) / (time.monotonic() - began)
    job.fed(0.0)
    job.stop()
    # A job counts in buckets, each an eighth wider than the last: the mean tells what lies between two of them.
    p50_ms, p99_ms = (statistics.fmean(values) for values in zip(*seen, strict=True))
    return Latency(p50_ms, p99_ms, cores)


def _worked_s() -> float:
    """Return the time for which the machine's cores have worked, since it was started."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _waits, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def loopback() -> Contender:
    """Start services on the host `driver`; return the job over them."""
    job = ClusterJob(cluster.name(), conf="loopback/lowtide.toml")
    folder = job.driver.home / "loopback"
    folder.mkdir(exist_ok=True)
    (folder / "lowtide.toml").write_text(LOOPBACK.format(**PORTS))
    job.place()
    job.command("lowtide up --conf /home/loopback/lowtide.toml")
    job.make_topics()
    return Contender("loopback", job)


@click.command()
@click.option("--rounds", default=4, show_default=True, type=click.IntRange(1, 10), help="Of both, one by one.")
@click.option("--rate", "rates", multiple=True, default=(1000.0,), show_default=True, help="Records per second.")
@click.option(
    "--against",
    type=click.Choice(["loopback", "clear"]),
    default="loopback",
    show_default=True,
    help="The other job: over loopback, or over the same hosts in the clear.",
)
@click.option("--var", "settings", multiple=True, metavar="KEY=VALUE", help="A variable of Terraform's.")
def main(rounds: int, rates: tuple[float, ...], against: str, settings: tuple[str, ...]) -> None:
    """Measure both in turn at each rate, on a cluster that is made for it and destroyed afterwards."""
    cluster.make((*ALIKE, *settings))
    figures = {}
    try:
        job = ClusterJob(cluster.name())
        job.place()
        job.make_topics()
        hosts = Contender("hosts", job)
        other = loopback() if against == "loopback" else Contender("clear", job, CLEAR)
        for rate in rates:
            figures[f"{rate:g}"] = compared(hosts, other, rate, rounds)
    finally:
        cluster.destroy()
    sys.stdout.write(json.dumps(figures) + "\n")


def compared(one: Contender, other: Contender, rate: float, rounds: int) -> dict[str, dict[str, float]]:
    """Measure two jobs in turn; return the figures of each, and the first one's divided by the other's."""
    found: dict[str, list[Latency]] = {one.name: [], other.name: []}
    for number in range(1, rounds + 1):
        # Alternate which comes first: the later one finds warmer services.
        for contender in (other, one) if number % 2 else (one, other):
            found[contender.name].append(measured(contender, rate))
            click.echo(f"{rate:g}/s, round {number}, {contender.name}: {found[contender.name][-1]}")
    pairs = zip(found[one.name], found[other.name], strict=True)
    ratios = [
        Latency(each.p50_ms / beside.p50_ms, each.p99_ms / beside.p99_ms, each.cores / beside.cores)
        for each, beside in pairs
    ]
    named = {name: _median(all_) for name, all_ in found.items()}
    return named | {f"{one.name}_to_{other.name}": _median(ratios)}


def _median(found: list[Latency]) -> dict[str, float]:
    """Return the median over the rounds; a ratio is taken within its round, since the machine varies between rounds."""
    return {
        "p50_ms": round(statistics.median(each.p50_ms for each in found), 2),
        "p99_ms": round(statistics.median(each.p99_ms for each in found), 2),
        "cores": round(statistics.median(each.cores for each in found), 3),
    }


if __name__ == "__main__":
    main()
