"""The properties of Kafka's clients that `[kafka.properties]` takes, by librdkafka's names.

librdkafka writes the sinks and asks the brokers; Kafka's Java client, in Spark, reads the sources. So a property has to
have a counterpart there, or to concern librdkafka alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from lowtide.errors import ConfError

_JAVA = {
    **{
        name: name
        for name in (
            "check.crcs",
            "client.dns.lookup",
            "client.id",
            "client.rack",
            "connections.max.idle.ms",
            "enable.metrics.push",
            "fetch.max.bytes",
            "fetch.min.bytes",
            "max.partition.fetch.bytes",
            "metadata.max.age.ms",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "retry.backoff.max.ms",
            "retry.backoff.ms",
            "socket.connection.setup.timeout.ms",
            "ssl.endpoint.identification.algorithm",
        )
    },
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
}
"""Settings of both clients, with the Java client's name."""

_JAVA_VALUES = {
    # librdkafka's 0 is "the system's" or "never"; the Java client says -1.
    ("connections.max.idle.ms", "0"): "-1",
    ("socket.receive.buffer.bytes", "0"): "-1",
    ("socket.send.buffer.bytes", "0"): "-1",
    ("ssl.endpoint.identification.algorithm", "none"): "",
}

_LIBRDKAFKA_ONLY = (
    # Of the sinks' producers.
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "linger.ms",
    "message.copy.max.bytes",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.ms",
    "request.timeout.ms",
    # Of how librdkafka itself works.
    "broker.address.family",
    "broker.address.ttl",
    "debug",
    "log.connection.close",
    "log.thread.name",
    "socket.keepalive.enable",
    "socket.nagle.disable",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse",
)

_KEYS = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password_env or sasl_password_file",
    "ssl.ca.location": "ssl_ca_file",
    "ssl.certificate.location": "ssl_certificate_file",
    "ssl.key.location": "ssl_key_file",
    "ssl.key.password": "ssl_key_password_env or ssl_key_password_file",
    "delivery.timeout.ms": "delivery_limit_ms",
    "message.timeout.ms": "delivery_limit_ms",
}
"""Settings for which `[kafka]` itself has a key."""

_OWN = {
    "its transactions depend on it": (
        "acks",
        "request.required.acks",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.send.max.retries",
        "retries",
        "transaction.timeout.ms",
        "transactional.id",
    ),
    "it reads what was committed, from offsets that it keeps itself, and joins no group": (
        "allow.auto.create.topics",
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.poll.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    ),
    "it chooses each record's partition": ("partitioner", "sticky.partitioning.linger.ms"),
    "it follows from [exchange] max_frame_bytes": (
        "message.max.bytes",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "receive.message.max.bytes",
    ),
    "it follows from delivery_limit_ms": ("topic.metadata.propagation.max.ms",),
    "it takes delivery reports itself": ("delivery.report.only.error", "dr_cb", "dr_msg_cb"),
}
"""The properties that Lowtide sets, by the reason why the conf may not."""

_SECRETS = (
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "ssl.key.pem",
    "ssl.keystore.password",
)


def check_properties(properties: Mapping[str, str], where: str) -> None:
    """Refuse properties that would break what Lowtide promises, hold a secret, or reach only one of the clients.

    Raises:
        ConfError: It names the property, the reason, and what to write instead.
    """
    for name in properties:
        if name not in _JAVA and name not in _LIBRDKAFKA_ONLY:
            reason, way_out = _refusal(name)
            raise ConfError(f"[kafka.properties] cannot set `{name}`: {reason}", where=where, way_out=way_out)


def java_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that concern reading, as Kafka's Java client calls them."""
    known = {name: value for name, value in properties.items() if name in _JAVA}
    return {_JAVA[name]: _JAVA_VALUES.get((name, value), value) for name, value in known.items()}


def _refusal(name: str) -> tuple[str, str]:
    if name in _KEYS:
        return "[kafka] has a key of its own for it", f"set {_KEYS[name]} in [kafka]"
    for reason, names in _OWN.items():
        if name in names:
            return f"Lowtide sets it, as {reason}", "leave it out"
    if name in _SECRETS:
        return "it is a secret, and the conf holds none", "use SASL's PLAIN or SCRAM, or ssl_key_file, in [kafka]"
    taken = sorted((*_JAVA, *_LIBRDKAFKA_ONLY))
    near = difflib.get_close_matches(name, taken, n=1, cutoff=0.7)
    guess = f"did you mean `{near[0]}`? " if near else "leave it out. "
    return (
        "it is not a property that both librdkafka and Kafka's Java client know, or that concerns librdkafka alone",
        f"{guess}There are: {', '.join(taken)}",
    )
