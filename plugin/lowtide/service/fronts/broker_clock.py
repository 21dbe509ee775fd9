"""The broker's time, which it tells in one way only: by the timestamps of a topic that the broker stamps itself."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lowtide.errors import ServiceUnavailable
from lowtide_snapshots.cause import Cause

__all__ = ["BrokerClock", "ClockEstimate", "clock_topic"]

EVERY_S = 30.0
FIRST_SAMPLES = 5
LATER_SAMPLES = 2
KEPT_SAMPLES = 8
DRIFT = 200e-6
"""By how much two clocks that are kept may come apart, in seconds per second."""
JUMP_MS = 250
"""By how much a broker's clock may be ahead of what was known of it and is followed: another broker may lead."""
FIRST_AHEAD_MS = 60_000
"""By how much it may be ahead of this machine's clock at the first stamp."""
SLEW = 0.01
"""By how much faster than our monotonic clock a jump beyond that is followed, in seconds per second."""
ANSWER_WITHIN_S = 2.0
GIVE_UP_AFTER_S = 10.0
"""With no measurement so long after the start, this machine's clock has to do."""
MAX_BACK_OFF_S = 5.0
LOG_APPEND_TIME = 2
TOPIC_CONFIG = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.ms": "600000",
    "segment.ms": "600000",
    "segment.bytes": "1048576",
}


def clock_topic(job: str) -> str:
    """Return the topic that a job keeps for the broker's stamps."""
    return f"lowtide.{job}.clock"


@dataclass(frozen=True, slots=True)
class _Sample:
    """One stamp: at `at_s`, the broker's clock was ahead of ours by `low_ms` to `high_ms`."""

    at_s: float
    low_ms: float
    high_ms: float

    def widened(self, now_s: float) -> _Sample:
        """What it says at a later time."""
        drift_ms = max(0.0, now_s - self.at_s) * DRIFT * 1000
        return _Sample(self.at_s, self.low_ms - drift_ms, self.high_ms + drift_ms)


