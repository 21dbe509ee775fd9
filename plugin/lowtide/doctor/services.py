"""Kafka with its topics and clock, ZooKeeper, the store of snapshots."""

import time
import uuid
from typing import Any

from lowtide.conf import KafkaConf, ZooKeeperConf
from lowtide.conf.store_access import store_setting
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.connectors.kafka_access import librdkafka_settings
from lowtide.doctor.check import Answer, Surroundings
from lowtide.embedded.ports import HOST
from lowtide.embedded.zookeeper import four_letters
from lowtide.errors import ServiceUnavailable
from lowtide.process.lent_store import MEMORY
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.stores import open_store


def broker(surroundings: Surroundings) -> Answer:
    """A broker answers at `[kafka].bootstrap_servers`."""
    conf = surroundings.conf
    if missing := unreachable(surroundings):
        return missing
    count = len(surroundings.topics.names())
    service = surroundings.services["kafka"]
    if conf.embedded.enabled and service.address not in (None, conf.kafka.bootstrap_servers):
        return Answer(
            "warn",
            f"a broker answers at {conf.kafka.bootstrap_servers}, but the embedded one is at {service.address}",
            f'set bootstrap_servers = "{service.address}" in [kafka], or enabled = false in [embedded]',
        )
    return Answer("ok", f"answers at {conf.kafka.bootstrap_servers}; {count} topics")


def topics(surroundings: Surroundings) -> Answer:
    """Check that the flow's topics exist and can be read and written as it needs; show the source of timestamps."""
    from lowtide.driver import preflight
    from lowtide.driver.query import topics_of

    plan = surroundings.plan
    if plan is None:
        return Answer("ok", "name a flow to check its topics")
    if unreachable(surroundings):
        return Answer("warn", "not checked: no broker answers", "fix the broker first")
    sinks = preflight.look(plan, surroundings.conf).sinks
    described = surroundings.topics.describe_all([*dict.fromkeys(topics_of(plan)), *sinks])
    noun = {1: "partition"}
    return Answer(
        "ok",
        "; ".join(
            f"{topic.name}: {topic.partitions} {noun.get(topic.partitions, 'partitions')}, {topic.timestamps}"
            for topic in described
        ),
    )


def unreachable(surroundings: Surroundings) -> Answer | None:
    """Return the answer if no broker is reachable; None if one is.

    An embedded one that the conf enables and that does not run is not a fault yet.
    """
    conf = surroundings.conf
    service = surroundings.services["kafka"]
    if conf.embedded.enabled and service.state in ("stopped", "dead") and is_local(conf.kafka.bootstrap_servers):
        return Answer("warn", f"the embedded Kafka is {service.state}", "start it: lowtide up")
    try:
        surroundings.topics.names()
    except ServiceUnavailable as error:
        return Answer("fail", f"{error.what}: {error.where}", error.way_out)
    return None


def is_local(bootstrap: str) -> bool:
    """Return whether an address is of this machine's loopback."""
    return bootstrap.startswith(("127.", "localhost:"))


def transactions(surroundings: Surroundings) -> Answer:
    """They are of the version that the conf asks for."""
    from lowtide.sinks.kafka.java_transactions import TransactionsTooOld, see_version_two
    from lowtide.sinks.kafka.versions import version_two

    kafka = surroundings.conf.kafka
    wanted = version_two(kafka)
    if wanted is None:
        return Answer("ok", 'version 1, by librdkafka, as [kafka] transactions = "v1"')
    if unreachable(surroundings):
        return Answer("warn", "the version is not known: no broker answers", "fix the broker first")
    try:
        see_version_two(wanted, kafka.reach_limit_ms)
    except TransactionsTooOld as missing:
        return Answer("fail" if wanted.required else "ok", f"version 1, by librdkafka: {missing.what}", missing.way_out)
    return Answer("ok", "version 2, by Kafka's own producer")


WARN_MS = 500
FAIL_MS = 60_000


