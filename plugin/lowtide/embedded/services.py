"""The embedded servers for as long as a `with` block, or its process, lives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from lowtide.embedded.kafka import KafkaServer
from lowtide.embedded.process import read_record
from lowtide.embedded.server import Server
from lowtide.embedded.supervise import KINDS, STOP_GRACE_S, Progress, running_record, servers, silent, stop, up


class EmbeddedServices:
    """Servers that end with the block, and with this process however it dies.

    Attributes:
        folder: the folder for everything of theirs; it stays when the block ends.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        kafka_port: int = 0,
        zookeeper_port: int = 0,
        only: Sequence[str] = tuple(KINDS),
        progress: Progress = silent,
        kafka_classes: Path | None = None,
        kafka_options: Sequence[str] = (),
        kafka_settings: Mapping[str, str] | None = None,
        kafka_features: Mapping[str, int] | None = None,
    ) -> None:
        """Say what is to run; nothing is started yet.

        Args:
            folder: made if it is missing; what it keeps from an earlier time is used again.
            kafka_port: 0 takes a free one.
            zookeeper_port: 0 takes a free one.
            only: the servers to start, of "kafka" and "zookeeper".
            progress: called with each event, see `up`.
            kafka_classes: a folder of classes that take the place of Kafka's own.
            kafka_options: more options for Kafka's JVM.
            kafka_settings: more settings of the broker, "broker.session.timeout.ms" and the like.
            kafka_features: levels of the cluster's features, if its data folder is new.
        """
        ports = {"kafka": kafka_port, "zookeeper": zookeeper_port}
        self.folder = Path(folder)
        self._progress = progress
        self._servers = {s.name: s for s in servers(self.folder, {name: ports[name] for name in only})}
        kafka = self._servers.get("kafka")
        if isinstance(kafka, KafkaServer):
            self._servers["kafka"] = replace(
                kafka,
                classes=kafka_classes,
                options=kafka_options,
                settings=kafka_settings or {},
                features=kafka_features or {},
            )

    def __enter__(self) -> Self:
        """Start the servers and wait until they answer (errors: see `up`)."""
        started = up(list(self._servers.values()), dies_with_us=True, progress=self._progress)
        self._servers = {server.name: server for server in started}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the servers, gently first."""
        for server in reversed(self._servers.values()):
            stop(server)

    @property
    def kafka(self) -> str:
        """Kafka's bootstrap address; it stays the same over `stop` and `start`."""
        return self.server("kafka").address

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's address; it stays the same over `stop` and `start`."""
        return self.server("zookeeper").address

    def server(self, name: str) -> Server:
        """Return the server of that name; KeyError if it is not among those started."""
        return self._servers[name]

    def pid(self, name: str) -> int | None:
        """The server's process; None if it does not run."""
        record = running_record(self.server(name))
        return record.pid if record else None

    def stop(self, name: str, *, grace_s: float = STOP_GRACE_S) -> None:
        """Stop one server; with `grace_s` 0 it is killed as if the power had failed."""
        stop(self.server(name), grace_s)

    def start(self, name: str) -> None:
        """Start one server again, on the port and the data it had."""
        up([self.server(name)], dies_with_us=True, progress=self._progress)


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """One embedded server, as `lowtide services` shows it.

    Attributes:
        name: "kafka" or "zookeeper".
        state: "running" if it answers, "silent" if its process lives but does not answer, "dead" if it ended
            without having been stopped, "stopped" otherwise.
        address: "host:port"; None if it does not run.
        pid: its process; None if it does not run.
        data_bytes: what its data takes on disk.
        log: its log file.
        dies_with: the process that it ends with; None if it runs on its own.
    """

    name: str
    state: Literal["running", "silent", "dead", "stopped"]
    address: str | None
    pid: int | None
    data_bytes: int
    log: Path
    dies_with: int | None


def service_status(folder: Path) -> list[ServiceStatus]:
    """The state of every server the folder may hold; takes up to a second per silent one, changes nothing."""
    found = []
    for placed in servers(folder, dict.fromkeys(KINDS, 0)):
        record = read_record(placed.record_file)
        if record is None or not record.alive():
            state: Literal["dead", "stopped"] = "stopped" if record is None else "dead"
            found.append(ServiceStatus(placed.name, state, None, None, placed.data_bytes(), placed.log, None))
            continue
        server = type(placed)(placed.folder, record.port)
        found.append(
            ServiceStatus(
                name=server.name,
                state="running" if server.answers() else "silent",
                address=server.address,
                pid=record.pid,
                data_bytes=server.data_bytes(),
                log=server.log,
                dies_with=record.parent or None,
            )
        )
    return found
