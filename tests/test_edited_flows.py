"""A flow that is edited between two lives, on the real thing: corrected, refused where records move, given fields."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.judging import Judge
from tests.waiting import HANGS_S

from lowtide import Flow, kafka
from lowtide import json as as_json
from lowtide.cli.recovery import look
from lowtide.cli.snapshot import take
from lowtide.driver.job import Job
from lowtide.driver.recovery import StartFrom
from lowtide.errors import FlowError, LifeEnded
from lowtide.flow.plan.flow_file import load_flow

if TYPE_CHECKING:
    from tests.conftest import Spark

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.zookeeper]

COUNT = 400
BAD = 170


@dataclass(frozen=True)
class Document:
    number: int


@dataclass(frozen=True)
class Word:
    word: str
    number: int
    total: int = 0


def words(document: Document) -> Iterator[Word]:
    for place in range(6):
        yield Word(f"word-{(document.number * 7 + place) % 31}", document.number)


def no_words(document: Document) -> Iterator[Word]:
    """Forgets one case, which the next step finds out."""
    return words(document) if document.number != BAD else iter([Word("none", -1)])


def add(total: int, word: Word) -> tuple[int, Word]:
    if word.number < 0:
        raise ValueError("there is no such document")
    return total + word.number, Word(word.word, word.number, total + word.number)


@dataclass(frozen=True)
class Topics:
    name: str
    source: str
    sink: str

    def flow(self, step: Callable[[Document], Iterator[Word]] = words, key: str = "word") -> Flow:
        flow = Flow(self.name)
        documents = flow.read("documents", kafka(self.source, as_json(Document)))
        counted = documents.flat_map(step, name="words").key_by("word").scan("add", add, 0)
        counted.write("out", kafka(self.sink, as_json(Word), key=key))
        return flow


@pytest.fixture
def topics(spark: Spark) -> Topics:
    name = f"edited-{uuid.uuid4().hex[:8]}"
    return Topics(name, spark.kafka.topic("documents", 2), spark.kafka.topic("out", 2))


def test_a_function_that_is_corrected_upstream_of_where_it_failed_loses_nothing(spark: Spark, topics: Topics) -> None:
    """R6: no lane has passed the record that ended the life, though all were given what comes after it."""
    conf = spark.conf(job__lanes=2)
    for partition in (0, 1):
        documents = [{"number": number} for number in range(partition, COUNT, 2)]
        spark.kafka.produce(topics.source, documents, partition=partition)
    with spark.job(topics.flow(no_words), job__lanes=2) as job, pytest.raises(LifeEnded, match="no such document"):
        job.wait()
    with spark.job(topics.flow(), job__lanes=2):
        assert Judge(topics.flow(), conf).right() == COUNT * 6


def test_another_key_is_refused_before_the_first_commit_and_without_state(spark: Spark, topics: Topics) -> None:
    """R12: other lanes' `last` says nothing about a record that moves there."""
    conf = spark.conf(job__lanes=2)
    spark.kafka.produce(topics.source, [{"number": number} for number in range(20)], partition=0)
    with spark.job(topics.flow(), job__lanes=2):
        assert Judge(topics.flow(), conf).right() == 120
    for start in (StartFrom(), StartFrom(no_state=True)):
        with pytest.raises(
            FlowError, match=r'(?s)"out" is keyed by number \(int64\), but was keyed by word \(string\)'
        ):
            Job.start(topics.flow(key="number"), conf, start=start)
        foretold = look(topics.flow(key="number"), conf, start, lambda *_: None)
        assert 'it cannot begin from here: the flow is not the one that delivered: "out" is keyed by' in foretold.page()
        with pytest.raises(FlowError, match=r'"out" is keyed by number \(int64\), but was keyed by word \(string\)'):
            foretold.refuse()
    as_it_was = look(topics.flow(), conf, StartFrom(), lambda *_: None)
    as_it_was.refuse()
    assert as_it_was.as_object()["refused"] is None
    with spark.job(topics.flow(), job__lanes=2):
        spark.kafka.produce(topics.source, [{"number": number} for number in range(20, 30)], partition=1)
        assert Judge(topics.flow(), conf).right() == 180


