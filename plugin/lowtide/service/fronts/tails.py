"""Watches the tails of the source partitions, from which idle heartbeats are granted (R2, R3).

One thread, and two Kafka clients: one asks for last stable offsets, the other is a reader that is pointed at what an
owner expects next if a topic is written in transactions. `tail_state` decides what is due and what may be granted.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lowtide.service.fronts.broker_clock import ClockEstimate
from lowtide.service.fronts.tail_reader import ASK_WITHIN_S, TailReader, Unanswered
from lowtide.service.fronts.tail_state import Grant, Tail, TailState
from lowtide_snapshots.cause import Cause

__all__ = ["Grant", "Tail", "TailHooks", "Tails"]

ACTIVE_S = 0.003
"""Seconds between two looks at a quiet partition while something waits for min time."""

PARTITIONS_EVERY_S = 2.0
IDS_EVERY_S = 10.0
OPEN_EVERY_S = 5.0
AFTER_A_FAULT_S = 1.0
ASK_AGAIN_WITHIN_S = 0.1
"""The time for which a broker that did not answer last time may hold up others."""
GONE_AFTER = 2
"""The number of answers in a row that say a topic is gone: a broker that has just come back may not know it yet."""
REPORT_AFTER = 5
REPORT_GONE_AFTER = 9
"""The number of looks in a row without an answer: five take at least 0.3 s, as leaders move and brokers start; nine
take 4 s."""
CLOSE_WITHIN_S = 3.0

log = logging.getLogger(__name__)

LOST_WAY_OUT = (
    "start the job again: it reports which records are missing; if the topic's leader was elected unclean, or the "
    "topic was recreated, use a new job name; otherwise raise its retention above the time that the job may lag"
)
GONE_WAY_OUT = "a job cannot run without its source; if the topic was recreated, start a job under a new name"


@dataclass(frozen=True, slots=True)
class TailHooks:
    """The calls of `Tails` to its fronts; all run in its thread and should return at once.

    Attributes:
        on_grants: Called with what a look grants.
        on_error: Called once per episode with the fault, its place and what to do.
        on_back: Called when all partitions of a reported episode have answered again.
        on_lost: Called with what a source has lost, so that the life cannot go on.
        on_partitions: Called with (topic, partition) once for each that is not watched.
    """

    on_grants: Callable[[list[Grant]], None]
    on_error: Callable[[Cause], None]
    on_back: Callable[[], None]
    on_lost: Callable[[Cause], None]
    on_partitions: Callable[[list[tuple[str, int]]], None]


class Tails:
    """Looks at tails, in a thread; all methods may be called from any thread.

    While something waits for min time (`active`), it looks at quiet partitions every `ACTIVE_S`, at those with many
    records every 25 ms; otherwise at all every `idle_ms`. It asks for all due partitions in one request per broker.

    Args:
        settings: librdkafka's, of the way in.
        hooks: The calls to the fronts.
        skew_ms: The largest lag of a record's timestamp behind the broker's clock when it comes.
        topics: The sources whose new partitions are reported, with the cluster's permanent id of each; None for any.
        clock: The broker's; the caller starts and closes it. Without one, this machine's is used.
        promises: By topic that another job of the graph writes, the time before which all of it is in the log, None
            while unknown; asked in the thread before each look.
        idle_ms: See above.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        hooks: TailHooks,
        *,
        skew_ms: int,
        topics: Mapping[str, str | None],
        clock: ClockEstimate | None = None,
        promises: Callable[[], Mapping[str, int | None]] = dict,
        idle_ms: int = 100,
    ) -> None:
        self._settings = dict(settings)
        self._hooks = hooks
        self._topics = dict(topics)
        self._ids_s = 0.0
        self._clock = clock if clock is not None else ClockEstimate()
        self._promises = promises
        self._skew_ms = skew_ms
        self._state = TailState(skew_ms=skew_ms, active_s=ACTIVE_S, idle_s=idle_ms / 1000)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._known: set[tuple[str, int]] = set()
        self._leaders: dict[tuple[str, int], int] = {}
        self._partitions_s = 0.0
        self._reported: dict[int, str] = {}
        """By front that is reported as unanswered, why."""
        self._open_s = 0.0
        self._gone: dict[str, int] = {}
        self._thread = threading.Thread(target=self._run, name="lowtide-tails", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking; returns when the thread has ended, or after 3 s."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_WITHIN_S)

    def watch(self, tail: Tail) -> None:
        """Watch this tail from now on; a front that is already watched starts over."""
        with self._lock:
            self._state.watch(tail)
            self._known.add((tail.topic, tail.partition))
        self._wake.set()

    def at(self, front: int, offset: int) -> None:
        """Take the next offset that a front's owner expects, as reported; it need not report each record."""
        with self._lock:
            self._state.at(front, offset, time.monotonic())

    def skipped(self, front: int, offset: int) -> int:
        """Do as `TailState.skipped`."""
        with self._lock:
            return self._state.skipped(front, offset)

    def unread(self) -> dict[int, tuple[int, float]]:
        """Do as `TailState.unread`."""
        with self._lock:
            return self._state.unread(time.monotonic())

    def active(self, past_ms: int | None = None) -> None:
        """Look often until `calm` is called, for half a second at most: something waits for min time.

        Args:
            past_ms: The time that grants have to reach for what waits, so that the first look is made when they do;
                None for a first look at once.
        """
        useful_in_s = -math.inf if past_ms is None else self._clock.shows_in_s(past_ms + self._skew_ms)
        with self._lock:
            now_s = time.monotonic()
            sooner = self._state.active(now_s, now_s + useful_in_s)
        if sooner:
            self._wake.set()

    def calm(self) -> None:
        """Note that nothing waits for min time any more."""
        with self._lock:
            self._state.calm()

    def unanswered(self) -> dict[int, str]:
        """Return by front why Kafka does not report its partition's end; only those that are reported."""
        with self._lock:
            return dict(self._reported)

    def open_transactions(self) -> dict[int, tuple[int, float]]:
        """Return what `TailState.open_transactions` does."""
        with self._lock:
            return self._state.open_transactions(time.monotonic())

    def now_ms(self) -> int:
        """Return the broker's estimated time; it never falls."""
        return self._clock.now_ms()

    def _run(self) -> None:
        reader: TailReader | None = None
        faulty = False
        while not self._closing:
            try:
                if reader is None:
                    reader = TailReader(self._settings)
                self._round(reader)
                faulty = False
            # A fault of a callback, or ours, must not end the heartbeats.
            except Exception as error:
                log.exception("could not look at the sources' tails")
                if not faulty:
                    self._report(f"could not look at the sources' tails: {error!r}", "see the driver's log")
                faulty = True
                self._sleep(AFTER_A_FAULT_S)
        if reader is not None:
            reader.close()

    def _round(self, reader: TailReader) -> None:
        """Do what is due now; then sleep until something is."""
        now_s = time.monotonic()
        if now_s >= self._partitions_s:
            self._partitions_s = now_s + PARTITIONS_EVERY_S
            self._discover(reader)
        with self._lock:
            due = self._state.due(time.monotonic()) if self._clock.known else []
        for group, within_s in self._groups(due):
            self._look(reader, group, within_s)
        with self._lock:
            now_s = time.monotonic()
            wait_s = self._state.wait_s(now_s) if self._clock.known else PARTITIONS_EVERY_S / 100
        self._sleep(min(wait_s, max(0.0, self._partitions_s - now_s)))

    def _sleep(self, wait_s: float) -> None:
        if self._closing:
            return
        self._wake.wait(wait_s)
        self._wake.clear()

    def _groups(self, due: list[Tail]) -> Iterator[tuple[list[Tail], float]]:
        """Yield the tails to ask for together, with time limits: one without an answer must not hold up the others."""
        with self._lock:
            failing = self._state.failing(due)
            all_failing = self._state.all_failing()
        fronts = {tail.front for tail in failing}
        groups: dict[int, list[Tail]] = {}
        for tail in failing:
            groups.setdefault(self._leaders.get((tail.topic, tail.partition), -1), []).append(tail)
        if sound := [tail for tail in due if tail.front not in fronts]:
            yield sound, ASK_WITHIN_S
        for group in groups.values():
            yield group, ASK_WITHIN_S if all_failing else ASK_AGAIN_WITHIN_S

    def _look(self, reader: TailReader, group: list[Tail], within_s: float) -> None:
        """Ask for the ends of these tails, and grant what they allow."""
        now_s, before_ms, promises = time.monotonic(), self._clock.at_least_ms(), self._promises()
        self._take_promises(reader, group, promises, within_s)
        answers = reader.last_stable_offsets(group, within_s)
        grants: list[Grant] = []
        unanswered: list[tuple[Tail, Unanswered]] = []
        with self._lock:
            episode = bool(self._reported)
            for tail, answer in zip(group, answers, strict=True):
                if isinstance(answer, Unanswered):
                    failures = self._state.failed(tail.front, time.monotonic())
                    if tail.front not in self._reported and self._worth_reporting(tail, answer, failures):
                        self._reported[tail.front] = answer.reason
                        unanswered.append((tail, answer))
                else:
                    self._reported.pop(tail.front, None)
                    by_job = tail.topic in promises
                    grants.append(
                        self._state.looked(tail.front, answer, before_ms=before_ms, now_s=now_s, written_by_job=by_job)
                    )
            over = episode and not self._reported
            probes = self._state.probes((grant.front for grant in grants), now_s)
        if grants:
            self._hooks.on_grants(grants)
        if over:
            self._hooks.on_back()
        if unanswered:
            self._report_unanswered(unanswered)
        if probes:
            self._probe(reader, probes)

    def _take_promises(
        self, reader: TailReader, group: list[Tail], promises: Mapping[str, int | None], within_s: float
    ) -> None:
        """Ask for the ends of partitions whose writing jobs have promised something; without an answer they wait."""
        made = [(tail, ms) for tail in group if (ms := promises.get(tail.topic)) is not None]
        with self._lock:
            for tail in group:
                if tail.topic in promises:
                    self._state.withdrawn(tail.front, promises[tail.topic])
            promised = [(tail, ms) for tail, ms in made if self._state.awaits(tail.front, ms)]
        if not promised:
            return
        ends = reader.high_watermarks([tail for tail, _ in promised], within_s)
        with self._lock:
            for (tail, ms), end in zip(promised, ends, strict=True):
                if not isinstance(end, Unanswered):
                    self._state.promised(tail.front, ms, end)

    def _worth_reporting(self, tail: Tail, answer: Unanswered, failures: int) -> bool:
        """Return whether a failure lasts, and is not for `_discover` to report.

        librdkafka reports a topic as gone also if it has lost all brokers. While brokers forget a topic, they may also
        answer that it has no leader.
        """
        if self._gone.get(tail.topic, 0) >= GONE_AFTER:
            return False
        if answer.gone:
            return failures >= REPORT_GONE_AFTER and not self._gone.get(tail.topic)
        return failures >= REPORT_AFTER

    def _probe(self, reader: TailReader, probes: list[Tail]) -> None:
        """Point a reader at what the owners expect next; its findings count from the next look on."""
        ends = reader.ends(probes)
        with self._lock:
            for tail, end in zip(probes, ends, strict=True):
                self._state.probed(tail.front, tail.offset, end, time.monotonic())

    def _discover(self, reader: TailReader) -> None:
        """Report partitions that are not watched, and topics that are gone."""
        new: list[tuple[str, int]] = []
        for topic in self._topics:
            leaders = reader.leaders(topic)
            if isinstance(leaders, Unanswered):
                # The looks report that no broker answers.
                self._gone[topic] = self._gone.get(topic, 0) + leaders.gone
                if leaders.gone and self._gone[topic] == GONE_AFTER:
                    self._report(f'the source topic "{topic}" is gone: {leaders.reason}', GONE_WAY_OUT)
                continue
            self._gone[topic] = 0
            for partition, leader in leaders.items():
                self._leaders[topic, partition] = leader
            with self._lock:
                new += [(topic, partition) for partition in sorted(leaders) if (topic, partition) not in self._known]
        self._look_for_loss(reader)
        self._look_for_open(reader)
        if new:
            self._hooks.on_partitions(new)
            with self._lock:
                self._known.update(new)

    def _look_for_loss(self, reader: TailReader) -> None:
        """Report logs that lack what is expected of them: going on would skip records silently."""
        now_s = time.monotonic()
        with self._lock:
            lost = self._state.lost(now_s)
        for tail, end in lost:
            lacks = "records already read are gone" if end < tail.offset else "records were deleted unread"
            self._report(
                f'partition {tail.partition} of the source topic "{tail.topic}" ends at offset {end} and lacks '
                f"offset {tail.offset}, which is expected next: {lacks}",
                LOST_WAY_OUT,
                self._hooks.on_lost,
            )
        if now_s < self._ids_s:
            return
        self._ids_s = now_s + IDS_EVERY_S
        for topic, known in self._topics.items():
            found = None if known is None else reader.topic_id(topic)
            if found not in (None, known):
                self._topics[topic] = None
                self._report(
                    f'the source topic "{topic}" was deleted and recreated: its id is {found}, not {known}',
                    GONE_WAY_OUT,
                    self._hooks.on_lost,
                )

    def _look_for_open(self, reader: TailReader) -> None:
        """Ask quiet partitions for their ends: a transaction of their writer may hold back what lies behind it."""
        now_s = time.monotonic()
        if now_s < self._open_s:
            return
        self._open_s = now_s + OPEN_EVERY_S
        with self._lock:
            quiet = self._state.quiet(now_s)
        if not quiet:
            return
        ends = reader.high_watermarks(quiet, ASK_WITHIN_S)
        with self._lock:
            for tail, end in zip(quiet, ends, strict=True):
                if not isinstance(end, Unanswered):
                    self._state.ended(tail.front, end)

    def _report_unanswered(self, unanswered: list[tuple[Tail, Unanswered]]) -> None:
        names = ", ".join(f"{tail.topic}-{tail.partition}" for tail, _ in unanswered[:8])
        more = f" and {len(unanswered) - 8} more" if len(unanswered) > 8 else ""
        reasons = ", ".join(dict.fromkeys(answer.reason for _, answer in unanswered))
        self._report(
            f"no idle heartbeats for {names}{more}: Kafka does not report their end offsets ({reasons})",
            "check that their brokers run and that the partitions have leaders; it retries at least every second",
        )

    def _report(self, what: str, way_out: str, on_fault: Callable[[Cause], None] | None = None) -> None:
        where = f"Kafka at {self._settings.get('bootstrap.servers')}"
        (on_fault or self._hooks.on_error)(Cause("loss", what, where, way_out))
