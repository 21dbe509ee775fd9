"""The oracle's comparison: every kind of fault is found and counted, and what is read from Kafka is what is there."""

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from lowtide import Flow, json, kafka
from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.topic_records import read_topic, write_topic
from lowtide.connectors.topics import Topics
from lowtide.core.operators.order.order import Position
from lowtide.embedded import EmbeddedServices
from lowtide.errors import FlowError, TopicUnknown
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.oracle import (
    Output,
    compare,
    compare_lanes,
    compare_shared,
    expected_lanes,
    read_log,
    read_output,
    read_sources,
    taken_apart,
)
from lowtide.local.run import Message
from lowtide_tracker.floors import Floor

Lanes = dict[int, list[Output]]


def output(number: int) -> Output:
    return Output(b"k%d" % (number % 2), b"%d" % number, number)


def by_hand(expected: Mapping[int, Sequence[Output]], delivered: Mapping[int, Sequence[Output]]) -> tuple[int, ...]:
    """Lost, duplicated, out of order: one message after the other is taken away, the last equal one."""
    lost = duplicated = out_of_order = 0
    for lane in {*expected, *delivered}:
        due, came = list(expected.get(lane, [])), list(delivered.get(lane, []))
        for message in set(due + came):
            while due.count(message) > came.count(message):
                del due[len(due) - 1 - due[::-1].index(message)]
                lost += 1
            while came.count(message) > due.count(message):
                del came[len(came) - 1 - came[::-1].index(message)]
                duplicated += 1
        out_of_order += sum(due[place] != came[place] for place in range(len(due)))
    return lost, duplicated, out_of_order


def lanes_of(dice: random.Random) -> Lanes:
    kinds = dice.choice((3, 100))
    return {lane: [output(dice.randrange(kinds)) for _ in range(dice.randrange(8))] for lane in range(2)}


def test_counts_are_those_of_a_count_by_hand() -> None:
    dice = random.Random(7)
    for _ in range(2000):
        expected = lanes_of(dice)
        delivered = lanes_of(dice) if dice.random() < 0.3 else {lane: list(each) for lane, each in expected.items()}
        for _ in range(dice.randrange(4)):
            some = delivered[dice.randrange(2)]
            change = dice.randrange(4)
            if change == 0 and some:
                del some[dice.randrange(len(some))]
            elif change == 1 and some:
                some.insert(dice.randrange(len(some) + 1), dice.choice(some))
            elif change == 2:
                dice.shuffle(some)
            else:
                some.insert(dice.randrange(len(some) + 1), output(dice.randrange(100)))
        verdict = compare_lanes(expected, delivered)
        counts = (verdict.lost, verdict.duplicated, verdict.out_of_order)
        assert counts == by_hand(expected, delivered), (expected, delivered)
        assert verdict.right == (expected == delivered) == (counts == (0, 0, 0))
        assert bool(verdict.differences) != verdict.right


RIGHT = {0: [output(number) for number in range(6)], 1: [output(number) for number in range(100, 103)]}


def changed(change: Callable[[Lanes], object]) -> Lanes:
    lanes = {lane: list(outputs) for lane, outputs in RIGHT.items()}
    change(lanes)
    return lanes


def mixed(dice: random.Random, lanes: Mapping[int, Sequence[Output]]) -> list[Output]:
    """Lanes as a partition has them: each in its order, the next one from whichever."""
    left = {lane: list(outputs) for lane, outputs in lanes.items()}
    turns = [lane for lane, outputs in left.items() for _ in outputs]
    dice.shuffle(turns)
    return [left[lane].pop(0) for lane in turns]


def test_lanes_that_share_a_partition_may_follow_one_another_anyhow() -> None:
    """Each has its order; one message lost, doubled or out of order is found, also where lanes have equal ones."""
    dice = random.Random(11)
    caught = 0
    for _ in range(400):
        kinds = dice.choice((2, 3, 100))
        lanes = {lane: [output(dice.randrange(kinds)) for _ in range(dice.randrange(6))] for lane in range(4)}
        expected = {0: {0: lanes[0], 1: lanes[1], 2: lanes[2]}, 1: {3: lanes[3]}}
        delivered = {0: mixed(dice, expected[0]), 1: lanes[3]}
        verdict = compare_shared(expected, delivered)
        assert verdict.right, (expected, delivered)
        assert (verdict.expected, verdict.delivered) == (sum(map(len, lanes.values())),) * 2
        if delivered[0]:
            fewer = {**delivered, 0: delivered[0][1:]}
            verdict = compare_shared(expected, fewer)
            assert (verdict.lost, verdict.duplicated) == (1, 0)
            verdict = compare_shared(expected, {**delivered, 0: [delivered[0][0], *delivered[0]]})
            assert (verdict.lost, verdict.duplicated) == (0, 1)
        if kinds == 100 and len(set(lanes[0])) > 1:
            places = [delivered[0].index(message) for message in (lanes[0][0], lanes[0][-1])]
            swapped = list(delivered[0])
            swapped[places[0]], swapped[places[1]] = swapped[places[1]], swapped[places[0]]
            caught += not compare_shared(expected, {**delivered, 0: swapped}).right
    assert caught > 50


