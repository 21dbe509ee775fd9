"""Notices that no broker can be reached; Spark's source would wait for it without a word."""

from __future__ import annotations

import time
from typing import Any

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.errors import ServiceUnavailable

LOOK_EVERY_S = 2.0
LOOK_LIMIT_S = 0.5


class BrokerWatch:
    """Keeps one idle connection to Kafka, which says when all brokers are down."""

    def __init__(self, kafka: KafkaConf) -> None:
        """Connect in the background; ConfError if the `[kafka]` table contradicts itself."""
        from confluent_kafka.admin import AdminClient

        self._kafka = kafka
        self._down_since: float | None = None
        self._look_at = 0.0
        settings: dict[str, Any] = {**librdkafka_settings(kafka), "log_level": 0, "error_cb": self._error}
        self._client: Any = AdminClient(settings)

    def look(self) -> float:
        """Return for how many seconds no broker was reached, 0 while one is; quick unless brokers are down.

        Raises:
            ServiceUnavailable: it has been longer than `[kafka] outage_limit_ms`.
        """
        self._client.poll(0)
        now = time.monotonic()
        if self._down_since is not None and now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            if self._answers():
                self._down_since = None
        if self._down_since is None:
            return 0.0
        down_s = now - self._down_since
        if down_s * 1000 > self._kafka.outage_limit_ms:
            raise ServiceUnavailable(
                f"no Kafka broker has answered for {down_s:.0f} s",
                where=f"Kafka at {self._kafka.bootstrap_servers}",
                way_out="repair the broker (`lowtide services` shows the embedded one), then start the job again; "
                "kafka.outage_limit_ms sets how long a job waits",
            )
        return down_s

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            self._client.list_topics(timeout=LOOK_LIMIT_S)
        except KafkaException:
            return False
        return True

    def _error(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._down_since is None:
            self._down_since = time.monotonic()
