"""Carries records from a staged log into a store that takes puts: by a few lines, each a client and a thread.

A line takes several lanes. Its batches follow each other, and a key stays in its lane, so a key's puts are never on the
way twice. What a key that a growth has moved had before is put before its new lane is read (`sinks/staged/ages.py`).
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from threading import Condition, Thread
from typing import Any

import msgspec

from lowtide.errors import LowtideError, ServiceUnavailable
from lowtide.sinks.puts.contract import Put, PutClient, PutStore, Refused, Unavailable, version_of
from lowtide.sinks.puts.errors import PutRefused
from lowtide.sinks.staged.contract import Carriage, Progress, StagedRow

LINES = 4
"""Lines of a sink, or one for each worker of a level if these are more: connections and threads do not grow with lanes.

One line already has Redis busy; a service that is asked by HTTP answers as many requests at once as there are lines.
"""
BATCH_PUTS = 1_000
BATCH_BYTES = 4 << 20
AHEAD_ROWS = 20_000
"""Rows of a line that wait; then `take` waits, too."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
CLOSE_S = 1.0

Values = Callable[[bytes], bytes | None]


class PutsCarrier:
    """Puts the records of a sink by key, those of one key in their order.

    It keeps no position: after a failure the next carrier begins at the last one that was reported, and what it puts
    again has the same version.

    Args:
        carriage: The sink.
        name: What the flow calls the records.
        store: Where they go.
        deleted: The name in JSON of the field that deletes; None for none.
    """

    from_marks = True
    """See `lowtide.sinks.staged.contract.FromMarks`."""

    def __init__(self, carriage: Carriage, name: str, store: PutStore | PutClient, deleted: str | None) -> None:
        self._carriage, self._name, self._store = carriage, name, store
        self._values = (lambda value: value) if deleted is None else _deleting(deleted)
        self._lines: list[_Line] = []
        self._line_of: dict[int, _Line] = {}
        """By lane its line."""

    def open(self, kept: Mapping[int, int]) -> Mapping[int, int]:
        """Begin at the offsets that were reported; the store is asked with the first put."""
        lines = min(len(kept), max(LINES, self._carriage.workers or 0))
        for number in range(lines):
            own = {lane: Progress(kept[lane]) for lane in sorted(kept)[number::lines]}
            where = f'sink "{self._carriage.sink}", {self._name} in {self._store}'
            client = client_of(self._store, self._name, self._carriage)
            line = _Line(client, own, where, self._carriage.settings["limit_s"])
            self._lines.append(line)
            self._line_of.update(dict.fromkeys(own, line))
        return kept

    def take(self, lane: int, rows: Sequence[StagedRow]) -> None:
        """Have a lane's rows put; it waits while many wait (errors: as `settle`)."""
        generation, births, values = self._carriage.generation, self._carriage.births_of(lane), self._values
        puts = []
        for row in rows:
            assert row.key is not None, "the key of a put is never None"
            puts.append(Put(row.key.decode(), values(row.value), version_of(generation, row.offset, births)))
        if puts:
            self._line_of[lane].add(lane, puts)

    def mark(self, lane: int, time_ms: int) -> None:
        """Note that everything below this log time is visible once the rows before it are put."""
        self._line_of[lane].add(lane, time_ms)

    def settle(self, now_s: float) -> None:
        """Look whether all went well, as lines put by themselves; with an infinite time, wait until all is put.

        Raises:
            PutRefused: the store will never take a record.
            ServiceUnavailable: it has not taken one within the limit, or refuses the login.
        """
        for line in self._lines:
            if now_s == math.inf:
                line.drain()
            line.check()

    def progress(self) -> Mapping[int, Progress]:
        """Return by lane the offset after the last row that the store has acknowledged with all before it."""
        return {lane: progress for line in self._lines for lane, progress in line.progress.items()}

    def counts(self) -> Mapping[str, int]:
        """Return its puts: taken, refused as older than what the store has, and given again."""
        found: Counter[str] = Counter()
        for line in self._lines:
            found.update(line.counts)
        return dict(found)

    def close(self) -> None:
        """End the lines. A put that is under way may still arrive: its version keeps it from doing harm."""
        for line in self._lines:
            line.stop()
        for line in self._lines:
            line.join(CLOSE_S)


def client_of(store: PutStore | PutClient, name: str, carriage: Carriage) -> PutClient:
    """Return a line's client of a store, or its copy of one that is a client itself."""
    return store.client(name, carriage) if isinstance(store, PutStore) else deepcopy(store)


