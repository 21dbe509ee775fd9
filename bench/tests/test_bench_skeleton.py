"""The skeleton beside the flow: its frames, its workers, and its Java class, which is in no jar of the product."""

from __future__ import annotations

import socket
import struct
import threading
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hanging import HANGS_S

from lowtide.jars.shim import shim_jar
from lowtide_bench.cli import bench
from lowtide_bench.counted import Counted
from lowtide_bench.skeleton import jar
from lowtide_bench.skeleton.frames import decode, encode
from lowtide_bench.skeleton.sink import Outgoing, Sink
from lowtide_bench.skeleton.worker import Counter, Sender, frames, serve

STAMPS, VALUES = [3, 1 << 40, -1], [b"one", b"", b"three"]


class Kept(Sink):
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []

    def put(self, records: list[Outgoing]) -> None:
        self.records += records


def test_a_frame_holds_its_records() -> None:
    assert decode(encode(STAMPS, VALUES)) == (STAMPS, VALUES)
    assert decode(encode([], [])) == ([], [])


def test_a_frame_is_as_the_java_side_writes_it() -> None:
    expected = struct.pack("=i3q3i", 3, *STAMPS, 3, 0, 5) + b"onethree"
    assert encode(STAMPS, VALUES) == expected


def values(count: int) -> list[bytes]:
    return [Counted().message(number, 7)[1] for number in range(count)]


def sent_on(answer: bytes) -> dict[int, list[bytes]]:
    """The values of each target in what a worker of level 0 answers."""
    found = {}
    while answer:
        target, length = struct.unpack_from(">ii", answer)
        assert target not in found
        found[target] = decode(answer[8 : 8 + length])[1]
        answer = answer[8 + length :]
    return found


def test_every_record_goes_to_the_worker_of_its_key_in_order() -> None:
    given = values(3_000)
    one = sent_on(Sender(1).take(encode([0] * len(given), given)))
    assert one == {0: given}
    several = sent_on(Sender(3).take(encode([0] * len(given), given)))
    assert sorted(several) == [0, 1, 2]
    keys = [{value[:8] for value in some} for some in several.values()]
    assert len(set.union(*keys)) == sum(map(len, keys))
    for some in several.values():
        assert some == [value for value in given if value in set(some)]
    assert sum(map(len, several.values())) == len(given)


def test_the_counter_counts_as_the_flow_does() -> None:
    sink, given = Kept(), values(2_500)
    counter = Counter(sink, counts=True)
    for start in range(0, len(given), 1_000):
        part = given[start : start + 1_000]
        assert counter.take(encode(list(range(len(part))), part)) == b""
    known = Counted().read([value for _, _, value in sink.records])
    assert known[0].tolist() == list(range(2_500))
    assert Counted().faults(known[2:]) == 0
    assert [key for _, key, _ in sink.records] == [value[:8] for value in given]


def test_what_is_not_counted_is_passed_on_as_it_is() -> None:
    sink = Kept()
    Counter(sink, counts=False).take(encode(STAMPS, VALUES))
    assert sink.records == [(stamp, None, value) for stamp, value in zip(STAMPS, VALUES, strict=True)]


def test_a_worker_serves_the_next_task_after_one_that_broke_off() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener, Sender(1)), daemon=True).start()
    frame = encode(STAMPS, VALUES)
    with socket.create_connection(listener.getsockname()) as broken:
        broken.sendall(struct.pack(">i", len(frame)) + frame[:5])
    with socket.create_connection(listener.getsockname()) as whole:
        whole.sendall(struct.pack(">i", len(frame)) + frame)
        whole.shutdown(socket.SHUT_WR)
        whole.settimeout(HANGS_S)
        answer = b"".join(iter(lambda: whole.recv(1 << 16), b""))
    assert sent_on(answer) == {0: VALUES}


@pytest.mark.parametrize("cut", [2, 6])
def test_a_frame_that_breaks_off_is_not_taken(cut: int) -> None:
    frame = encode(STAMPS, VALUES)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall((struct.pack(">i", len(frame)) + frame)[:cut])
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError, match="in the middle of a frame"):
            list(frames(theirs))


@pytest.mark.slow
def test_the_class_is_compiled_into_the_cache_once_and_not_into_the_products_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))
    made = jar.skeleton_jar()
    assert made.parent == tmp_path / "bench"
    assert "io/lowtide/skeleton/Stage.class" in zipfile.ZipFile(made).namelist()
    before = made.stat().st_mtime_ns
    assert jar.skeleton_jar() == made
    assert made.stat().st_mtime_ns == before
    assert list(made.parent.iterdir()) == [made]
    assert not [name for name in zipfile.ZipFile(shim_jar()).namelist() if "skeleton" in name]


@pytest.mark.parametrize("command", ["latency", "throughput"])
def test_an_unknown_subject_is_refused_with_the_known_ones(command: str) -> None:
    done = CliRunner().invoke(bench, [command, "--subjects", "bare,bear"])
    assert done.exit_code == 2
    assert "'bear' is none of bare, skeleton, flow" in done.output
