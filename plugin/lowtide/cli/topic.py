"""`lowtide topic create|allow|list|read|write|delete`: the topics of the Kafka that the conf names."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict

import click

from lowtide.cli.options import as_json, with_conf
from lowtide.cli.output import table, time_of
from lowtide.conf import Conf
from lowtide.connectors.acls import allow
from lowtide.connectors.dead_letters import letter_of
from lowtide.connectors.topic_records import read_topic, write_topic
from lowtide.connectors.topics import Topics
from lowtide.driver.preflight import NewTopic, letters_topic, needed_acls, needed_topics
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.flow_file import load_flow
from lowtide.wording import count_of


@click.group()
def topic() -> None:
    """Create, list, read, write and delete Kafka topics, and say who may use them."""


@topic.command()
@click.argument("name", metavar="NAME|FLOW")
@click.option("--partitions", type=click.IntRange(min=1), help="By default 1, or as many as the flow needs.")
@click.option(
    "--config", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the topic, as Kafka has it."
)
@with_conf
def create(conf: Conf, name: str, partitions: int | None, settings: tuple[str, ...]) -> None:
    """Create the topic NAME, or all topics of FLOW (flow.py, or flow.py:name) that are missing.

    A sink's topic gets a partition for each lane of the job, a source's as many unless --partitions says otherwise, and
    the topic of the dead letters one. The topic of a compacted table is compacted.
    """
    config = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--config")
        config[key] = value
    topics = Topics(conf.kafka)
    if not _is_flow(name):
        _create(topics, NewTopic(name, partitions or 1), config)
        return
    there = set(topics.names())
    for new in needed_topics(compile_job(load_flow(name), conf), conf, sources=partitions):
        if new.name in there:
            click.echo(f"{new.name} exists already")
        else:
            _create(topics, new, {**new.config, **config})


@topic.command("allow")
@click.argument("flow", metavar="FLOW")
@click.option("--user", required=True, metavar="USER", help="Who is allowed: the job's sasl_username.")
@click.option("--print", "shown", is_flag=True, help="Print kafka-acls commands, and ask no broker.")
@with_conf
def allow_user(conf: Conf, flow: str, user: str, *, shown: bool) -> None:
    """Allow USER what FLOW (flow.py, or flow.py:name) needs in Kafka, by ACLs, and nothing else.

    Its sources may be read, its sinks written; topics, groups and transactional ids of its own begin with lowtide.NAME.
    The login of the conf has to be somebody's who may make ACLs. Those that are there stay.
    """
    acls = needed_acls(compile_job(load_flow(flow), conf))
    if shown:
        for acl in acls:
            click.echo(acl.command(conf.kafka, user))
        return
    allow(conf.kafka, user, acls)
    rows = [(acl.resource, f"{acl.name}*" if acl.prefixed else acl.name, ", ".join(acl.operations)) for acl in acls]
    click.echo(table((f"{user} may use", "named", "for"), rows))


def _create(topics: Topics, new: NewTopic, config: Mapping[str, str]) -> None:
    topics.create(new.name, partitions=new.partitions, config=config)
    click.echo(f"created {new.name} with {count_of(new.partitions, 'partition')}")


def _is_flow(name: str) -> bool:
    """Tell a flow's file from a topic's name."""
    file, _, _ = name.partition(":")
    return file.endswith(".py")


@topic.command("list")
@with_conf
@as_json
def list_topics(conf: Conf, as_json: bool) -> None:
    """List the topics, except Kafka's own."""
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
@click.option("--headers", is_flag=True, help="Print the headers, as JSON, and a tab before each value.")
@with_conf
def read(conf: Conf, name: str, follow: bool, keys: bool, headers: bool) -> None:
    """Print the values of topic NAME, from its beginning, a line each; only what was committed.

    Records of one partition come in its order, those of different partitions as they are fetched.
    """
    for message in read_topic(conf.kafka, name, follow=follow):
        columns = [_text(message.key())] if keys else []
        if headers:
            columns.append(json.dumps({header: _text(value) for header, value in message.headers() or ()}))
        click.echo("\t".join([*columns, _text(message.value())]))


@topic.command()
@click.argument("name", metavar="NAME|FLOW")
@click.option("--follow", is_flag=True, help="Follow new ones until Ctrl-C.")
@with_conf
@as_json
def letters(conf: Conf, name: str, follow: bool, as_json: bool) -> None:
    """Print the dead letters in topic NAME, or in that of FLOW: which step failed, with which record, and why."""
    if _is_flow(name):
        name = letters_topic(load_flow(name))
    count = 0
    for message in read_topic(conf.kafka, name, follow=follow):
        letter = letter_of(message)
        if letter is None:
            continue
        count += 1
        if as_json:
            click.echo(json.dumps(asdict(letter)))
        else:
            place = f"{letter.partition}, offset {letter.offset}" if letter.partition else "its clock"
            click.echo(f"{time_of(letter.time_ms)}  {letter.step}: {place}")
            click.echo(f"  {letter.error}")
            click.echo(f"  {letter.value}")
    if not count and not as_json:
        click.echo(f"no dead letters in {name}", err=True)


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


@topic.command()
@click.argument("name")
@click.option("--partition", type=click.IntRange(min=0), help="By default partitions take turns.")
@with_conf
def write(conf: Conf, name: str, partition: int | None) -> None:
    """Write each line of standard input to topic NAME as one value."""
    count = write_topic(conf.kafka, name, (line.rstrip(b"\n") for line in sys.stdin.buffer), partition)
    click.echo(f"wrote {count_of(count, 'record')} to {name}", err=True)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_conf
def delete(conf: Conf, name: str, yes: bool) -> None:
    """Delete the topic NAME with all its records."""
    topics = Topics(conf.kafka)
    if not yes:
        count = topics.describe(name).partitions
        click.confirm(
            f"delete topic {name} ({count_of(count, 'partition')}) at {conf.kafka.bootstrap_servers}?", abort=True
        )
    topics.delete(name)
    click.echo(f"deleted {name}")