def test_equal_messages_are_given_to_the_lanes_that_they_fit() -> None:
    """A choice that fits at first may be wrong: `a` is of the second lane, as `b` follows at once."""
    a, b, c = output(0), output(1), output(2)
    due = {0: [a, c], 1: [a, b]}
    assert taken_apart(due, [a, b, a, c]) == due
    assert taken_apart(due, [a, a, c, b]) == due
    assert not compare_shared({0: due}, {0: [b, a, a, c]}).right


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda lanes: None, (0, 0, 0)),
        (lambda lanes: lanes[0].pop(), (1, 0, 0)),
        (lambda lanes: lanes[0].pop(0), (1, 0, 0)),
        (lambda lanes: lanes.pop(1), (3, 0, 0)),
        (lambda lanes: lanes[0].append(output(2)), (0, 1, 0)),
        (lambda lanes: lanes[0].extend(RIGHT[0][3:]), (0, 3, 0)),
        (lambda lanes: lanes.__setitem__(2, [output(1)]), (0, 1, 0)),
        (lambda lanes: lanes[0].reverse(), (0, 0, 6)),
        (lambda lanes: lanes[1].append(lanes[0].pop()), (1, 1, 0)),
        (lambda lanes: lanes[0].__setitem__(2, Output(b"k0", b"2", 3)), (1, 1, 0)),
        (lambda lanes: lanes[0].__setitem__(2, Output(None, b"2", 2)), (1, 1, 0)),
        (lambda lanes: lanes[0].__setitem__(2, Output(b"k0", None, 2)), (1, 1, 0)),
    ],
    ids=[
        "nothing", "last lost", "first lost", "lane lost", "one again", "some again", "a lane too many", "reversed",
        "another lane", "another timestamp", "no key", "no value",
    ],
)  # fmt: skip
def test_every_kind_of_fault_is_counted_as_what_it_is(
    change: Callable[[Lanes], object], counts: tuple[int, int, int]
) -> None:
    verdict = compare_lanes(RIGHT, changed(change))
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == counts


def test_differences_say_where_and_what() -> None:
    verdict = compare_lanes(RIGHT, changed(lambda lanes: lanes[0].pop(2)))
    reported = str(verdict)
    assert "8 delivered of 9: 1 lost, 0 duplicated, 0 out of order" in reported
    assert "lane 0, message 2: expected key b'k0', value b'2', timestamp 2, found key b'k1', value b'3'" in reported
    assert "lane 0: 1 lost, first key b'k0', value b'2'" in reported


@dataclass(frozen=True)
class Count:
    key: str
    count: int


def counted(state: int, record: Count) -> tuple[int, Count]:
    return state + record.count, Count(record.key, state + record.count)


def flow_of(source: str, sink: str) -> Flow:
    flow = Flow("counts")
    stream = flow.read("in", kafka(source, json(Count))).key_by("key").scan("sum", counted, 0)
    stream.write("out", kafka(sink, json(Count), key="key"))
    return flow


def message(front: int, offset: int, timestamp: int, count: int) -> Message:
    return Message(Position(front, offset), timestamp, None, b'{"key":"a","count":%d}' % count)


def test_what_is_expected_follows_timestamps_and_floors() -> None:
    plan = compile_flow(flow_of("in", "out"), parallelism=1)
    log = {"in": [message(0, 0, 100, 1), message(1, 0, 90, 2)]}
    values = [(each.value, each.timestamp) for each in expected_lanes(plan, log, ())[0]]
    assert values == [(b'{"key":"a","count":2}', 90), (b'{"key":"a","count":3}', 100)]
    later = expected_lanes(plan, log, [Floor(1, 0, 60)])
    assert [(each.value, each.timestamp) for each in later[0]] == [
        (b'{"key":"a","count":1}', 100),
        (b'{"key":"a","count":3}', 120),
    ]
    assert compare(plan, log, [Floor(1, 0, 60)], later).right
    assert not compare(plan, log, (), later).right


def test_a_sink_is_asked_for_where_it_is_not_clear() -> None:
    plan = compile_flow(flow_of("in", "out"), parallelism=1)
    with pytest.raises(FlowError, match='the flow has no sink "index"; it writes to out'):
        expected_lanes(plan, {}, (), "index")


@pytest.fixture(name="conf", scope="module")
def _conf(kafka_services: EmbeddedServices) -> KafkaConf:
    return KafkaConf(bootstrap_servers=kafka_services.kafka)


