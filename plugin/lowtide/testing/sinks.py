"""The contract of a store as tests: classes to inherit, for authors of sinks.

    class TestSqlite(SinkContract):
        def sink(self, name: str) -> Direct:
            return SqliteSink(f"{self.folder}/{name}.db", "lines", Line)

        def rows(self, sink: Direct) -> list[Line]: ...

pytest finds the tests by their names; nothing else of it is needed. A store behind a socket inherits
`ServedSinkContract`: the connection breaks before each message and after it, and messages come late.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from lowtide.api import Flow
from lowtide.conf import Conf
from lowtide.core.operators.order.bundle import Piece
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded, LowtideError
from lowtide.flow.formats.endpoints import kafka
from lowtide.flow.formats.formats import json
from lowtide.flow.plan.compiler import compile_flow
from lowtide.sinks.contract import Direct, Encoder, JobSinks, LaneName, Life, Mark, Packet, Stored, Way
from lowtide.sinks.errors import LastsLost
from lowtide.testing.proxy import Fault, LossyProxy
from lowtide_tracker import Floor

__all__ = ["Line", "ServedSinkContract", "SinkContract"]

LIMIT_S = 60.0
LIFE_OVER = 3
"""The exit code of a host whose life has ended."""
OUT = "out"
UNITS = 128


@dataclass(frozen=True)
class Line:
    """The record that the tests write.

    Attributes:
        lane: The lane that it comes by; upserting sinks take it for a column like any other.
        number: Counts the records of all lanes; the key of upserting sinks.
    """

    lane: int
    number: int


class SinkContract(ABC):
    """The tests that every store passes; inherit, and give the abstract methods.

    Attributes:
        lanes: Number of lanes.
        kills: How often a host is killed.
    """

    lanes = 2
    kills = 6

    @abstractmethod
    def sink(self, name: str) -> Direct:
        """Return a sink for `Line` in a place of this name, which is new and empty."""

    @abstractmethod
    def rows(self, sink: Direct) -> Iterable[Line]:
        """Return what readers of the store find there, in whatever order."""

    def settings(self, sink: Direct, server: str | None = None) -> Mapping[str, Any]:
        """Return the settings of the store, behind another `host:port` if one is given."""
        return sink.settings(Conf())

    # What comes out.

    def test_what_is_delivered_is_there_once_with_its_marks(self) -> None:
        """R13."""
        job = self._job()
        with job.life(1) as way:
            job.deliver(way, range(10), floors=[Floor(0, 5, 40)])
            job.deliver(way, range(10, 13), floors=[Floor(1, 6, 50, cap=True)])
        assert job.found() == list(range(13))
        stored = job.claimed(2)
        assert stored.last == {job.name(0): key_of(12), job.name(1): key_of(11)}
        assert set(stored.floors) == {Floor(0, 5, 40), Floor(1, 6, 50, cap=True)}

    def test_floors_alone_are_kept_and_covered_ones_may_go(self) -> None:
        """R18."""
        job = self._job()
        with job.life(1) as way:
            way.deliver([job.packet(0, [], [Floor(0, 5, 40)])])
            assert job.stored(1).last == {}
            assert job.stored(1).floors == (Floor(0, 5, 40),)
            way.deliver([replace_mark(job.packet(0, [4], [Floor(0, 5, 60)]), covered=[Floor(0, 5, 40)])])
        floors = set(job.claimed(2).floors)
        assert Floor(0, 5, 60) in floors
        assert floors <= {Floor(0, 5, 60), Floor(0, 5, 40)}

    def test_a_host_that_is_killed_leaves_each_bundle_whole_or_not_at_all(self) -> None:
        """R13: the next life claims, reads and goes on where the marks are."""
        job, count, chance = self._job(), 400, random.Random(7)  # noqa: S311 - it only has to be another time for each kill
        processes, over = multiprocessing.get_context("spawn"), list[str]()
        for incarnation in range(1, self.kills + 1):
            last = job.claimed(incarnation).last
            said, says = processes.Pipe(duplex=False)
            child = processes.Process(target=_deliver_in_child, args=(job.sinks, incarnation, count, dict(last), says))
            child.start()
            says.close()
            begun = len(job.found())
            deadline = time.monotonic() + LIMIT_S
            while len(job.found()) == begun and child.is_alive() and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(chance.random() / 50)
            if child.pid is not None and child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
            child.join(LIMIT_S)
            if child.exitcode == LIFE_OVER:
                over.append(said.recv())
            elif child.exitcode not in (0, -signal.SIGKILL):
                raise AssertionError(f"the host ended by itself, with {child.exitcode}: {_last_of(said)}")
            said.close()
            self._each_lane_is_at_its_mark(job, incarnation + 1)
        # A life may end where it cannot know what became of a bundle; one that always does was never killed.
        assert len(over) < self.kills, over
        with job.life(self.kills + 1) as way:
            job.go_on(way, count)
        assert job.found() == list(range(count))

    # Claims.

    def test_a_claim_shuts_out_a_life_that_has_connected(self) -> None:
        """W10."""
        job = self._job()
        with job.life(1) as way:
            job.deliver(way, range(4))
            job.claimed(2)
            refused(lambda: way.deliver([job.packet(0, [4])]))
        assert job.found() == list(range(4))

    def test_an_older_life_cannot_claim(self) -> None:
        """W10."""
        job = self._job()
        with job.life(2) as way:
            refused(lambda: job.claimed(1))
            job.deliver(way, range(4))
        assert job.found() == list(range(4))

    def test_a_life_that_is_over_delivers_nothing(self) -> None:
        """W10: a way asks whether its life is the newest, after the claim and before its first packet."""
        job = self._job()
        job.claimed(1)

        def over() -> None:
            raise LifeEnded("incarnation 1 is over")

        way = job.way(replace(life_of(1), check=over))
        refused(way.open)
        way.close()

    def test_two_hosts_deliver_their_lanes_side_by_side(self) -> None:
        """R12: each lane has one owner; rescaling moves lanes, not marks."""
        job = self._job()
        job.claimed(1)
        ways = [job.way(life_of(1)) for _ in range(self.lanes)]
        failed: list[BaseException] = []

        def deliver(lane: int, way: Way) -> None:
            try:
                way.open()
                for number in range(lane, 60, self.lanes):
                    way.deliver([job.packet(lane, [number])])
            except BaseException as error:  # noqa: BLE001 - raised below
                failed.append(error)
            finally:
                way.close()

        threads = [Thread(target=deliver, args=each) for each in enumerate(ways)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * LIMIT_S)
        assert failed == []
        assert job.found() == list(range(60))
        with job.life(2) as way:
            job.go_on(way, 80)
        assert job.found() == list(range(80))

    def test_a_claim_shuts_out_a_life_with_other_workers(self) -> None:
        """W10: a strand has the hash units of one worker, and lives with more or fewer workers have other strands."""
        job = self._job()
        with job.life(1) as way:
            job.deliver(way, range(4))
            whole = job.with_strands(1)
            assert whole.claimed(2).last == {job.name(0): key_of(2), job.name(1): key_of(3)}
            refused(lambda: way.deliver([job.packet(0, [4])]))
        with closing(whole.way(life_of(2))) as way:
            way.open()
            way.deliver([whole.packet(0, [4, 5])])
            assert whole.stored(2).last[whole.name(0)] == key_of(5)
            last = job.claimed(3).last
            refused(lambda: way.deliver([whole.packet(0, [6])]))
        assert last == {job.name(0): key_of(2), job.name(1): key_of(3), whole.name(0): key_of(5)}
        with closing(job.way(life_of(3))) as way:
            way.open()
            way.deliver([job.packet(0, [6])])
        assert job.found() == list(range(7))

    # Marks (R19).

    def test_what_was_delivered_is_not_delivered_again(self) -> None:
        """R19."""
        job = self._job()
        with job.life(1) as way:
            first = job.packet(0, [0, 2])
            way.deliver([first])
            with suppress(LowtideError):
                way.deliver([first])
        assert job.found() == [0, 2]

    def test_a_packet_whose_lane_is_elsewhere_writes_nothing(self) -> None:
        """R19."""
        job = self._job()
        with job.life(1) as way:
            job.packet(0, [0])  # Never sent.
            refused(lambda: way.deliver([job.packet(0, [2])]))
        assert job.found() == []
        assert job.claimed(2).last == {}

    def test_a_generation_begins_without_marks_and_with_all_floors(self) -> None:
        """The records' labels rest on the floors, whichever generation delivers them."""
        job = self._job()
        with job.life(1) as way:
            job.deliver(way, range(4), floors=[Floor(0, 5, 40)])
        job.sinks = replace(job.sinks, generation=1)
        with suppress(LowtideError):  # A store may refuse to deliver twice to one place.
            stored = job.claimed(2)
            assert stored.last == {}
            assert Floor(0, 5, 40) in stored.floors

    def test_another_store_is_not_taken_for_the_jobs(self) -> None:
        """A store that was made again has forgotten what was delivered."""
        job = self._job()
        with closing(job.home(1)) as home:
            known = home.open(None)
        with closing(job.home(2)) as home:
            assert home.open(known) == known
        with closing(job.home(3)) as home:
            raised(LastsLost, lambda: home.open(f"not {known}"))

    # What the tests share.

    def _job(self) -> _Job:
        name = f"contract_{uuid.uuid4().hex[:12]}"
        sink = self.sink(name)
        sinks = JobSinks(name, f"id of {name}", 0, self.lanes, {OUT: sink}, self.settings(sink), strands_of(self.lanes))
        return _Job(sinks, sink, self.rows)

    def _each_lane_is_at_its_mark(self, job: _Job, incarnation: int) -> None:
        """Hold what readers find against the marks, after a claim: nothing is on its way any more."""
        last = job.claimed(incarnation).last
        due = [
            number for lane in range(self.lanes) for number in delivered_of(last.get(job.name(lane)), lane, self.lanes)
        ]
        assert job.found() == sorted(due), "records and marks are apart"


