"""Ports of this machine: free ones, and the holders of the others."""

import contextlib
import os
import random
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
LISTENING = "0A"
# Below the range that the kernel hands out to outgoing connections, so that a port found free stays free.
FREE_PORTS = range(20_000, 32_000)
FREE_PORT_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class PortOwner:
    """The process that listens on a port."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def is_free(port: int) -> bool:
    """Return whether a server could listen on the loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def answers(port: int, timeout_s: float = 0.5) -> bool:
    """Return whether a process accepts connections on the loopback port."""
    try:
        socket.create_connection((HOST, port), timeout_s).close()
    except OSError:
        return False
    return True


def free_port(other_than: Collection[int] = ()) -> int:
    """Return a free port of loopback.

    Args:
        other_than: Ports that are reserved, although no process listens on them yet.

    Raises:
        OSError: no free port was found in `FREE_PORT_ATTEMPTS` tries.
    """
    for _ in range(FREE_PORT_ATTEMPTS):
        port = random.SystemRandom().choice(FREE_PORTS)
        if port not in other_than and is_free(port):
            return port
    raise OSError(f"no free port between {FREE_PORTS.start} and {FREE_PORTS.stop} in {FREE_PORT_ATTEMPTS} tries")


def port_owner(port: int) -> PortOwner | None:
    """Find the process that listens on the port; None if there is none, or /proc does not show it (another user's)."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    targets = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _holds(process, targets):
            return PortOwner(int(process.name), _command(process))
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(fields[9])
    return inodes


def _holds(process: Path, targets: set[str]) -> bool:
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(descriptor) in targets:
                    return True
    return False


def _command(process: Path, limit_chars: int = 80) -> str:
    """The command line, its class path left out because it would fill the screen."""
    with contextlib.suppress(OSError):
        words = (process / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
        for option in ("-cp", "-classpath", "--class-path"):
            if option in words[:-1]:
                at = words.index(option)
                words = words[:at] + words[at + 2 :]
        line = " ".join(words)
        return line if len(line) <= limit_chars else f"{line[: limit_chars // 2]} … {line[-limit_chars // 2 :]}"
    return "unknown command"
