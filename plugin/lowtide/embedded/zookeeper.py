"""A single ZooKeeper 3.9 server, from the jars that pyspark brings along."""

import socket
from collections.abc import Iterable
from pathlib import Path

from lowtide.embedded.ports import HOST
from lowtide.embedded.server import Server
from lowtide.errors import JarMissing
from lowtide.jars.java import Java
from lowtide.jars.third_party import pyspark_folder

HEAP_MB = 128
# ZooKeeper allows session timeouts of 2 to 20 ticks; a lease must be losable within a second or two.
TICK_MS = 500
MAX_CLIENT_CONNECTIONS = 256
SNAPSHOTS_KEPT = 3
# The default of 64 MiB per log file is for servers that write all day.
LOG_ALLOCATION_KB = 1024
ANSWER_TIMEOUT_S = 1.0
JARS = (
    "zookeeper-3*", "zookeeper-jute-3*", "slf4j-api-2*", "log4j-api-2*", "log4j-core-2*",
    "log4j-slf4j2-impl-2*", "metrics-core-4*", "snappy-java-1*",
)  # fmt: skip

PROPERTIES = """\
dataDir={data}
clientPort={port}
clientPortAddress={host}
tickTime={tick_ms}
maxClientCnxns={connections}
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
autopurge.snapRetainCount={snapshots}
autopurge.purgeInterval=1
"""


def spark_jars(patterns: Iterable[str]) -> list[Path]:
    """One jar of the installed pyspark per pattern (a name without `.jar`, with wildcards).

    Raises:
        InterpreterMismatch: pyspark is not installed.
        JarMissing: it has no such jar.
    """
    folder = pyspark_folder() / "jars"
    found = []
    for pattern in patterns:
        jars = sorted(folder.glob(f"{pattern}.jar"))
        if not jars:
            raise JarMissing(
                f"pyspark lacks {pattern}.jar",
                where=str(folder),
                way_out="install it again: pip install --force-reinstall pyspark==4.3.0 (in a clone: make env)",
            )
        found.append(jars[-1])
    return found


class ZooKeeperServer(Server):
    """A single ZooKeeper server on loopback."""

    name = "zookeeper"
    setting = "[embedded].zookeeper_port"

    def prepare(self, java: Java) -> None:
        """Write zoo.cfg; the server itself makes its data folder's content."""
        self.data.mkdir(parents=True, exist_ok=True)
        self.write_logging()
        (self.folder / "zoo.cfg").write_text(
            PROPERTIES.format(
                data=self.data,
                port=self.port,
                host=HOST,
                tick_ms=TICK_MS,
                connections=MAX_CLIENT_CONNECTIONS,
                snapshots=SNAPSHOTS_KEPT,
            )
        )

    def command(self, java: Java) -> list[str]:
        """The class with the purge timer; for one server it continues as the stand-alone server."""
        return [
            str(java.executable),
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dzookeeper.preAllocSize={LOG_ALLOCATION_KB}",
            f"-Dlog4j2.configurationFile={self.folder / 'logging.properties'}",
            "-cp",
            ":".join(str(jar) for jar in spark_jars(JARS)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.folder / "zoo.cfg"),
        ]

    def answers(self) -> bool:
        """Return whether the server answers `srvr` with its mode."""
        return "Mode:" in four_letters(HOST, self.port, b"srvr")


def four_letters(host: str, port: int, word: bytes) -> str:
    """A ZooKeeper server's answer to a four-letter word; empty if there is none."""
    try:
        with socket.create_connection((host, port), ANSWER_TIMEOUT_S) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.sendall(word)
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
            return answer.decode(errors="replace")
    except OSError:
        return ""
