"""The laws of stores that take puts, as tests to inherit: the newest of each key wins, whatever happens (R22)."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import pytest
from tests.waiting import HANGS_S, wait_until

from lowtide.errors import ServiceUnavailable
from lowtide.sinks.puts import carrier as carriers
from lowtide.sinks.puts.contract import PutStore
from lowtide.sinks.puts.endpoint import Puts, puts
from lowtide.sinks.puts.errors import PutRefused
from lowtide.sinks.staged.contract import Carriage, Carrier, StagedRow

LANES = 3
LINES = 2
"""Two of the lanes share one."""
KILLS = 5
CHUNK = 25
Log = dict[int, list[StagedRow]]


@dataclass(frozen=True)
class Doc:
    """What is put: `number` grows with each record of all keys."""

    id: str
    number: int
    gone: bool = False


def rows_of(docs: Sequence[Doc], first_offset: int = 0) -> list[StagedRow]:
    """Docs as a lane has them: offsets with gaps, as transactions' markers take some."""
    return [
        StagedRow(first_offset + 2 * place, doc.number, doc.id.encode(), msgspec.json.encode(doc))
        for place, doc in enumerate(docs)
    ]


def log_of(seed: int, count: int = 2_000, keys: int = 60) -> Log:
    """A log of all lanes, in which each key has many records, and one in eight deletes."""
    draw = random.Random(seed)
    docs = [Doc(f"é/{draw.randrange(keys)}", number, draw.random() < 0.125) for number in range(count)]
    lanes = [[doc for doc in docs if int(doc.id[2:]) % LANES == lane] for lane in range(LANES)]
    return {lane: rows_of(found, 7 * lane) for lane, found in enumerate(lanes)}


def newest(log: Log) -> dict[str, Any]:
    """The records that readers see in the end."""
    last: dict[str, Any] = {}
    for row in (row for rows in log.values() for row in rows):
        doc = msgspec.json.decode(row.value)
        last[doc["id"]] = None if doc.pop("gone") else doc
    return {key: doc for key, doc in last.items() if doc is not None}


@dataclass
class Ascending:
    """Readers' view of a store: a record never gives way to an older one, nor does a deletion.

    Attributes:
        least: By key the least number that they may see.
        seen: Keys that they have seen last.
    """

    least: dict[str, int] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @classmethod
    def after(cls, log: Log) -> Ascending:
        """The view of readers who have seen the end of a log."""
        docs = [msgspec.json.decode(row.value, type=Doc) for rows in log.values() for row in rows]
        return cls({doc.id: doc.number + doc.gone for doc in sorted(docs, key=lambda doc: doc.number)})

    def see(self, found: Mapping[str, Any]) -> None:
        for key in self.seen - found.keys():
            self.least[key] += 1
        for key, doc in found.items():
            assert doc["number"] >= self.least.get(key, 0), f"{key} went back to {doc}, from {self.least[key]}"
            self.least[key] = doc["number"]
        self.seen = set(found)