class ClockEstimate:
    """How far a broker's clock is ahead of this machine's, from stamps; until there is one, not at all.

    Each stamp bounds it from both sides, so there are no outliers to be filtered: the narrowest counts. One that the
    newest contradicts is from before a clock was set, and is forgotten. "Ours" is the machine's clock at the start,
    carried on by its monotonic one, so that setting ours changes nothing.

    A floor that is granted too high stands for ever (R2), and one stamp of a clock that is set wrong is enough for it.
    So what is told goes with the broker's clock only below a ceiling, which is `JUMP_MS` above what was measured, and
    moves by `SLEW` with our monotonic clock whatever stamps say, unless they agree with this machine's own clock. To be
    too low is safe: idle partitions are behind.

    Args:
        known: Whether to rely on it before the first stamp.
    """

    def __init__(self, *, known: bool = True) -> None:
        self._lock = threading.Lock()
        self._started_ms = time.time() * 1000 - time.monotonic() * 1000
        self._samples: deque[_Sample] = deque(maxlen=KEPT_SAMPLES)
        self._highest_ms = 0
        self._known = known
        # (when it was set, the largest offset that is believed); None before the first stamp.
        self._ceiling: tuple[float, float] | None = None
        # The ceiling when a stamp agreed with it the last time.
        self._agreed_ms = 0.0
        self._stamps = 0
        self._jump_ms = 0.0

    @property
    def known(self) -> bool:
        """Whether it has been measured, or will not be."""
        return self._known

    @property
    def offset_ms(self) -> float:
        """The broker's clock minus ours."""
        low_ms, high_ms = self._bounds(time.monotonic())
        return (low_ms + high_ms) / 2

    @property
    def within_ms(self) -> float:
        """How far `offset_ms` may be off."""
        low_ms, high_ms = self._bounds(time.monotonic())
        return (high_ms - low_ms) / 2

    @property
    def jump_ms(self) -> int:
        """By how much the newest stamp was beyond what is believed; negative: behind it; 0 while they agree."""
        return round(self._jump_ms)

    def now_ms(self) -> int:
        """The broker's time, estimated; it never falls."""
        now_s = time.monotonic()
        low_ms, high_ms = self._bounds(now_s)
        estimate = int(self._started_ms + now_s * 1000 + self._believed((low_ms + high_ms) / 2))
        with self._lock:
            self._highest_ms = max(self._highest_ms, estimate)
            return self._highest_ms

    def at_least_ms(self) -> int:
        """A time that the broker's clock shows already, or did: never ahead of it, as far as the stamps tell."""
        now_s = time.monotonic()
        return int((self._started_ms + now_s * 1000 + self._believed(self._bounds(now_s)[0])) // 1)

    def stamped(self, before_s: float, stamp_ms: int, after_s: float) -> None:
        """Take a stamp that the broker made between two times of `time.monotonic`."""
        low_ms = stamp_ms - (self._started_ms + after_s * 1000)
        # The stamp has lost the fraction of its millisecond.
        high_ms = stamp_ms + 1 - (self._started_ms + before_s * 1000)
        with self._lock:
            told = [sample.widened(after_s) for sample in self._samples]
            agreeing = [
                sample
                for sample, now in zip(self._samples, told, strict=True)
                if now.low_ms <= high_ms and low_ms <= now.high_ms
            ]
            self._samples = deque([*agreeing, _Sample(after_s, low_ms, high_ms)], KEPT_SAMPLES)
            self._follow(low_ms, high_ms, after_s)
        self._known = True

    def give_up(self) -> None:
        """Go by this machine's clock until there is a stamp."""
        self._known = True

    def _follow(self, low_ms: float, high_ms: float, now_s: float) -> None:
        """Move the ceiling towards what a stamp says, no faster than it may go."""
        wanted_ms = high_ms + JUMP_MS
        if self._ceiling is None:
            ceiling_ms = self._agreed_ms = min(wanted_ms, FIRST_AHEAD_MS)
        else:
            set_s, ceiling_ms = self._ceiling
            if low_ms <= self._agreed_ms <= high_ms + 2 * JUMP_MS:
                ceiling_ms = self._agreed_ms  # A clock that was wrong for a time is back.
            step_ms = max(0.0, now_s - set_s) * SLEW * 1000
            # The first stamps may have been slow: until they have all come, less is believed at once.
            down_ms = math.inf if self._stamps < FIRST_SAMPLES else step_ms
            # A life may begin while the broker's clock is behind: what ours says too needs no time to be believed.
            up_ms = math.inf if low_ms <= JUMP_MS and high_ms >= -JUMP_MS else step_ms
            ceiling_ms += max(-down_ms, min(up_ms, wanted_ms - ceiling_ms))
        self._ceiling = (now_s, ceiling_ms)
        self._stamps += 1
        ahead_ms, behind_ms = low_ms - ceiling_ms, high_ms - (ceiling_ms - 2 * JUMP_MS)
        self._jump_ms = ahead_ms if ahead_ms > 0 else min(0.0, behind_ms)
        if not self._jump_ms:
            self._agreed_ms = ceiling_ms

    def _believed(self, offset_ms: float) -> float:
        return offset_ms if self._ceiling is None else min(offset_ms, self._ceiling[1])

    def _bounds(self, now_s: float) -> tuple[float, float]:
        with self._lock:
            told = [sample.widened(now_s) for sample in self._samples]
        best = min(told, key=lambda sample: sample.high_ms - sample.low_ms, default=_Sample(0, 0, 0))
        return best.low_ms, best.high_ms


class BrokerClock(ClockEstimate):
    """Measures by a topic of the job's own, in a thread: some records at the start, then two every 30 s.

    Where it cannot be measured, this machine's clock is taken for the broker's, and `on_error` is told once.

    Args:
        settings: librdkafka's, of the way in.
        topic: Made if it is missing; see `clock_topic`.
        on_error: Told what, where and what to do; called in the thread.
        every_s: From measurement to measurement.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: str, *, on_error: Callable[[Cause], None], every_s: float = EVERY_S
    ) -> None:
        super().__init__(known=False)
        self._settings = {**settings, "log_level": 0, "error_cb": _ignore}
        self._topic = topic
        self._on_error = on_error
        self._every_s = every_s
        self._told = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lowtide-broker-clock", daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def close(self) -> None:
        """Stop measuring; the estimate stays."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(ANSWER_WITHIN_S + 1)

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        started_s, back_off_s = time.monotonic(), 0.1
        producer: Any = None
        samples = FIRST_SAMPLES
        while not self._closing.is_set():
            try:
                if producer is None:
                    self._make_topic()
                    producer = self._producer()
                for _ in range(samples):
                    self._measure(producer)
            except _Refused as error:
                self._tell(str(error))
                return
            except (KafkaException, BufferError, TimeoutError, ServiceUnavailable) as error:
                # Begin anew: the topic itself may have been deleted.
                producer = None
                if not self.known and time.monotonic() > started_s + GIVE_UP_AFTER_S:
                    self._tell(f"topic {self._topic} took no record within {GIVE_UP_AFTER_S:g} s: {_reason(error)}")
                back_off_s = min(MAX_BACK_OFF_S, 2 * back_off_s)
                self._closing.wait(back_off_s)
            else:
                samples = LATER_SAMPLES
                self._closing.wait(self._every_s)

    def _tell(self, what: str) -> None:
        self.give_up()
        if not self._told:
            self._told = True
            self._on_error(
                Cause(
                    "loss",
                    f"the broker's clock is not measured, this machine's is taken for it: {what}",
                    f"Kafka at {self._settings.get('bootstrap.servers')}, topic {self._topic}",
                    "let the job create that topic and write to it, or create it with "
                    "message.timestamp.type=LogAppendTime; until then keep the clocks of brokers and driver by NTP",
                )
            )

    def _make_topic(self) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin: Any = AdminClient(self._settings)
        if not admin.list_topics(self._topic, timeout=ANSWER_WITHIN_S).topics[self._topic].error:
            return
        new = NewTopic(self._topic, num_partitions=1, replication_factor=-1, config=TOPIC_CONFIG)
        made = admin.create_topics([new], operation_timeout=ANSWER_WITHIN_S, request_timeout=ANSWER_WITHIN_S)
        try:
            made[self._topic].result(2 * ANSWER_WITHIN_S)
        except KafkaException as caught:
            error = caught.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if error.code() > 0 and not error.retriable():
                raise _Refused(error.str()) from caught
            raise

    def _producer(self) -> Any:
        from confluent_kafka import Producer

        limit_ms = int(ANSWER_WITHIN_S * 1000)
        return Producer({**self._settings, "acks": "all", "linger.ms": 0, "message.timeout.ms": limit_ms})

    def _measure(self, producer: Any) -> None:
        """Write one record and take its stamp."""
        reports: list[tuple[Any, Any, float]] = []
        before_s = time.monotonic()
        producer.produce(
            self._topic,
            b"",
            on_delivery=lambda error, message: reports.append((error, message, time.monotonic())),
        )
        producer.flush(ANSWER_WITHIN_S)
        if not reports:
            raise ServiceUnavailable(f"no answer within {ANSWER_WITHIN_S:g} s")
        error, message, after_s = reports[0]
        if error is not None:
            if error.code() > 0 and not error.retriable():
                raise _Refused(error.str())
            raise ServiceUnavailable(error.str())
        kind, stamp_ms = message.timestamp()
        if kind != LOG_APPEND_TIME:
            raise _Refused("its records are not stamped by the broker")
        self.stamped(before_s, stamp_ms, after_s)


class _Refused(Exception):
    """Trying again will not help."""


def _reason(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return str(told.str()) if hasattr(told, "str") else str(told)


def _ignore(_: object) -> None:
    """What goes wrong with a connection shows in the measurement."""
