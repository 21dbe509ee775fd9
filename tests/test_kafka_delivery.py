"""The Kafka sink on a real broker: what a read_committed reader finds, and what the next life learns (R13, W10)."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from authority import Authority
from confluent_kafka import KafkaError
from tests.conftest import Kafka
from tests.kafka_proxy import KafkaProxy
from tests.waiting import HANGS_S, wait_until

from lowtide.conf import Conf, KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.connectors.sender import Outgoing
from lowtide.connectors.topics import Topics
from lowtide.core.operators.order.order import OrderKey
from lowtide.driver.homes import Homes
from lowtide.embedded import EmbeddedServices
from lowtide.embedded import kafka as embedded_kafka
from lowtide.embedded.ports import free_port
from lowtide.errors import FrameTooLarge, LifeEnded, ServiceUnavailable
from lowtide.sinks.contract import Delivery, LaneName, Mark, Packet
from lowtide.sinks.kafka.claimant import Claimant
from lowtide.sinks.kafka.claims import claim, transactional_id
from lowtide.sinks.kafka.delivery import AtLeastOnce, ExactlyOnce
from lowtide.sinks.kafka.java_transactions import TransactionsTooOld
from lowtide.sinks.kafka.lasts import (
    LastsLost,
    _end_offset,
    open_lasts,
    own,
    read_lasts,
    topic_of,
)
from lowtide.sinks.kafka.versions import VersionTwo, version_two
from lowtide_tracker import Floor

if TYPE_CHECKING:
    from lowtide_snapshots.job.store import JobStore

pytestmark = pytest.mark.kafka

SINK = 7


class Sink:
    """One job with one worker and one output topic of three partitions, one for each lane."""

    def __init__(
        self, kafka: Kafka, *, through: str = "", settings: Mapping[str, str] | None = None, version: str = "v1"
    ) -> None:
        self.kafka = kafka
        self.version = version
        self.settings = settings or {}
        self.java: dict[str, str] = {}
        self.brokers = through or kafka.address
        self.out = kafka.topic("out", 3, max_message_bytes="100000")
        self.job = self.out
        self.lasts = topic_of(self.job)
        self.id = transactional_id(self.job, 1, 0)
        self.lasts_id = open_lasts(self.conf, self.job, None)
        self._begun: list[Delivery] = []
        self._last: dict[int, bytes] = {}

    @property
    def conf(self) -> KafkaConf:
        return Conf.load(None, {"kafka.bootstrap_servers": self.kafka.address}).kafka

    def worker(self, check: Callable[[], None] = lambda: None, limit_ms: int = 30_000, **limits: int) -> ExactlyOnce:
        settings = {"bootstrap.servers": self.brokers, "log_level": 0, **self.settings}
        more: dict[str, Any] = {"delivery_limit_ms": limit_ms, **limits}
        if self.version != "v1":
            properties = {"bootstrap.servers": self.brokers, **self.java}
            more["version_two"] = VersionTwo(properties, required=self.version == "v2")
        worker = ExactlyOnce(settings, Claimant(self.id, self.lasts, 1, check, self.marks()), **more)
        self._begun.append(worker)
        return worker

    def marks(self) -> dict[LaneName, bytes]:
        """What the lasts topic tells, where packets go on from then on."""
        marks = {name: key.packed() for name, key in read_lasts(self.conf, self.lasts, HANGS_S).last.items()}
        self._last = {name.lane: last for name, last in marks.items()}
        return marks

    def packet(self, lane: int, numbers: range, floors: Sequence[Floor] = (), size: int = 0) -> Packet:
        """Records with these numbers; the last one is the lane's `last`."""
        messages = [(self.out, lane, None, b"%d" % n + bytes(size), 1 + n, None) for n in numbers]
        before, last = self._last.get(lane, b""), OrderKey(numbers[-1], 0, numbers[-1]).packed()
        self._last[lane] = last
        return Packet(SINK, lane, messages, Mark(LaneName(1, "out", lane), last, before, floors))

    def found(self, count: int) -> dict[int, list[int]]:
        """By lane the numbers that a reader finds, in their order: all, once it has found `count`.

        Kafka answers a commit before its markers are written: a reader may be there before them.
        """
        found: dict[int, list[int]] = {}
        for message in self.kafka.messages(self.out, count):
            found.setdefault(message.partition(), []).append(int(message.value()))
        return found

    def last(self, limit_s: float = HANGS_S) -> dict[int, int]:
        """By lane the number that the lasts topic tells."""
        return {name.lane: key.tick for name, key in read_lasts(self.conf, self.lasts, limit_s).last.items()}

    def end_of_lasts(self) -> int:
        """The offset after the last record that Kafka has in the lasts topic, committed or not."""
        return _end_offset(librdkafka_settings(self.conf), self.lasts, HANGS_S, committed=False)

    def close(self) -> None:
        for worker in self._begun:
            worker.close(1)


