"""`lowtide lanes`: how many lanes a job has, and more of them."""

from __future__ import annotations

import json

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.snapshot_place import no_job
from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.driver.growth import grow
from lowtide.wording import count_of


@click.command()
@click.argument("job")
@click.option("--to", "lanes", type=click.IntRange(min=1), help="Give the job so many; it must not run.")
@with_conf
@as_json
def lanes(conf: Conf, job: str, lanes: int | None, as_json: bool) -> None:
    """Show how many lanes JOB has, at most as many workers may each level have; or give it more.

    A job grows to a multiple of what it has. State and output stay as they are, and keys stay in their partitions of a
    sink's topic. The topics of staged records and of kept answers get a partition for each new lane.
    """
    with ZooKeeperAccess.of(conf.zookeeper).store(job) as store:
        record = store.record()
        if record is None:
            raise no_job(conf, job)
        if lanes is not None:
            record = grow(store, record, lanes, conf, lambda text: click.echo(text, err=True))
        partitions = store.partitions()
    if as_json:
        click.echo(json.dumps({"lanes": record.lanes, "units": record.units, "partitions": partitions}))
        return
    click.echo(f'job "{job}" has {count_of(record.lanes, "lane")} of {record.units} hash units')
    for topic, number in sorted(partitions.items()):
        click.echo(f'it writes {count_of(number, "partition")} of topic "{topic}"')
