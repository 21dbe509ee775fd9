"""The stores besides Kafka that a flow writes."""

from __future__ import annotations

import uuid

import msgspec

from lowtide.conf import Conf
from lowtide.doctor.check import Answer, Surroundings, Verdict
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.schema import schema_of
from lowtide.sinks.files.carrier import try_place
from lowtide.sinks.files.endpoint import Files
from lowtide.sinks.postgres.access import settings_of
from lowtide.sinks.postgres.columns import Table
from lowtide.sinks.postgres.endpoint import Postgres
from lowtide.sinks.postgres.health import Concern, concerns_of
from lowtide.sinks.puts.carrier import client_of
from lowtide.sinks.puts.contract import Put, Refused, Unavailable
from lowtide.sinks.puts.endpoint import Puts
from lowtide.sinks.staged.contract import Carriage
from lowtide.sinks.tables.endpoint import TableSink
from lowtide_snapshots.errors import LowtideError

MANY_VERSIONS = 1_000
"""Versions of a table from which on loading it takes noticeably longer."""


def postgres(surroundings: Surroundings) -> Answer:
    """Look at the tables that the flow writes, the rights of its user, standbys and open transactions."""
    plan, conf = surroundings.plan, surroundings.conf
    if plan is None:
        return Answer("ok", "name a flow to check the tables that it writes")
    connections: dict[str, dict[str, Table]] = {}
    for vertex in plan.sinks():
        sink = vertex.step.sink
        if isinstance(sink, Postgres):
            connections.setdefault(sink.connection, {})[vertex.name] = sink.columns
    if not connections:
        return Answer("ok", "the flow writes no table")
    found = [each for name, tables in connections.items() for each in _of(conf, name, tables)]
    if not found:
        count = sum(map(len, connections.values()))
        return Answer("ok", f"{count} tables take the flow's rows" if count > 1 else "the table takes the flow's rows")
    verdict: Verdict = "fail" if any(each.fatal for each in found) else "warn"
    way_outs = dict.fromkeys(each.way_out for each in found)
    return Answer(verdict, "; ".join(each.found for each in found), "; ".join(way_outs))


def _of(conf: Conf, connection: str, tables: dict[str, Table]) -> list[Concern]:
    return concerns_of(settings_of(conf, connection), tables, conf.kafka.reach_limit_ms / 1000)


def puts(surroundings: Surroundings) -> Answer:
    """Put a record, then an older one, into each store of `lt.puts`, and delete it again."""
    plan, conf = surroundings.plan, surroundings.conf
    if plan is None:
        return Answer("ok", "name a flow to check the stores that it puts records into")
    sinks = [(vertex.name, vertex.step.sink) for vertex in plan.sinks() if isinstance(vertex.step.sink, Puts)]
    if not sinks:
        return Answer("ok", "the flow puts no records")
    if not surroundings.probe:
        return Answer("warn", "not tried", "allow a record that is deleted again: lowtide doctor --probe")
    answers = [_tried(conf, plan, name, sink) for name, sink in sinks]
    worst = max(answers, key=lambda answer: ("ok", "warn", "fail").index(answer.verdict))
    return Answer(worst.verdict, "; ".join(answer.found for answer in answers), worst.way_out)


def _tried(conf: Conf, plan: Plan, name: str, sink: Puts) -> Answer:
    carriage = Carriage(plan.name, "doctor", 0, name, 1, plan.slack_ms, sink.settings(conf))
    client, where = client_of(sink.put, sink.name, carriage), sink.place
    field, number = sink.json_name(sink.key), uuid.uuid4()
    key = number.int % 10**9 if schema_of(sink.record).kinds[sink.key].name == "int" else str(number)
    value = msgspec.json.encode({field: key})
    try:
        for put in (Put(str(key), value, 2), Put(str(key), value, 1), Put(str(key), None, 3)):
            client.put([put])
    except (OSError, Unavailable) as error:
        return Answer("fail", f"{where} does not answer: {error}", "check that it runs, and its table of the conf")
    except Refused as error:
        return Answer(
            "warn", f"{where} refuses a record with a key alone, so nothing was tried: {error}", "try it with a job"
        )
    finally:
        getattr(client, "close", lambda: None)()
    if sink.compares and not getattr(client, "older", 1):
        way_out = "have it compare Lowtide-Version and answer 409, or say eventual=True instead of compares=True"
        return Answer("fail", f"{where} takes a record that is older than what it has", way_out)
    return Answer("ok", f"{where} takes records" + (" and refuses older ones" if sink.compares else ""))


def files(surroundings: Surroundings) -> Answer:
    """Put an object below each place of `lt.files`, see that it cannot be replaced, and delete it again."""
    plan, conf = surroundings.plan, surroundings.conf
    if plan is None:
        return Answer("ok", "name a flow to check the places of its files")
    sinks = [vertex.step.sink for vertex in plan.sinks() if isinstance(vertex.step.sink, Files)]
    if not sinks:
        return Answer("ok", "the flow writes no files")
    if not surroundings.probe:
        return Answer("warn", "not tried", "allow an object that is deleted again: lowtide doctor --probe")
    for sink in sinks:
        try:
            try_place(sink, sink.settings(conf))
        except LowtideError as error:
            return Answer("fail", f"{error.what} ({error.where or sink.place})", error.way_out)
    return Answer("ok", "files can be put, and not replaced, at " + ", ".join(sink.place for sink in sinks))


def tables(surroundings: Surroundings) -> Answer:
    """Ask for each table of `lt.delta` and `lt.iceberg`, and how many versions it keeps; nothing is written."""
    plan, conf = surroundings.plan, surroundings.conf
    if plan is None:
        return Answer("ok", "name a flow to check the tables that it appends to")
    sinks = [(vertex.name, vertex.step.sink) for vertex in plan.sinks() if isinstance(vertex.step.sink, TableSink)]
    if not sinks:
        return Answer("ok", "the flow appends to no table")
    found, many = [], False
    for name, sink in sinks:
        carriage = Carriage(plan.name, "doctor", 0, name, 1, plan.slack_ms, sink.settings(conf))
        try:
            versions = sink.client(carriage).versions()
        except LowtideError as error:
            return Answer("fail", error.what, error.way_out)
        many |= versions is not None and versions >= MANY_VERSIONS
        found.append(
            f"{sink.place} " + ("is made by the first start" if versions is None else f"keeps {versions:,} versions")
        )
    way_out = "have the engine that owns the table expire old ones each day, and compact its files: docs/tables.md"
    return Answer("warn" if many else "ok", "; ".join(found), way_out if many else "")