@dataclass(frozen=True)
class Measured:
    number: float


def test_a_record_of_another_type_is_said_beforehand_and_at_the_start(spark: Spark, topics: Topics) -> None:
    """No step keeps it, so nothing is refused."""
    conf = spark.conf()

    def flow(record: type) -> Flow:
        flow = Flow(topics.name)
        flow.parameter("limit", 5 if record is Document else 7)
        flow.read("read", kafka(topics.source, as_json(record))).write("out", kafka(topics.sink, as_json(record)))
        return flow

    def foretold(record: type) -> list[str]:
        found = look(flow(record), conf, StartFrom(), lambda *_: None)
        found.refuse()
        assert all(f"the flow has changed: {each.what}\n" in found.page() for each in found.differences)
        return [each.what for each in found.differences]

    changed = [
        'records of source "read": field number is float, but was int',
        'records of sink "out": field number is float, but was int',
        "parameter limit is 7, but was 5",
    ]
    with spark.job(flow(Document)):
        pass
    assert foretold(Document) == []
    assert foretold(Measured) == changed
    said: list[str] = []
    Job.start(flow(Measured), conf, said.append).stop()
    assert [each for each in said if "changed" in each] == [f"the flow has changed: {each}" for each in changed]
    assert foretold(Measured) == []


def test_a_source_is_added_and_the_old_ones_stay_as_they_were(spark: Spark, topics: Topics) -> None:
    """R3, R11: from a snapshot of before, the new one read from its `start=`, above all delivered."""
    more, conf = spark.kafka.topic("more", 2), spark.conf(job__lanes=2)

    def flow_with_more() -> Flow:
        flow = Flow(topics.name)
        # The new source stands first in the flow, and its topic may stand first by name.
        added = flow.read("added", kafka(more, as_json(Document), start={0: 10}))
        both = flow.read("documents", kafka(topics.source, as_json(Document))).merge(added, name="both")
        counted = both.flat_map(words, name="words").key_by("word").scan("add", add, 0)
        counted.write("out", kafka(topics.sink, as_json(Word), key="word"))
        return flow

    for partition in (0, 1):
        spark.kafka.produce(topics.source, [{"number": number} for number in range(COUNT)], partition=partition)
        spark.kafka.produce(more, [{"number": number} for number in range(50)], partition=partition)
    with spark.job(topics.flow(), job__lanes=2) as job:
        assert Judge(topics.flow(), conf).right() == 2 * COUNT * 6
        before = Judge(topics.flow(), conf).register()
        take(job.client(), topics.name, None, limit_s=60.0)
    said: list[str] = []
    job = Job.start(flow_with_more(), conf, said.append)
    try:
        job.wait_for_workers(HANGS_S)
        spark.kafka.produce(topics.source, [{"number": number} for number in range(30)], partition=1)
        assert Judge(flow_with_more(), conf).right() == (2 * COUNT + 90 + 30) * 6
        after = Judge(flow_with_more(), conf).register()
    finally:
        job.stop()
    assert any("beginning from commit" in each for each in said), said
    assert after.entries[: len(before.entries)] == before.entries
    new = after.entries[len(before.entries) :]
    assert [(each.partition.source, each.offset) for each in new] == [(more, 10), (more, 0)]
    assert min(each.opening for each in new) > max(each.opening for each in before.entries)
    with pytest.raises(FlowError, match=f"has read added={more}, but the flow no longer does"):
        Job.start(topics.flow(), conf)


