"""What `make chaos` is made of, and a very short run of it: two faults, judged byte by byte."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from tests.chaos.asked import Asked, answer_to
from tests.chaos.clock import Step, SteppedClock
from tests.chaos.cutting import cut, may_cut
from tests.chaos.gate import Gate, Trap
from tests.chaos.reader import longest_silence_s
from tests.chaos.run import Run
from tests.chaos.schedule import ALONE, CALLING, CAUSED, KILLS, OTHERS, WAITED, Fault, kinds, schedule
from tests.chaos.stage import Play
from tests.chaos.verdict import Letters, Result, judged
from tests.judging import produce
from tests.shop import now_ms
from tests.waiting import HANGS_S

from lowtide.conf import Conf
from lowtide.connectors.topics import Topics
from lowtide.embedded import EmbeddedServices
from lowtide.local.oracle import Output, read_output

SEEDS = range(200)
HOUR_MS = 3_600_000
SEVENTEEN = ["kill-at-request (tracker)", "kill-at-seal (worker) after", "kafka killed for 4.7 s"]
LETTERS: Letters = Counter({(b"k", b"bad"): 2})


def test_a_seed_gives_its_schedule_and_no_other() -> None:
    assert [schedule(seed, 20) for seed in SEEDS] == [schedule(seed, 20) for seed in SEEDS]
    assert len({tuple(schedule(seed, 20)) for seed in SEEDS}) == len(SEEDS)
    # What a failure says of how to replay it has to hold tomorrow: only a new kind changes this.
    assert [str(fault) for fault in schedule(17, 2, 1)] == SEVENTEEN


def test_exactly_as_many_are_killed_as_were_asked_for() -> None:
    for seed in SEEDS:
        for kills in (0, 1, 2, 3, 20, 33):
            assert sum(fault.kills for fault in schedule(seed, kills)) == kills


def test_every_kind_comes_before_one_comes_twice() -> None:
    for cluster, calls, standbys in product((False, True), repeat=3):
        killing, others = kinds(cluster=cluster, calls=calls, standbys=standbys)
        assert calls == ({*killing, *others} >= CALLING)
        assert standbys == ({*killing, *others} >= WAITED) == ({*others}.isdisjoint(ALONE))
        for seed in SEEDS:
            drawn = schedule(seed, 20, cluster=cluster, calls=calls, standbys=standbys)
            found = Counter(fault.kind for fault in drawn)
            assert set(found) == {*killing, *others}
            assert all(found[kind] == 1 for kind in others)
            assert max(found.values()) <= 2


def test_only_what_is_asked_for_is_drawn() -> None:
    assert {fault.kind for fault in schedule(3, 4, 0, only=["kill-driver"])} == {"kill-driver"}
    assert {fault.kind for fault in schedule(3, 4, only=["kill-driver", "kafka"])} == {"kill-driver", "kafka"}
    assert [fault.kind for fault in schedule(3, 5, 0, only=["kill-at-load"])] == ["kill-at-load"] * 2


def test_every_fault_has_somebody_to_be_done_to_and_a_limit() -> None:
    for seed in SEEDS:
        for fault in schedule(seed, 20, cluster=True, calls=True):
            assert fault.victim in (KILLS | OTHERS)[fault.kind]
            assert 0 <= fault.which < 1
            assert 0 <= fault.after_s + fault.lasts_s < 20
            assert fault.ends_life or fault.kind not in CAUSED


def test_a_run_is_right_only_if_all_came_once_in_order_over_a_recovery() -> None:
    due = {0: [output(1), output(2), output(3)], 1: []}
    result = Result(recoveries_s=[2.0])
    assert not result.right, "nothing was judged"
    assert judged(result, due, due, LETTERS, LETTERS).right
    counts: dict[str, Any] = {"lost": 0, "duplicated": 0, "out_of_order": 0}
    assert Result(**counts, recoveries_s=[2.0]) == result
    for right, other in (
        (True, Result(**counts, recoveries_s=[2.0])),
        (False, Result(**counts)),
        (False, Result(**counts, recoveries_s=[2.0], failures=["stuck"])),
    ):
        assert other.right == right


@pytest.mark.parametrize(
    ("came", "letters", "counts"),
    [
        ([1, 2], {(b"k", b"bad"): 2}, (1, 0, 0)),
        ([1, 2, 3, 3], {(b"k", b"bad"): 2}, (0, 1, 0)),
        ([2, 1, 3], {(b"k", b"bad"): 2}, (0, 0, 2)),
        ([1, 2, 3], {(b"k", b"bad"): 1}, (1, 0, 0)),
        ([1, 2, 3], {(b"k", b"bad"): 2, (b"k", b"worse"): 3}, (0, 3, 0)),
    ],
)
def test_a_difference_is_counted_and_none_is_right(
    came: list[int], letters: dict[Any, int], counts: tuple[int, int, int]
) -> None:
    result = Result(recoveries_s=[2.0])
    judged(result, {0: [output(n) for n in (1, 2, 3)]}, {0: [output(n) for n in came]}, LETTERS, Counter(letters))
    assert (result.lost, result.duplicated, result.out_of_order) == counts
    assert not result.right


def test_the_last_line_says_it_all() -> None:
    result = Result(kills=3, lost=0, duplicated=0, out_of_order=0, recoveries_s=[4.0, 1.0, 2.0])
    result.faults.update(["kill-worker", "kafka", "kill-worker"])
    assert result.line() == (
        '{"kills": 3, "faults": {"kafka": 1, "kill-worker": 2}, "lost": 0, "duplicated": 0, "out_of_order": 0, '
        '"recoveries": 3, "recovery_p50_s": 2.0, "recovery_max_s": 4.0}'
    )
    assert '"recoveries": 0, "recovery_p50_s": null, "recovery_max_s": null' in Result().line()


def test_a_silence_counts_from_the_last_output_before() -> None:
    times = [1.0, 1.1, 4.0, 4.1, 5.0]
    assert longest_silence_s(times, 2.0) == pytest.approx(2.9)
    assert longest_silence_s(times, 4.05) == pytest.approx(0.9)
    assert longest_silence_s(times, 6.0) == longest_silence_s([], 0.0) == 0.0


@pytest.fixture(name="server")
def _server() -> Iterator[tuple[int, list[str]]]:
    """The port of an HTTP server, and what it was asked for."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            seen.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server.server_address[1], seen
    server.shutdown()
    server.server_close()


