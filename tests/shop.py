"""The flow of the tests that kill things, and what belongs to one job of it: topics, producers, conf, verdict."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Producer
from tests.chaos.asked import answer_to
from tests.judging import Judge, produce
from tests.waiting import HANGS_S

from lowtide import Flow, days, kafka, raw, seconds
from lowtide import json as as_json
from lowtide.conf import Conf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.driver.job import Job
from lowtide.driver.recovery import StartFrom

if TYPE_CHECKING:
    from tests.conftest import Kafka

LANES = 2
USERS, ITEMS = 23, 31
HOUR_MS = 3_600_000
PRODUCERS = 4
BIG_PRIME = 2_147_483_647
LOT_ORDERS, LOTS_AT_ONCE = 1_000, 4
ASKED_FOR_S = 20.0
LOT_KEPT = seconds(30)
"""After so long a lot is forgotten: most hash units have none at any time."""


@dataclass(frozen=True)
class Order:
    user: str
    item: str
    number: int


@dataclass(frozen=True)
class Bought:
    """An order with what its user had ordered before, in order: `history` changes if two orders change places."""

    user: str
    item: str
    number: int
    so_far: int = 0
    history: int = 0


@dataclass(frozen=True)
class Sold:
    item: str
    user: str
    number: int
    so_far: int = 0
    history: int = 0


@dataclass(frozen=True)
class Rate:
    percent: int


@dataclass(frozen=True)
class Lot:
    """A number that orders have for some seconds, and never again."""

    lot: int
    item: str
    number: int
    history: int = 0


@dataclass(frozen=True)
class Priced:
    """An order's amount at the present rate; `history` changes if two orders of a lot change places."""

    item: str
    number: int
    percent: int
    so_far: int = 0
    history: int = 0


def refuse_negative(order: Order) -> Order:
    if order.number < 0:
        raise ValueError(f"{order.user} owes us")
    return order


def buy(before: Bought, order: Order) -> tuple[Bought, Bought]:
    history = (before.history * 31 + order.number + 1) % BIG_PRIME
    after = Bought(order.user, order.item, order.number, before.so_far + 1, history)
    return after, after


class Mood:
    """Gives a batch of orders back; raises at one order in 50 while a file is there."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, orders: pa.RecordBatch) -> pa.RecordBatch:
        if os.path.exists(self._file):
            for number in orders.column("number").to_pylist():
                if number % 50 == 7:
                    raise ValueError(f"order {number} spoils the mood")
        return orders


class Patience:
    """Gives an order back; not before a file has gone, if it is there."""

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, order: Order) -> Order:
        while os.path.exists(self._file):
            time.sleep(0.1)
        return order


def refuse_thousandth(bought: Bought) -> Bought:
    if bought.number % 1000 == 999:
        raise ValueError("too lucky")
    return bought


def sell(before: Sold, bought: Bought) -> tuple[Sold, Sold]:
    history = (before.history * 31 + bought.history) % BIG_PRIME
    after = Sold(bought.item, bought.user, bought.number, before.so_far + 1, history)
    return after, after


def newest(_: int, rate: Rate) -> int:
    return rate.percent


class Appraise:
    """Asks a service what an order is worth; `history` changes with what it says."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, bought: Bought) -> Bought:
        with urllib.request.urlopen(self._url, question_of(bought), timeout=ASKED_FOR_S) as answer:
            return appraised(bought, int(answer.read()))


def question_of(bought: Bought) -> bytes:
    return f"{bought.user}/{bought.number}/{bought.so_far}/{bought.history}".encode()


def appraised(bought: Bought, worth: int) -> Bought:
    return replace(bought, history=(bought.history * 31 + worth) % BIG_PRIME)


def as_it_is_asked(bought: Bought) -> Bought:
    """What the service says, without it."""
    return appraised(bought, answer_to(question_of(bought)))


def into_lot(bought: Bought) -> Lot:
    return Lot(
        bought.number // LOT_ORDERS * LOTS_AT_ONCE + bought.number % LOTS_AT_ONCE,
        bought.item,
        bought.number,
        bought.history,
    )


