"""TCP sockets of a host, as the kernel lists them for its namespace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from lowtide_hosts.processes import Process

LISTENING, ESTABLISHED = "0A", "01"

Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class Socket:
    """A TCP socket.

    Attributes:
        state: `LISTENING`, `ESTABLISHED` or another of the kernel's.
        local: Its own address and port.
        remote: Address and port of its other end.
        inode: Key to the process that has it open.
    """

    state: str
    local: tuple[Address, int]
    remote: tuple[Address, int]
    inode: str


def sockets(process: Process) -> Iterator[Socket]:
    """Return all TCP sockets of the host on which a process runs."""
    for table in ("tcp", "tcp6"):
        file = Path(f"/proc/{process.pid}/net/{table}")
        for row in file.read_text().splitlines()[1:] if file.exists() else ():
            fields = row.split()
            yield Socket(fields[3], _end(fields[1]), _end(fields[2]), fields[9])


def _end(text: str) -> tuple[Address, int]:
    """Parse an address and a port from the kernel's form, in words of four bytes with the last byte first."""
    words, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(words[place : place + 8])[::-1] for place in range(0, len(words), 8))
    address = ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address, int(port, 16)
