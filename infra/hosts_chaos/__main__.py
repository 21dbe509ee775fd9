"""`make chaos HOSTS=1`: a seeded schedule of faults between hosts; the last line is JSON. Root only."""

from __future__ import annotations

import secrets
import signal
import sys

import click
import cluster
from demo.showing import Show
from lowtide_hosts.host import Host

from .run import Run
from .schedule import KINDS, schedule

OTHER = "other-"
ROLES = ("driver", "worker", "kafka", "zookeeper", "store")


@click.command(context_settings={"max_content_width": 100})
@click.option("--faults", default=len(KINDS), show_default=True, type=click.IntRange(0, 500), help="How many.")
@click.option("--seed", type=int, help="Of the schedule; without it, another one each time.")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="No other kinds; may be repeated.")
@click.option("--within-s", default=3600.0, show_default=True, help="Begin no fault after so long; then it has failed.")
@click.option("--var", "settings", multiple=True, metavar="KEY=VALUE", help="A variable of Terraform's.")
@click.option("--stay", is_flag=True, help="Do not let the job go on at another Spark in the end.")
@click.option("--clear", is_flag=True, help="Seal nothing, do no faults: the search of packets has to find records.")
@click.option("--keep", is_flag=True, help="Leave the cluster up.")
@click.option("--list", "listed", is_flag=True, help="Print the schedule alone; needs a cluster that is up.")
def main(
    faults: int,
    seed: int | None,
    only: tuple[str, ...],
    within_s: float,
    settings: tuple[str, ...],
    stay: bool,
    clear: bool,
    keep: bool,
    listed: bool,
) -> None:
    """Run a job under load on a cluster of hosts, cut, freeze and lose some by a schedule, and judge every byte.

    Exits with 0 only if nothing was lost, duplicated or out of order. The last line is JSON.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = ("airflow=false", *settings)
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    show = Show()
    if not listed:
        cluster.make(settings)
    network = cluster.name()
    names = [host.name for host in Host.all(network)]
    hosts = {role: [name for name in names if name.partition("-")[0] == role] for role in ROLES}
    if not all(hosts.values()):
        raise click.ClickException("the cluster is not up: make infra-up")
    drawn = [] if clear else schedule(seed, faults, hosts, only)
    show.say(f"seed {seed}: {len(drawn)} faults")
    if listed:
        for number, fault in enumerate(drawn, 1):
            show.say(f"{number:4}  after {fault.after_s:4.1f} s  {fault}")
        return

    def move() -> str:
        cluster.make((*settings, f"spark_prefix={OTHER}", f"spark_workers={len(hosts['worker']) + 1}"))
        return f"{OTHER}driver"

    run = Run(
        drawn, network, within_s=within_s, clear=clear, mend=lambda: cluster.make(()),
        move=None if stay or clear else move, say=show.step, progress=show.progress,
    )  # fmt: skip
    try:
        result = run.run()
    finally:
        show.hide()
        left = {} if keep else cluster.destroy()
    for failure in result.failures:
        show.say(failure)
    for done, silence_s in result.silences_s.items():
        show.say(f"{silence_s:6.1f} s without output: {done}")
    if left and any(left.values()):
        show.say(f"left over: {left}")
    if not result.right:
        show.say(f"the same schedule again: make chaos HOSTS=1 ARGS='--seed {seed} --faults {faults}'")
    show.say(result.line())
    sys.exit(int(not result.right or any(left.values())))


if __name__ == "__main__":
    main()
