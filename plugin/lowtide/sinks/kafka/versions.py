"""The version of Kafka's transactions that a job asks for (decision 070)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lowtide.conf import KafkaConf
from lowtide.connectors.kafka_access import java_properties

COMPRESSION = ("compression.type", "compression.codec")
"""librdkafka's names for what the Java producer calls by the first, with the same values."""


@dataclass(frozen=True, slots=True)
class VersionTwo:
    """The wish for transactions of version 2.

    Attributes:
        properties: The Java client's, with the bootstrap servers and the security.
        required: Whether a host that cannot have them ends the life, instead of going on with version 1.
    """

    properties: Mapping[str, str] = field(repr=False)
    required: bool


def version_two(kafka: KafkaConf) -> VersionTwo | None:
    """Return what `[kafka] transactions` asks for; None for version 1.

    Raises:
        ConfError: A secret or file is not there.
    """
    if kafka.transactions == "v1":
        return None
    properties = java_properties(kafka)
    for name in COMPRESSION:
        if name in kafka.properties:
            properties[COMPRESSION[0]] = kafka.properties[name]
    return VersionTwo(properties, required=kafka.transactions == "v2")
