"""Labels, order keys, delivered time and the window of fronts, where they are put to the test: over kills and epochs.

One program lives three times: it is killed in mid-run, then while it is quiet, and each next life goes by what the
earlier ones have published. The last test is about a life that goes on while a front has to wait.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.judging import Judge, produce
from tests.shop import LANES, USERS, Bought, Order, Shop, buy, now_ms, order
from tests.waiting import HANGS_S

from lowtide import Flow, kafka
from lowtide import json as as_json
from lowtide.driver.session import start_session
from lowtide.local.oracle import Output, read_output
from tests.driver import ROOT, Driver, below, live, runs

if TYPE_CHECKING:
    from tests.conftest import Kafka, Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.slow]
HOUR_MS = 3_600_000
BURST = 2_000
SLOW, AHEAD = 4_200, 500
BIG_PRIME = 2_147_483_647


# -- a flow with branches ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of an order; `history` changes if two parts of a user change places."""

    user: str
    number: int
    name: str = ""
    so_far: int = 0
    history: int = 0


def three_parts(bought: Order) -> Iterator[Part]:
    for name in "abc":
        yield Part(bought.user, bought.number, name)


def own_and_others(bought: Order) -> Iterator[Part]:
    yield Part(bought.user, bought.number, "own")
    yield Part(f"user-{(bought.number + 1) % USERS}", bought.number, "other's")


def count(before: Part, part: Part) -> tuple[Part, Part]:
    history = (before.history * 31 + part.number * 7 + len(part.name) + ord(part.name[0])) % BIG_PRIME
    after = Part(part.user, part.number, part.name, before.so_far + 1, history)
    return after, after


def twice(part: Part) -> list[Part]:
    return [part, part]


@dataclass(frozen=True)
class Branches(Shop):
    """A job in which five children of one record meet at one step, three of them with one key, and go to two sinks.

    Attributes:
        doubles: The topic of the second sink, whose lanes are the first one's.
    """

    doubles: str = ""

    def flow(self) -> Flow:
        flow = Flow(self.name)
        orders = flow.read("orders", kafka(self.sources[0], as_json(Order)))
        parts = orders.flat_map(three_parts).merge(orders.flat_map(own_and_others), name="parts")
        counted = parts.key_by("user").scan("counted", count, Part("", 0))
        counted.write("out", kafka(self.sink, as_json(Part), key="user"))
        counted.flat_map(twice).write("doubles", kafka(self.doubles, as_json(Part), key="user"))
        return flow


class Program(Driver):
    """A driver program of a shop with branches: `tests.driver` knows the other one."""

    def __init__(self, shop: Branches, folder: Path) -> None:
        self._log = folder / f"driver-{len(list(folder.glob('driver-*')))}"
        path = f"import sys; sys.path.insert(0, {str(ROOT)!r})"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"{path}; from {__name__} import lives_of; lives_of()"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder,
            )  # fmt: skip
        self._rest = b""
        self._say(shop.to_json())

    def killed(self) -> None:
        """SIGKILL, and wait until nothing of it is left."""
        left = below(self.pid)
        self.kill()
        deadline = time.monotonic() + HANGS_S
        while any(map(runs, left)):
            assert time.monotonic() < deadline, f"{left} outlive their program"
            time.sleep(0.1)

    def seen(
        self, what: Callable[[dict[str, Any]], bool], go_on: Callable[[], object] = lambda: None
    ) -> dict[str, Any]:
        """Wait until the status is so, and do something meanwhile; returns that status."""
        deadline = time.monotonic() + HANGS_S
        while not what(status := self.status()):
            assert time.monotonic() < deadline, status
            go_on()
            time.sleep(0.05)
        return status


def lives_of() -> None:
    """The driver program: a shop's lives, one after the other."""
    shop = Branches.from_json(sys.stdin.readline())
    start_session(shop.conf, shop.name)
    while live(shop):
        pass


Start = Callable[[], Program]


@pytest.fixture(name="shop")
def _shop(kafka: Kafka, zookeeper: str, tmp_path: Path) -> Branches:
    settings = {
        "kafka.bootstrap_servers": kafka.address,
        "zookeeper.hosts": zookeeper,
        "epoch.duration_s": 5.0,
        "spark.master": "local[8]",
        "spark.checkpoint_folder": str(tmp_path / "checkpoints"),
        # So that most bundles end between the children of one record.
        "job.max_bundle_records": 64,
    }
    shop = Shop.open("branches", kafka, settings)
    return Branches(**asdict(shop), doubles=kafka.topic("doubles", LANES))


@pytest.fixture(name="start")
def _start(shop: Branches, tmp_path: Path) -> Iterator[Start]:
    """Begins lives of the shop."""
    begun: list[Program] = []

    def start() -> Program:
        begun.append(Program(shop, tmp_path))
        begun[-1].ready()
        return begun[-1]

    yield start
    for program in begun:
        program.close()