def price(before: Priced, lot: Lot, percent: int) -> tuple[Priced, Priced]:
    history = (before.history * 31 + lot.history) % BIG_PRIME
    after = Priced(lot.item, lot.number, percent, before.so_far + 1, history)
    return after, after


@dataclass(frozen=True)
class Shop:
    """One job: what it reads and writes, and where. As JSON it goes to the driver programs that run it.

    Attributes:
        name: The job's.
        sources: The topics that it reads, merged into one stream.
        sink: The topic that it writes.
        letters: The topic of its dead letters; empty for none.
        settings: What its conf says besides the defaults.
        hangs: A file; while it is there, functions of the flow do not return. Empty for none.
        crawls: A file; while it is there, a function of a flow that another function writes takes 2 ms. Empty for none.
        raises: A file; while it is there, a function of the flow raises, which ends the life. Empty for none.
        written_by: Another flow than the shop's, as `module:function`; the function is given the shop.
        rates: The topic of a broadcast that lots of orders are priced by, in place of a count by item; empty for none.
        asks: The address of a service that is asked about each order (`chaos.asked`); empty for none.
        bought_kept_days: The ttl of what users have bought, which is to change nothing; 0 for none.
    """

    name: str
    sources: tuple[str, ...]
    sink: str
    letters: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    hangs: str = ""
    crawls: str = ""
    raises: str = ""
    written_by: str = ""
    rates: str = ""
    bought_kept_days: int = 0
    asks: str = ""

    @classmethod
    def open(
        cls,
        name: str,
        kafka_: Kafka,
        settings: Mapping[str, Any],
        *sources: str,
        lanes: int = LANES,
        letters: int = 0,
        partitions: int = 0,
    ) -> Shop:
        """Make the topics: of two partitions for a source, unless sources are given; `letters` partitions for those.

        The sink's has a partition for each lane, or so many as are given.
        """
        return cls(
            f"{name}-{uuid.uuid4().hex[:8]}",
            sources or (kafka_.topic("orders", 2),),
            kafka_.topic("out", partitions or lanes),
            kafka_.topic("letters", letters) if letters else "",
            {**settings, "job.lanes": lanes},
        )

    @classmethod
    def from_json(cls, text: str) -> Shop:
        known = json.loads(text)
        return cls(**{**known, "sources": tuple(known["sources"])})

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def but(self, **settings: object) -> Shop:
        """The same job with other settings, as `job__parallelism=4`."""
        changed = {key.replace("__", "."): value for key, value in settings.items()}
        return replace(self, settings={**self.settings, **changed})

    @property
    def conf(self) -> Conf:
        return Conf.load(None, self.settings)

    @property
    def judge(self) -> Judge:
        return Judge(self.flow(), self.conf, {"appraise": as_it_is_asked} if self.asks else None)

    def flow(self) -> Flow:
        """Two keyed levels, both of which depend on the order of every record before; or another flow."""
        if self.written_by:
            module, _, function = self.written_by.partition(":")
            written: Flow = getattr(import_module(module), function)(self)
            return written
        flow = Flow(self.name, dead_letters=kafka(self.letters, raw()) if self.letters else None)
        first, *others = [
            flow.read(f"orders-{number}", kafka(topic, as_json(Order))) for number, topic in enumerate(self.sources)
        ]
        orders = first.merge(*others, name="all") if others else first
        if self.hangs:
            orders = orders.map(Patience(self.hangs), name="patience", returns=Order)
        if self.raises:
            # What raises in `map_batches` is not a dead letter.
            orders = orders.map_batches(Mood(self.raises), returns=Order, name="mood")
        ttl = days(self.bought_kept_days) if self.bought_kept_days else None
        bought = orders.map(refuse_negative).key_by("user").scan("bought", buy, Bought("", "", 0), ttl=ttl)
        counted = bought.map(refuse_thousandth) if self.letters else bought
        if self.asks:
            ask = Appraise(self.asks)
            counted = counted.call("appraise", ask, timeout=seconds(ASKED_FOR_S), retries=1_000, concurrency=16)
        if self.rates:
            rate = flow.read("rates", kafka(self.rates, as_json(Rate))).broadcast("rate", newest, 0)
            lots = counted.map(into_lot).key_by("lot")
            priced = lots.scan("priced", price, Priced("", 0, 0), ttl=LOT_KEPT, broadcast=rate)
            priced.write("out", kafka(self.sink, as_json(Priced), key="item"))
            return flow
        sold = counted.key_by("item").scan("sold", sell, Sold("", "", 0))
        sold.write("out", kafka(self.sink, as_json(Sold), key="item"))
        return flow

    def produce(
        self,
        numbers: Iterable[int],
        at_ms: int | None = None,
        *,
        source: int = 0,
        partitions: Sequence[int] = (0, 1),
        step_ms: int = 1,
        transaction: str = "",
    ) -> None:
        """Write orders, one by one to each partition in turn: timestamps of different partitions interleave.

        Args:
            numbers: Theirs; a negative one is refused by the flow.
            at_ms: The first one's timestamp; None takes the time at which each is written.
            source: Which source.
            partitions: Of its topic.
            step_ms: Between two orders.
            transaction: See `judging.produce`.
        """
        values: dict[int, list[tuple[bytes, int | None]]] = {partition: [] for partition in partitions}
        for place, number in enumerate(numbers):
            stamp = None if at_ms is None else at_ms + step_ms * place
            values[partitions[place % len(partitions)]].append((order(number), stamp))
        produce(self.conf, self.sources[source], values, transaction=transaction)

    @contextmanager
    def running(self, start: StartFrom = StartFrom()) -> Iterator[Job]:  # noqa: B008 - a frozen value
        """Run the job in this program until the block ends."""
        job = Job.start(self.flow(), self.conf, start=start)
        try:
            job.wait_for_workers(HANGS_S)
            yield job
        finally:
            job.stop()


