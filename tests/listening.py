"""Addresses where processes of this machine listen: `/proc/net/tcp` and the sockets that each has open."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

LISTEN = "0A"


@dataclass(frozen=True, order=True)
class Listener:
    """A socket that takes connections.

    Attributes:
        pid: The process that has it open; of several one.
        host: The address it is bound to; `0.0.0.0` or `::` for all.
        port: Its port.
    """

    pid: int
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """True if only this machine reaches it."""
        address = ipaddress.ip_address(self.host)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def listeners(pids: Iterable[int]) -> list[Listener]:
    """Return all sockets at which these processes listen, TCP over IPv4 and IPv6."""
    holders = {inode: pid for pid in pids for inode in sockets_of(pid)}
    found = set()
    for row in tcp_rows():
        if row[3] == LISTEN and row[9] in holders:
            address, _, port = row[1].partition(":")
            found.add(Listener(holders[row[9]], _host(address), int(port, 16)))
    return sorted(found)


def tcp_rows() -> Iterator[list[str]]:
    """The kernel's rows of TCP sockets, over IPv4 and IPv6: own and other end at 1 and 2, state at 3, inode at 9."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                yield from [line.split() for line in lines][1:]
        except FileNotFoundError:
            continue  # This machine has no IPv6.


def sockets_of(pid: int) -> set[str]:
    """The inodes of the sockets that a process has open."""
    found = set()
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            target = os.readlink(entry.path)
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    except OSError:
        pass  # It has ended, or closed one meanwhile.
    return found


def _host(text: str) -> str:
    """An address as the kernel prints it: words of 32 bits, each in the machine's order of bytes."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