class ServedSinkContract(SinkContract):
    """The tests that a store behind a socket passes besides.

    Attributes:
        at_once: Number of messages whose faults are tried side by side, each in a job of its own: more than one if a
            case waits more than it works.
    """

    at_once = 1

    @abstractmethod
    def server(self) -> str:
        """Return the `host:port` of the store's server."""

    def proxy(self) -> LossyProxy:
        """Return a new proxy before the server; one of your own if answers name the server's address."""
        return LossyProxy(self.server())

    def test_a_connection_that_breaks_at_any_message_loses_and_doubles_nothing(self) -> None:
        """R13: before each message and after it, in a delivery and in what follows."""
        for fault in ("cut before", "cut after"):
            self._at_each_message(partial(self._break, fault))

    def _break(self, fault: Fault, at: int) -> bool:
        """Let a connection break at a message; False if there are not so many."""
        job = self._job()
        with self.proxy() as proxy:
            struck = self._strike(job, proxy, fault, at)
        self._each_lane_is_at_its_mark(job, 2)
        with job.life(3) as way:
            job.go_on(way, 12)
        assert job.found() == list(range(12)), (fault, at)
        return struck

    def test_a_message_that_comes_late_writes_nothing(self) -> None:
        """R19: the same life has connected again meanwhile, and delivered what was lost; then the next one."""
        for again in (1, 2):
            self._at_each_message(partial(self._hold, again))

    def _at_each_message(self, strike: Callable[[int], bool]) -> None:
        """Strike each message of a host once, until one has not so many."""
        with ThreadPoolExecutor(self.at_once, "case") as threads:
            for first in count(0, self.at_once):
                struck = list(threads.map(strike, range(first, first + self.at_once)))
                assert struck[0] or first, "nothing has gone through the proxy"
                if not all(struck):
                    return

    def _hold(self, again: int, at: int) -> bool:
        """Hold a message back, deliver again as a life of this number, and let it through."""
        job = self._job()
        with self.proxy() as proxy:
            struck = self._strike(job, proxy, "hold", at)
            if again == 1:
                with closing(job.way(life_of(1))) as way:
                    way.open()
                    job.go_on(way, 12, job.stored(1))
            else:
                with job.life(2) as way:
                    job.go_on(way, 12)
            if struck:
                proxy.release()
        assert job.found() == list(range(12)), (at, again)
        with job.life(3) as way:
            job.go_on(way, 15)
        assert job.found() == list(range(15)), (at, again)
        return struck

    def _strike(self, job: _Job, proxy: LossyProxy, fault: Fault, at: int) -> bool:
        """Deliver twelve records through a proxy, with a fault at a message; False if there are not so many."""
        job.claimed(1)
        behind = job.behind(self.settings(job.sink, proxy.address))
        with closing(behind.way(life_of(1))) as way:
            way.open()
            proxy.arm(fault, at)
            with suppress(LowtideError):
                for number in range(0, 12, 3):
                    behind.deliver(way, range(number, number + 3))
        return proxy.struck.is_set()