def producer_of(conf: KafkaConf, identity: str) -> Any:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": conf.bootstrap_servers, "transactional.id": identity})
    producer.init_transactions(20)
    return producer


@pytest.mark.kafka
def test_what_is_read_is_what_is_committed_with_its_place_and_time(conf: KafkaConf) -> None:
    for topic in ("in", "out"):
        Topics(conf).create(topic, partitions=2)
    plan = compile_flow(flow_of("in", "out"), parallelism=2)
    producer, aborted, hanging = (producer_of(conf, name) for name in ("one", "aborted", "hanging"))
    places: list[int] = []
    for each, count, end in ((aborted, 7, "abort"), (producer, 1, "commit"), (producer, 2, "commit")):
        each.begin_transaction()
        value, reported = (
            b'{"key":"a","count":%d}' % count,
            {"on_delivery": lambda _, sent: places.append(sent.offset())},
        )
        each.produce("in", value, b"key", partition=1, timestamp=1_700_000_000_000 + count, **reported)
        each.flush(20)
        getattr(each, f"{end}_transaction")(20)
    hanging.begin_transaction()
    hanging.produce("in", b'{"key":"a","count":9}', partition=1)
    hanging.flush(20)

    log = read_log(conf, "in", {"in-0": 4, "in-1": 5})
    assert log[0] == []
    assert [(each.key, each.value, each.timestamp - 1_700_000_000_000) for each in log[1]] == [
        (b"key", b'{"key":"a","count":1}', 1),
        (b"key", b'{"key":"a","count":2}', 2),
    ]
    # The aborted message and the transactions' markers have offsets of their own.
    assert places[0] == 0
    assert places[2] > places[1] + 1
    assert [each.position for each in log[1]] == [Position(5, place) for place in places[1:]]
    hanging.abort_transaction(20)

    sources = read_sources(conf, plan, {"in-1": 5})
    lanes = expected_lanes(plan, sources, ())
    assert sum(map(len, lanes.values())) == 2
    for lane, outputs in lanes.items():
        producer.begin_transaction()
        for key, sent, timestamp, _ in outputs:
            producer.produce("out", sent, key, partition=lane, timestamp=timestamp)
        producer.commit_transaction(20)
    assert compare(plan, sources, (), read_output(conf, "out")).right
    producer.begin_transaction()
    producer.produce("out", b"more", partition=0)
    producer.commit_transaction(20)
    verdict = compare(plan, sources, (), read_output(conf, "out"))
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == (0, 1, 0)


@pytest.mark.kafka
def test_the_end_of_a_topic_that_is_written_all_the_time_is_where_it_was(conf: KafkaConf) -> None:
    """A job that idles writes its lasts every 100 ms: a reader who waits for a pause waits for good."""
    Topics(conf).create("busy")
    producer = producer_of(conf, "busy")
    enough = threading.Event()

    def write() -> None:
        for number in itertools.count():
            producer.begin_transaction()
            producer.produce("busy", b"%d" % number)
            producer.commit_transaction(20)
            written.release()
            if enough.wait(0.001):
                return

    written = threading.Semaphore(0)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert written.acquire(timeout=20), "nothing was written"
        for read in (lambda: read_output(conf, "busy")[0], lambda: list(read_log(conf, "busy", {"busy-0": 0})[0])):
            values = [each.value for each in read()]
            assert values == [b"%d" % number for number in range(len(values))] != []
    finally:
        enough.set()
        writer.join()
    newest = [each.value() for each in read_topic(conf, "busy", newest=5)]
    assert newest == [each.value() for each in read_topic(conf, "busy")][-len(newest) :]
    assert len(newest) == 2, "each of them has its transaction's marker after it"


@pytest.mark.kafka
def test_what_is_deleted_while_a_topic_is_read_is_passed_over(conf: KafkaConf, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first offset is asked for before anything is read: retention may come between."""
    Topics(conf).create("short")
    write_topic(conf, "short", [b"%d" % number for number in range(5)])
    admin, place = AdminClient({**librdkafka_settings(conf)}), TopicPartition("short", 0, 3)
    admin.delete_records([place])[place].result(20)
    monkeypatch.setattr(Topics, "earliest", lambda *_: {("short", 0): 0})
    assert [each.value() for each in read_topic(conf, "short", limit_s=20)] == [b"3", b"4"]


@pytest.mark.kafka
def test_a_topic_or_front_that_is_not_there_is_named(conf: KafkaConf) -> None:
    with pytest.raises(TopicUnknown, match='no topic "nowhere"'):
        read_output(conf, "nowhere")
    Topics(conf).create("frontless")
    producer = producer_of(conf, "frontless")
    producer.begin_transaction()
    producer.produce("frontless", b"x")
    producer.commit_transaction(20)
    with pytest.raises(FlowError, match="frontless-0 has messages but no front"):
        read_log(conf, "frontless", {"in-0": 1})
