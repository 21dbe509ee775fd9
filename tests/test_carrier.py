"""Carriers of staged sinks on a real broker: what is staged comes into the store once, over all deaths (R20, R24)."""

from __future__ import annotations

import asyncio
import io
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from tests.conftest import Kafka
from tests.line_store import Lines, lines_of
from tests.staging import Staging
from tests.waiting import HANGS_S, wait_until

import lowtide as lt
from lowtide.assignment.setting import StagedSetting
from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.events import EventLog
from lowtide.service.carriers import process
from lowtide.service.carriers.process import CarrierProcess
from lowtide.sinks.errors import Overtaken, StagedLost
from lowtide.sinks.kafka.lasts import write_messages
from lowtide.sinks.puts.carrier import BATCH_PUTS
from lowtide.sinks.puts.contract import Put
from lowtide.sinks.staged import partitions
from lowtide.sinks.staged.ages import births_by_key
from lowtide.sinks.staged.carry import Carrying, ignore
from lowtide.sinks.staged.contract import Carriage, Progress
from lowtide.sinks.staged.log import Backlog, StagedLog
from lowtide.sinks.staged.partitions import ClaimLost, Partitions
from tests import line_store
from tests.driver import runs

pytestmark = pytest.mark.kafka

cloudpickle.register_pickle_by_value(line_store)  # A carrier's process has no module of the tests.
LANES = 3


class Way:
    """A staged log and the folder to which its records go."""

    def __init__(self, kafka: Kafka, folder: Path, seed: int = 0) -> None:
        self.kafka = kafka
        self.folder = folder
        self.staging = Staging(kafka, LANES, seed)
        self.group = f"carrier-{self.staging.topic}"
        self.sink = Lines(str(folder))
        self.settings: dict[str, Any] = {"bootstrap.servers": kafka.address}

    @property
    def carriage(self) -> Carriage:
        settings = self.sink.settings(Conf.load(None))
        return Carriage(job="job", job_id="5f", generation=0, sink="lines", lanes=LANES, slack_ms=10, settings=settings)

    @property
    def setting(self) -> StagedSetting:
        pickled = cloudpickle.dumps((self.sink, self.carriage))
        return StagedSetting(
            sink="lines", topic=self.staging.topic, group=self.group, lanes=LANES, last_mark=1 << 60, pickled=pickled
        )

    def log(self) -> StagedLog:
        return StagedLog(self.topic())

    def topic(self) -> Partitions:
        return Partitions(self.settings, self.staging.topic, self.group, LANES, HANGS_S)

    def carrying(self) -> Carrying:
        return Carrying(self.log(), self.sink.carrier(self.carriage), ignore)

    def drain(self) -> dict[int, Progress]:
        with self.carrying() as carrying:
            assert carrying.drain()
            return carrying.last[0]

    def stored(self) -> dict[int, list[tuple[int, str, str]]]:
        return {lane: lines_of(self.folder, lane) for lane in range(LANES)}

    def begins(self) -> dict[int, int]:
        topics = Topics(Conf.load(None, {"kafka.bootstrap_servers": self.kafka.address}).kafka)
        found = topics.earliest([topics.describe(self.staging.topic)])
        return {lane: found[self.staging.topic, lane] for lane in range(LANES)}


@pytest.fixture
def way(kafka: Kafka, tmp_path: Path) -> Way:
    return Way(kafka, tmp_path)


def test_what_was_committed_is_stored_once_in_order(way: Way) -> None:
    way.staging.write(40)
    time_ms = way.staging.mark()
    assert {each.visible_ms for each in way.drain().values()} == {time_ms}
    assert way.stored() == way.staging.staged
    assert sum(map(len, way.stored().values())) > 50


def test_the_next_carrier_goes_on_and_knows_what_is_visible(way: Way) -> None:
    way.staging.write(10)
    time_ms = way.staging.mark()
    before = way.drain()
    assert way.drain() == before
    assert {each.visible_ms for each in before.values()} == {time_ms}
    way.staging.write(10)
    way.drain()
    assert way.stored() == way.staging.staged


def test_the_log_is_cut_below_what_the_store_has_and_no_further(way: Way) -> None:
    way.staging.write(10)
    needed = {lane: each.needed for lane, each in way.drain().items()}
    assert way.begins() == needed
    (way.folder / "slow").touch()
    way.staging.write(10)
    with way.carrying() as carrying:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            carrying.turn()
        assert way.begins() == needed
        assert carrying.last[1].bytes > 0
    (way.folder / "slow").unlink()
    way.drain()
    assert way.stored() == way.staging.staged
    assert all(begin > needed[lane] for lane, begin in way.begins().items())


