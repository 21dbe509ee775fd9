"""`lowtide sinks`: the tables that a flow writes, and records that are on their way into a store."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from lowtide.assignment.setting import StagedSetting
from lowtide.cli.options import with_conf
from lowtide.cli.output import time_of
from lowtide.cli.snapshot_place import no_job
from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.driver.carriages import staged_settings
from lowtide.driver.drained import drained_tick
from lowtide.driver.frozen import settled
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.flow_file import load_flow
from lowtide.flow.plan.plan_pickle import dump_plan
from lowtide.service.carriers.main import carrying_of
from lowtide.sinks.postgres.access import settings_of
from lowtide.sinks.postgres.ddl import apply, statements_for
from lowtide.sinks.postgres.endpoint import Postgres
from lowtide.sinks.staged.contract import visible_ms
from lowtide.wording import count_of
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.errors import Fenced


@click.group()
def sinks() -> None:
    """Make the tables that a flow writes; take staged records into their stores."""


@sinks.command()
@click.argument("flow")
@click.option("--apply", "applied", is_flag=True, help="Make what is missing instead of printing all.")
@with_conf
def ddl(conf: Conf, flow: str, applied: bool) -> None:
    """Print the SQL for what FLOW (flow.py, or flow.py:name) needs in PostgreSQL, as for an empty database.

    With --apply it connects as [postgres.NAME] of the conf says, compares, and makes what is missing: tables, columns,
    a unique index on the key. It changes no type and drops nothing.
    """
    for connection, found in sorted(_connections(flow, conf).items()):
        tables = {name: sink.columns for name, sink in found.items()}
        if not applied:
            own = conf.postgres.get(connection)
            user = own.user if own is not None and own.user is not None else "USER"
            click.echo(f"-- [postgres.{connection}]")
            for statement in statements_for(tables, user):
                click.echo(statement)
            continue
        done = apply(settings_of(conf, connection), tables, conf.kafka.delivery_limit_ms / 1000)
        for statement in done:
            click.echo(f"{statement.rstrip(';')};")
        if not done:
            click.echo(f"[postgres.{connection}] has all that the flow needs")


@sinks.command()
@click.argument("flow")
@with_conf
def drain(conf: Conf, flow: str) -> None:
    """Take what FLOW (flow.py, or flow.py:name) has staged into its stores, without Spark.

    Its job may run meanwhile or not. What becomes visible only with later records, as a file whose time is not over,
    stays staged for the next life. What has become visible counts as delivered, as if the job ran: Airflow's sensors
    and assets go by that. Where the flow also writes to Kafka or PostgreSQL, or dead letters, that is up to the last
    commit; for a job in a graph it waits for the next life.
    """
    plan, conf = settled(compile_job(load_flow(flow), conf), conf)
    dump_plan(plan)  # The modules of the flow go by value, as to a job's own carriers.
    with ZooKeeperAccess.of(conf.zookeeper).store(plan.name) as store:
        if store.record() is None:
            raise no_job(conf, plan.name)
        incarnation, (_, generation) = store.incarnation(), store.lasts()
        staged = staged_settings(plan, conf, store.identity(incarnation), generation)
        if not staged:
            raise FlowError("the flow stages no records: its stores take them in one step", where=flow)
        visible = {each: _drain(each, librdkafka_settings(conf.kafka)) for each in staged}
        # A commit may be of the generation before.
        last = None if generation else ZooKeeperCommitLog(store).last()
        tick = drained_tick(plan, visible, None if last is None else last.tick)
        if tick is not None and conf.tracker.graph is None and conf.job.delivery == "exactly_once":
            with suppress(Fenced):  # Another life has begun, and publishes it.
                store.publish(incarnation, tick, generation)
            click.echo(f"all before {time_of(tick * plan.slack_ms)} UTC is delivered")


def _drain(setting: StagedSetting, kafka: Mapping[str, Any]) -> int | None:
    with carrying_of(setting, kafka) as carrying:
        carrying.drain()
        lanes, backlog, _ = carrying.last
    visible = visible_ms(lanes)
    seen = "all it had is taken" if visible is None else f"all before {time_of(visible)} UTC is visible"
    click.echo(f"{setting.sink}: {seen}; {count_of(backlog.bytes, 'byte')} wait for later records")
    return visible


def _connections(flow: str, conf: Conf) -> Mapping[str, dict[str, Postgres]]:
    """Return the flow's tables by connection and sink (errors: FlowError if there are none)."""
    found: dict[str, dict[str, Postgres]] = {}
    for vertex in compile_job(load_flow(flow), conf).sinks():
        sink = vertex.step.sink
        if isinstance(sink, Postgres):
            found.setdefault(sink.connection, {})[vertex.name] = sink
    if not found:
        raise FlowError("the flow writes no PostgreSQL table", where=flow, way_out="write(name, lt.postgres(...))")
    return found
