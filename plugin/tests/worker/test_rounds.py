"""A loop whose records change their key, over hosts: handed over inside of one, through a topic from one to another."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from programs import by_lane
from stage_rig import PARTITIONS, Kept, Order, Rig, Served, deployment, kept_of, packed

from lowtide import Flow, kafka, raw
from lowtide import json as as_json
from lowtide.connectors.loop_topics import LoopTopic
from lowtide.core.operators.order.order import Position
from lowtide.core.rows import open_rows
from lowtide.errors import LifeEnded
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.own_topics import loop_topics
from lowtide.flow.plan.plan import Grouping, Plan
from lowtide.flow.schema.headers import Headers
from lowtide.local.run import Message, run_log
from lowtide.worker.level_deployment import LevelDeployment


def passed_on(state: int, order: Order) -> tuple[int, list[Order]]:
    """Hangs on all before, and tells others of it."""
    after = (state * 31 + order.number + len(order.user)) % 1009
    return after, [Order("abcde"[(after + each) % 5], order.number // 2) for each in range(after % 3)]


def goes_on(order: Order) -> bool:
    return order.number > 1


def plan(grouping: Grouping, parallelism: int) -> Plan:
    flow = Flow("rounds", dead_letters=kafka("letters", raw()))
    orders = flow.read("orders", kafka("orders", as_json(Order)))
    looped = orders.loop(
        "round", lambda s: s.key_by("user").flat_scan("passed-on", passed_on, 0), goes_on, limit_turns=4
    )
    looped.write("out", kafka("out", as_json(Order), key="user"))
    return compile_flow(flow, parallelism=parallelism, lanes=parallelism, slack_ms=1, grouping=grouping)


VALUES = [{"user": user, "number": 12} for user in "abcde"]


class Topic:
    """Stands where the loop's topic stands."""

    def __init__(self) -> None:
        self.frames: dict[int, list[bytes]] = {}
        self.headers: list[Headers] = []
        self.lost = False

    def line(self, *_: object, **__: object) -> Line:
        return Line(self)


class Line:
    """Stands where a `LoopLine` stands."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._places: dict[tuple[int, int], int] = {}

    def listen(self, place: tuple[int, int], topic: str, offset: int) -> None:
        self._places[place] = offset

    def send(self, target: int, topic: str, frame: bytes, headers: Headers) -> None:
        self._topic.headers.append(headers)
        if not self._topic.lost:
            self._topic.frames.setdefault(target, []).append(frame)

    def receive(self) -> list[tuple[tuple[int, int], bytes]]:
        found = []
        for place, offset in self._places.items():
            frames = self._topic.frames.get(place[1], [])
            found += [(place, frame) for frame in frames[offset:]]
            self._places[place] = len(frames)
        return found

    def fileno(self) -> int:
        return -1

    def check(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture(name="topic")
def _topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    topic = Topic()
    monkeypatch.setattr("lowtide.worker.rounds.LoopLine", topic.line)
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)
    return topic


@pytest.fixture(name="tracker")
def _tracker() -> Iterator[Served]:
    with Served() as served:
        yield served
        assert served.faults == []


def made(grouping: Grouping, parallelism: int = 2) -> LevelDeployment:
    laid_out = plan(grouping, parallelism)
    loops = {id_: LoopTopic(name, (0,) * parallelism) for id_, name in loop_topics(laid_out).items()}
    optimism = 50 if grouping == "optimistic" else None
    return deployment(plan=laid_out, loops=loops, parallelism=parallelism, optimism=optimism)


def log(dice: random.Random) -> dict[int, list[bytes]]:
    """By partition rows as the JVM packs them, at times that are mixed."""
    found: dict[int, list[bytes]] = {}
    for partition in range(PARTITIONS):
        first, tick = 0, 5
        for _ in range(dice.randint(1, 5)):
            records = [{"user": dice.choice("abcde"), "number": dice.randint(0, 12)} for _ in range(dice.randint(1, 4))]
            found.setdefault(partition, []).append(packed(records, partition, first, tick))
            first, tick = first + len(records), tick + dice.choice([0, 1, 3])
    return found


def expected(laid_out: Plan, read: Mapping[int, Sequence[bytes]]) -> dict[int, list[Any]]:
    messages = [
        Message(Position(partition, offset), timestamp, None, value)
        for partition, batches in read.items()
        for rows in map(open_rows, batches)
        for offset, timestamp, value in zip(rows.offsets, rows.timestamps, rows.values, strict=True)
    ]
    lanes = by_lane(run_log(laid_out, {"orders": messages}, [])[0])["out"]
    return {lane: [(key, value) for key, value, *_ in found] for lane, found in lanes.items()}


def delivered(rig: Rig) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for host in rig.hosts:
        if (sink := kept_of(host)) is not None:
            for topic, lane, key, value, *_ in sink.messages:
                if topic == "out":
                    found.setdefault(lane, []).append((key, value))
    return found


@pytest.mark.parametrize("grouping", ["optimistic", "ordered"])
@pytest.mark.parametrize("hosts", [0, 1, 2])
def test_what_goes_round_comes_out_as_it_does_here_and_now(
    hosts: int, grouping: Grouping, topic: Topic, tracker: Served
) -> None:
    dice = random.Random(hosts)
    deployed, read = made(grouping), log(dice)
    rig = Rig.of(deployed, tracker.address, hosts)
    left = {partition: list(batches) for partition, batches in read.items()}
    while any(left.values()):
        partition = dice.choice([each for each, batches in left.items() if batches])
        rig.read(left[partition].pop(0), partition)
        for _ in range(dice.randrange(3)):
            rig.turn()
    rig.grant(500)
    wanted = expected(deployed.plan, read)
    assert sum(map(len, wanted.values())) > 5
    rig.until(lambda: rig.stages["1/0"].core.delivered_time >= 500 and rig.stages["1/1"].core.delivered_time >= 500)
    assert delivered(rig) == wanted
    assert bool(topic.frames) == (hosts != 1), "in one host nothing goes through the topic"
    assert all({"lowtide.value", "lowtide.tick", "lowtide.sender"} == set(dict(each)) for each in topic.headers)


def with_a_frame_lost(topic: Topic, tracker: Served) -> Rig:
    """A rig of whose frames the topic has lost the first."""
    rig = Rig.of(made("optimistic"), tracker.address, 0)
    topic.lost = True
    rig.read(packed(VALUES, 1, 0, 5), 1)
    for _ in range(20):
        rig.turn()
    assert topic.headers, "something was sent"
    topic.lost = False
    return rig


def test_a_frame_that_the_topic_lost_holds_min_time(topic: Topic, tracker: Served) -> None:
    rig = with_a_frame_lost(topic, tracker)
    rig.grant(500)
    rig.until(lambda: rig.stages["1/0"].host.local.global_min >= 5)
    for _ in range(200):
        rig.turn()
    assert rig.stages["1/0"].host.local.global_min == 5


def test_the_frame_after_one_that_was_lost_ends_the_life(topic: Topic, tracker: Served) -> None:
    rig = with_a_frame_lost(topic, tracker)
    with pytest.raises(LifeEnded, match=r"a frame was lost on the way from worker number \d to worker 1/"):
        read_on(rig)


def read_on(rig: Rig) -> None:
    for first in range(1, 40):
        rig.read(packed(VALUES, 1, 5 * first, 5 + first), 1)
        for _ in range(20):
            rig.turn()