def test_records_that_somebody_deleted_are_not_passed_over(way: Way) -> None:
    way.staging.write(10, abort=0)
    kept = {lane: each.needed for lane, each in way.drain().items()}
    way.staging.write(20, abort=0)
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin: Any = AdminClient(way.settings)
    for future in admin.delete_records([TopicPartition(way.staging.topic, 1, kept[1] + 5)]).values():
        future.result()
    with pytest.raises(StagedLost, match=f"begins at offset {kept[1] + 5}, but offset {kept[1]} is needed"):
        way.drain()


def test_a_carrier_that_wakes_late_takes_nothing_back(way: Way) -> None:
    """It reads some records, sleeps while another one carries and the log is cut, and goes on with what it has."""
    way.staging.write(10)
    with way.carrying() as late:
        late._log.read(HANGS_S)
        rows = late._log.read(1.0)
        for piece in rows:
            late._carrier.take(piece.lane, piece.rows)
        way.staging.write(20)
        other = way.drain()
        late._settle(time.monotonic())
        assert way.begins() == {lane: each.needed for lane, each in other.items()}
    log = way.log()
    assert {lane: each.needed for lane, each in log.kept().items()} == way.begins()
    log.close()
    way.staging.write(5)
    way.drain()
    assert way.stored() == way.staging.staged


