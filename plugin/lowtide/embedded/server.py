"""The base of every embedded server: a folder, a port, a command, a readiness check."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from lowtide.embedded.ports import HOST
from lowtide.jars.java import Java

LOG_LINES_SHOWN = 12
LOG_LINE_CHARS = 400
LOG_TAIL_BYTES = 64 * 1024
LOG_FILE_BYTES = 10 * 1024 * 1024
LOG_FILES_KEPT = 2

LOGGING = """\
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {bytes}B
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {kept}
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
{loggers}"""


@dataclass(frozen=True)
class Server(ABC):
    """One embedded server: how it is set up, started and asked; it holds no process.

    Attributes:
        folder: the folder of everything that belongs to this server.
        port: the loopback port it listens on.
    """

    folder: Path
    port: int

    name = ""
    setting = ""

    @property
    def address(self) -> str:
        """The address for clients, as "host:port"."""
        return f"{HOST}:{self.port}"

    @property
    def data(self) -> Path:
        """The folder of the server's data."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self.folder / "server.log"

    @property
    def output(self) -> Path:
        """The file with the Java runtime's output, of the last start only."""
        return self.folder / "output.log"

    @property
    def record_file(self) -> Path:
        """The file that names the process of this server (see `ProcessRecord`)."""
        return self.folder / "process.json"

    @abstractmethod
    def prepare(self, java: Java) -> None:
        """Write the configuration, and the data folder's first content if it has none."""

    @abstractmethod
    def command(self, java: Java) -> list[str]:
        """The command line, the executable's full path first."""

    @abstractmethod
    def answers(self) -> bool:
        """Return whether the server serves clients now; takes at most about a second."""

    def data_bytes(self) -> int:
        """Return the data's size on disk, in bytes (files preallocated but not written count by their blocks)."""
        return sum(blocks_of(path) for path in self.data.rglob("*")) if self.data.is_dir() else 0

    def write_logging(self, loggers: str = "") -> Path:
        """Write the logging configuration: one file of at most `LOG_FILE_BYTES`, `LOG_FILES_KEPT` older ones."""
        file = self.folder / "logging.properties"
        file.write_text(LOGGING.format(log=self.log, bytes=LOG_FILE_BYTES, kept=LOG_FILES_KEPT, loggers=loggers))
        return file

    def log_bytes(self) -> int:
        """Return the current length of the log."""
        return self.log.stat().st_size if self.log.exists() else 0

    def last_words(self, since_bytes: int = 0) -> str:
        """The last lines that the server or its Java runtime wrote, without stack frames.

        Args:
            since_bytes: The log's length before this start: the part before it is of an earlier one.
        """
        lines = [*_tail(self.log, since_bytes), *_tail(self.output)]
        telling = [line for line in lines if line.strip() and not line.lstrip().startswith(("at ", "..."))]
        return "\n".join(f"  {line[:LOG_LINE_CHARS]}" for line in telling[-LOG_LINES_SHOWN:]) or "  (it wrote nothing)"


def blocks_of(path: Path) -> int:
    """Return a file's size on disk, in bytes; 0 if it has just gone."""
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0


def _tail(file: Path, since_bytes: int = 0) -> list[str]:
    try:
        with file.open("rb") as stream:
            size = file.stat().st_size
            # A log that is shorter than it was has been rolled over: all of it is new.
            stream.seek(max(since_bytes if since_bytes <= size else 0, size - LOG_TAIL_BYTES))
            return stream.read().decode(errors="replace").splitlines()
    except OSError:
        return []