BASKETS = """
from __future__ import annotations
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from lowtide import Flow, json, kafka, raw

class Colour(Enum):
    RED = "red"
    BLUE = "blue"

@dataclass(frozen=True)
class Order:
    user: str
    number: int

@dataclass(frozen=True)
class Seen:
    number: int

@dataclass(frozen=True)
class Basket:
    orders: int = 0
    seen: list[Seen] = field(default_factory=list)

@dataclass(frozen=True)
class Told:
    user: str
    number: int
    orders: int
    note: str = ""

def put(basket: Basket, order: Order) -> tuple[Basket, Told]:
    after = Basket(basket.orders + 1, [*basket.seen[-1:], Seen(order.number)])
    return after, Told(order.user, order.number, after.orders)

flow = Flow("NAME", dead_letters=kafka("LETTERS", raw()))
orders = flow.read("orders", kafka("SOURCE", json(Order)))
orders.key_by("user").scan("put", put, Basket()).write("told", kafka("SINK", json(Told), key="user"))
"""
ADDED = {
    "class Order:\n    user: str\n    number: int\n": """\
    shop: str | None = None
    colours: list[Colour] = field(default_factory=lambda: [Colour.RED])
""",
    "class Seen:\n    number: int\n": """\
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    colours: list[Colour] | None = field(default_factory=lambda: [Colour.BLUE])
""",
    "    seen: list[Seen] = field(default_factory=list)\n": """\
    worth: float = 0.5
    last: Colour = Colour.BLUE
    shops: list[str] = field(default_factory=lambda: ["none"])
""",
}
"""Behind what stands where, which new fields."""
PUT = """\
    last, seen = order.colours[-1], basket.seen[-1]
    note = f"{basket.last.name} {basket.last is Colour.BLUE} {basket.worth} {basket.shops} {order.shop} {last.name} "
    note += f"{last is Colour.RED} {seen.number} {seen.at:%Y} {[each is Colour.BLUE for each in seen.colours]}"
    after = Basket(basket.orders + 1, [seen, Seen(order.number)], basket.worth + 1, last, [*basket.shops, "one"])
    return after, Told(order.user, order.number, after.orders, note)
"""


def test_states_and_records_that_got_fields_with_defaults_go_on_from_a_commit(spark: Spark, tmp_path: Path) -> None:
    """Parts, records and messages lack the fields: each takes its default, as by itself in a run here."""
    kafka_ = spark.kafka
    names = {"NAME": f"baskets-{uuid.uuid4().hex[:8]}", "SOURCE": kafka_.topic("orders", 2)}
    names |= {"SINK": kafka_.topic("told", 2), "LETTERS": kafka_.topic("letters")}
    first = BASKETS
    for placeholder, name in names.items():
        first = first.replace(placeholder, name)
    second = first
    for place, fields in ADDED.items():
        assert place in second
        second = second.replace(place, place + fields)
    head, _, tail = second.partition("    after = ")
    second = head + PUT + tail[tail.index("\nflow") :]
    said: list[dict[str, Any]] = []
    for number, text in enumerate((first, second)):
        file = tmp_path / f"baskets_{number}.py"
        file.write_text(text)
        orders = [{"user": f"user-{n % 3}", "number": n} for n in range(number * 12, number * 12 + 6)]
        flow = load_flow(str(file))
        assert isinstance(flow, Flow)
        with spark.job(flow) as job:
            for partition in (0, 1):
                kafka_.produce(names["SOURCE"], orders[partition::2], partition)
            said = [json.loads(each.value()) for each in kafka_.messages(names["SINK"], 6 + 6 * number)]
            if text is first:
                take(job.client(), flow.name, None, limit_s=60)
    assert len(said) == 12
    assert kafka_.messages(names["LETTERS"]) == []
    for user in range(3):
        mine = [each for each in said if each["user"] == f"user-{user}"]
        before, after = mine[:2], mine[2:]
        assert [each["orders"] for each in mine] == [1, 2, 3, 4]
        assert [each["note"] for each in before] == ["", ""]
        assert [each["note"] for each in after] == [
            f"BLUE True 0.5 ['none'] None RED True {before[-1]['number']} 2026 [True]",
            f"RED False 1.5 ['none', 'one'] None RED True {after[0]['number']} 2026 [True]",
        ]
