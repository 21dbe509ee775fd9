"""The topics of loops on real Kafka: made, noted and read; frames of other lives are skipped, lost ones are noticed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import unique
from tests.waiting import HANGS_S, wait_until

import lowtide as lt
from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.loop_line import LoopLine
from lowtide.connectors.loop_topics import LoopTopic, open_loops
from lowtide.connectors.topics import Topics
from lowtide.errors import LifeEnded
from lowtide.flow.plan.compiler import compile_flow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Kafka

    from lowtide.flow.plan.plan import Plan

pytestmark = [pytest.mark.kafka]


@dataclass(frozen=True)
class Item:
    key: str
    number: int


def less(state: int, item: Item) -> tuple[int, Item]:
    return state, Item(item.key, item.number - 1)


def is_left(item: Item) -> bool:
    return item.number > 0


def plan(name: str, parallelism: int = 2, lanes: int = 4) -> Plan:
    flow = lt.Flow(name)
    items = flow.read("items", lt.kafka("items", lt.json(Item)))
    looped = items.loop("round", lambda s: s.key_by("key").scan("less", less, 0), is_left, limit_turns=9)
    looped.write("out", lt.kafka("out", lt.json(Item)))
    return compile_flow(flow, parallelism=parallelism, lanes=lanes)


@pytest.fixture(name="conf")
def _conf(kafka: Kafka) -> Conf:
    return Conf.load(None, {"kafka.bootstrap_servers": kafka.address})


@pytest.fixture(name="lines")
def _lines(conf: Conf) -> Iterator[Any]:
    made: list[LoopLine] = []

    def line(incarnation: int, job_id: str = "this") -> LoopLine:
        settings = librdkafka_settings(conf.kafka)
        made.append(LoopLine(settings, incarnation, delivery_limit_ms=20_000, max_record_bytes=1 << 20, job_id=job_id))
        return made[-1]

    yield line
    for each in made:
        each.close()


def opened(conf: Conf, laid_out: Plan) -> LoopTopic:
    (topic,) = open_loops(laid_out, conf).values()
    return topic


def heard(line: LoopLine, count: int) -> list[Any]:
    """So many frames, as they come."""
    found: list[Any] = []

    def enough() -> bool:
        found.extend(line.receive())
        line.check()
        return len(found) >= count

    wait_until(enough, HANGS_S, f"{count} frames of a loop")
    return found


def test_a_life_reads_what_it_wrote_itself_and_skips_what_an_older_one_still_writes(conf: Conf, lines: Any) -> None:
    laid_out = plan(unique("loops"))
    old_topic = opened(conf, laid_out)
    assert old_topic.ends == (0, 0)
    old = lines(1)
    old.listen((5, 0), old_topic.name, old_topic.ends[0])
    for number in range(3):
        old.send(0, old_topic.name, b"old %d" % number, [("lowtide.value", b"7")])
    assert heard(old, 3) == [((5, 0), b"old %d" % number) for number in range(3)]

    topic = opened(conf, laid_out)
    assert topic == LoopTopic(old_topic.name, (3, 0))
    new = lines(2)
    for number in range(50):
        old.send(number % 2, topic.name, b"too late", [])
        new.send(number % 2, topic.name, b"new %d" % number, [])
    for place in ((5, 0), (5, 1)):
        new.listen(place, topic.name, topic.ends[place[1]])
    found = heard(new, 50)
    for target in (0, 1):
        wanted = [b"new %d" % number for number in range(target, 50, 2)]
        assert [frame for place, frame in found if place == (5, target)] == wanted
    assert new.skipped > 0
    assert old.skipped >= 0


def test_a_life_skips_what_another_job_of_its_name_writes_in_a_life_of_the_same_number(conf: Conf, lines: Any) -> None:
    topic = opened(conf, plan(unique("loops")))
    mine, other = lines(1, "this"), lines(1, "another")
    mine.listen((5, 0), topic.name, topic.ends[0])
    other.send(0, topic.name, b"of another ZooKeeper's", [])
    other.listen((5, 1), topic.name, topic.ends[1])
    other.send(1, topic.name, b"there", [])
    assert heard(other, 1) == [((5, 1), b"there")], "what it sent before is in the log as well"
    mine.send(0, topic.name, b"mine", [])
    assert heard(mine, 1) == [((5, 0), b"mine")]
    assert mine.skipped == 1


def test_a_worker_that_comes_later_is_read_from_where_the_life_began(conf: Conf, lines: Any) -> None:
    topic = opened(conf, plan(unique("loops")))
    line = lines(1)
    line.listen((5, 0), topic.name, topic.ends[0])
    line.send(1, topic.name, b"early", [])
    line.send(0, topic.name, b"other", [])
    assert heard(line, 1) == [((5, 0), b"other")]
    line.listen((5, 1), topic.name, topic.ends[1])
    assert heard(line, 1) == [((5, 1), b"early")]


def test_what_was_deleted_before_it_was_read_ends_the_life(conf: Conf, lines: Any) -> None:
    topic = opened(conf, plan(unique("loops")))
    line = lines(1)
    line.listen((5, 0), topic.name, 1_000)
    with pytest.raises(LifeEnded, match=r"cannot read frames of a loop from topic"):
        heard(line, 1)


def test_a_job_with_more_lanes_and_workers_than_its_topic_has_partitions_gives_it_more(conf: Conf) -> None:
    laid_out = plan(unique("loops"))
    made = opened(conf, laid_out)
    assert Topics(conf.kafka).describe(made.name).partitions == 4, "one for each lane, so for any number of workers"
    wider = plan(laid_out.name, parallelism=6, lanes=8)
    assert opened(conf, wider) == LoopTopic(made.name, (0,) * 6)
    assert Topics(conf.kafka).describe(made.name).partitions == 8
    assert opened(conf, laid_out) == made, "with fewer workers again"