@pytest.fixture(params=["v1", "v2"])
def sink(kafka: Kafka, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    """Of both versions; under version 2 a transaction is several messages, some produced before its lasts are."""
    monkeypatch.setattr("lowtide.sinks.kafka.java_producer.MESSAGE_RECORDS", 1)
    sink = Sink(kafka, version=request.param)
    yield sink
    sink.close()


def hear(worker: Delivery, packets: int = 1, within_s: float = HANGS_S) -> list[tuple[int, int]]:
    """Wait until so many packets are durable."""
    heard: list[tuple[int, int]] = []
    deadline = time.monotonic() + within_s
    while len(heard) < packets:
        assert select.select([worker], [], [], max(0, deadline - time.monotonic()))[0], f"only {heard} in time"
        heard += worker.durable()
    return heard


class Pause:
    """Stops a worker once while it writes a packet's lasts, before the first or after the last, until it may go on."""

    def __init__(self, worker: ExactlyOnce, *, before: bool = False) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()
        way: Any = worker._way
        lasts = way._lasts

        def pausing(packet: Packet) -> Iterator[Outgoing]:
            way._lasts = lasts
            if not before:
                yield from lasts(packet)
            self.reached.set()
            self.may_go_on.wait(HANGS_S)
            if before:
                yield from lasts(packet)

        way._lasts = pausing


def test_r13_all_that_waits_goes_in_one_transaction_with_its_lasts(sink: Sink) -> None:
    claimed = threading.Event()
    worker = sink.worker(lambda: assert_true(claimed.wait(HANGS_S)))
    floors = (Floor(0, 5, 100), Floor(1, 6, 50, cap=True))
    for lane in (2, 0, 1):
        worker.put(sink.packet(lane, range(10 * lane, 10 * lane + 10), floors[:lane]))
    assert worker.queued == 30
    claimed.set()
    assert hear(worker, 3) == [(SINK, 2), (SINK, 0), (SINK, 1)]
    gauges = worker.gauges()
    assert (gauges["transactions"], gauges["records"], worker.queued) == (1, 30, 0)
    assert sum(gauges["commit"].values()) == 3
    assert sink.found(30) == {lane: list(range(10 * lane, 10 * lane + 10)) for lane in range(3)}
    durable = read_lasts(sink.conf, sink.lasts, HANGS_S)
    assert durable.floors == floors
    assert durable.last == {LaneName(1, "out", lane): OrderKey(10 * lane + 9, 0, 10 * lane + 9) for lane in range(3)}
    assert {message.timestamp()[1] for message in sink.kafka.messages(sink.out)} == set(range(1, 31))


def assert_true(value: bool) -> None:
    assert value


@pytest.mark.parametrize("delivered", [1, 2], ids=["one id", "the other id"])
@pytest.mark.parametrize("before", [True, False], ids=["producing", "about to commit"])
def test_w10_a_zombie_commits_nothing_after_a_claim(sink: Sink, delivered: int, before: bool) -> None:
    zombie = sink.worker()
    for number in range(delivered):
        zombie.put(sink.packet(0, range(number, number + 1)))
        hear(zombie)
    pause = Pause(zombie, before=before)
    zombie.put(sink.packet(0, range(50, 60)))
    assert pause.reached.wait(HANGS_S)
    claim(sink.conf, [sink.id], HANGS_S)
    assert sink.last() == {0: delivered - 1}
    pause.may_go_on.set()
    with pytest.raises(LifeEnded, match="another life of the job has claimed"):
        hear(zombie)
    assert zombie.queued == 10
    # What the zombie left behind is in nobody's way.
    successor = sink.worker()
    successor.put(sink.packet(0, range(delivered, 5)))
    hear(successor)
    assert sink.found(5) == {0: list(range(5))}
    assert sink.last() == {0: 4}


@pytest.mark.parametrize("sink", ["v1"], indirect=True, ids=["v1"])  # What is shown is the topic's, not the way's.
def test_w10_last_is_complete_only_after_a_claim(sink: Sink) -> None:
    worker = sink.worker()
    worker.put(sink.packet(0, range(3)))
    hear(worker)
    # Once they can be read, the marker of their transaction stands there too.
    assert sink.last() == {0: 2}
    committed = sink.end_of_lasts()
    pause = Pause(worker)
    worker.put(sink.packet(0, range(3, 6)))
    assert pause.reached.wait(HANGS_S)
    # The client sends in a thread of its own: only what Kafka has of a transaction keeps it open.
    wait_until(lambda: sink.end_of_lasts() > committed, HANGS_S, "the lasts of the open transaction are in Kafka")
    with pytest.raises(ServiceUnavailable, match=r"cannot read the topic .* to its end"):
        sink.last(limit_s=10)
    pause.may_go_on.set()
    hear(worker)
    assert sink.last() == {0: 5}


def test_w10_a_life_that_is_over_claims_but_delivers_nothing(sink: Sink) -> None:
    old = sink.worker()
    old.put(sink.packet(0, range(3)))
    hear(old)

    def check() -> None:
        raise LifeEnded("incarnation 4 is over")

    late = sink.worker(check)
    late.put(sink.packet(0, range(3, 6)))
    with pytest.raises(LifeEnded, match="incarnation 4 is over"):
        hear(late)
    assert late.close(1) == late.queued == 3
    assert sink.found(3) == {0: [0, 1, 2]}
    # It was claimed *before* the check: else a life could be found to go on, pause, and claim after the next one.
    sink.marks()
    old.put(sink.packet(0, range(3, 6)))
    with pytest.raises(LifeEnded, match="another life"):
        hear(old)


def test_r19_a_delivery_that_does_not_go_on_where_its_lane_is_writes_nothing(sink: Sink) -> None:
    """Kafka compares no marks: the way does, with what the life has read and what was delivered since."""
    worker = sink.worker()
    first = sink.packet(0, range(3))
    worker.put(first)
    hear(worker)
    worker.put(first)
    with pytest.raises(LifeEnded, match=r'lane 0 of sink "out" does not go on'):
        hear(worker)
    late = sink.worker()
    sink.packet(0, range(3, 4))  # It is lost on its way.
    late.put(sink.packet(0, range(4, 5)))
    with pytest.raises(LifeEnded, match=r'lane 0 of sink "out" does not go on'):
        hear(late)
    assert sink.found(3) == {0: [0, 1, 2]}
    assert sink.last() == {0: 2}


@pytest.fixture(params=["v1", "v2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both versions; see `sink`."""
    monkeypatch.setattr("lowtide.sinks.kafka.java_producer.MESSAGE_RECORDS", 1)
    return str(request.param)


def test_a_commit_that_comes_late_ends_no_other_transaction(kafka: Kafka, version: str) -> None:
    """Kafka tells an id's transactions apart by the epoch alone: one that is held back must find another epoch."""
    with KafkaProxy(kafka.address) as proxy:
        check_late_commit(Sink(kafka, through=proxy.address, version=version), proxy)


def test_a_commit_whose_connection_breaks_while_it_logs_in_again_ends_no_other_transaction(
    logging_in: tuple[Kafka, str],
    version: str,
) -> None:
    """Brokers let clients log in again on a connection in use, with requests under way there."""
    kafka, address = logging_in
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "job",
        "sasl.password": "secret",
    }
    with KafkaProxy(address, within=kafka.address) as proxy:
        sink = Sink(kafka, through=proxy.address, settings=login, version=version)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        sink.java = {
            "security.protocol": login["security.protocol"],
            "sasl.mechanism": login["sasl.mechanism"],
            "sasl.jaas.config": f'{module} required username="job" password="secret";',
        }
        check_late_commit(sink, proxy, logs_in_again=True)


WITH_TLS = """
listeners=CLIENT://{host}:{port},TLS://{host}:{tls},CONTROLLER://{host}:{controller_port}
advertised.listeners=CLIENT://{host}:{port},TLS://{host}:{tls}
listener.security.protocol.map=CLIENT:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={certificates}/server.pem
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={certificates}/authority.pem
listener.name.tls.ssl.client.auth=required
"""


@pytest.mark.slow
def test_version_2_has_the_confs_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides show one, and each is held against the other's authority."""
    authority, tls = Authority(tmp_path / "certificates"), free_port()
    authority.certify("server")
    certificate, key = authority.certify("client")
    listener = WITH_TLS.replace("{tls}", str(tls)).replace("{certificates}", str(authority.folder))
    monkeypatch.setattr(embedded_kafka, "PROPERTIES", embedded_kafka.PROPERTIES + listener)
    given = {
        "kafka.bootstrap_servers": f"127.0.0.1:{tls}",
        "kafka.security_protocol": "SSL",
        "kafka.ssl_ca_file": str(authority.file),
        "kafka.ssl_certificate_file": str(certificate),
        "kafka.ssl_key_file": str(key),
        "kafka.transactions": "v2",
    }
    conf = Conf.load(None, given).kafka
    wanted = version_two(conf)
    assert wanted is not None
    with (
        EmbeddedServices(tmp_path / "services", only=["kafka"]) as services,
        contextlib.closing(Sink(Kafka(services), settings=librdkafka_settings(conf), version="v2")) as sink,
    ):
        sink.java, sink.brokers = dict(wanted.properties), conf.bootstrap_servers
        worker = sink.worker()
        worker.put(sink.packet(0, range(3)))
        hear(worker)
        assert sink.found(3) == {0: [0, 1, 2]}
        sink.java["ssl.truststore.certificates"] = Authority(tmp_path / "others").file.read_text()
        stranger = sink.worker()
        stranger.put(sink.packet(0, range(3, 4)))
        with pytest.raises(ServiceUnavailable, match="does not allow"):
            hear(stranger)


@pytest.mark.parametrize(
    ("error", "aborts"),
    [
        pytest.param(KafkaError.TRANSACTION_ABORTABLE, True, id="it may be aborted and tried again"),
        pytest.param(KafkaError.CONCURRENT_TRANSACTIONS, False, id="the last one's markers are not written"),
    ],
)
def test_r13_version_2_goes_on_after_what_kafka_says_of_a_transaction(kafka: Kafka, error: int, aborts: bool) -> None:
    with (
        KafkaProxy(kafka.address) as proxy,
        contextlib.closing(Sink(kafka, through=proxy.address, version="v2")) as sink,
    ):
        worker = sink.worker()
        worker.put(sink.packet(0, range(3)))
        hear(worker)
        answer = proxy.answer(error)
        worker.put(sink.packet(0, range(3, 6)))
        hear(worker)
        assert answer.given.is_set()
        assert answer.aborted.is_set() == aborts
        worker.put(sink.packet(0, range(6, 9)))
        hear(worker)
        assert sink.found(9) == {0: list(range(9))}
        assert sink.last() == {0: 8}


LOGGING_IN = """
listeners=CLIENT://{host}:{port},LOGIN://{host}:{login},CONTROLLER://{host}:{controller_port}
advertised.listeners=CLIENT://{host}:{port},LOGIN://{host}:{login}
listener.security.protocol.map=CLIENT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
listener.name.login.sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    user_job="secret";
listener.name.login.plain.connections.max.reauth.ms=4000
"""


@pytest.fixture
def logging_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Kafka, str]]:
    """A broker, and where its clients have to log in, again every few seconds."""
    login = free_port()
    with_login = embedded_kafka.PROPERTIES + LOGGING_IN.replace("{login}", str(login))
    monkeypatch.setattr(embedded_kafka, "PROPERTIES", with_login)
    with EmbeddedServices(tmp_path / "services", only=["kafka"]) as services:
        yield Kafka(services), f"127.0.0.1:{login}"