def clock(surroundings: Surroundings) -> Answer:
    """They agree, as far as a record that the broker stamped can tell.

    The broker tells its time in no other way, so without leave to make a scratch topic nothing is measured.
    """
    kafka = surroundings.conf.kafka
    if unreachable(surroundings):
        return Answer("warn", "not compared: no broker answers", "fix the broker first")
    if not surroundings.probe:
        if all(address.startswith(("127.", "localhost:")) for address in kafka.bootstrap_servers.split(",")):
            return Answer("ok", "the broker is on this machine")
        return Answer("warn", "not compared with the broker's", "allow a scratch topic: lowtide doctor --probe")
    name = f"lowtide-doctor-{uuid.uuid4().hex[:12]}"
    surroundings.topics.create(name, config={"message.timestamp.type": "LogAppendTime"})
    try:
        skew_ms, within_ms = measure(kafka, name)
    finally:
        surroundings.topics.delete(name)
    found = f"the broker's is {abs(skew_ms)} ms {'ahead' if skew_ms > 0 else 'behind'} (known within {within_ms} ms)"
    excess = abs(skew_ms) - within_ms
    if excess > WARN_MS:
        way_out = "synchronise both machines' clocks by NTP"
        return Answer("fail" if excess > FAIL_MS else "warn", found, way_out)
    return Answer("ok", found)


def measure(kafka: KafkaConf, topic: str) -> tuple[int, int]:
    """Write one record to a log-append topic: by how much the broker is ahead in ms, and how sure that is.

    Raises:
        ServiceUnavailable: the record did not come through in time.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    limit_s = kafka.reach_limit_ms / 1000
    quiet = {**librdkafka_settings(kafka), "log_level": 0}
    producer: Any = Producer({**quiet, "acks": "all"})
    consumer: Any = Consumer({**quiet, "group.id": topic, "enable.auto.commit": False})
    try:
        # The first record opens connections, which takes time; the second one is measured.
        producer.produce(topic, b"")
        producer.flush(limit_s)
        before = time.time()
        producer.produce(topic, b"")
        producer.flush(limit_s)
        after = time.time()
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        messages = consumer.consume(2, limit_s)
    finally:
        consumer.close()
    if len(messages) != 2 or any(message.error() for message in messages):
        raise ServiceUnavailable(
            f"a record did not arrive within {limit_s:g} s",
            where=kafka.bootstrap_servers,
            way_out="read the broker's log",
        )
    _, stamped_ms = messages[1].timestamp()
    return round(stamped_ms - (before + after) * 500), round((after - before) * 500) + 1


def zookeeper(surroundings: Surroundings) -> Answer:
    """It answers, and says its version."""
    conf = surroundings.conf
    if not conf.embedded.enabled:
        return _other_zookeeper(conf.zookeeper)
    service = surroundings.services["zookeeper"]
    if service.address is None:
        return Answer("warn", f"the embedded ZooKeeper is {service.state}", "start it: lowtide up")
    said = four_letters(HOST, int(service.address.rpartition(":")[2]), b"srvr")
    if not said:
        way_out = f"read {service.log}, then: lowtide down, lowtide up"
        return Answer("fail", f"process {service.pid} runs, but does not answer at {service.address}", way_out)
    version = said.removeprefix("Zookeeper version: ").partition("-")[0]
    return Answer("ok", f"ZooKeeper {version} answers at {service.address}")


def _other_zookeeper(conf: ZooKeeperConf) -> Answer:
    access = ZooKeeperAccess.of(conf)
    where = f"{access.hosts}, /{access.root}"
    try:
        known = access.jobs()
    except SnapshotsError as error:
        way_out = error.way_out or "correct [zookeeper] in the conf"
        return Answer("fail", f"{error.what} ({error.where or where})", way_out)
    return Answer("ok", f"ZooKeeper answers at {where}; {len(known)} jobs")


def store(surroundings: Surroundings) -> Answer:
    """It can be reached, written to, read and deleted from."""
    setting = store_setting(surroundings.conf.snapshots)
    if setting.url == MEMORY:
        limit = f"{setting.memory_mb} MB"
        return Answer(
            "ok", f"snapshots are in the memory of the job's service, up to {limit}, and end with its program"
        )
    try:
        opened = open_store(setting)
        try:
            opened.check()
        finally:
            opened.close()
    except SnapshotsError as error:
        where = f" ({error.where})" if error.where else ""
        return Answer("fail", f"{error.what}{where}", error.way_out or "correct [snapshots] in the conf")
    return Answer("ok", f"snapshots can be written to {opened.where}")
