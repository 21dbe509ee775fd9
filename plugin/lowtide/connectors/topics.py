"""Kafka topics: create, describe, list, widen, delete.

Topics(conf.kafka).create("documents", partitions=4)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.errors import LowtideError, ServiceUnavailable, TopicUnknown

LEADER_POLL_S = 0.02


class TopicExists(LowtideError):
    """Take another name, or use the topic as it is."""

    exit_code = 4


class LoginRefused(ServiceUnavailable):
    """Correct the login: brokers can be reached, and none takes the connection."""


class TopicRefused(LowtideError):
    """Correct what was asked for: Kafka does not allow it."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its broker describes it.

    Attributes:
        name: Its name.
        partitions: How many it has.
        timestamps: "CreateTime" or "LogAppendTime": the writer or the broker sets a record's timestamp.
        cleanup: "delete", "compact" or "compact,delete".
        id: What the cluster calls it for good; a topic recreated under the same name has another.
        compaction_lag_ms: How old its records get at least before compaction may drop any of them.
    """

    name: str
    partitions: int
    timestamps: str
    cleanup: str
    id: str
    compaction_lag_ms: int = 0

    @property
    def dated_by(self) -> Literal["producer", "broker"]:
        """The one that sets its records' timestamps."""
        return "broker" if self.timestamps == "LogAppendTime" else "producer"


