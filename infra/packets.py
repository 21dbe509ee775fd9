"""Packets of a network device, searched for what nobody may read there; and what connections began with. Root only."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Self

EVERY_PROTOCOL, IPV4, TCP = 3, b"\x08\x00", 6
SOL_PACKET, ADD_MEMBERSHIP, STATISTICS, PROMISCUOUS = 263, 1, 6, 1
RECEIVE_FORCE = 33
"""SO_RCVBUFFORCE of Linux, which root may set beyond the machine's limit."""
NO_PROTOCOL = 0x88B6
"""A number for local experiments: no packet has it."""
ROOM_BYTES = 256 << 20
"""Room in the kernel for packets that wait to be searched."""
PACKET_BYTES = 1 << 17
ETHERNET_BYTES = 14
HEADERS_BYTES = 100
"""More than the headers of Ethernet, IP and TCP take."""
SYN, ACK = 0x02, 0x10
OPENING_BYTES = 1 << 13
"""Of each connection's beginning, as much as a handshake takes."""
OPENINGS = 1000
"""Beginnings that are kept, the newest."""

End = tuple[str, int]
"""An address and a port."""


@dataclass(slots=True)
class Segment:
    """A segment of TCP over IPv4.

    Attributes:
        source: Where it comes from.
        target: Where it goes.
        number: The number of its first byte.
        flags: TCP's.
        at: Where its content begins in the packet.
        content: Its content.
    """

    source: End
    target: End
    number: int
    flags: int
    at: int
    content: bytes


def segment_of(packet: bytes) -> Segment | None:
    """Return the segment in a packet of Ethernet; None if it has another protocol."""
    if packet[12:14] != IPV4 or len(packet) < ETHERNET_BYTES + 40 or packet[ETHERNET_BYTES + 9] != TCP:
        return None
    ip, size = packet[ETHERNET_BYTES:], int.from_bytes(packet[ETHERNET_BYTES + 2 : ETHERNET_BYTES + 4])
    begins = 4 * (ip[0] & 0xF)
    from_port, to_port, number, _, offset, flags = struct.unpack_from("!HHIIBB", ip, begins)
    content = begins + 4 * (offset >> 4)
    return Segment(
        (str(IPv4Address(ip[12:16])), from_port), (str(IPv4Address(ip[16:20])), to_port),
        number, flags, ETHERNET_BYTES + content, ip[content:size or None],
    )  # fmt: skip


@dataclass(slots=True)
class Opening:
    """The beginning of a connection, as its client sent it."""

    number: int
    sent: bytearray = field(default_factory=bytearray)

    def add(self, segment: Segment) -> None:
        """Add what comes next; what came before or out of turn is left out."""
        ahead = (segment.number - self.number - 1 - len(self.sent)) % (1 << 32)
        if ahead == 0 and len(self.sent) < OPENING_BYTES:
            self.sent += segment.content


class Packets:
    """Searches the packets on a device, from its beginning to its end as a context.

    Attributes:
        seen: Number of packets with something in them.
        missed: Number of packets that the kernel had no room for.
        found: Number of those in which each pattern was found.
        where: The ends between which each was found first.

    Args:
        device: The device's name; of a bridge all that it passes on is seen.
        searched: Regular expressions by a name for what each finds.
        apart_from: A port whose packets are not looked at.
    """

    def __init__(self, device: str, searched: Mapping[str, bytes], *, apart_from: int | None = None) -> None:
        self.seen = self.missed = 0
        self.found = dict.fromkeys(searched, 0)
        self.where: dict[str, tuple[End, End]] = {}
        self._patterns = {name: re.compile(pattern) for name, pattern in searched.items()}
        self._apart_from = apart_from
        self._openings: dict[tuple[End, End], Opening] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="packets")
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL))
        self._socket.setsockopt(socket.SOL_SOCKET, RECEIVE_FORCE, ROOM_BYTES)
        self._socket.bind((device, 0))
        self._device = device
        membership = struct.pack("iHH8s", socket.if_nametoindex(device), PROMISCUOUS, 0, b"")
        self._socket.setsockopt(SOL_PACKET, ADD_MEMBERSHIP, membership)
        self._socket.settimeout(0.1)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Nothing more comes, on a device that is never quiet either; what has come is still searched.
        self._socket.bind((self._device, NO_PROTOCOL))
        self._over.set()
        self._thread.join()
        self._count_missed()
        self._socket.close()

    def search(self, name: str, pattern: bytes) -> None:
        """Search for one more from now on."""
        self.found[name] = 0
        self._patterns = {**self._patterns, name: re.compile(pattern)}

    def openings(self, chosen: Callable[[End, End], bool]) -> dict[End, bytes]:
        """Return what the newest connection to each end began with, as its client sent it.

        Args:
            chosen: Takes a connection's source and target; returns whether it counts.
        """
        known = list(self._openings.items())
        return {ends[1]: bytes(opening.sent) for ends, opening in known if opening.sent and chosen(*ends)}

    def _listen(self) -> None:
        while True:
            try:
                packet = self._socket.recv(PACKET_BYTES)
            except TimeoutError:
                if self._over.is_set():  # What came before the end has been searched.
                    return
                continue
            self._look(packet)

    def _look(self, packet: bytes) -> None:
        segment = segment_of(packet)
        if segment is not None:
            if self._apart_from in (segment.source[1], segment.target[1]):
                return
            self._note(segment)
        self.seen += len(packet) > HEADERS_BYTES
        for name, pattern in self._patterns.items():
            if pattern.search(packet):
                self.found[name] += 1
                if segment is not None:
                    self.where.setdefault(name, (segment.source, segment.target))

    def _note(self, segment: Segment) -> None:
        ends = (segment.source, segment.target)
        if segment.flags & (SYN | ACK) == SYN:
            self._openings.pop(ends, None)  # The newest comes last.
            self._openings[ends] = Opening(segment.number)
            if len(self._openings) > OPENINGS:
                del self._openings[next(iter(self._openings))]
        elif segment.content and (opening := self._openings.get(ends)) is not None:
            opening.add(segment)

    def _count_missed(self) -> None:
        _, missed = struct.unpack("II", self._socket.getsockopt(SOL_PACKET, STATISTICS, 8))
        self.missed += missed
