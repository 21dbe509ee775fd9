"""Keeps a consumer group's offsets at those of the last commit, so that tools for Kafka's lag show a job's."""

from __future__ import annotations

import logging
from typing import Any

from lowtide.conf import Conf
from lowtide.conf.store_access import store_setting
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide_snapshots.commits.choice import manifest_of
from lowtide_snapshots.commits.log import CommitLog
from lowtide_snapshots.format.manifest import Manifest
from lowtide_snapshots.stores import open_store

LOG = logging.getLogger(__name__)


class LagGroup:
    """The group that `[kafka] report_lag_to` names. No start ever reads its offsets.

    Args:
        conf: The conf of the job.
        group: The group's name.
    """

    def __init__(self, conf: Conf, group: str) -> None:
        self._conf = conf
        self._group = group
        self._reported = ""
        """The last commit's id that the group has the offsets of."""
        self._client: Any = None

    def follow(self, log: CommitLog) -> bool:
        """Give the group the offsets of the last commit; return False if Kafka does not take them.

        Raises:
            SnapshotsError: ZooKeeper or the store does not answer.
        """
        last = log.last()
        if last is None or last.id == self._reported:
            return True
        files = open_store(store_setting(self._conf.snapshots))
        try:
            manifest = manifest_of(log, files, last)
        finally:
            files.close()
        if not self._report(manifest):
            return False
        self._reported = last.id
        return True

    def _report(self, manifest: Manifest) -> bool:
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient

        kafka = self._conf.kafka
        if self._client is None:
            self._client = AdminClient({**librdkafka_settings(kafka), "log_level": 0})
        at = [TopicPartition(front.source, front.partition, front.offset) for front in manifest.fronts]
        wanted = [ConsumerGroupTopicPartitions(self._group, at)]
        try:
            asked = self._client.alter_consumer_group_offsets(wanted, request_timeout=kafka.reach_limit_ms / 1000)
            answer = asked[self._group].result()
        except KafkaException as error:
            LOG.warning("[kafka] report_lag_to: group %s does not take offsets: %s", self._group, error.args[0].str())
            return False
        refused = [each for each in answer.topic_partitions if each.error is not None]
        if refused:
            LOG.warning("[kafka] report_lag_to: group %s does not take offsets: %s", self._group, refused[0].error)
        return not refused
