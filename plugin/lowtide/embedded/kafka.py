"""A single Kafka 4.2 server: broker and controller in one process (KRaft)."""

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lowtide.embedded.errors import DataDamaged
from lowtide.embedded.ports import HOST, answers, free_port
from lowtide.embedded.server import Server
from lowtide.embedded.zookeeper import spark_jars
from lowtide.errors import JarMissing
from lowtide.jars.class_archive import ClassArchive
from lowtide.jars.java import Java
from lowtide.jars.third_party import broker_jars

HEAP_MB = 512
FORMAT_HEAP_MB = 128
NODE = 1
# Enough for as many transactional ids and groups as one machine runs, and few enough to be opened at once.
COORDINATOR_PARTITIONS = 8
FORMAT_TIMEOUT_S = 180.0
ANSWER_TIMEOUT_S = 1.0
# The broker's own jars lack only a log binding; it needs the slf4j that came with it.
LOGGING_JARS = ("slf4j-api-2*", "log4j-slf4j2-impl-2*")
LOGGERS = """\
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
"""

PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={node}@{host}:{controller_port}
controller.listener.names=CONTROLLER
listeners=CLIENT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=CLIENT://{host}:{port}
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENT
log.dirs={data}

auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions={partitions}
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions={partitions}
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions={partitions}

# One node, few clients, low latency.
group.initial.rebalance.delay.ms=0
# A server that was killed may come back only after its last life's session: 9 s by default.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
# By default the controller writes twice a second that nothing has happened, a third of what an idle broker costs.
metadata.max.idle.interval.ms=5000
num.network.threads=2
num.io.threads=4
# The cleaner's default buffer of 128 MiB is a quarter of the heap.
log.cleaner.dedupe.buffer.size=16777216
log.segment.bytes=268435456
log.message.timestamp.type=CreateTime
# Retention counts from the records' own timestamps: the default of a week deletes what a replay of old records writes.
log.retention.ms=-1
"""


@dataclass(frozen=True)
class KafkaServer(Server):
    """A single Kafka server on loopback.

    Attributes:
        classes: A folder of classes that take the place of Kafka's own, if there is one.
        options: More options for its JVM.
        settings: More settings of the broker; they win over those of `PROPERTIES`.
        features: Levels of the cluster's features when its data folder is made; those not named are the newest.
    """

    classes: Path | None = None
    options: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)

    name = "kafka"
    setting = "[embedded].kafka_port"

    def prepare(self, java: Java) -> None:
        """Write server.properties and format the data folder if it is new.

        Raises:
            DataDamaged: the folder cannot be formatted.
        """
        self.write_logging(LOGGERS)
        if not (self.data.is_dir() and any(self.data.iterdir())):
            self._format(java)
        self._write(self._properties, self.data)

    def command(self, java: Java) -> list[str]:
        """The broker; the serial collector costs the least CPU at this heap size on few cores."""
        return [
            *self._java(java, HEAP_MB),
            f"-Xms{HEAP_MB}m",
            *(broker_archive().options() if self.classes is None else ()),
            "-XX:+ExitOnOutOfMemoryError",
            *self.options,
            "-cp",
            _class_path() if self.classes is None else f"{self.classes}:{_class_path()}",
            "kafka.Kafka",
            str(self._properties),
        ]

    def answers(self) -> bool:
        """Return whether the broker names itself when asked for the cluster's metadata."""
        return answers(self.port) and self.address in brokers(self.address)

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, java: Java, heap_mb: int) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'logging.properties'}"
        return [str(java.executable), f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", logging]

    def _write(self, file: Path, data: Path) -> None:
        # Nobody but the server itself talks to its controller: any port will do, a new one each time.
        ports = {"port": self.port, "controller_port": free_port(other_than=[self.port])}
        common = PROPERTIES.format(node=NODE, host=HOST, data=data, partitions=COORDINATOR_PARTITIONS, **ports)
        file.write_text(common + "".join(f"{key}={value}\n" for key, value in self.settings.items()))

    def _format(self, java: Java) -> None:
        """Make the data folder's first content next to it, then rename it: half a format is none."""
        draft, properties = self.folder / "data.new", self.folder / "format.properties"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        self._write(properties, draft)
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", str(properties)]
        for feature, level in self.features.items():
            tool += ["--feature", f"{feature}={level}"]
        command = [
            *self._java(java, FORMAT_HEAP_MB),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            _class_path(),
            *tool,
        ]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, cwd=self.folder
            )
            fault = (done.stderr or done.stdout).strip()[-800:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            fault = f"Kafka's storage tool did not end within {FORMAT_TIMEOUT_S:.0f} s"
        if fault:
            way_out = "fix what it names, or set another folder with [embedded].folder in conf"
            raise DataDamaged(f"cannot create Kafka's data folder: {fault}", where=str(self.data), way_out=way_out)
        draft.replace(self.data)


def cluster_id() -> str:
    """A new cluster's id: 16 random bytes in URL-safe base64; never with a dash in front, which is an option's sign."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def brokers(bootstrap: str, timeout_s: float = ANSWER_TIMEOUT_S) -> list[str]:
    """Return the addresses of a cluster's brokers; empty if none answers in time."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        # The log goes nowhere: a broker that is starting refuses connections, which librdkafka would print.
        client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        metadata = client.list_topics(timeout=timeout_s)
    except KafkaException:
        return []
    return [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]


def broker_archive() -> ClassArchive:
    """Return the archive of the classes that a broker's JVM has loaded."""
    return ClassArchive("kafka", server_jars())


def _class_path() -> str:
    return ":".join(map(str, server_jars()))


def server_jars() -> list[Path]:
    """All jars of a Kafka server's class path.

    Raises:
        JarMissing: one is not there.
    """
    jars = broker_jars()
    if not any(jar.name.startswith("kafka_2") for jar in jars):
        raise JarMissing(
            "the Kafka server's own jar is missing",
            where=f"{len(jars)} jars",
            way_out="fetch it: python -m lowtide.jars.third_party (in a clone: make jars)",
        )
    own = [jar for jar in jars if not jar.name.startswith("slf4j-api")]
    return [*own, *spark_jars(LOGGING_JARS)]
