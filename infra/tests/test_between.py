"""Somebody stands between two hosts and changes what passes; packets are searched, and openings are recorded."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator

import pytest
from hanging import HANGS_S
from hosts_chaos.attacks import between, inside
from hosts_chaos.between import CHECKSUM_BYTES, FRAME_AT, ROW, Repeat, changed_record, forged_frame, remainder, xor
from hosts_chaos.run import misread
from lowtide_hosts.host import Host
from lowtide_hosts.network import Network
from packets import Packets, Segment, segment_of
from tests.still_network import own_network

from lowtide.worker.seals import Seals

NAME = f"between-{os.getpid()}"
CIDR = f"10.{20 + os.getpid() % 50}.{os.getpid() // 50 % 256}.0/24"
PORT = 9000
ENDS = (("10.0.0.1", 1000), ("10.0.0.2", PORT))
SENDER, RECEIVER = (Seals(b"secret", ("job", "id", 1), level, 0, f"{level}-0") for level in (0, 1))
FIRST, THIRD = b"first.", b"third."
"""A sealed frame with one of these leaves four bytes of a row or more unused."""
SERVER = f"""
import socket
with socket.create_server(("", {PORT})) as server:
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            print(b"".join(iter(lambda: connection.recv(1 << 16), b"")).hex(), flush=True)
"""
CLIENT = f"""
import socket, sys, time
with socket.create_connection((sys.argv[1], {PORT})) as connection:
    for said in sys.argv[2:]:
        connection.sendall(bytes.fromhex(said))
        time.sleep(0.1)
"""


def row(number: int, frame: bytes) -> bytes:
    """The rows of a message of Spark's streaming shuffle as they go over the wire: one row with a sealed frame."""
    sealed = SENDER.seal(0, 5, number, frame)
    filled = ROW.pack(bytes(8), 0, len(sealed), ROW.size) + sealed + bytes(-len(sealed) % 8)
    return len(filled).to_bytes(4) + filled


def segment(content: bytes, ends: tuple[tuple[str, int], tuple[str, int]] = ENDS) -> Segment:
    return Segment(*ends, 1, 0, 54, content)


def applied(content: bytes, changed: tuple[int, bytes] | None) -> bytes:
    assert changed is not None
    at, data = changed
    return content[:at] + data + content[at + len(data) :]


def frame_of(content: bytes) -> bytes:
    (size,) = struct.unpack_from("<I", content, FRAME_AT - 8)
    return content[FRAME_AT : FRAME_AT + size]


def checksum(content: bytes) -> int:
    """CRC-32C, as Spark has sent it ahead."""
    inverted = xor(content[:4], b"\xff" * 4) + content[4:]
    return remainder(inverted) ^ 0xFFFFFFFF


def test_the_checksum_is_crc_32c() -> None:
    assert checksum(b"123456789") == 0xE3069283


def test_a_forged_frame_is_one_that_spark_takes_and_the_worker_does_not() -> None:
    content = row(7, b"customer-1")
    forged = applied(content, forged_frame(segment(content)))
    assert len(forged) == len(content)
    assert checksum(forged) == checksum(content)
    assert frame_of(forged) != frame_of(content)
    assert RECEIVER.open(frame_of(content)) == b"customer-1"
    with pytest.raises(Exception, match="frame 7 of worker number 5 to worker 1-0 cannot be opened"):
        RECEIVER.open(frame_of(forged))


@pytest.mark.parametrize("content", [b"", b"GET / HTTP/1.1", row(7, b"x" * 300)[:-1], bytes(28) + b"\xc1\x01"])
def test_what_is_no_whole_row_with_a_sealed_frame_is_not_forged(content: bytes) -> None:
    assert forged_frame(segment(content)) is None


def test_a_repeated_frame_is_an_earlier_one_of_its_connection_and_opens() -> None:
    repeat = Repeat()
    elsewhere = (ENDS[0], (ENDS[1][0], PORT + 1))
    first, longer, third = row(7, FIRST), row(8, b"a longer one"), row(9, THIRD)
    assert repeat(segment(first)) is None
    assert repeat(segment(first)) is None, "TCP has sent it again"
    assert repeat(segment(longer)) is None
    assert repeat(segment(third, elsewhere)) is None
    repeated = applied(third, repeat(segment(third)))
    assert checksum(repeated) == checksum(third)
    assert RECEIVER.open(frame_of(repeated)) == FIRST


def test_a_frame_that_leaves_no_room_for_a_checksum_is_not_repeated() -> None:
    repeat = Repeat()
    full = [row(number, FIRST + bytes(3)) for number in (7, 8)]
    assert len(frame_of(full[0])) % 8 > 8 - CHECKSUM_BYTES
    assert [repeat(segment(each)) for each in full] == [None, None]