def put(gate: Gate, path: str) -> int:
    connection = http.client.HTTPConnection(gate.endpoint.removeprefix("http://"), timeout=5)
    try:
        connection.request("PUT", path)
        return connection.getresponse().status
    except ConnectionError:
        return 0
    finally:
        connection.close()


@pytest.mark.parametrize("applied", [False, True])
def test_a_step_is_hit_before_or_after_the_server_has_applied_it(
    server: tuple[int, list[str]], *, applied: bool
) -> None:
    port, seen = server
    at_hit: list[list[str]] = []
    with Gate(port) as gate:
        trap = gate.set(Trap(lambda at: "/parts/" in at, lambda: at_hit.append(list(seen)), 2, applied=applied))
        for path in ("/b/parts/1", "/b/manifests/1", "/b/parts/2", "/b/parts/3"):
            assert put(gate, path) == 200
    assert trap.sprung.is_set()
    assert at_hit == [["/b/parts/1", "/b/manifests/1", *["/b/parts/2"] * applied]]


def test_bad_weather_passes(server: tuple[int, list[str]]) -> None:
    port, seen = server
    with Gate(port) as gate:
        gate.weather("500", 60.0)
        assert [put(gate, "/b/parts/1") for _ in range(6)] == [500, 500, 200, 500, 500, 200]
        assert len(seen) == 2
        gate.weather("applied", 60.0)
        assert sorted(put(gate, "/b/parts/1") for _ in range(3)) == [0, 200, 500]
        assert len(seen) == 5
        gate.weather("500", 0.0)
        assert put(gate, "/b/parts/1") == 200


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
def test_a_date_of_a_clock_that_was_wrong_is_put_right(tmp_path: Path, by_ms: int) -> None:
    clock = SteppedClock(tmp_path / "clock")
    began = now_ms() - 300_000
    clock.steps.append(Step(began, began + 9_000, by_ms))
    for true_ms in (began - 5_000, began + 200_000):
        assert clock.believed_ms(true_ms) == true_ms
    # Where it was ahead, a life that began meanwhile believed a minute more, and stood still until that had passed.
    follows = by_ms > 0
    assert clock.believed_ms(began + 4_000 + by_ms) == began + 4_000 + 60_000 * follows
    assert clock.believed_ms(began + 30_000) == began + (69_000 if follows else 30_000)


