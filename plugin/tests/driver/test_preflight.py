"""Refusals before a job starts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide import Flow, json, kafka, raw
from lowtide.conf import Conf
from lowtide.conf.tables import SnapshotsConf
from lowtide.connectors.acls import Acl
from lowtide.connectors.topics import Topic
from lowtide.core.fronts.register import FrontRegister, Partition
from lowtide.driver.compacted import refuse_compacted, replay_faults
from lowtide.driver.preflight import (
    NewTopic,
    _refuse_dated,
    check_store,
    executors_asked,
    letters_topic,
    needed_acls,
    needed_topics,
    sink_topics,
    wait_for_executors,
)
from lowtide.errors import FlowError
from lowtide.flow.plan.compiler import compile_flow, compile_job
from lowtide.flow.plan.own_topics import name_beside
from lowtide.flow.plan.plan import Plan
from lowtide_snapshots.stores.errors import StoreRefused

TOPIC = Topic("out", 1, "CreateTime", "delete", "id of out")


def table_plan(**source: Any) -> Plan:
    """A flow that joins records of "out" with a table of topic "in"."""
    flow = Flow("tables")
    rows = flow.read("rows", kafka("in", json(Row), **source)).key_by("id").table("rows")
    stream = flow.read("stream", kafka("out", json(Row))).key_by("id")
    stream.join_table("joined", rows, newer).write("sink", kafka("sink", json(Row)))
    return compile_flow(flow, parallelism=1)


def test_the_topics_that_a_flow_needs_have_a_partition_for_each_lane_and_letters_one() -> None:
    conf = Conf.load(None, {"job.parallelism": "2", "snapshots.max_commit_age_s": "60"})
    flow = Flow("some", dead_letters=kafka("letters", raw()))
    rows = flow.read("rows", kafka("in", json(Row), compacted=True)).key_by("id").table("rows")
    stream = flow.read("stream", kafka("more", json(Row))).key_by("id")
    stream.join_table("joined", rows, newer).write("sink", kafka("out", json(Row)))
    plan = compile_job(flow, conf)
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": "120000"}
    assert needed_topics(plan, conf) == [
        NewTopic("in", 2, compacted),
        NewTopic("more", 2),
        NewTopic("out", 2),
        NewTopic("letters", 1),
    ]
    assert [topic.partitions for topic in needed_topics(plan, conf, sources=5)] == [5, 5, 2, 1]
    assert letters_topic(flow) == "letters"
    with pytest.raises(FlowError, match='flow "none" has no dead letters'):
        letters_topic(Flow("none"))


def test_a_user_is_allowed_what_its_job_uses_and_what_is_its_own() -> None:
    flow = Flow("tables", dead_letters=kafka("letters", raw()))
    rows = flow.read("rows", kafka("in", json(Row)))
    rows.write("sink", kafka("out", json(Row)))
    looked_at = ("Describe", "DescribeConfigs")
    assert needed_acls(compile_flow(flow, parallelism=1)) == [
        Acl("topic", "in", ("Read", *looked_at)),
        Acl("topic", "out", ("Write", *looked_at)),
        Acl("topic", "letters", ("Write", *looked_at)),
        Acl("topic", "lowtide.tables.", ("All",), prefixed=True),
        Acl("group", "lowtide.tables.", ("Read", "Describe"), prefixed=True),
        Acl("transactional-id", "lowtide.tables.", ("Write", "Describe"), prefixed=True),
    ]


def test_what_is_a_jobs_own_has_two_names_if_kafka_does_not_take_the_jobs() -> None:
    flow = Flow("a.b")
    flow.read("rows", kafka("in", json(Row))).write("sink", kafka("out", json(Row)))
    acls = needed_acls(compile_flow(flow, parallelism=1))
    assert {acl.name for acl in acls if acl.prefixed} == {"lowtide.a.b.", "lowtide.a_b."}
    assert name_beside("a.b", "last").startswith("lowtide.a_b.last")


def test_an_acl_is_a_command_too() -> None:
    kafka_conf = Conf.load(None, {"kafka.bootstrap_servers": "k:9092"}).kafka
    assert Acl("topic", "lowtide.tables.", ("Read", "DescribeConfigs"), prefixed=True).command(kafka_conf, "jobs") == (
        "kafka-acls --bootstrap-server k:9092 --command-config admin.properties --add --allow-principal User:jobs"
        " --operation Read --operation DescribeConfigs --topic lowtide.tables. --resource-pattern-type prefixed"
    )


@dataclass(frozen=True)
class Row:
    id: str


def newer(row: Row, other: Row) -> Row:
    return other


@pytest.mark.parametrize("cleanup", ["compact", "compact,delete"])
def test_a_compacted_source_is_refused(cleanup: str) -> None:
    """R3: read again, it would not give the same records; but as a table that says so, and keeps what may be needed."""

    def topics(lag_ms: int) -> list[Topic]:
        return [TOPIC, Topic("in", 1, "CreateTime", cleanup, "id of in", lag_ms)]

    with pytest.raises(FlowError, match="is compacted: reading it again") as refused:
        refuse_compacted(table_plan(), topics(7_200_000), 3600.0)
    assert "compacted=True" in refused.value.way_out
    plan = table_plan(compacted=True)
    refuse_compacted(plan, topics(7_200_000), 3600.0)
    with pytest.raises(FlowError, match=r"compacted after 7,199,999 ms, .* last 7,200,000 ms") as refused:
        refuse_compacted(plan, topics(7_199_999), 3600.0)
    assert "to 7200000 at least, or max_commit_age_s to 3600 at most" in refused.value.way_out
    with pytest.raises(FlowError, match="the job takes no commits of its own"):
        refuse_compacted(plan, topics(7_200_000), 0.0)
    refuse_compacted(table_plan(), [TOPIC], 3600.0)


def test_what_is_read_again_has_to_be_too_young_for_compaction() -> None:
    """From the commit on, or from the end of what was preloaded: there only the newest rows count, which stay."""
    register, _ = FrontRegister().opened(Partition("in", "x", 0), offset=5, above=0, preloaded=50)
    register, _ = register.opened(Partition("out", "y", 0), offset=0, above=1)
    young = {("in", 0): 60}
    (fault,) = replay_faults(register.entries, {0: 59, 1: 3}, young)
    assert "is read again from offset 59, but is compacted up to 60" in fault
    assert replay_faults(register.entries, {0: 60, 1: 3}, young) == []
    assert replay_faults(register.entries, {}, {("in", 0): 50}) == []
    assert len(replay_faults(register.entries, {}, {("in", 0): 51})) == 1


def test_dead_letters_count_as_written() -> None:
    flow = Flow("twice", dead_letters=kafka("dead", raw()))
    stream = flow.read("in", kafka("in", raw())).key_by("key")
    stream.write("one", kafka("out", raw()))
    stream.write("two", kafka("other", raw()))
    assert sink_topics(compile_flow(flow, parallelism=1)) == ["out", "other", "dead"]


def test_a_sink_whose_broker_dates_the_records_is_refused() -> None:
    """R13: a delivered record's timestamp is its tick's, the same in every life."""
    with pytest.raises(FlowError, match='"late" is written, and the broker gives its records timestamps') as caught:
        _refuse_dated([TOPIC, Topic("late", 1, "LogAppendTime", "delete", "id of late")])
    assert "set message.timestamp.type=CreateTime" in str(caught.value)
    _refuse_dated([TOPIC])


@pytest.mark.parametrize("url", ["az://snapshots/prefix", "gs://snapshots/prefix"])
def test_a_store_that_no_process_could_open_is_refused_before_the_job_begins(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(StoreRefused, match=re.escape(url)):
        check_store(Conf(snapshots=SnapshotsConf(url=url)))


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({"spark.master": "local[6]"}, 0),
        ({"spark.master": "local-cluster[2,6,1024]"}, 2),
        ({"spark.master": "spark://a:7077"}, 0),
        ({"spark.master": "spark://a:7077", "spark.cores.max": "12"}, 0),
        ({"spark.master": "spark://a:7077", "spark.executor.cores": "6"}, 0),
        ({"spark.master": "spark://a:7077", "spark.cores.max": "13", "spark.executor.cores": "6"}, 2),
        ({"spark.master": "yarn"}, 2),
        ({"spark.master": "yarn", "spark.executor.instances": "5"}, 5),
        ({"spark.master": "k8s://https://a:443", "spark.executor.instances": "3"}, 3),
        ({"spark.master": "yarn", "spark.executor.instances": "5", "spark.dynamicAllocation.enabled": "true"}, 0),
    ],
)
def test_how_many_executors_a_session_has_asked_for(settings: dict[str, str], asked: int) -> None:
    assert executors_asked(settings) == asked


def test_executors_that_come_late_are_waited_for_and_named_once() -> None:
    there, heard = iter([0, 1, 1, 2]), list[str]()
    wait_for_executors(2, lambda: next(there), HANGS_S, heard.append)
    assert heard == ["waiting for executors: 0 of 2 have come"]
    assert not list(there)


def test_executors_that_do_not_come_are_missed_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    wait_for_executors(0, lambda: 0, 0.0, pytest.fail)
    assert not caplog.messages
    wait_for_executors(3, lambda: 1, 0.0, pytest.fail)
    assert caplog.messages == [
        "only 1 of 3 executors came within 0 s: all workers run on these until the job is started again"
    ]