class PutsContract(ABC):
    """A store is given by a subclass, one server for each test or for all."""

    name: str

    @pytest.fixture(autouse=True)
    def _named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = f"docs-{uuid.uuid4().hex[:8]}"
        monkeypatch.setattr(carriers, "LINES", LINES)

    @abstractmethod
    def store(self) -> PutStore: ...

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What the store's `settings` returns, behind what can hold messages and cut connections."""

    @abstractmethod
    def read(self) -> dict[str, Any]:
        """By key what readers see."""

    @abstractmethod
    def hold_next(self) -> threading.Event:
        """Have the next message of a client that is connected lie somewhere; the event says that it does."""

    @abstractmethod
    def release(self) -> None:
        """Have it arrive."""

    @abstractmethod
    def cut_at_random(self, seed: int | None) -> None:
        """Cut connections from now on, before a message and after it; None: no more."""

    @property
    def sink(self) -> Puts:
        return puts(self.name, Doc, key="id", put=self.store(), deleted="gone")

    def carriage(self, generation: int = 0, limit_s: float = HANGS_S, lane_counts: tuple[int, ...] = ()) -> Carriage:
        settings = {**self.settings(), "limit_s": limit_s}
        lanes = lane_counts[-1] if lane_counts else LANES
        return Carriage("shop", "id-1", generation, "docs", lanes, 2, settings, lane_counts=lane_counts)

    @contextmanager
    def carrier(self, kept: Mapping[int, int] | None = None, **about: Any) -> Iterator[Carrier]:
        carrier = self.sink.carrier(self.carriage(**about))
        with closing(carrier):
            lanes = range(about.get("lane_counts", (LANES,))[-1])
            carrier.open(dict.fromkeys(lanes, 0) | dict(kept or {}))
            yield carrier

    def carried(self, log: Log, kept: Mapping[int, int] | None = None, **about: Any) -> dict[int, int]:
        """Carry all of a log from a position on, and return the position after it."""
        with self.carrier(kept, **about) as carrier:
            for lane in range(LANES):
                carrier.take(lane, [row for row in log.get(lane, []) if row.offset >= (kept or {}).get(lane, 0)])
                carrier.mark(lane, 10**6)
            self.settle(carrier)
            return {lane: each.needed for lane, each in carrier.progress().items()}

    def settle(self, carrier: Carrier, lanes: Sequence[int] = range(LANES)) -> None:
        """Wait until the mark at the end of each lane is visible."""

        def visible() -> bool:
            carrier.settle(time.monotonic())
            found = carrier.progress()
            return all(found[lane].visible_ms == 10**6 for lane in lanes)

        wait_until(visible, HANGS_S, "all is visible")

    def test_the_newest_of_each_key_is_there(self) -> None:
        log = log_of(1)
        position = self.carried(log)
        assert position == {lane: rows[-1].offset + 1 for lane, rows in log.items()}
        assert self.read() == newest(log) != {}

    def test_a_late_put_does_not_win_over_the_next_carriers(self) -> None:
        for last in (Doc("a", 3), Doc("a", 3, gone=True)):
            key = f"a{last.gone:d}"
            log = rows_of([Doc(key, number, last.gone and number == 3) for number in range(4)])
            with self.carrier() as zombie:
                zombie.take(0, log[:1])
                zombie.mark(0, 10**6)
                self.settle(zombie, [0])
                held = self.hold_next()
                zombie.take(0, log[1:2])
                assert held.wait(HANGS_S)
            self.carried({0: log, 1: []}, {0: 1, 1: 0})
            expected = self.read()
            assert expected.get(key) == (None if last.gone else {"id": key, "number": 3})
            self.release()
            assert self.read() == expected

    @pytest.fixture
    def _small_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some 40 records a batch: of few keys, a large one has only what counts in the end."""
        monkeypatch.setattr(carriers, "BATCH_BYTES", 1_500)

    @pytest.mark.usefixtures("_small_batches")
    def test_a_carrier_that_begins_at_an_older_position_takes_readers_back_to_nothing(self) -> None:
        log, draw = log_of(2), random.Random(2)
        self.carried(log)
        before = self.read()
        for _ in range(3):
            self.carried(log, {lane: draw.choice(rows).offset for lane, rows in log.items()})
            assert self.read() == before == newest(log)
        with self.looking(Ascending.after(log)):
            self.carried(log)

    @pytest.mark.usefixtures("_small_batches")
    def test_connections_that_are_cut_lose_nothing(self) -> None:
        log, view = log_of(3), Ascending()
        with self.carrier() as carrier, self.looking(view):
            self.cut_at_random(3)
            for lane, rows in log.items():
                for first in range(0, len(rows), CHUNK * 4):
                    carrier.take(lane, rows[first : first + CHUNK * 4])
                    carrier.settle(time.monotonic())
                    time.sleep(0.01)
                carrier.mark(lane, 10**6)
            self.cut_at_random(None)
            self.settle(carrier)
        assert self.read() == newest(log)

    @pytest.mark.usefixtures("_small_batches")
    def test_carriers_that_are_killed_lose_nothing_and_take_readers_back_to_nothing(self) -> None:
        log, draw, position = log_of(4, 6_000), random.Random(4), dict.fromkeys(range(LANES), 0)
        with self.looking(Ascending()):
            for _ in range(KILLS):
                here, there = multiprocessing.Pipe()
                child = multiprocessing.get_context("fork").Process(target=self._child, args=(there, log, position))
                child.start()
                there.close()
                time.sleep(0.05 + draw.random() * 0.4)
                assert child.pid is not None
                os.kill(child.pid, signal.SIGKILL)
                child.join()
                position = last_of(here, position)
            # As if the last report had been lost.
            self.carried(log, {lane: draw.randrange(needed + 1) for lane, needed in position.items()})
        assert any(needed for needed in position.values())
        assert self.read() == newest(log)

    def test_a_later_generation_wins_and_an_older_one_does_not(self) -> None:
        old, new = rows_of([Doc("a", number) for number in range(9)]), rows_of([Doc("a", 100)])
        self.carried({0: new, 1: []}, generation=1)
        self.carried({0: old, 1: []}, generation=0)
        assert self.read() == {"a": {"id": "a", "number": 100}}

    def test_what_a_key_has_in_a_lane_that_is_made_later_wins(self) -> None:
        """Offsets begin again there; and what the lane before still has of the key comes too late."""
        old, new = rows_of([Doc("a", number) for number in range(9)], 100), rows_of([Doc("a", 100), Doc("a", 101)])
        self.carried({0: old[:5], 1: []})
        self.carried({0: [], 1: [], 2: new, 3: []}, lane_counts=(2, 4))
        assert self.read() == {"a": {"id": "a", "number": 101}}
        self.carried({0: old, 1: [], 2: [], 3: []}, lane_counts=(2, 4))
        assert self.read() == {"a": {"id": "a", "number": 101}}
        # In one line, and perhaps in one batch.
        new = rows_of([Doc("a", number) for number in range(102, 110)], 10)
        self.carried({carriers.LINES: new, 0: old, 1: []}, lane_counts=(2, 4 * carriers.LINES))
        assert self.read() == {"a": {"id": "a", "number": 109}}

    def test_a_mark_is_visible_only_after_the_rows_before_it(self) -> None:
        with self.carrier() as carrier:
            carrier.mark(1, 40)
            wait_until(lambda: carrier.progress()[1].visible_ms == 40, HANGS_S, "a silent lane is visible")
            carrier.take(0, rows_of([Doc("a", 1)]))
            carrier.mark(0, 10**6)
            self.settle(carrier, [0])
            held = self.hold_next()
            carrier.take(0, rows_of([Doc("a", 2)], 100))
            carrier.mark(0, 10**6 + 1)
            assert held.wait(HANGS_S)
            progress = carrier.progress()[0]
            assert (progress.needed, progress.visible_ms) in {(1, 10**6), (101, 10**6 + 1)}
            wait_until(lambda: carrier.progress()[0].visible_ms == 10**6 + 1, HANGS_S, "it is put again")
            assert self.read()["a"]["number"] == 2
        self.release()

    def test_a_store_that_is_away_for_too_long_is_named(self) -> None:
        self.away()
        with self.carrier(limit_s=0.5) as carrier:
            carrier.take(0, rows_of([Doc("a", 1)]))
            with pytest.raises(ServiceUnavailable, match=r"has not taken what was put within 0\.5 s"):
                wait_until(lambda: carrier.settle(time.monotonic()), HANGS_S, "it is away")

    @abstractmethod
    def away(self) -> None:
        """Have the server be away until the test's end."""

    def refused(self, docs: Sequence[Doc]) -> PutRefused:
        """Return the error for a log of one lane."""
        with self.carrier() as carrier:
            carrier.take(0, rows_of(docs))
            with pytest.raises(PutRefused) as caught:
                wait_until(lambda: carrier.settle(time.monotonic()), HANGS_S, "a put is refused")
        return caught.value

    @contextmanager
    def looking(self, view: Ascending) -> Iterator[None]:
        """Look at the store again and again meanwhile."""
        done, faults = threading.Event(), list[BaseException]()

        def look() -> None:
            try:
                while not done.wait(0.005):
                    view.see(self.read())
            except BaseException as error:  # noqa: BLE001 - the test raises it
                faults.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        assert not faults, faults[0]

    def _child(self, report: Connection, log: Log, position: Mapping[int, int]) -> None:
        carrier = self.sink.carrier(self.carriage())
        carrier.open(position)
        for first in range(0, max(map(len, log.values())), CHUNK):
            for lane, rows in log.items():
                carrier.take(lane, [row for row in rows[first : first + CHUNK] if row.offset >= position[lane]])
            carrier.settle(time.monotonic())
            report.send({lane: each.needed for lane, each in carrier.progress().items()})
            time.sleep(0.001)
        time.sleep(HANGS_S)


def last_of(reports: Connection, position: dict[int, int]) -> dict[int, int]:
    """The last position that a process has reported."""
    try:
        while True:
            position = reports.recv()
    except (EOFError, OSError):
        return position
