"""What the embedded servers of a folder do now."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lowtide.embedded.process import read_record
from lowtide.embedded.supervise import KINDS, servers


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
