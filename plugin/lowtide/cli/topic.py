"""`lowtide topic create|list|read|write|delete`: the topics of the Kafka that the conf names."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import table
from lowtide.conf import Conf
from lowtide.connectors.topic_records import read_topic, write_topic
from lowtide.connectors.topics import Topics


@click.group()
def topic() -> None:
    """Create, list, read, write and delete Kafka topics."""


@topic.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--config", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the topic, as Kafka has it."
)
@with_conf
def create(conf: Conf, name: str, partitions: int, settings: tuple[str, ...]) -> None:
    """Create the topic NAME."""
    config = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--config")
        config[key] = value
    Topics(conf.kafka).create(name, partitions=partitions, config=config)
    click.echo(f"created {name} with {partitions} partition{'s' * (partitions > 1)}")


@topic.command("list")
@with_conf
@as_json
def list_topics(conf: Conf, as_json: bool) -> None:
    """List the topics, Kafka's own left out."""
    topics = Topics(conf.kafka)
    found = topics.describe_all(topics.names())
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
        return
    rows = [(each.name, str(each.partitions), each.timestamps, each.cleanup) for each in found]
    click.echo(table(("topic", "partitions", "timestamps", "cleanup"), rows))


@topic.command()
@click.argument("name")
@click.option("--follow", is_flag=True, help="Follow new records until Ctrl-C.")
@click.option("--keys", is_flag=True, help="Print each key and a tab before its value.")
@with_conf
def read(conf: Conf, name: str, follow: bool, keys: bool) -> None:
    """Print the values of topic NAME, from its beginning, a line each; only what was committed.

    Records of one partition come in its order, those of different partitions as they are fetched.
    """
    for message in read_topic(conf.kafka, name, follow=follow):
        key = (message.key() or b"").decode("utf-8", "replace") + "\t" if keys else ""
        click.echo(key + (message.value() or b"").decode("utf-8", "replace"))


@topic.command()
@click.argument("name")
@click.option("--partition", type=click.IntRange(min=0), help="By default partitions take turns.")
@with_conf
def write(conf: Conf, name: str, partition: int | None) -> None:
    """Write each line of standard input to topic NAME as one value."""
    count = write_topic(conf.kafka, name, (line.rstrip(b"\n") for line in sys.stdin.buffer), partition)
    click.echo(f"wrote {count} records to {name}", err=True)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_conf
def delete(conf: Conf, name: str, yes: bool) -> None:
    """Delete the topic NAME with all its records."""
    topics = Topics(conf.kafka)
    if not yes:
        count = topics.describe(name).partitions
        click.confirm(f"delete topic {name} ({count} partitions) at {conf.kafka.bootstrap_servers}?", abort=True)
    topics.delete(name)
    click.echo(f"deleted {name}")
