"""Snapshots on the real thing: taken under load, committed, recovered from; output stays exactly once (R14 to R16)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from signal import SIGKILL
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.chaos.photographer import Photographer
from tests.chaos.sweeper import damages
from tests.shop import Load, Shop
from tests.waiting import HANGS_S

from lowtide.cli.prune_plan import PrunePlan
from lowtide.cli.recovery import look
from lowtide.cli.snapshot import take
from lowtide.cli.snapshot_place import opened
from lowtide.driver.job import Job
from lowtide.driver.recovery import StartFrom
from lowtide.errors import LifeEnded
from lowtide.flow.plan import compiler
from lowtide.flow.plan.plan import Plan
from lowtide.local.oracle import Output, compare_lanes, read_output
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import SnapshotView
from lowtide_snapshots.commits.retention import Rule
from lowtide_snapshots.errors import ControlRefused
from lowtide_snapshots.format.parts import sha256
from lowtide_snapshots.stores.folder import FolderStore

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]


def taken(job: Job, name: str | None = None) -> SnapshotView:
    """Take a snapshot and wait until it is committed."""
    return take(job.client(), job.plan.name, name, limit_s=HANGS_S)


def after(seconds: float) -> Callable[[], Any]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def delivering(job: Job) -> Callable[[], Any]:
    """For `Job.wait`: go on until some output has come."""
    return lambda: job.status()["totals"]["records_out"] < 300


def no_more_than(asking: Photographer, done: int) -> bool:
    """For `Job.wait`: go on until another savepoint is named as done."""
    return len(asking.savepoints) == done


class Work:
    """Counts what a recovery does in this program.

    Attributes:
        read: The names of the snapshots' parts that were read, one for each time.
        compiled: How often a flow was compiled.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[str] = []
        self.compiled = 0
        get, compile_flow = FolderStore.get, compiler.compile_flow

        def counted(*args: Any, **named: Any) -> Plan:
            self.compiled += 1
            return compile_flow(*args, **named)

        def noted(store: FolderStore, name: str) -> bytes:
            self.read += [name] if name.endswith(".parquet") else []
            return get(store, name)

        monkeypatch.setattr(compiler, "compile_flow", counted)
        monkeypatch.setattr(FolderStore, "get", noted)


