"""The store in a folder: the contract, and what file systems do."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hanging import HANGS_S
from store_contract import SMALL, StoreContract

from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_snapshots.stores.errors import NotThere, StoreFull, StoreRefused, StoreUnavailable
from lowtide_snapshots.stores.folder import FolderStore

NOBODY = 65534
PUT_UNTIL_KILLED = """
import sys
from lowtide_snapshots.stores.folder import FolderStore
store = FolderStore(sys.argv[1])
print("ready", flush=True)
for number in range(300):
    store.put(f"job/{number:06d}", bytes([number % 256]) * 3_000_000)
    print(number, flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreSetting(f"file:{tmp_path / 'store'}"))


@pytest.fixture
def again(tmp_path: Path) -> Store:
    return open_store(StoreSetting(str(tmp_path / "store")))


class TestFolderStore(StoreContract):
    """The contract."""


@pytest.mark.parametrize("url", ["", "file:", "file://host/path", "relative/path", "ftp://host/path", "/a\0b"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="not the URL of a store"):
        open_store(StoreSetting(url))


def test_a_url_names_a_folder(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert open_store(StoreSetting(url)).where == str(tmp_path)
        assert pickle.loads(pickle.dumps(StoreSetting(url))) == StoreSetting(url)


def test_a_writer_that_is_killed_leaves_no_half_object(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PUT_UNTIL_KILLED, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    # In the middle of the next one.
    unfinished: list[Path] = []
    deadline = time.monotonic() + HANGS_S
    while not unfinished and process.poll() is None and time.monotonic() < deadline:
        unfinished = list(tmp_path.glob("job/.*"))
    process.send_signal(signal.SIGKILL)
    assert unfinished
    said = [*lines[1:], *process.stdout.read().splitlines()]
    process.wait()
    store = FolderStore(str(tmp_path))
    whole = {entry.name: entry.bytes for entry in store.names("")}
    assert set(whole.values()) == {3_000_000}
    assert {f"job/{int(number):06d}" for number in said} <= set(whole)
    assert all(store.get(name) == bytes([int(name[4:]) % 256]) * 3_000_000 for name in whole)


def test_what_a_killed_writer_left_goes_after_a_day_with_the_next_delete(store: Store, tmp_path: Path) -> None:
    store.put("a/1", SMALL)
    store.put("a/2", SMALL)
    old, new = tmp_path / "store/a/.old.unfinished", tmp_path / "store/a/.new.unfinished"
    old.write_bytes(SMALL)
    new.write_bytes(SMALL)
    os.utime(old, (time.time() - 90_000,) * 2)
    assert [entry.name for entry in store.names("")] == ["a/1", "a/2"]
    store.delete(["a/1"])
    assert not old.exists()
    assert new.exists()


def test_a_sweep_removes_it_below_a_folder_and_no_object(store: Store, tmp_path: Path) -> None:
    for name in ("a/b/1", "a/2", "c/3"):
        store.put(name, SMALL)
        left = tmp_path / "store" / Path(name).with_name(".left.unfinished")
        left.write_bytes(SMALL)
        os.utime(left, (time.time() - 90_000,) * 2)
    new = tmp_path / "store/a/.new.unfinished"
    new.write_bytes(SMALL)
    store.sweep("a/")
    left_over = sorted(str(path.relative_to(tmp_path / "store")) for path in tmp_path.rglob(".*.unfinished"))
    assert left_over == ["a/.new.unfinished", "c/.left.unfinished"]
    assert [entry.name for entry in store.names("")] == ["a/2", "a/b/1", "c/3"]
    store.sweep("nothing/")


def test_a_full_disk_is_said_and_leaves_nothing(store: Store, tmp_path: Path) -> None:
    store.put("a/1", SMALL)
    with _file_limit(100_000):
        with pytest.raises(StoreFull, match="a/2") as raised:
            store.put("a/2", bytes(200_000))
        store.put("a/3", SMALL)
    assert "make room" in str(raised.value)
    assert sorted(item.name for item in (tmp_path / "store/a").iterdir()) == ["1", "3"]


def test_a_folder_that_may_not_be_written_or_read_is_said(store: Store, tmp_path: Path) -> None:
    store.put("a/1", SMALL)
    closed = tmp_path / "store/a"
    with _as_nobody(tmp_path):
        closed.chmod(0o500)
        with pytest.raises(StoreRefused, match="Permission denied"):
            store.put("a/2", SMALL)
        with pytest.raises(StoreRefused, match="Permission denied"):
            store.delete(["a/1"])
        closed.chmod(0o000)
        for act in (lambda: store.get("a/1"), lambda: store.names("a/")):
            with pytest.raises(StoreRefused, match="Permission denied"):
                act()
        closed.chmod(0o700)


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FolderStore(str(tmp_path / "file" / "store"))
    with pytest.raises(StoreRefused, match="Not a directory"):
        store.check()


def test_a_disk_that_is_not_mounted_is_distinguished_from_an_object_that_is_gone(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="store's folder is missing"):
        store.get("a/1")
    store.put("a/1", SMALL)
    with pytest.raises(NotThere):
        store.get("a/2")


@contextmanager
def _file_limit(most: int) -> Iterator[None]:
    """No file may grow beyond: the kernel's own way to say that there is no room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@contextmanager
def _as_nobody(folder: Path) -> Iterator[None]:
    """As somebody whom permissions bind: root may do everything."""
    if os.geteuid() != 0:
        yield
        return
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    opened = [path for path in folder.parents if path.stat().st_mode & 0o011 != 0o011]
    modes = {path: path.stat().st_mode for path in opened}
    for path, mode in modes.items():
        path.chmod(mode | 0o011)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)