@pytest.mark.nightly
def test_r2_r4_r18_what_was_reported_and_delivered_before_a_kill_stands(shop: Branches, start: Start) -> None:
    judge, began_ms = shop.judge, now_ms()
    program = start()
    idle = judge.fronts()[f"{shop.sources[0]}-1"]

    # R4: killed in mid-run, and R2: while others' records have been delivered because partition 1 was granted floors.
    lots = iter(range(0, 1 << 20, 20))
    program.seen(
        lambda status: (status["delivered_time_ms"] or 0) > began_ms + 500 and status["totals"]["delivered"] > 1000,
        lambda: shop.produce(range(first := next(lots), first + 20), partitions=[0]),
    )
    shop.produce(range(1 << 20, (1 << 20) + BURST), partitions=[0])
    reported = program.status()
    program.killed()
    front = next(front for front in reported["fronts"] if front["front"] == idle)
    assert (front["worker"], front["next_offset"]) == ("", 0)
    before = outputs(shop)
    assert sum(map(len, before.values())) < due(judge), "everything had been delivered when the kill came"

    late = range(1 << 21, (1 << 21) + 40)
    shop.produce(late, began_ms, partitions=[1])
    program = start()
    assert program.status()["delivered_time_ms"] >= reported["delivered_time_ms"]
    assert judge.right() == due(judge)
    check_late(shop, late, reported["delivered_time_ms"], before)

    # R18: what was published while there was nothing to deliver rests on floors that no bundle has carried.
    last_ms = max(output.timestamp for lane in outputs(shop).values() for output in lane)
    reported = program.seen(lambda status: status["delivered_time_ms"] > last_ms + 2000)
    program.killed()
    before = outputs(shop)
    late = range(1 << 22, (1 << 22) + 40)
    shop.produce(late, last_ms + 500)
    program = start()
    assert program.status()["delivered_time_ms"] >= reported["delivered_time_ms"]
    assert judge.right() == due(judge)
    check_late(shop, late, reported["delivered_time_ms"], before)
    program.stop()
    assert judge.right() == due(judge)


def due(judge: Judge) -> int:
    """Number of messages that the sinks have to have."""
    return sum(len(lane) for lanes in judge.expected()[0].values() for lane in lanes.values())


def outputs(shop: Branches) -> dict[tuple[str, int], list[Output]]:
    """Delivered messages, by topic and lane."""
    found = {topic: read_output(shop.conf.kafka, topic) for topic in (shop.sink, shop.doubles)}
    return {(topic, lane): said for topic, lanes in found.items() for lane, said in lanes.items()}


def check_late(shop: Branches, late: range, published_ms: int, before: dict[tuple[str, int], list[Output]]) -> None:
    """All that late orders have caused has come, after what was there, and at no time that was announced as over."""
    came = 0
    for place, delivered in outputs(shop).items():
        new = delivered[len(before[place]) :]
        assert delivered[: len(before[place])] == before[place]
        assert min(output.timestamp for output in new) >= published_ms, place
        assert all(one.timestamp <= other.timestamp for one, other in pairwise(delivered)), place
        came += sum(json.loads(output.value or b"")["number"] in late for output in new)
    # Five parts of each, once to one sink and twice to the other.
    assert came == 15 * len(late)


def dawdle(order_: Order) -> Order:
    if order_.number < SLOW:
        time.sleep(0.005)
    return order_


def at_once(order_: Order) -> Order:
    return order_


def test_r8_a_front_that_waits_with_its_log_read_to_the_end_lets_epochs_end(spark: Spark) -> None:
    source, sink = spark.kafka.topic("orders", 2), spark.kafka.topic("out", LANES)

    name = f"waits-{source}"

    def flow_at(pace: Callable[[Order], Order]) -> Flow:
        flow = Flow(name)
        orders = flow.read("orders", kafka(source, as_json(Order))).map(pace, name="pace").key_by("user")
        orders.scan("bought", buy, Bought("", "", 0)).write("out", kafka(sink, as_json(Bought), key="user"))
        return flow

    conf = spark.conf(job__max_front_lead_ms=1_000)
    judge = Judge(flow_at(at_once), conf)
    began_ms = now_ms() - 2 * HOUR_MS
    logs: dict[int, list[tuple[bytes, int | None]]] = {
        0: [(order(number), began_ms + 20 * number) for number in range(SLOW)],
        1: [(order(SLOW + number), began_ms + HOUR_MS + number) for number in range(AHEAD)],
    }
    produce(conf, source, logs)
    epochs: dict[int, int] = {}
    with spark.job(flow_at(dawdle), job__max_front_lead_ms=1_000) as job:
        deadline = time.monotonic() + HANGS_S
        while (status := job.status())["totals"]["records_out"] < SLOW - 500:
            assert time.monotonic() < deadline, f"nothing goes on: {status}"
            fronts = [
                each["gauges"].get("front", {}) for each in status["workers"] if each["worker"] == f"0/{source}-1"
            ]
            for front in fronts:
                if front.get("next_offset") != AHEAD:
                    continue
                assert (front["parked"], front["pulling"]) == (AHEAD, False)
                epochs.setdefault(ended_epoch(spark, name), status["totals"]["records_out"])
            time.sleep(0.1)
        ended = [count for epoch, count in sorted(epochs.items()) if epoch >= 0]
        assert len(ended) >= 2, f"it waited over fewer than two ends of epochs: {epochs}"
        assert ended == sorted(set(ended)), f"an epoch delivered nothing: {epochs}"
        assert judge.right() == SLOW + AHEAD
        # The front that had to wait reads on.
        produce(conf, source, {1: [(order(SLOW + number), None) for number in range(100)]})
        assert judge.right() == SLOW + AHEAD + 100


def ended_epoch(spark: Spark, name: str) -> int:
    """The epoch of a job's query that has ended last, -1 before any has; another job's may not have left yet."""
    (query,) = [each for each in spark.session.streams.active if each.name == name]
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)
