"""What a flow's functions print and log is in the job's log, in whole lines with the worker's name."""

# ruff: noqa: T201 - a flow's functions may print

from __future__ import annotations

import logging
import logging.config
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from select import PIPE_BUF
from tempfile import TemporaryFile
from threading import Barrier, Thread
from typing import IO

import pytest
from stage_rig import Kept, Order, Rig, Served, deployment, packed

import lowtide as lt
from lowtide.flow.plan.compiler import compile_flow
from lowtide.process.speech import HALF_LINES, LINE_BYTES, cut
from lowtide.worker.speech import log_as

LINE = re.compile(r"[\d-]+ [\d:,]+ lowtide worker (\S+) \d+ (\w+): (.*)")
LOG = logging.getLogger("shop.orders")


def printed(order: Order) -> Order:
    print("order", order.number, end="")
    print(f" of {order.user}")
    return order


def warned(total: int, order: Order) -> tuple[int, Order]:
    LOG.warning("order %d", order.number)
    return total + 1, order


@dataclass
class Log:
    """The output of a worker's process."""

    file: IO[bytes]

    def said(self) -> list[tuple[str, str, str]]:
        """Each line's worker, level and text."""
        lines = os.pread(self.file.fileno(), 1 << 20, 0).decode().splitlines()
        found = [LINE.fullmatch(line) for line in lines]
        assert all(found), lines
        return [(each[1], each[2], each[3]) for each in found if each]

    def texts(self) -> list[str]:
        return [text for _, _, text in self.said()]


@contextmanager
def logging_to(fd: int, first: str) -> Iterator[None]:
    streams, root = (sys.stdout, sys.stderr), logging.root
    handlers, level = root.handlers, root.level
    root.setLevel(logging.INFO)
    try:
        log_as(first, fd)
        yield
        sys.stdout.close()
        sys.stderr.close()
    finally:
        sys.stdout, sys.stderr = streams
        root.handlers = handlers
        root.setLevel(level)
        for logger in root.manager.loggerDict.values():  # `dictConfig` disables those that it does not name.
            if isinstance(logger, logging.Logger):
                logger.disabled = False


@contextmanager
def logging_as(first: str) -> Iterator[Log]:
    """What a worker's process writes meanwhile."""
    log = Log(TemporaryFile())  # noqa: SIM115 - read after its time
    with logging_to(log.file.fileno(), first):
        yield log


def test_each_line_has_the_name_of_the_worker_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)
    flow = lt.Flow("stage")
    stream = flow.read("orders", lt.kafka("orders", lt.json(Order))).map(printed).key_by("user").scan("seen", warned, 0)
    stream.write("out", lt.kafka("out", lt.json(Order), key="user"))
    plan = compile_flow(flow, parallelism=1, lanes=1, slack_ms=1)
    with Served() as tracker, logging_as("0/orders-0") as log:
        made = deployment(plan=plan, parallelism=1, limits=None)
        rig = Rig.of(made, tracker.address, hosts=1)
        rig.read(packed([{"user": "ada", "number": 5}]), 1)
        rig.read(packed([{"user": "bob", "number": 7}], 0), 0)
        rig.grant(20)
        rig.until(lambda: len(rig.delivered) >= 2)
    assert [each for each in log.said() if each[1] == "INFO"] == [
        ("0/orders-1", "INFO", "order 5 of ada"),
        ("0/orders-0", "INFO", "order 7 of bob"),
    ]
    assert {each for each in log.said() if each[1] == "WARNING"} == {
        ("1/0", "WARNING", "order 5"),
        ("1/0", "WARNING", "order 7"),
    }


def test_what_is_printed_comes_in_whole_lines() -> None:
    with logging_as("0/orders-0") as log:
        print("one\ntwo", end="")
        assert log.texts() == ["one"]
        print("", "and", "a half", file=sys.stdout)
        print("x" * 9_000)
        print("left", end="", flush=True)
        sys.stdout.buffer.write(b"bytes\n")
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        print("\udcff" + "\u00e4" * 3_000, file=sys.stderr)
        texts = log.texts()
    assert texts[:1] == ["one"]
    assert texts[1] == "two and a half"
    assert max(len(line.encode()) for line in texts) <= LINE_BYTES < PIPE_BUF
    assert "".join(texts[2:]) == "x" * 9_000 + "left" + "bytes" + "\\udcff" + "\u00e4" * 3_000


