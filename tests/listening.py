"""Addresses where processes of this machine listen: the kernel's tables, and the sockets that each has open."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lowtide_tracker.unix import UNIX, is_unix

LISTEN = "0A"
TAKES_CONNECTIONS = 0x10000
"""The flag of a Unix socket that listens."""


@dataclass(frozen=True, order=True)
class Listener:
    """A socket that takes connections.

    Attributes:
        pid: The process that has it open; of several one.
        address: What it is bound to, `host:port`, where `0.0.0.0` or `::` is for all, or `unix:/path`.
    """

    pid: int
    address: str

    @property
    def near(self) -> bool:
        """True if only this machine reaches it."""
        if is_unix(self.address):
            return True
        address = ipaddress.ip_address(self.address.rpartition(":")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def listeners(pids: Iterable[int]) -> list[Listener]:
    """Return all sockets at which these processes listen, TCP over IPv4 and IPv6, and Unix."""
    holders = {inode: pid for pid in pids for inode in sockets_of(pid)}
    found = set()
    for row in tcp_rows():
        if row[3] == LISTEN and row[9] in holders:
            address, _, port = row[1].partition(":")
            found.add(Listener(holders[row[9]], f"{_host(address)}:{int(port, 16)}"))
    for row in unix_rows():
        if int(row[3], 16) & TAKES_CONNECTIONS and row[6] in holders:
            found.add(Listener(holders[row[6]], f"{UNIX}{row[7]}"))
    return sorted(found)


def tcp_rows() -> Iterator[list[str]]:
    """The kernel's rows of TCP sockets, over IPv4 and IPv6: own and other end at 1 and 2, state at 3, inode at 9."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                yield from [line.split() for line in lines][1:]
        except FileNotFoundError:
            continue  # This machine has no IPv6.


def unix_rows() -> Iterator[list[str]]:
    """The kernel's rows of Unix sockets that have a path: flags at 3, inode at 6, path at 7."""
    with open("/proc/net/unix", encoding="utf-8") as lines:
        rows = [line.split(maxsplit=7) for line in lines][1:]
    yield from [[*row[:7], row[7].rstrip("\n")] for row in rows if len(row) == 8 and row[7].startswith("/")]


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
