"""A pinned store is as it was, whatever is written meanwhile; and who reads it may die."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from lowtide.disk.pins import PinnedStore, Pins, ReaderDied
from lowtide.disk.store import DiskStore

pytest.importorskip("lmdb", reason="lowtide[disk] is not installed")

KEYS = [number.to_bytes(3, "big") for number in range(3_000)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    store = DiskStore(tmp_path, 1 << 30)
    yield store
    store.close()


@pytest.fixture
def pins(store: DiskStore, tmp_path: Path) -> Iterator[Pins]:
    pins = Pins(tmp_path, 1 << 30)
    yield pins
    pins.close()


def pinned(pins: Pins) -> list[PinnedStore]:
    """What is pinned, once it is."""
    while True:
        stores = pins.pinned()
        if stores is not None:
            return stores
        select.select([pins], [], [])


def ask_and_wait(pins: Pins) -> list[PinnedStore]:
    pins.ask()
    return pinned(pins)


def content(store: PinnedStore) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    first = b"\0"
    while page := store.range(first, b"\xff", 100):
        found |= page
        first = page[-1][0] + b"\0"
    return found


def change(store: DiskStore, model: dict[bytes, bytes], chosen: Random) -> None:
    for key in sorted(chosen.sample(KEYS, 200)):
        value = None if chosen.random() < 0.3 else chosen.randbytes(80)
        store.put([(key, value)])
        model.pop(key, None)
        if value is not None:
            model[key] = value


def test_a_pinned_store_is_as_it_was(store: DiskStore, pins: Pins) -> None:
    """Several at once, each read in part before and in part after later changes."""
    chosen, model = Random(3), dict[bytes, bytes]()
    kept: list[tuple[list[PinnedStore], dict[bytes, bytes]]] = []
    for _ in range(5):
        change(store, model, chosen)
        pins.ask()
        assert pins.waits
        kept.append((pinned(pins), dict(model)))
        assert not pins.waits
    for _ in range(5):
        change(store, model, chosen)
    for stores, then in kept:
        assert len(stores) == 2
        for each in stores:
            assert content(each) == then
    assert len(dict(store.range(b"\0", b"\xff", 10_000))) == len(model)


def test_a_fork_reads_it_that_has_closed_all_else(store: DiskStore, pins: Pins) -> None:
    chosen, model = Random(4), dict[bytes, bytes]()
    change(store, model, chosen)
    pins.ask()
    first, second = pinned(pins)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.closerange(3, first.fileno())
            os.closerange(first.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
            status = 0 if content(first) == model else 2
        finally:
            os._exit(status)
    first.close()
    then = dict(model)
    change(store, model, chosen)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert content(second) == then


def test_what_is_let_go_frees_its_pages(store: DiskStore, pins: Pins) -> None:
    """As long as it is pinned no page of it is used again; then they are."""
    chosen, model = Random(5), dict[bytes, bytes]()
    change(store, model, chosen)
    for _ in range(20):
        pins.ask()
        for each in pinned(pins):
            content(each)
            each.close()
        change(store, model, chosen)
    assert store.used_bytes < 16 << 20


def test_a_reader_that_dies_is_said_and_another_one_begins(store: DiskStore, pins: Pins) -> None:
    store.put([(b"a", b"1")])
    pins.ask()
    (first, second) = pinned(pins)
    assert pins._process is not None
    pins._process.kill()
    pins._process.wait()
    for each in (first, second):
        with pytest.raises(ReaderDied):
            each.range(b"\0", b"\xff", 1)
    with pytest.raises(ReaderDied):
        ask_and_wait(pins)
    assert not pins.waits
    pins.ask()
    assert content(pinned(pins)[0]) == {b"a": b"1"}


def test_a_reader_that_is_killed_before_it_answers_is_said(store: DiskStore, pins: Pins) -> None:
    pins.ask()
    assert pins._process is not None
    pins._process.kill()
    with pytest.raises(ReaderDied):
        pinned(pins)
    assert not pins.waits


def test_what_has_grown_by_far_is_pinned(store: DiskStore, pins: Pins) -> None:
    """The process that reads has it open since it was empty; by itself it would expect 10 MB at most."""
    (stores := ask_and_wait(pins))[0].close()
    value = bytes(4_000)
    for first in range(0, len(KEYS), 500):
        store.put([(key, value) for key in KEYS[first : first + 500]])
    assert store.used_bytes > 12e6
    one, other = ask_and_wait(pins)
    assert len(content(one)) == len(KEYS)
    for each in (one, other, *stores):
        each.close()