def test_a_record_of_tls_is_changed_behind_its_head() -> None:
    content = b"\x17\x03\x03\x00\x02ab"
    assert applied(content, changed_record(segment(content))) == b"\x17\x03\x03\x00\x02`b"
    assert changed_record(segment(b"\x16\x03\x03\x00\x02ab")) is None
    assert changed_record(segment(b"\x17\x03\x03\x00\x02")) is None


def packet(content: bytes, *, protocol: int = 6, padding: bytes = b"") -> bytes:
    tcp = struct.pack("!HHIIBBHHH", 1000, PORT, 77, 0, 5 << 4, 0x18, 0, 0, 0)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + len(content), 0, 0, 64, protocol, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    return bytes(12) + b"\x08\x00" + ip + tcp + content + padding


def test_a_segment_is_found_in_a_packet_without_ethernets_padding() -> None:
    assert segment_of(packet(b"said", padding=bytes(6))) == Segment(*ENDS, 77, 0x18, 54, b"said")
    assert segment_of(packet(b"said", protocol=17)) is None
    assert segment_of(b"short") is None


@pytest.fixture(name="network", scope="module")
def _network() -> Iterator[Network]:
    with own_network():
        network = Network(NAME, CIDR)
        network.create()
        yield network
        for host in Host.all(NAME):
            host.destroy()
        network.destroy()


@pytest.fixture(name="hosts", scope="module")
def _hosts(network: Network) -> list[Host]:
    before = network.gateway.rpartition(".")[0]
    return [Host(NAME, name, f"{before}.{10 + at}").create() for at, name in enumerate(["one", "two", "between"])]


@pytest.fixture(name="server", scope="module")
def _server(hosts: list[Host]) -> Iterator[subprocess.Popen[str]]:
    """Prints what each connection to the second host has said; ends with that host."""
    command = hosts[1].inside(["python3", "-c", SERVER], {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        hosts[1].destroy()


def say(host: Host, other: Host, *said: bytes) -> None:
    command = host.inside(["python3", "-c", CLIENT, other.address, *(each.hex() for each in said)], {})
    subprocess.run(command, check=True, timeout=HANGS_S)


def heard(process: subprocess.Popen[str]) -> bytes:
    assert process.stdout is not None
    return bytes.fromhex(process.stdout.readline())


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="hosts are made by root alone")


@needs_root
@pytest.mark.parametrize(
    ("what", "sent"),
    [
        ("frame", [row(7, FIRST)]),
        ("repeat", [row(7, FIRST), row(9, THIRD)]),
        ("record", [b"\x17\x03\x03\x00\x02ab"]),
    ],
)
def test_it_is_changed_once_on_its_way_from_host_to_host(
    hosts: list[Host], server: subprocess.Popen[str], what: str, sent: list[bytes]
) -> None:
    one, two, by = hosts
    with between(what, one, two, by) as changed:
        one.divert(two, by)
        say(one, two, *sent)
        assert str(PORT) in changed(HANGS_S)
        arrived = heard(server)
        say(one, two, *sent)
        assert heard(server) == b"".join(sent), "once"
        one.mend(two)
    assert len(arrived) == len(b"".join(sent))
    assert arrived != b"".join(sent)
    say(one, two, *sent)
    assert heard(server) == b"".join(sent), "nobody is between them any more"


@needs_root
def test_what_connections_began_with_is_recorded_and_packets_are_searched(
    network: Network, hosts: list[Host], server: subprocess.Popen[str]
) -> None:
    one, two, by = hosts
    with Packets(network.bridge, {"a customer": rb"customer-\d"}) as packets:
        say(one, two, b"hello customer-", b"7", b", customer-8")
        assert heard(server) == b"hello customer-7, customer-8"
        say(by, two, b"another")
        assert heard(server) == b"another"
    assert packets.found == {"a customer": 1}, "the other is cut in two by packets"
    ((source, target),) = packets.where.values()
    assert (source[0], target) == (one.address, (two.address, PORT))
    assert packets.missed == 0
    (failure,) = misread(packets, clear=False)
    assert failure.startswith(f"a customer was found in 1 of {packets.seen} packets, first from {one.address}:")
    assert misread(packets, clear=True) == []
    packets.found["a frame"] = 0
    assert misread(packets, clear=True) == [f"a frame was found in 0 of {packets.seen} packets"]
    begun = packets.openings(lambda source, _: source[0] == one.address)
    assert begun == {(two.address, PORT): b"hello customer-7, customer-8"}


@needs_root
def test_a_replay_says_whether_the_other_end_hung_up(hosts: list[Host], server: subprocess.Popen[str]) -> None:
    _, two, by = hosts
    # The server waits for more until the client hangs up: nothing was refused.
    done = subprocess.run(
        inside(by, "replay.py", "0.5", two.address), input=json.dumps({PORT: b"again".hex(), 1: "00"}),
        capture_output=True, text=True, check=True, timeout=HANGS_S,
    )  # fmt: skip
    assert heard(server) == b"again"
    assert json.loads(done.stdout) == {str(PORT): False, "1": True}