class Backfill:
    """Orders an hour old, written to partition 0 by several producers in turn for as long as the block lasts: no gaps.

    Args:
        shop: Whose first source they are written to.
        first: The first order's number.
        most: How many are written at most.

    Attributes:
        written: How many were.
    """

    def __init__(self, shop: Shop, first: int, most: int = 400_000) -> None:
        self.written = 0
        self._shop, self._first, self._most = shop, first, most
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backfill", daemon=True)

    @property
    def flows(self) -> bool:
        """True while it does."""
        return self._thread.is_alive()

    def __enter__(self) -> Backfill:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        settings = {**librdkafka_settings(self._shop.conf.kafka), "linger.ms": 0, "enable.idempotence": True}
        producers = [Producer({**settings, "log_level": 0}) for _ in range(PRODUCERS)]
        while not self._over.is_set() and self.written < self._most:
            for producer in producers:
                at_ms = time.time_ns() // 1_000_000 - HOUR_MS
                producer.produce(self._shop.sources[0], order(self._first + self.written), partition=0, timestamp=at_ms)
                producer.poll(0)
                self.written += 1
            time.sleep(0.001)
        for producer in producers:
            assert producer.flush(30) == 0


class Load:
    """Orders at a steady rate, written by a thread for as long as the block lasts; one in 50 is refused by the flow.

    Args:
        shop: Whose first source they are written to, to two partitions in turn.
        first: The first order's number.
        per_s: How many a second.
    """

    def __init__(self, shop: Shop, first: int = 0, per_s: int = 300) -> None:
        self.written = 0
        self._shop, self._first, self._per_s = shop, first, per_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        settings = {**librdkafka_settings(self._shop.conf.kafka), "linger.ms": 1, "enable.idempotence": True}
        producer = Producer({**settings, "delivery.timeout.ms": 60_000, "log_level": 0})
        while not self._over.wait(0.01):
            for number in range(self.written, int((time.monotonic() - began) * self._per_s)):
                chosen = self._first + number
                value = order(-chosen if self._shop.letters and number % 50 == 49 else chosen)
                producer.produce(self._shop.sources[0], value, partition=number % 2)
                self.written += 1
            producer.poll(0)
        assert producer.flush(60) == 0


def order(number: int) -> bytes:
    """An order as a message's value."""
    said = Order(f"user-{number % USERS}", f"item-{number // USERS % ITEMS}", number)
    return json.dumps(asdict(said)).encode()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