def test_a_line_of_no_worker_has_the_name_of_the_first() -> None:
    with logging_as("1/3") as log:
        thread = Thread(target=LOG.warning, args=["cache refreshed"])
        thread.start()
        thread.join()
        LOG.debug("not shown")
        assert log.said() == [("1/3", "WARNING", "cache refreshed")]


def test_each_line_of_a_traceback_has_the_name() -> None:
    with logging_as("1/3") as log:
        try:
            raise ValueError("one\ntwo")
        except ValueError:
            LOG.exception("failed")
        said = log.said()
    assert said[0] == ("1/3", "ERROR", "failed")
    assert [text for _, _, text in said[-2:]] == ["ValueError: one", "two"]


def test_threads_end_their_own_lines() -> None:
    with logging_as("1/3") as log:
        turn = Barrier(2, timeout=20)

        def parts(word: str) -> None:
            for _ in range(50):
                turn.wait()
                print(word, end="")
                turn.wait()
                print(word)

        threads = [Thread(target=parts, args=[word]) for word in ("ab", "cd")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(log.texts()) == ["abab"] * 50 + ["cdcd"] * 50


def test_half_lines_do_not_pile_up() -> None:
    with logging_as("1/3") as log:
        ready = Barrier(HALF_LINES + 21, timeout=60)

        def half(number: int) -> None:
            print(f"half {number}", end="")
            ready.wait()  # So that each thread has an identity of its own.

        threads = [Thread(target=half, args=[number]) for number in range(HALF_LINES + 20)]
        for thread in threads:
            thread.start()
        ready.wait()
        for thread in threads:
            thread.join()
        # Threads that end lines at once may each end one.
        assert len(log.texts()) >= 20
    # The others come at the end.


@pytest.mark.parametrize("configure", [
    lambda: logging.basicConfig(force=True),
    lambda: logging.config.dictConfig({"version": 1, "root": {"level": "WARNING"}}),
    lambda: logging.config.dictConfig({
        "version": 1,
        "handlers": {"console": {"class": "logging.StreamHandler"}},
        "root": {"handlers": ["console"], "level": "INFO"},
    }),
])  # fmt: skip
def test_functions_may_set_up_logging_themselves(configure: Callable[[], None]) -> None:
    with logging_as("1/3") as log:
        configure()
        print("printed")
        LOG.warning("logged")
        texts = log.texts()
    assert texts[0] == "printed"
    assert len(texts) in (1, 2)
    assert all("logged" in text for text in texts[1:])


def test_a_log_that_cannot_be_written_fails_no_function() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    for fd in (writing, full):
        with logging_to(fd, "1/3"):
            print("lost")
            LOG.warning("lost, too")
            print("half", end="", flush=True)
        os.close(fd)


def test_lines_of_processes_that_share_a_pipe_are_not_torn() -> None:
    reading, writing = os.pipe()
    program = "import sys; from lowtide.worker.speech import log_as; log_as(sys.argv[1], int(sys.argv[2]))\n"
    program += "for _ in range(300): print(sys.argv[1] * 6_000)"
    command = [sys.executable, "-c", program]
    processes = [subprocess.Popen([*command, word, str(writing)], pass_fds=[writing]) for word in "ab"]
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    assert [process.wait() for process in processes] == [0, 0]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(each is not None and set(each[3]) == {each[1]} for each in found)
    assert sum(len(each[3]) for each in found if each) == 2 * 300 * 6_000


def test_a_line_is_cut_between_characters() -> None:
    line = "a\u00e4\u20ac\U0001f600".encode() * 5
    for room in range(4, 20):
        pieces = cut(line, room)
        assert b"".join(pieces) == line
        assert max(map(len, pieces)) <= room
        assert [piece.decode() for piece in pieces]
    assert cut(b"", 9) == [b""]
    assert b"".join(cut(b"\x80" * 9, 4)) == b"\x80" * 9, "what is not text ends, too"