class Topics:
    """The topics of one cluster; a connection is made on use."""

    def __init__(self, kafka: KafkaConf) -> None:
        """Say which cluster; ConfError if the `[kafka]` table contradicts itself."""
        from confluent_kafka.admin import AdminClient

        self._kafka = kafka
        self._limit_s = kafka.reach_limit_ms / 1000
        self._refusal = ""
        # The client has to outlive its answers, so it is kept; it logs nothing, as every failure is raised.
        settings: dict[str, Any] = {**librdkafka_settings(kafka), "log_level": 0, "error_cb": self._error}
        self._client: Any = AdminClient(settings)

    def create(self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with the cluster's own replication, and wait until every partition has a leader.

        Raises:
            TopicExists: it is there already.
            TopicRefused: Kafka does not allow the name, the number or the config.
            ServiceUnavailable: no broker answered in time.
        """
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        new = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
        asked = self._client.create_topics([new], operation_timeout=self._limit_s, request_timeout=self._limit_s)
        self._result(asked[name], name)
        self._await_leaders(name, partitions, "was created")

    def widen(self, name: str, partitions: int, *, dry: bool = False) -> None:
        """Give a topic more partitions, and wait until each has a leader.

        Args:
            name: The topic.
            partitions: How many it is to have.
            dry: True to ask only whether Kafka would do it.

        Raises:
            TopicUnknown: there is none of this name.
            TopicRefused: Kafka does not allow it, or the topic has as many already.
            ServiceUnavailable: no broker answered in time.
        """
        from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

        limits: dict[str, Any] = {"operation_timeout": self._limit_s, "request_timeout": self._limit_s}
        asked = self._client.create_partitions([NewPartitions(name, partitions)], validate_only=dry, **limits)
        self._result(asked[name], name)
        if not dry:
            self._await_leaders(name, partitions, "was given partitions")

    def delete(self, name: str) -> None:
        """Delete a topic and all its records (errors: TopicUnknown, ServiceUnavailable)."""
        asked = self._client.delete_topics([name], operation_timeout=self._limit_s, request_timeout=self._limit_s)
        self._result(asked[name], name)

    def names(self) -> list[str]:
        """The names of all topics but Kafka's own, sorted (errors: ServiceUnavailable)."""
        return sorted(name for name in self._metadata().topics if not name.startswith("__"))

    def describe(self, name: str) -> Topic:
        """One topic (errors: TopicUnknown, ServiceUnavailable)."""
        return self.describe_all([name])[0]

    def describe_all(self, names: list[str]) -> list[Topic]:
        """These topics, in their order (errors: as `describe`)."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

        known = self._metadata().topics
        for name in names:
            if name not in known:
                raise TopicUnknown(
                    f'there is no topic "{name}"',
                    where=f"Kafka at {self._kafka.bootstrap_servers}",
                    way_out=f"create it: lowtide topic create {name} --partitions N",
                )
        if not names:
            return []
        wanted = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in names}
        answers = self._client.describe_configs(list(wanted.values()), request_timeout=self._limit_s)
        ids = self._client.describe_topics(TopicCollection(names), request_timeout=self._limit_s)
        described = []
        for name in names:
            config = self._result(answers[wanted[name]], name)
            timestamps, cleanup = config["message.timestamp.type"].value, config["cleanup.policy"].value
            id_ = str(self._result(ids[name], name).topic_id)
            lag_ms = int(config["min.compaction.lag.ms"].value)
            described.append(Topic(name, len(known[name].partitions), timestamps, cleanup, id_, lag_ms))
        return described

    def earliest(self, topics: Iterable[Topic]) -> dict[tuple[str, int], int]:
        """The first offset that is still there, by topic and partition (errors: ServiceUnavailable)."""
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(topics, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, topics: Iterable[Topic], *, undecided: bool = False) -> dict[tuple[str, int], int]:
        """Return the offset before which a read_committed reader gets everything, by topic and partition (same errors).

        Args:
            topics: The topics.
            undecided: Go on to the end of the log, over transactions that are still open.
        """
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(topics, OffsetSpec.latest(), undecided=undecided)  # type: ignore[no-untyped-call]

    def since(self, topics: Iterable[Topic], ms: int, *, undecided: bool = False) -> dict[tuple[str, int], int]:
        """Return the first offset with a timestamp from `ms` on, -1 where there is none (same errors).

        Args:
            topics: The topics.
            ms: The time, in ms since 1970.
            undecided: True to look also after the first transaction that is still open.
        """
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        return self._offsets(topics, OffsetSpec.for_timestamp(ms), undecided=undecided)

    def _offsets(self, topics: Iterable[Topic], spec: Any, *, undecided: bool = False) -> dict[tuple[str, int], int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        level = IsolationLevel.READ_UNCOMMITTED if undecided else IsolationLevel.READ_COMMITTED
        asked = {TopicPartition(topic.name, n): spec for topic in topics for n in range(topic.partitions)}
        deadline = time.monotonic() + self._limit_s
        while asked:
            answers = self._client.list_offsets(asked, isolation_level=level, request_timeout=self._limit_s)
            try:
                return {(at.topic, at.partition): int(self._result(answers[at], at.topic).offset) for at in asked}
            except TopicRefused:
                # A leader that has just been chosen may not be known everywhere yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(LEADER_POLL_S)
        return {}

    def _metadata(self) -> Any:
        from confluent_kafka import KafkaException

        try:
            return self._client.list_topics(timeout=self._limit_s)
        except KafkaException as error:
            self._client.poll(0)
            if self._refusal:
                raise LoginRefused(
                    f"Kafka refuses the job's login: {self._refusal}",
                    where=f"Kafka at {self._kafka.bootstrap_servers}",
                    way_out="correct security_protocol, sasl_* and ssl_* in [kafka]: `lowtide doctor` tests them",
                ) from error
            raise self._unavailable("no Kafka broker answers") from error

    def _error(self, error: Any) -> None:
        """Keep why a broker does not take the connection: a call knows only that it took too long."""
        from confluent_kafka import KafkaError

        refused = error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}
        if refused or "SSL handshake failed" in error.str():
            self._refusal = error.str()

    def _await_leaders(self, name: str, partitions: int, what: str) -> None:
        deadline = time.monotonic() + self._limit_s
        while not self._has_leaders(name, partitions):
            if time.monotonic() > deadline:
                raise self._unavailable(f'topic "{name}" {what} but has no leaders')
            time.sleep(LEADER_POLL_S)

    def _has_leaders(self, name: str, partitions: int) -> bool:
        topic = self._metadata().topics.get(name)
        found = topic.partitions.values() if topic is not None else []
        return [partition.leader >= 0 for partition in found] == [True] * partitions

    def _result(self, future: Any, name: str) -> Any:
        """Return the broker's answer about a topic; raise our error for its error."""
        from confluent_kafka import KafkaError, KafkaException

        where = f"Kafka at {self._kafka.bootstrap_servers}"
        try:
            return future.result()
        except KafkaException as caught:
            error = caught.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                way_out = "use it, or take another name; `lowtide topic list` shows them"
                raise TopicExists(f'the topic "{name}" exists already', where=where, way_out=way_out) from caught
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                way_out = "correct the name; `lowtide topic list` shows them"
                raise TopicUnknown(f'there is no topic "{name}"', where=where, way_out=way_out) from caught
            if error.code() < 0:
                raise self._unavailable(f'Kafka did not answer about topic "{name}": {error.str()}') from caught
            way_out = "correct what the broker names"
            raise TopicRefused(f'topic "{name}": {error.str()}', where=where, way_out=way_out) from caught

    def _unavailable(self, what: str) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"{what} within {self._limit_s:g} s",
            where=f"Kafka at {self._kafka.bootstrap_servers} ([kafka].bootstrap_servers)",
            way_out="start it (`lowtide up` for the embedded one), or correct the address",
        )