@pytest.mark.kafka
def test_a_broker_dates_by_the_clock_that_is_stepped(tmp_path: Path) -> None:
    clock = SteppedClock(tmp_path / "clock")
    with EmbeddedServices(tmp_path / "services", only=["kafka"], kafka_classes=clock.classes) as services:
        conf = Conf.load(None, {"kafka.bootstrap_servers": services.kafka})
        Topics(conf.kafka).create("dated", config={"message.timestamp.type": "LogAppendTime"})

        def off_ms() -> int:
            produce(conf, "dated", {0: [(b"", None)]})
            return read_output(conf.kafka, "dated")[0][-1].timestamp - now_ms()

        for by_ms in (HOUR_MS, -HOUR_MS):
            assert abs(off_ms()) < HOUR_MS / 10
            with clock.stepped(by_ms):
                time.sleep(0.2)
                assert abs(off_ms() - by_ms) < HOUR_MS / 10
            time.sleep(0.2)
        assert abs(off_ms()) < HOUR_MS / 10


def test_only_connections_of_the_named_processes_are_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = server.getsockname()[1]
        with server.accept()[0] as other:
            assert cut(list, port, 0.02) == 0
            other.send(b"x")
            assert client.recv(1) == b"x"
            if may_cut():
                assert cut(lambda: [os.getpid()], port, 0.02) == 1
                with pytest.raises(ConnectionError):
                    client.recv(1)
            else:
                with pytest.raises(PermissionError):
                    cut(lambda: [os.getpid()], port, 0.02)


def test_the_service_that_is_asked_says_the_same_after_it_was_killed() -> None:
    def said() -> int:
        while True:
            with suppress(ConnectionError, URLError), urlopen(asked.url, b"what?", timeout=HANGS_S) as answer:
                return int(answer.read())

    with Asked() as asked:
        assert said() == answer_to(b"what?")
        asked.stop()
        with pytest.raises(URLError, match="refused"):
            urlopen(asked.url, b"what?", timeout=HANGS_S)
        asked.start()
        assert said() == answer_to(b"what?") != answer_to(b"who?")


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.nightly
def test_a_short_run_with_a_call_is_right(tmp_path: Path) -> None:
    faults = [
        Fault("call-service", variant="killed", lasts_s=3.0),
        Fault("kill-caller", "caller"),
        Fault("kill-worker", "worker"),
    ]
    said: list[str] = []
    result = Run(faults, tmp_path, say=said.append, play=Play(asks=True)).run()
    assert result.right, (result, said)
    assert result.kills == 2


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.zookeeper
@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.nightly
def test_a_short_run_is_right(tmp_path: Path) -> None:
    faults = [
        Fault("kill-at-seal", "service", variant="after"),
        Fault("kill-under-s3", "worker", variant="cut", which=0.9, lasts_s=2.0),
    ]
    said: list[str] = []
    result = Run(faults, tmp_path, say=said.append).run()
    assert result.right, (result, said)
    assert result.kills == 2
    assert result.faults == {"kill-at-seal": 1, "kill-under-s3": 1}
    assert len(result.recoveries_s) >= 2


def output(number: int) -> Output:
    return Output(b"key", b"%d" % number, number)
