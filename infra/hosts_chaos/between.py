"""Stands between two hosts whose packets are diverted to its own: `between.py WHAT ADDRESS=HARDWARE ADDRESS=HARDWARE`.

It passes on what comes, until its standard input ends. WHAT is what it changes on the way, once: `frame`, some bytes of
a sealed frame of Spark's streaming shuffle; `repeat`, such a frame, which becomes an earlier one of the same
connection; `record`, a byte of a record of TLS. What becomes of a frame has the checksum that Spark has sent ahead.
It prints `ready`, then JSON for what it has changed, `{"from": [address, port], "to": [address, port]}`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from packets import ETHERNET_BYTES, IPV4, PACKET_BYTES, SOL_PACKET, End, Segment, segment_of

DEVICE = "eth0"
FORWARDING = Path(f"/proc/sys/net/ipv4/conf/{DEVICE}/forwarding")
VNET_HEADER, VNET_BYTES = 15, 10
"""The kernel says before each packet what of it is left to do, checksums among it, and does that itself later."""
SUM_IS_OPEN = 1
"""Flag of a packet whose checksum is not made yet."""
OUTGOING = 4
HARDWARE_BYTES = 6

# Spark sends the rows of a message in a packet of their own, often one: size u32, then as an UnsafeRow 8 bytes for
# nulls, the target i64, where the frame is u32 size | u32 begin (little-endian), and the frame, filled up to 8 bytes.
ROW = struct.Struct("<8sqII")
SIZE_BYTES = 4
FRAME_AT = SIZE_BYTES + ROW.size
# A sealed frame begins with 0xc1, a version, its sender (u32) and its number (u64): `lowtide/worker/seals.py`.
SEALED = b"\xc1\x01"
HEAD_BYTES = 14
CHECKSUM_BYTES = 4
UNSEEN = (0x82F63B78 << 1 | 1).to_bytes(5, "little")
"""The polynomial of CRC-32C: a message that is changed by it, bit by bit, keeps its checksum."""
TLS_RECORD = b"\x17\x03\x03"
TLS_HEAD_BYTES = 5

Changed = tuple[int, bytes]
"""The place of new bytes in a packet's content, and these."""


def remainder(data: bytes) -> int:
    """Return what CRC-32C makes of a change: 0 for one that it does not see."""
    crc = 0
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


TABLE = [_entry(byte) for byte in range(256)]


def frame_in(content: bytes) -> int | None:
    """Return where a sealed frame ends in a segment that is one row with it; None for any other."""
    if len(content) < FRAME_AT + HEAD_BYTES or int.from_bytes(content[:SIZE_BYTES]) != len(content) - SIZE_BYTES:
        return None
    nulls, _, size, begin = ROW.unpack_from(content, SIZE_BYTES)
    ends = FRAME_AT + size
    if any(nulls) or begin != ROW.size or not FRAME_AT + HEAD_BYTES < ends <= len(content):
        return None
    return ends if content.startswith(SEALED, FRAME_AT) else None


def forged_frame(segment: Segment) -> Changed | None:
    """Change a few bytes of a sealed frame behind its head, so that the checksum stays right."""
    at = FRAME_AT + HEAD_BYTES
    ends = frame_in(segment.content)
    if ends is None or ends < at + len(UNSEEN):
        return None
    return at, xor(segment.content[at : at + len(UNSEEN)], UNSEEN)


class Repeat:
    """Gives a connection a frame that it has had, in place of one that is as long and has room for a checksum."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[End, End, int], bytes] = {}

    def __call__(self, segment: Segment) -> Changed | None:
        """Note a frame, or change it."""
        content = segment.content
        ends = frame_in(content)
        if ends is None or len(content) - ends < CHECKSUM_BYTES:
            return None
        earlier = self._earlier.setdefault((segment.source, segment.target, ends), content)
        if earlier == content:  # A segment that TCP repeats is no later one.
            return None
        before = earlier[:-CHECKSUM_BYTES]
        # What fills the row up makes the whole change one that the checksum does not see.
        mended = remainder(xor(before, content[:-CHECKSUM_BYTES])).to_bytes(CHECKSUM_BYTES, "little")
        return 0, before + xor(content[-CHECKSUM_BYTES:], mended)


def xor(one: bytes, other: bytes) -> bytes:
    """Return two strings of the same length, changed by each other."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def changed_record(segment: Segment) -> Changed | None:
    """Change the first encrypted byte of a record of TLS."""
    content = segment.content
    if not content.startswith(TLS_RECORD) or len(content) <= TLS_HEAD_BYTES:
        return None
    return TLS_HEAD_BYTES, bytes([content[TLS_HEAD_BYTES] ^ 1])


Change = Callable[[Segment], Changed | None]
CHANGES: dict[str, Change] = {"frame": forged_frame, "repeat": Repeat(), "record": changed_record}


class Between:
    """The man in the middle.

    Args:
        change: Changes a segment's content once; returns None where there is nothing in it to change.
        ends: The hardware address of each host, by its address.
    """

    def __init__(self, change: Change, ends: dict[bytes, bytes]) -> None:
        self._change: Change | None = change
        self._ends = ends
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(int.from_bytes(IPV4)))
        self._socket.setsockopt(SOL_PACKET, VNET_HEADER, 1)
        self._socket.bind((DEVICE, int.from_bytes(IPV4)))
        self._own: bytes = self._socket.getsockname()[4]

    def run(self) -> None:
        """Pass on packets until standard input ends."""
        while True:
            ready, _, _ = select.select([self._socket, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            came, (_, _, kind, *_) = self._socket.recvfrom(PACKET_BYTES)
            target = self._ends.get(came[VNET_BYTES + ETHERNET_BYTES + 16 :][:4])
            if kind != OUTGOING and target is not None:
                self._pass_on(bytearray(came), target)

    def _pass_on(self, packet: bytearray, target: bytes) -> None:
        self._forge(packet)
        packet[VNET_BYTES : VNET_BYTES + 2 * HARDWARE_BYTES] = target + self._own
        try:
            self._socket.send(packet)
        except OSError as error:  # The sender's TCP repeats it.
            sys.stderr.write(f"not passed on: {error}\n")

    def _forge(self, packet: bytearray) -> None:
        if self._change is None or packet[0] != SUM_IS_OPEN:
            return
        segment = segment_of(bytes(packet[VNET_BYTES:]))
        changed = None if segment is None or not segment.content else self._change(segment)
        if segment is None or changed is None:
            return
        at, data = VNET_BYTES + segment.at + changed[0], changed[1]
        packet[at : at + len(data)] = data
        self._change = None
        say(json.dumps({"from": segment.source, "to": segment.target}))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    known = [end.partition("=") for end in given]
    between = Between(
        CHANGES[what], {socket.inet_aton(end): bytes.fromhex(hardware.replace(":", "")) for end, _, hardware in known}
    )
    # The kernel itself is not to pass on what is for others.
    FORWARDING.write_text("0")
    os.set_blocking(sys.stdin.fileno(), True)
    say("ready")
    between.run()