def test_a_job_goes_on_from_its_last_commit(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `lowtide recover` does: the flow is compiled once, and each part verified once, by the preview."""
    shop = Shop.open("commit", spark.kafka, spark.settings(), letters=2)
    with shop.running() as job, Load(shop, per_s=500) as load:
        job.wait(delivering(job))
        first = taken(job)
        assert first.phase == "committed"
        assert first.rows > 0
        job.wait(after(2))
        second = taken(job)
        assert second.phase == "committed"
        job.wait(after(1))
        assert load.written > 1000
        client = job.client()
        answer = client.state("bought", {"user": "user-3"})
        (row,) = answer["rows"]
        assert (row["key"], row["state"]["user"]) == ({"user": "user-3"}, "user-3")
        assert second.min_time_ms is not None
        assert answer["min_time_ms"] >= second.min_time_ms
        assert client.state("bought", {"user": "nobody"})["rows"] == []
        many = client.states("bought", [{"user": f"user-{number}"} for number in range(40)])
        assert many[3]["rows"][0]["key"] == {"user": "user-3"}
        there = {each["rows"][0]["key"]["user"] for each in many if each["rows"]}
        around = client.states_around("bought", limit=1000)
        assert {each["rows"][0]["key"]["user"] for each in around["keys"]} >= there
        with pytest.raises(ControlRefused, match='no step "sought"'):
            client.state("sought", {"user": "user-3"})
        with pytest.raises(ControlRefused, match='the key of "bought" is user'):
            client.state("bought", {"item": "item-3"})
    said: list[str] = []
    work = Work(monkeypatch)
    recovery = look(shop.flow(), shop.conf, StartFrom(), lambda *_: None)
    job = Job.start(recovery.plan, shop.conf, said.append, recovery.start)
    try:
        assert any(f"beginning from commit {second.id}" in each for each in said), said
        assert recovery.choice is not None
        assert len(set(work.read)) == len(recovery.choice.manifest.parts)
        assert (len(work.read), work.compiled) == (len(set(work.read)), 1)
        assert job.follow_up(recovery.start).verified == "", "a life after it verifies what it begins from"
        with Load(shop, first=100_000, per_s=300):
            job.wait(after(3))
        assert shop.judge.right()
        read = job.status()["totals"]["records_in"]
    finally:
        job.stop()
    assert shop.judge.right()
    assert read < load.written, "it has not read all of it again"


@pytest.mark.nightly
def test_a_savepoint_that_is_overtaken_is_kept_beside_the_newer_one(spark: Spark) -> None:
    """R16, R17: both are committed and whole whatever is swept, and a life goes on right from either."""
    shop = Shop.open("beside", spark.kafka, spark.settings(), letters=2)
    name = shop.name
    told: list[str] = []
    flow = shop.flow()
    flow.hooks["out"] = lambda news: told.append(news.data["snapshot"])

    def committed(client: ControlClient, *ids: str) -> bool:
        phases = {view.id: view.phase for view in client.snapshots()}
        assert "failed" not in {phases[each] for each in ids}, [str(each.why) for each in client.snapshots()]
        return all(phases[each] == "committed" for each in ids)

    with shop.running() as job, Load(shop, per_s=300):
        job.wait(delivering(job))
        client = job.client()
        savepoint = take(client, name, "before 2.0", commit=False, limit_s=HANGS_S)
        newer = taken(job)
        with opened(shop.conf, name) as (place, _):
            PrunePlan.planned(place, Rule(1)).carry_out()
            manifest = place.read(place.find(savepoint.id))
            place.log.commit(manifest, sha256(manifest.to_json().encode()))
            last = place.log.last()
            assert last is not None
            assert last.id == newer.id
        job.wait(lambda: not committed(client, savepoint.id, newer.id))
        several = [client.take_snapshot(called).id for called in ("one", None, "two")]
        job.wait(lambda: not committed(client, several[0], several[2]))
        with opened(shop.conf, name) as (place, _):
            PrunePlan.planned(place, Rule(1)).carry_out()
            assert {"before 2.0", "one", "two"} <= {commit.name for commit in place.log.commits()}
            assert place.log.reserved() == []
            newest = place.log.commits()[-1].id
        assert damages(shop.conf, name) == []
    for start, begins in ((StartFrom(commit="before 2.0"), savepoint.id), (StartFrom(), newest)):
        said: list[str] = []
        job = Job.start(flow, shop.conf, said.append, start)
        try:
            assert any(f"commit {begins}" in each for each in said), said
            assert shop.judge.right()
        finally:
            job.stop()
        with opened(shop.conf, name) as (place, _):
            commits = [commit.id for commit in place.log.commits()]
        assert told == commits, "the first life that has the function tells all that are there, and no later one again"


@pytest.mark.nightly
def test_every_savepoint_named_as_done_is_recovered_from_whatever_was_killed_meanwhile(spark: Spark) -> None:
    """R15, R16: they are asked for beside the job's own snapshots, and a worker dies while one is under way."""
    shop = Shop.open("asked", spark.kafka, spark.settings() | {"snapshots.max_commit_age_s": 1.0}, letters=2)
    running: list[ControlClient] = []
    with Photographer(lambda: running[-1] if running else None, every_s=0.05) as asking:
        for first, victim in ((0, "1/0"), (100_000, "2/1")):
            done = len(asking.savepoints)
            with shop.running() as job, Load(shop, first):
                job.wait(delivering(job))
                running.append(job.client())
                job.wait(partial(no_more_than, asking, done))
                job.wait(lambda: not asking.under_way.is_set())
                os.kill(next(each["pid"] for each in job.status()["workers"] if each["worker"] == victim), SIGKILL)
                with pytest.raises(LifeEnded):
                    job.wait(after(HANGS_S))
                running.clear()
    assert damages(shop.conf, shop.name) == []
    with opened(shop.conf, shop.name) as (place, _):
        assert {*asking.savepoints} <= {commit.name for commit in place.log.commits()}
    for name in (asking.savepoints[0], asking.savepoints[-1]):
        with shop.running(StartFrom(commit=name)):
            assert shop.judge.right()


def test_a_job_that_is_rewound_delivers_again_what_came_behind_the_commit(spark: Spark) -> None:
    """A new output generation; and a life after it goes on with that one."""
    shop = Shop.open("rewound", spark.kafka, spark.settings(), letters=2)
    shop.produce(range(400))
    with shop.running() as job:
        assert shop.judge.right()
        committed = taken(job)
        shop.produce(range(400, 700))
        assert shop.judge.right()
        taken(job, "dropped by the rewind")
    whole = read_output(shop.conf.kafka, shop.sink)

    def expected() -> dict[int, list[Output]]:
        """Messages from before the rewind, then all after the commit once more."""
        lanes = shop.judge.expected()[0]["out"]
        return {lane: whole[lane] + messages[len(before(whole[lane], committed)) :] for lane, messages in lanes.items()}

    said: list[str] = []
    job = Job.start(shop.flow(), shop.conf, said.append, StartFrom(commit=committed.id, redeliver=True))
    try:
        shop.produce(range(700, 900))
        assert delivered(shop, expected) > 400 + 300 + 200
    finally:
        job.stop()
    assert any("output generation 1" in each for each in said), said
    with shop.running():
        shop.produce(range(900, 1000))
        assert delivered(shop, expected) > 400 + 300 + 300


def test_a_source_that_retention_has_emptied_to_its_last_marker_is_gone_on_with(spark: Spark) -> None:
    """A transaction's end takes an offset of its own: its loss must not look like that of a record."""
    shop = Shop.open("emptied", spark.kafka, spark.settings())
    shop.produce(range(200), transaction="commit")
    with shop.running() as job:
        assert shop.judge.right() == 200
        client = job.client()
        idle_from = client.status().delivered_time_ms or 0
        job.wait(lambda: (client.status().delivered_time_ms or 0) <= idle_from + 500)
        taken(job)
    admin: Any = AdminClient({"bootstrap.servers": spark.kafka.address})
    places = [TopicPartition(shop.sources[0], partition, OFFSET_END) for partition in (0, 1)]
    deleted = [future.result(30).low_watermark for future in admin.delete_records(places).values()]
    assert deleted == [101, 101], "a hundred orders each, and a marker"
    with shop.running():
        shop.produce(range(200, 300), transaction="commit")
        deadline = time.monotonic() + HANGS_S
        while sum(map(len, (found := read_output(shop.conf.kafka, shop.sink)).values())) < 300:
            assert time.monotonic() < deadline
            time.sleep(0.3)
    sold = [json.loads(message.value or b"") for lane in found.values() for message in lane]
    assert sorted(each["number"] for each in sold) == list(range(300))
    counted = {each["item"]: each["so_far"] for each in sold}
    assert sum(counted.values()) == 300, "the state goes on from the commit"


def before(messages: list[Output], committed: SnapshotView) -> list[Output]:
    assert committed.min_time_ms is not None
    return [message for message in messages if message.timestamp < committed.min_time_ms]


def delivered(shop: Shop, expected: Callable[[], dict[int, list[Output]]]) -> int:
    """Wait until the topic holds what is expected, byte by byte; how many messages that are."""
    deadline = time.monotonic() + HANGS_S
    wanted = sum(map(len, expected().values()))
    while sum(map(len, (found := read_output(shop.conf.kafka, shop.sink)).values())) < wanted:
        assert time.monotonic() < deadline, f"{wanted} are wanted"
        time.sleep(0.3)
    # Floors that were granted meanwhile have lifted what came after them.
    verdict = compare_lanes(expected(), found)
    assert verdict.right, verdict
    return wanted