def test_lanes_that_rest_go_on_where_they_were(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was fetched of them before is not taken, nor missed."""
    monkeypatch.setattr(partitions, "READ_ROWS", 5)
    way.staging.write(60)
    log, chance, found = way.log(), random.Random(3), {lane: list[tuple[int, str]]() for lane in range(LANES)}
    log.begin({lane: each.needed for lane, each in log.kept().items()})
    ends, resting = log.ends(), frozenset[int]()
    until = time.monotonic() + HANGS_S
    while resting or not log.has_read(ends):
        assert time.monotonic() < until
        if chance.random() < 0.3:
            resting = frozenset(chance.sample(range(LANES), chance.choice([0, 0, 1, 2])))
            log.rest(resting)
        for piece in log.read(0.1):
            assert piece.lane not in resting
            found[piece.lane] += [(row.time_ms, row.value.decode()) for row in piece.rows]
    log.close()
    assert found == {lane: [(at, value) for at, _, value in rows] for lane, rows in way.staging.staged.items()}


def test_what_is_reported_never_goes_back(way: Way) -> None:
    """A carrier wakes late, reports where it was, and dies before it looks at the log: nothing is lost (R24)."""
    way.staging.write(10)
    late = way.topic()
    late.claim()
    begin = late.begins()
    way.staging.write(10)
    other = way.drain()
    with pytest.raises(ClaimLost):
        late.report({lane: Progress(offset) for lane, offset in begin.items()})
    late.close()
    way.staging.write(10)
    assert all(each.needed > other[lane].needed for lane, each in way.drain().items())
    assert way.stored() == way.staging.staged


def test_a_carrier_whose_records_another_one_has_cut_is_overtaken(way: Way) -> None:
    way.staging.write(10)
    with way.carrying() as late:
        way.drain()
        late._log._topic.assign(dict.fromkeys(range(LANES), 0))  # What it may have fetched by now is thrown away.
        with pytest.raises(Overtaken, match="another carrier has taken records"):
            wait_until(late.turn, HANGS_S, "it finds its records cut")


@pytest.mark.parametrize("seed", range(3))
def test_two_at_once_store_each_record_once(kafka: Kafka, tmp_path: Path, seed: int) -> None:
    way, over = Way(kafka, tmp_path, seed), threading.Event()
    errors: list[BaseException] = []

    def carry(own: random.Random) -> None:
        while not over.is_set():
            try:
                with way.carrying() as carrying:
                    for _ in range(own.randint(1, 20)):
                        carrying.turn()
                        time.sleep(own.random() / 20)
            except Overtaken:
                pass  # The other one was ahead, and has cut the log.
            except BaseException as error:
                errors.append(error)
                raise

    threads = [threading.Thread(target=carry, args=(random.Random((seed, n).__hash__()),)) for n in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        way.staging.write(5)
        time.sleep(0.1)
    over.set()
    for thread in threads:
        thread.join(HANGS_S)
    way.drain()
    assert errors == []
    assert way.stored() == way.staging.staged


class Watched:
    """A carrier's process with its watch, in a loop of its own thread."""

    def __init__(self, way: Way) -> None:
        self.log = io.StringIO()
        self.moves = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.events = EventLog("job", 1, self.log)
        self.process = self._do(self._make(way))

    async def _make(self, way: Way) -> CarrierProcess:
        made = CarrierProcess(way.setting, way.settings, self.events, self._moved)
        made.start()
        return made

    def _moved(self) -> None:
        self.moves += 1

    def drain(self, limit_s: float = HANGS_S) -> bool:
        return bool(self._do(self.process.drain(limit_s)))

    def close(self) -> None:
        self._do(self.process.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANGS_S)


@contextmanager
def watched(way: Way) -> Iterator[Watched]:
    watch = Watched(way)
    try:
        yield watch
    finally:
        watch.close()


def test_a_process_carries_and_tells_what_is_visible(way: Way) -> None:
    way.staging.write(10)
    with watched(way) as watch:
        wait_until(lambda: watch.process.pid, HANGS_S, "a process")
        arguments = Path(f"/proc/{watch.process.pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{watch.process.pid}/environ").read_bytes()
        assert b"sesame" not in arguments + environment
        time_ms = way.staging.mark()
        wait_until(lambda: watch.process.visible_ms == time_ms, HANGS_S, "all is visible")
        way.staging.write(10)
        assert watch.drain()
        assert way.stored() == way.staging.staged
        assert watch.process.backlog == Backlog()
        assert watch.process.counts == {"lines": sum(map(len, way.staging.staged.values()))}
        assert watch.moves
        pid = watch.process.pid
    assert pid is not None
    assert not runs(pid)


def test_a_process_that_is_killed_whenever_stores_each_record_once(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "FIRST_WAIT_S", 0.01)
    rng, kills = random.Random(7), 0
    with watched(way) as watch:
        until = time.monotonic() + 15
        while time.monotonic() < until:
            way.staging.write(3)
            time.sleep(rng.random() * 0.6)
            pid = watch.process.pid
            if pid is not None and rng.random() < 0.5:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
        time_ms = way.staging.mark()
        wait_until(lambda: watch.process.visible_ms == time_ms, HANGS_S, "all is visible")
        assert watch.process.restarts > 5
        assert (
            '"event":"carrier_stopped","sink":"lines","cause":"the process that takes records' in watch.log.getvalue()
        )
    assert kills > 5
    assert way.stored() == way.staging.staged


def test_a_store_that_is_away_ends_no_life_and_says_so(way: Way) -> None:
    (way.folder / "away").touch()
    way.staging.write(5)
    with watched(way) as watch:
        wait_until(lambda: watch.process.restarts > 1, HANGS_S, "it is tried again")
        trouble = watch.process.trouble
        assert "records are not moving to sink lines: the store of lines does not answer" in trouble
        assert not watch.drain(0.1)
        (way.folder / "away").unlink()
        time_ms = way.staging.mark()
        wait_until(lambda: watch.process.visible_ms == time_ms, HANGS_S, "all is visible")
        wait_until(lambda: not watch.process.trouble, HANGS_S, "the trouble is over")
        assert '"event":"carrier_resumed"' in watch.log.getvalue()
    assert way.stored() == way.staging.staged


@dataclass(frozen=True)
class Doc:
    id: str


class Slow:
    """A store that cannot compare, and takes its time for many puts."""

    def __init__(self, there: dict[str, bytes | None]) -> None:
        self.there = there

    def put(self, puts: Sequence[Put]) -> None:
        time.sleep(len(puts) / 5_000)
        self.there.update((each.key, each.value) for each in puts)

    def __deepcopy__(self, _: object) -> Slow:
        return self


def test_what_a_growth_moves_is_put_last_also_where_nothing_compares(kafka: Kafka) -> None:
    """R22: half of the keys move from the first partition to another one, in which offsets begin again."""
    topic, there = kafka.topic("staged", 2), dict[str, bytes | None]()
    keys, settings = [b"%d" % number for number in range(2 * BATCH_PUTS)], {"bootstrap.servers": kafka.address}
    given = [(0, key, b"old") for key in keys] + [(1, key, b"new") for key in keys[::2]]
    messages = [{"partition": partition, "key": key, "value": value} for partition, key, value in given]
    write_messages(settings, topic, messages, HANGS_S)
    sink = lt.puts("docs", Doc, key="id", put=Slow(there), eventual=True)
    carriage = Carriage("job", "5f", 0, "docs", 2, 10, {"limit_s": HANGS_S}, lane_counts=(1, 2))
    log = StagedLog(Partitions(settings, topic, f"carrier-{topic}", 2, HANGS_S))
    with Carrying(log, sink.carrier(carriage), ignore, births=births_by_key(sink, carriage)) as carrying:
        assert carrying.drain()
    assert there == {key.decode(): b"old" if number % 2 else b"new" for number, key in enumerate(keys)}