class _Job:
    """One job that writes one sink."""

    def __init__(self, sinks: JobSinks, sink: Direct, rows: Callable[[Direct], Iterable[Line]]) -> None:
        self.sinks, self.sink, self._rows = sinks, sink, rows
        self._encoder = encoder_of(sink)
        self._last: dict[int, bytes] = {}

    def behind(self, settings: Mapping[str, Any]) -> _Job:
        """Return the same job with its store behind a proxy."""
        return _Job(replace(self.sinks, settings=settings), self.sink, self._rows)

    def name(self, lane: int) -> LaneName:
        """Return the name of a lane, which is a strand of one worker."""
        return self.sinks.lane_names[lane]

    def _take(self, stored: Stored) -> None:
        """Go on where the store is."""
        own = {name: lane for lane, name in enumerate(self.sinks.lane_names)}
        self._last = {own[name]: last.packed() for name, last in stored.last.items() if name in own}

    def with_strands(self, count: int) -> _Job:
        """Return the same job with another number of workers."""
        return _Job(replace(self.sinks, strands=strands_of(count)), self.sink, self._rows)

    def home(self, incarnation: int) -> Any:
        return self.sink.home(self.sinks, life_of(incarnation))

    def way(self, life: Life) -> Way:
        return self.sink.way(self.sinks, life)

    def claimed(self, incarnation: int) -> Stored:
        """Open the store, claim it, and return what is durable."""
        with closing(self.home(incarnation)) as home:
            home.open(None)
            home.claim()
            stored: Stored = home.read()
        self._take(stored)
        return stored

    def stored(self, incarnation: int) -> Stored:
        """Return what is durable, without a claim."""
        with closing(self.home(incarnation)) as home:
            stored: Stored = home.read()
        return stored

    @contextmanager
    def life(self, incarnation: int) -> Iterator[Way]:
        """Claim, and yield the way of a host."""
        self.claimed(incarnation)
        with closing(self.way(life_of(incarnation))) as way:
            way.open()
            yield way

    def packet(self, lane: int, numbers: Sequence[int], floors: Sequence[Floor] = ()) -> Packet:
        """Return the lane's next packet."""
        before = self._last.get(lane, b"")
        last = key_of(numbers[-1]).packed() if numbers else before
        self._last[lane] = last
        rows = [Line(lane, number) for number in numbers]
        pieces = [Piece(1 + n, [key_of(n).packed()], [row]) for n, row in zip(numbers, rows, strict=True)]
        messages = self._encoder.encode(lane, pieces) if rows else []
        return Packet(0, lane, messages, Mark(self.name(lane), last, before, floors))

    def deliver(self, way: Way, numbers: Iterable[int], floors: Sequence[Floor] = ()) -> None:
        """Deliver records of all lanes, in one go; the first lane carries the floors."""
        lanes = self.sinks.lanes
        of_lane = {lane: [number for number in numbers if number % lanes == lane] for lane in range(lanes)}
        way.deliver([self.packet(lane, of_lane[lane], floors if lane == 0 else ()) for lane in of_lane])

    def go_on(self, way: Way, count: int, stored: Stored | None = None) -> None:
        """Deliver what is missing of so many records, by the marks as they were read."""
        if stored is not None:
            self._take(stored)
        for lane in range(self.sinks.lanes):
            before = self._last.get(lane)
            first = lane if before is None else OrderKey.of(before).sequence + self.sinks.lanes
            for number in range(first, count, self.sinks.lanes):
                way.deliver([self.packet(lane, [number])])

    def found(self) -> list[int]:
        """Return the numbers that readers find, sorted."""
        return sorted(row.number for row in self._rows(self.sink))