class _Line:
    """Some lanes: what of them waits, in order, and how far the store is with each.

    Attributes:
        progress: By lane how far it is: another dict after each batch, so that any thread may look at it.
        counts: Puts that the store has taken, refused as older than what it has, or had to be given again.
    """

    def __init__(self, client: PutClient, lanes: Mapping[int, Progress], where: str, limit_s: float) -> None:
        self.progress = dict(lanes)
        self.counts = dict.fromkeys(("puts taken", "puts older", "puts again"), 0)
        self._client, self._where, self._limit_s = client, where, limit_s
        #: Puts of a lane in order, or the log time of its mark.
        self._waiting: deque[tuple[int, deque[Put] | int]] = deque()
        self._ahead = 0
        self._changed = Condition()
        self._stopped = self._busy = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="puts", daemon=True)
        self._thread.start()

    def add(self, lane: int, given: Sequence[Put] | int) -> None:
        """Add what comes next of a lane, puts or a mark, once there is room (errors: those of the store)."""
        with self._changed:
            self._changed.wait_for(lambda: self._ahead < AHEAD_ROWS or self._error is not None)
            self.check()
            self._waiting.append((lane, given if isinstance(given, int) else deque(given)))
            self._ahead += 1 if isinstance(given, int) else len(given)
            self._changed.notify_all()

    def drain(self) -> None:
        """Wait until nothing waits and nothing is on its way, or the line has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or (not self._waiting and not self._busy))

    def check(self) -> None:
        """Raise what ended the line, if anything has."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Have the line end."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for its end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while self._wait(lambda: bool(self._waiting)):
                puts, reached = self._cut()
                if not puts or self._done(puts):
                    with self._changed:
                        self.progress, self._busy = {**self.progress, **reached}, False
                        self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - the carrier's thread raises it
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            close: Any = getattr(self._client, "close", None)
            if close is not None:
                with suppress(Exception):
                    close()

    def _wait(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until something is so, or time is up; False if the line is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or ready(), timeout_s)
            return not self._stopped

    def _cut(self) -> tuple[list[Put], dict[int, Progress]]:
        """Return the next puts, the last one of each key, and by lane how far it is once they are done."""
        puts: dict[str, Put] = {}
        size, needed, marks = 0, dict[int, int](), dict[int, int]()
        with self._changed:
            while self._waiting:
                lane, given = self._waiting[0]
                if isinstance(given, int):
                    marks[lane] = given
                    self._ahead -= 1
                else:
                    before, last = len(given), None
                    while given and size < BATCH_BYTES and (len(puts) < BATCH_PUTS or given[0].key in puts):
                        last = given.popleft()
                        puts[last.key] = last
                        size += len(last.value or b"")
                    self._ahead -= before - len(given)
                    if last is not None:
                        needed[lane] = last.offset + 1
                    if given:
                        break
                self._waiting.popleft()
            self._busy = True
        was = self.progress
        return list(puts.values()), {
            lane: Progress(needed.get(lane, was[lane].needed), marks.get(lane, was[lane].visible_ms))
            for lane in needed.keys() | marks.keys()
        }

    def _done(self, puts: Sequence[Put]) -> bool:
        """Put, again and again while that may help; False if the line is to end before."""
        deadline, pause_s = time.monotonic() + self._limit_s, FIRST_PAUSE_S
        while True:
            before = self._older()
            try:
                self._client.put(puts)
            except (Unavailable, OSError) as error:
                if time.monotonic() + pause_s > deadline:
                    raise self._unavailable(error) from error
            except Refused as error:
                raise self._refused(puts, error) from error
            except LowtideError:
                raise
            except Exception as error:
                raise self._failed(puts, error) from error
            else:
                older = self._older() - before
                self.counts["puts older"] += older
                self.counts["puts taken"] += len(puts) - older
                return True
            self.counts["puts again"] += len(puts)
            if not self._wait(lambda: False, pause_s):
                return False
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _older(self) -> int:
        """Return how many puts the store has refused as older, if the client counts them."""
        return getattr(self._client, "older", 0)

    def _unavailable(self, error: Exception) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"the store has not taken what was put within {self._limit_s:g} s: {error or type(error).__name__}",
            where=self._where,
            way_out="check that it runs and has room; records stay in the staged log until it takes them",
        )

    def _refused(self, puts: Sequence[Put], error: Refused) -> PutRefused:
        offset = next((put.offset for put in puts if put.key == error.key), puts[0].offset)
        return PutRefused(
            f"the store refuses key {error.key!r}, offset {offset} of the staged log: {error}",
            where=self._where,
            way_out="change what the store demands, such as its mapping; then the sink continues by itself",
        )

    def _failed(self, puts: Sequence[Put], error: Exception) -> PutRefused:
        last = max(put.offset for put in puts)
        return PutRefused(
            f"put raised {type(error).__name__}: {error}, for {len(puts)} keys up to offset {last} of the staged log",
            where=self._where,
            way_out="correct the store's class: put raises Unavailable or OSError for what may succeed later",
        )


def _deleting(deleted: str) -> Values:
    """Return what makes the value of a record: None if the field is true, else the record without the field."""
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    encode = msgspec.json.Encoder().encode

    def value_of(text: bytes) -> bytes | None:
        fields = decode(text)
        return None if bytes(fields.pop(deleted)) == b"true" else encode(fields)

    return value_of
