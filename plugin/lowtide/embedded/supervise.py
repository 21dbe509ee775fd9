"""Start servers and wait until they answer; stop them."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lowtide.embedded.errors import FolderInUse, ServerDied, ServerDiffers, ServerSilent
from lowtide.embedded.folder import locked, make_folder
from lowtide.embedded.kafka import KafkaServer
from lowtide.embedded.ports import free_port, is_free, port_owner
from lowtide.embedded.process import ProcessRecord, launch, read_record
from lowtide.embedded.server import Server
from lowtide.embedded.zookeeper import ZooKeeperServer
from lowtide.errors import PortTaken
from lowtide.jars.java import find_java

START_TIMEOUT_S = 90.0
STOP_GRACE_S = 20.0
POLL_S = 0.05
RECORD_TIMEOUT_S = 10.0

Progress = Callable[[str, str], None]
"""Called with a server's name and what happens to it now."""


def silent(name: str, what: str) -> None:
    """Ignore it."""


# In the order in which they are started.
KINDS: Mapping[str, type[Server]] = {"zookeeper": ZooKeeperServer, "kafka": KafkaServer}


def servers(folder: Path, ports: Mapping[str, int]) -> list[Server]:
    """Return the servers named in `ports`, with their folders; port 0 takes any free port."""
    return [kind(folder.absolute() / name, ports[name]) for name, kind in KINDS.items() if name in ports]


def up(wanted: Sequence[Server], *, dies_with_us: bool = False, progress: Progress = silent) -> list[Server]:
    """Have the servers run and answer; returns them with the ports they really have.

    Idempotent and safe against itself: two at once on one folder wait for each other. If one server cannot be
    started, those that this call has started are stopped again.

    Args:
        wanted: servers of one folder (see `servers`).
        dies_with_us: whether they end with this process; if so, none of them may run yet.
        progress: called with each event.

    Raises:
        PortTaken: another process listens on a server's port.
        ServerDied: a server ended at its start; the message holds its last lines.
        ServerSilent: a server did not answer within `START_TIMEOUT_S`.
        ServerDiffers: a server runs at another port than the given one.
        FolderInUse: the folder is locked, or its servers run already and `dies_with_us` was asked for.
    """
    java = find_java()
    if not wanted:
        return []
    folder = wanted[0].folder.parent
    make_folder(folder)
    with locked(folder):
        servers = [_placed(server, dies_with_us) for server in wanted]
        missing = [server for server in servers if running_record(server) is None]
        for server in missing:
            if not is_free(server.port):
                raise port_taken(server)
        started: list[tuple[Server, subprocess.Popen[bytes]]] = []
        logged = {server.name: server.log_bytes() for server in missing}
        try:
            for server in missing:
                progress(server.name, "starting")
                server.folder.mkdir(exist_ok=True)
                server.prepare(java)
                server.record_file.unlink(missing_ok=True)
                started.append((server, _launched(server, server.command(java), dies_with_us)))
            processes = {server.name: process for server, process in started}
            for server in servers:
                _wait(server, processes.get(server.name), logged.get(server.name, 0))
                progress(server.name, f"answers at {server.address}")
        except BaseException:
            for server, process in reversed(started):
                stop(server)
                _reap(process)
            raise
    return servers


def down(folder: Path, *, grace_s: float = STOP_GRACE_S, progress: Progress = silent) -> list[str]:
    """Stop the servers of the folder, data stays; returns the names of those that ran.

    Raises:
        FolderInUse: another process starts or stops them.
    """
    if not folder.is_dir():
        return []
    stopped = []
    with locked(folder):
        for server in reversed(servers(folder, dict.fromkeys(KINDS, 0))):
            if running_record(server) is not None:
                progress(server.name, "stopping")
                killed = stop(server, grace_s)
                progress(server.name, f"killed, it did not stop within {grace_s:.0f} s" if killed else "stopped")
                stopped.append(server.name)
            server.record_file.unlink(missing_ok=True)
    return stopped


def stop(server: Server, grace_s: float = STOP_GRACE_S) -> bool:
    """Stop one server if it runs; returns whether it had to be killed."""
    record = running_record(server)
    killed = record is not None and record.stop(grace_s)
    server.record_file.unlink(missing_ok=True)
    return killed


def running_record(server: Server) -> ProcessRecord | None:
    """Return the running process of this server; None if there is none (a dead process's record does not count)."""
    record = read_record(server.record_file)
    return record if record is not None and record.alive() else None


def _placed(server: Server, dies_with_us: bool) -> Server:
    """Return the server with its real port: the one it runs at, else the given one, else a free one."""
    record = running_record(server)
    if record is None:
        return server if server.port else replace(server, port=free_port())
    if dies_with_us:
        raise FolderInUse(
            f"{server.name} runs already, as process {record.pid}",
            where=str(server.folder),
            way_out="run `lowtide down` first, or choose another folder",
        )
    if server.port not in (0, record.port):
        raise ServerDiffers(
            f"{server.name} runs already, at port {record.port} instead of {server.port}",
            where=f"{server.folder}, process {record.pid}",
            way_out=f"run `lowtide down` first, or set {server.setting} = {record.port} in conf",
        )
    return replace(server, port=record.port)


def _launched(server: Server, command: Sequence[str], dies_with_us: bool) -> "subprocess.Popen[bytes]":
    process = launch(
        command,
        record_file=server.record_file,
        server=server.name,
        port=server.port,
        output=server.output,
        dies_with_us=dies_with_us,
        grace_s=STOP_GRACE_S,
    )
    # A stop that comes now needs its record, which the launcher writes within milliseconds.
    deadline = time.monotonic() + RECORD_TIMEOUT_S
    while not server.record_file.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S / 10)
    return process


def _reap(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the server's process, or its guard, to end; a guard that lingers is killed, and its server by it."""
    try:
        process.wait(RECORD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(server: Server, process: "subprocess.Popen[bytes] | None", logged_bytes: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not server.answers():
        code = process.poll() if process is not None else None
        if code is not None or (process is None and running_record(server) is None):
            what = f"{server.name} ended while it started (exit code {code})"
            raise _with_last_words(ServerDied, server, what, logged_bytes)
        if time.monotonic() > deadline:
            what = f"{server.name} runs but has not answered at {server.address} for {START_TIMEOUT_S:.0f} s"
            raise _with_last_words(ServerSilent, server, what, logged_bytes)
        time.sleep(POLL_S)


def _with_last_words(
    kind: type[ServerDied] | type[ServerSilent], server: Server, what: str, logged_bytes: int
) -> ServerDied | ServerSilent:
    return kind(
        f"{what}; its last lines:\n{server.last_words(logged_bytes)}",
        where=f"the whole log is {server.log}",
        way_out=f"fix what the lines name; if the data is damaged, remove {server.data}: this deletes all its data",
    )


def port_taken(server: Server) -> PortTaken:
    """Return the error that names the port, its holder, and the setting to change."""
    owner = port_owner(server.port)
    return PortTaken(
        f"port {server.port} for {server.name} is taken",
        where=f"held by {owner}" if owner else "held by a process that /proc does not show",
        way_out=f"stop that process, or set another port with {server.setting} in conf",
    )