def life_of(incarnation: int) -> Life:
    """Return a life that is the newest."""
    return Life(incarnation, "test", LIMIT_S, _is_newest)


def _is_newest() -> None:
    pass


def key_of(number: int) -> OrderKey:
    """Return the order key of a record."""
    return OrderKey(1 + number, 0, number)


def strands_of(lanes: int) -> tuple[range, ...]:
    """Return the hash units of so many strands."""
    return tuple(range(lane * UNITS // lanes, (lane + 1) * UNITS // lanes) for lane in range(lanes))


def delivered_of(mark: OrderKey | None, lane: int, lanes: int) -> range:
    """Return the numbers that a lane has delivered, by its mark."""
    return range(0) if mark is None else range(lane, mark.sequence + 1, lanes)


def encoder_of(sink: Direct) -> Encoder:
    """Return the encoder that a job would have."""
    flow = Flow("contract")
    flow.read("lines", kafka("lines", json(Line))).key_by("number").write(OUT, sink)
    (vertex,) = compile_flow(flow, parallelism=1).sinks()
    return sink.encoder(vertex, 1)


def replace_mark(packet: Packet, covered: Sequence[Floor]) -> Packet:
    """Return a packet that takes floors back."""
    assert packet.mark is not None
    return replace(packet, mark=replace(packet.mark, covered=covered))


def refused(call: Callable[[], object]) -> None:
    """Check that a store refuses a life."""
    raised(LifeEnded, call)


def raised(kind: type[Exception], call: Callable[[], object]) -> None:
    """Check that a call raises."""
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _last_of(said: Connection) -> str:
    """Return why a host has ended, if it could say so."""
    try:
        return str(said.recv()) if said.poll() else "it said nothing"
    except EOFError:
        return "it said nothing"


def _deliver_in_child(
    sinks: JobSinks, incarnation: int, count: int, last: dict[LaneName, OrderKey], says: Connection
) -> None:
    """Deliver one record after another, until it is killed."""
    (sink,) = sinks.sinks.values()
    job = _Job(sinks, sink, lambda _: [])  # type: ignore[arg-type]
    try:
        with closing(job.way(life_of(incarnation))) as way:
            way.open()
            job.go_on(way, count, Stored(last))
    except BaseException as error:
        says.send("".join(traceback.format_exception(error)))
        if isinstance(error, LifeEnded):
            sys.exit(LIFE_OVER)
        raise
