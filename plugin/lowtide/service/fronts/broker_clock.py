"""The broker's time, which only the timestamps of a topic with broker timestamps show."""

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

EVERY_S = 30.0
FIRST_SAMPLES = 5
LATER_SAMPLES = 2
KEPT_SAMPLES = 8
DRIFT = 200e-6
"""The drift between two synchronized clocks, in seconds per second."""
JUMP_MS = 250
"""The largest jump ahead of a broker's clock that is followed at once: another broker may lead."""
FIRST_AHEAD_MS = 60_000
"""Its largest accepted lead over this machine's clock at the first stamp."""
SLEW = 0.01
"""The speed, beyond our monotonic clock's, at which a larger jump is followed, in seconds per second."""
ANSWER_WITHIN_S = 2.0
GIVE_UP_AFTER_S = 10.0
"""The time after the start after which this machine's clock is used if there is no measurement."""
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
        """Return its bounds at a later time."""
        drift_ms = max(0.0, now_s - self.at_s) * DRIFT * 1000
        return _Sample(self.at_s, self.low_ms - drift_ms, self.high_ms + drift_ms)


class ClockEstimate:
    """The lead of a broker's clock over this machine's, from stamps; zero until there is one.

    Each stamp bounds it from both sides, so there are no outliers to filter: the narrowest counts. A stamp that the
    newest contradicts is from before a clock was set, and is dropped. "Ours" is the machine's clock at the start,
    advanced by its monotonic one, so that setting ours changes nothing.

    A floor granted too high stays for ever (R2), and one stamp of a clock that is set wrong is enough for it. So the
    estimate follows the broker's clock only below a ceiling, which is `JUMP_MS` above what was measured, and moves by
    `SLEW` with our monotonic clock whatever stamps say, unless they agree with this machine's own clock. Too low is
    safe: idle partitions just lag.

    Args:
        known: True to rely on it before the first stamp.
    """

    def __init__(self, *, known: bool = True) -> None:
        self._lock = threading.Lock()
        self._started_ms = time.time() * 1000 - time.monotonic() * 1000
        self._samples: deque[_Sample] = deque(maxlen=KEPT_SAMPLES)
        self._highest_ms = 0
        self._known = known
        # (the time it was set, the largest accepted offset); None before the first stamp.
        self._ceiling: tuple[float, float] | None = None
        # The ceiling when a stamp last agreed with it.
        self._agreed_ms = 0.0
        self._stamps = 0
        self._jump_ms = 0.0

    @property
    def known(self) -> bool:
        """True once it has been measured, or if it will not be."""
        return self._known

    @property
    def offset_ms(self) -> float:
        """Return the broker's clock minus ours."""
        low_ms, high_ms = self._bounds(time.monotonic())
        return (low_ms + high_ms) / 2

    @property
    def within_ms(self) -> float:
        """Return the possible error of `offset_ms`."""
        low_ms, high_ms = self._bounds(time.monotonic())
        return (high_ms - low_ms) / 2

    @property
    def jump_ms(self) -> int:
        """Return the distance of the newest stamp from the accepted range; negative if below it; 0 while they agree."""
        return round(self._jump_ms)

    def now_ms(self) -> int:
        """Return the broker's estimated time; it never falls."""
        now_s = time.monotonic()
        low_ms, high_ms = self._bounds(now_s)
        estimate = int(self._started_ms + now_s * 1000 + self._believed((low_ms + high_ms) / 2))
        with self._lock:
            self._highest_ms = max(self._highest_ms, estimate)
            return self._highest_ms

    def at_least_ms(self) -> int:
        """Return a time that the broker's clock has already shown: never ahead of it, as far as the stamps tell."""
        return int(self._at_least_ms() // 1)

    def shows_in_s(self, ms: int) -> float:
        """Return the seconds until `at_least_ms` gets to a time; 0 if it has."""
        return max(0.0, (ms - self._at_least_ms()) / 1000)

    def _at_least_ms(self) -> float:
        now_s = time.monotonic()
        return self._started_ms + now_s * 1000 + self._believed(self._bounds(now_s)[0])

    def stamped(self, before_s: float, stamp_ms: int, after_s: float) -> None:
        """Take a stamp that the broker made between two times of `time.monotonic`."""
        low_ms = stamp_ms - (self._started_ms + after_s * 1000)
        # The stamp lacks the fraction of its millisecond.
        high_ms = stamp_ms + 1 - (self._started_ms + before_s * 1000)
        with self._lock:
            widened = [sample.widened(after_s) for sample in self._samples]
            agreeing = [
                sample
                for sample, now in zip(self._samples, widened, strict=True)
                if now.low_ms <= high_ms and low_ms <= now.high_ms
            ]
            self._samples = deque([*agreeing, _Sample(after_s, low_ms, high_ms)], KEPT_SAMPLES)
            self._follow(low_ms, high_ms, after_s)
        self._known = True

    def give_up(self) -> None:
        """Use this machine's clock until there is a stamp."""
        self._known = True

    def _follow(self, low_ms: float, high_ms: float, now_s: float) -> None:
        """Move the ceiling towards a stamp, no faster than allowed."""
        wanted_ms = high_ms + JUMP_MS
        if self._ceiling is None:
            ceiling_ms = self._agreed_ms = min(wanted_ms, FIRST_AHEAD_MS)
        else:
            set_s, ceiling_ms = self._ceiling
            if low_ms <= self._agreed_ms <= high_ms + 2 * JUMP_MS:
                ceiling_ms = self._agreed_ms  # A clock that was wrong for a while is right again.
            step_ms = max(0.0, now_s - set_s) * SLEW * 1000
            # The first stamps may have been slow: until they have all come, a smaller jump is accepted.
            down_ms = math.inf if self._stamps < FIRST_SAMPLES else step_ms
            # A life may begin while the broker's clock is behind: what ours shows too is accepted at once.
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
            widened = [sample.widened(now_s) for sample in self._samples]
        best = min(widened, key=lambda sample: sample.high_ms - sample.low_ms, default=_Sample(0, 0, 0))
        return best.low_ms, best.high_ms


class BrokerClock(ClockEstimate):
    """Measures with a topic of the job's own, in a thread: some records at the start, then two every 30 s.

    If it cannot be measured, this machine's clock is used instead, and `on_error` is called once.

    Args:
        settings: librdkafka's, of the way in.
        topic: Made if it is missing; see `clock_topic`.
        on_error: Called in the thread with what, where and what to do.
        every_s: The time from measurement to measurement.
    """

    def __init__(
        self, settings: Mapping[str, Any], topic: str, *, on_error: Callable[[Cause], None], every_s: float = EVERY_S
    ) -> None:
        super().__init__(known=False)
        self._settings = {**settings, "log_level": 0, "error_cb": _ignore}
        self._topic = topic
        self._on_error = on_error
        self._every_s = every_s
        self._reported = False
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
                self._report(str(error))
                return
            except (KafkaException, BufferError, TimeoutError, ServiceUnavailable) as error:
                # Start over: the topic itself may have been deleted.
                producer = None
                if not self.known and time.monotonic() > started_s + GIVE_UP_AFTER_S:
                    self._report(f"topic {self._topic} took no record within {GIVE_UP_AFTER_S:g} s: {_reason(error)}")
                back_off_s = min(MAX_BACK_OFF_S, 2 * back_off_s)
                self._closing.wait(back_off_s)
            else:
                samples = LATER_SAMPLES
                self._closing.wait(self._every_s)

    def _report(self, what: str) -> None:
        self.give_up()
        if not self._reported:
            self._reported = True
            self._on_error(
                Cause(
                    "loss",
                    f"using this machine's clock for the broker's, which cannot be measured: {what}",
                    f"Kafka at {self._settings.get('bootstrap.servers')}, topic {self._topic}",
                    "allow the job to create that topic and write to it, or create it with "
                    "message.timestamp.type=LogAppendTime; until then keep the clocks of brokers and driver in sync",
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
            raise _Refused("the broker does not stamp its records")
        self.stamped(before_s, stamp_ms, after_s)


class _Refused(Exception):
    """The topic is of no use: trying again will not help."""


def _reason(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return str(cause.str()) if hasattr(cause, "str") else str(cause)


def _ignore(_: object) -> None:
    """Ignore a connection's error: it shows in the measurement."""