def check_late_commit(sink: Sink, proxy: KafkaProxy, *, logs_in_again: bool = False) -> None:
    """Hold a commit back, and let it through into the id's next transaction."""
    with contextlib.closing(sink):
        worker = sink.worker(limit_ms=120_000)  # The client logs in again in its own time.
        for number in range(2):
            worker.put(sink.packet(0, range(number, number + 1)))
            hear(worker)
        held = proxy.hold(logs_in_again=logs_in_again)
        for number in range(2, 4):
            worker.put(sink.packet(0, range(number, number + 1)))
            hear(worker)
        assert held.caught.is_set()
        assert held.commits
        # The next transaction of the id whose commit was held: its records are in Kafka, its lasts are not yet.
        pause = Pause(worker, before=True)
        worker.put(sink.packet(0, range(4, 7)))
        assert pause.reached.wait(HANGS_S)
        assert held.released.wait(HANGS_S)
        assert held.error in (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
        assert sink.found(4) == {0: list(range(4))}
        pause.may_go_on.set()
        hear(worker)
        assert sink.found(7) == {0: list(range(7))}
        assert sink.last() == {0: 6}


def test_a_broker_that_is_not_there_costs_no_new_claims(sink: Sink) -> None:
    """A connection that never came to be carried no request: with one broker of two away, ids stay as they are."""
    checks: list[None] = []
    sink.brokers = f"127.0.0.1:1,{sink.brokers}"
    worker = sink.worker(lambda: checks.append(None))
    for number in range(10):
        worker.put(sink.packet(0, range(number, number + 1)))
        hear(worker)
    assert len(checks) == 1


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker without transactions of version 2."""
    folder = tmp_path_factory.mktemp("older") / "services"
    with EmbeddedServices(folder, only=["kafka"], kafka_features={"transaction.version": 1}) as services:
        yield Kafka(services)


@pytest.mark.slow
def test_brokers_without_version_2_are_given_version_1_where_either_will_do(older: Kafka) -> None:
    with contextlib.closing(Sink(older, version="auto")) as sink:
        worker = sink.worker()
        for number in range(3):
            worker.put(sink.packet(0, range(number, number + 1)))
            hear(worker)
        assert worker.gauges()["protocol"] == "v1"
        assert sink.found(3) == {0: [0, 1, 2]}


@pytest.mark.slow
def test_brokers_without_version_2_end_a_life_that_requires_it(older: Kafka) -> None:
    with contextlib.closing(Sink(older, version="v2")) as sink:
        worker = sink.worker()
        worker.put(sink.packet(0, range(1)))
        with pytest.raises(TransactionsTooOld, match=r"transaction\.version is 1, not 2"):
            hear(worker)


def test_brokers_with_version_2_are_given_it_where_either_will_do(kafka: Kafka) -> None:
    with contextlib.closing(Sink(kafka, version="auto")) as sink:
        worker = sink.worker()
        worker.put(sink.packet(0, range(3)))
        hear(worker)
        assert worker.gauges()["protocol"] == "v2"


def test_each_version_goes_on_where_the_other_one_ended(kafka: Kafka) -> None:
    """Lives of a job may differ in it: the ids are the same, and each claim ends the other version's."""
    with contextlib.closing(Sink(kafka)) as sink:
        for number in range(4):
            sink.version = ("v1", "v2")[number % 2]
            worker = sink.worker()
            worker.put(sink.packet(0, range(2 * number, 2 * number + 2)))
            hear(worker)
        assert sink.found(8) == {0: list(range(8))}
        assert sink.last() == {0: 7}


@pytest.mark.parametrize("sink", ["v2"], indirect=True, ids=["v2"])
def test_a_host_whose_producer_is_killed_ends_the_life_and_the_next_one_goes_on(sink: Sink) -> None:
    worker = sink.worker()
    worker.put(sink.packet(0, range(3)))
    hear(worker)
    pause = Pause(worker, before=True)
    worker.put(sink.packet(0, range(3, 6)))
    assert pause.reached.wait(HANGS_S)
    cast("Any", worker)._way._producer._process.kill()
    pause.may_go_on.set()
    with pytest.raises(LifeEnded, match="the process of Kafka's producer ended with status -9"):
        hear(worker)
    claim(sink.conf, [sink.id], HANGS_S)
    successor = sink.worker()
    successor.put(sink.packet(0, range(3, 6)))
    hear(successor)
    assert sink.found(6) == {0: list(range(6))}


@pytest.mark.slow
def test_a_transaction_that_kafka_gives_up_ends_the_life(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's limit for a transaction is later than ours; a host that stood still meets it all the same."""
    for module in ("transactions", "java_transactions"):
        monkeypatch.setattr(f"lowtide.sinks.kafka.{module}.MARGIN_MS", 0)
    soon = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    with (
        EmbeddedServices(tmp_path / "services", only=["kafka"], kafka_settings=soon) as services,
        contextlib.closing(Sink(Kafka(services), version=version)) as sink,
    ):
        worker = sink.worker(limit_ms=15_000)
        worker.put(sink.packet(0, range(3)))
        hear(worker)
        pause = Pause(worker, before=True)
        worker.put(sink.packet(0, range(3, 6)))
        assert pause.reached.wait(HANGS_S)
        time.sleep(18)
        cast("Any", worker)._way._deadline = time.monotonic() + HANGS_S
        pause.may_go_on.set()
        with pytest.raises(LifeEnded, match="Kafka has given up waiting"):
            hear(worker)
        assert sink.found(3) == {0: [0, 1, 2]}
        assert sink.last() == {0: 2}


@pytest.mark.parametrize("passed", [1, 2], ids=["before it claims", "after it has claimed"])
def test_w10_a_life_that_is_over_delivers_nothing_after_it_has_claimed_again(kafka: Kafka, passed: int) -> None:
    """A claim after an end that was not answered is held against the job's newest life as the first one is."""
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > passed:
            raise LifeEnded("incarnation 4 is over")

    with KafkaProxy(kafka.address) as proxy:
        sink = Sink(kafka, through=proxy.address)
        worker = sink.worker(check)
        worker.put(sink.packet(0, range(1)))
        hear(worker)
        held = proxy.hold()
        for number in range(1, 3):
            worker.put(sink.packet(0, range(number, number + 1)))
            hear(worker)
        assert held.caught.is_set()
        # It is the turn of the id whose commit was held.
        worker.put(sink.packet(0, range(3, 4)))
        with pytest.raises(LifeEnded, match="incarnation 4 is over"):
            hear(worker)
        assert asked == passed + 1
        assert sink.found(3) == {0: [0, 1, 2]}
        assert sink.last() == {0: 2}
        sink.close()


RAW = object()
"""A sink of dead letters."""


class Elsewhere:
    """A job's place in a ZooKeeper that has never heard of it."""

    claimed: set[str] | None = None

    def identity(self, _incarnation: int) -> str:
        return "other"

    def lasts(self) -> tuple[str | None, int]:
        return None, 0

    def stores(self) -> dict[str, str]:
        return {}

    def add_sink_ids(self, _incarnation: int, ids: set[str]) -> None:
        self.claimed = ids


def test_a_start_with_another_zookeeper_is_refused_before_it_claims(sink: Sink) -> None:
    """W10: else it ended the life that runs, and was then refused all the same."""
    worker, place = sink.worker(), Elsewhere()
    worker.put(sink.packet(0, range(3)))
    hear(worker)
    conf = Conf.load(None, {"kafka.bootstrap_servers": sink.kafka.address})
    plan: Any = SimpleNamespace(name=sink.job, dead_letters=RAW, sinks=list)
    with pytest.raises(LifeEnded, match="runs with another ZooKeeper"):
        Homes(cast("JobStore", place), plan, conf, 1, say=lambda _: None).claim({sink.id})
    assert place.claimed is None
    worker.put(sink.packet(0, range(3, 5)))
    hear(worker)
    assert sink.found(5) == {0: [0, 1, 2, 3, 4]}


def test_a_start_of_another_job_of_the_name_is_refused_before_anything_is_delivered(sink: Sink) -> None:
    """It would go by what the other one delivers, and be fenced by it in turn."""
    own(sink.conf, sink.lasts, "this", HANGS_S)
    conf = Conf.load(None, {"kafka.bootstrap_servers": sink.kafka.address})
    plan: Any = SimpleNamespace(name=sink.job, dead_letters=RAW, sinks=list)
    place = Elsewhere()
    with pytest.raises(LifeEnded, match="belongs to another job of this name"):
        Homes(cast("JobStore", place), plan, conf, 1, say=lambda _: None).claim({sink.id})
    assert place.claimed is None
    assert read_lasts(sink.conf, sink.lasts, HANGS_S).owner == "this"


def test_w10_a_lasts_topic_that_is_not_the_jobs_own_is_refused(sink: Sink) -> None:
    topics = Topics(sink.conf)
    assert open_lasts(sink.conf, sink.job, sink.lasts_id) == sink.lasts_id
    assert open_lasts(sink.conf, sink.job, None) == sink.lasts_id
    topics.delete(sink.lasts)
    with pytest.raises(LastsLost, match="is gone") as lost:
        open_lasts(sink.conf, sink.job, sink.lasts_id)
    assert "deliver everything again" in lost.value.way_out
    with pytest.raises(LastsLost, match="is gone"):
        read_lasts(sink.conf, sink.lasts, HANGS_S)
    topics.create(sink.lasts, config={"cleanup.policy": "compact"})
    with pytest.raises(LastsLost, match="has been replaced by another"):
        open_lasts(sink.conf, sink.job, sink.lasts_id)
    topics.delete(sink.lasts)
    topics.create(sink.lasts)
    with pytest.raises(LastsLost, match=r"cleanup\.policy=delete"):
        open_lasts(sink.conf, sink.job, None)


def test_a_record_that_the_topic_does_not_take_ends_the_delivery(sink: Sink) -> None:
    worker = sink.worker(max_record_bytes=1_000_000)
    worker.put(sink.packet(1, range(3)))
    hear(worker)
    worker.put(sink.packet(0, range(3)))
    worker.put(sink.packet(1, range(3, 4), size=200_000))
    with pytest.raises(FrameTooLarge, match=f'topic "{sink.out}" does not accept a record of 200001 bytes'):
        hear(worker, 2)
    # Nothing of the transaction is left, nor is it open, which would hold readers up.
    assert sink.found(3) == {1: [0, 1, 2]}
    assert sink.last(limit_s=HANGS_S) == {1: 2}


def test_a_record_that_is_larger_than_configured_is_said_with_both_sizes(sink: Sink) -> None:
    worker = sink.worker(max_record_bytes=10_000)
    worker.put(sink.packet(0, range(1), size=100_000))
    with pytest.raises(FrameTooLarge, match=r"a record of 100001 bytes .* 10000 bytes"):
        hear(worker)
    assert sink.last(limit_s=HANGS_S) == {}


@pytest.mark.parametrize(("topic", "partition"), [("nowhere", 0), (None, 3)], ids=["topic", "partition"])
def test_a_topic_or_partition_that_is_not_there_is_said(sink: Sink, topic: str | None, partition: int) -> None:
    worker = sink.worker(limit_ms=20_000)
    worker.put(Packet(SINK, 0, [(topic or sink.out, partition, None, b"1", 1, None)], Mark(LaneName(1, "out", 0), b"")))
    with pytest.raises(ServiceUnavailable, match=f'record for topic "{topic or sink.out}".*[Uu]nknown'):
        hear(worker)


def test_closing_delivers_what_was_put(sink: Sink) -> None:
    worker = sink.worker()
    for number in range(20):
        worker.put(sink.packet(number % 3, range(number, number + 1)))
    assert worker.close(HANGS_S) == 0
    assert sink.found(20) == {lane: list(range(lane, 20, 3)) for lane in range(3)}


def test_at_least_once_delivers_and_writes_no_lasts(sink: Sink) -> None:
    settings = {"bootstrap.servers": sink.kafka.address, "log_level": 0}
    worker = AtLeastOnce(settings, delivery_limit_ms=30_000, max_record_bytes=1_000_000)
    for lane in (1, 0):
        worker.put(sink.packet(lane, range(5)))
    assert hear(worker, 2) == [(SINK, 1), (SINK, 0)]
    assert sink.found(10) == {0: list(range(5)), 1: list(range(5))}
    assert sink.last() == {}
    worker.put(sink.packet(0, range(1), size=200_000))
    with pytest.raises(FrameTooLarge, match=f'topic "{sink.out}" does not accept a record of 200001 bytes'):
        hear(worker)
    worker.close(1)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_r13_each_record_once_over_a_broker_that_is_killed(kafka: Kafka, tmp_path: Path, version: str) -> None:
    """Killed in the middle of transactions and of commits, at moments that differ."""
    with EmbeddedServices(tmp_path / "services", only=["kafka"]) as services:
        sink = Sink(type(kafka)(services), version=version)
        worker = sink.worker(limit_ms=60_000)
        sent, lanes_done = [0, 0, 0], [0, 0, 0]
        stop = threading.Event()

        def deliver() -> None:
            for lane in range(3):
                worker.put(sink.packet(lane, range(10)))
                sent[lane] = 10
            while not (stop.is_set() and sent == lanes_done):
                for _, lane in hear(worker, within_s=HANGS_S):
                    lanes_done[lane] = sent[lane]
                    if not stop.is_set():
                        worker.put(sink.packet(lane, range(sent[lane], sent[lane] + 10)))
                        sent[lane] += 10

        with ThreadPoolExecutor(1) as threads:
            delivering = threads.submit(deliver)
            for pause_s in (0.5, 0.313):
                before = sum(lanes_done)
                while sum(lanes_done) <= before and not delivering.done():
                    time.sleep(0.01)
                time.sleep(pause_s)
                services.stop("kafka", grace_s=0)
                services.start("kafka")
            stop.set()
            delivering.result()
        assert sink.found(sum(sent)) == {lane: list(range(sent[lane])) for lane in range(3)}
        assert sink.last() == {lane: sent[lane] - 1 for lane in range(3)}
        sink.close()
