"""The store on disk: the contract, and what a full one says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest
from cold_contract import ColdStoreContract

from lowtide.disk.folder import file_system_of
from lowtide.disk.store import COLD_SHARE, DiskFull, DiskStore, _faults

pytest.importorskip("lmdb", reason="lowtide[disk] is not installed")


class TestDiskStore(ColdStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[DiskStore]:
        store = DiskStore(tmp_path, 1 << 30)
        yield store
        store.close()


def fill(store: DiskStore, count: int = 1_000_000) -> None:
    for index in range(0, count, 100):
        store.put([(number.to_bytes(8, "big"), bytes(100)) for number in range(index, index + 100)])


def test_a_store_at_its_limit_says_what_to_do_and_still_answers(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, 4 << 20)
    with pytest.raises(DiskFull) as caught:
        fill(store)
    said = str(caught.value)
    assert "limit of 0.0 GB" in said
    assert "state.disk_max_gb" in caught.value.way_out
    assert store.get([bytes(8)]) == [bytes(100)]
    assert store.used_bytes > 3 << 20
    assert store.entries > 10_000
    store.close()


def test_a_full_disk_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    """A limit on the size of files takes the place of a full disk."""
    program = f"""
import resource, signal
from pathlib import Path
from lowtide.disk.store import DiskFull, DiskStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
store = DiskStore(Path({str(tmp_path)!r}), 1 << 30)
try:
    for index in range(0, 1_000_000, 100):
        store.put([(number.to_bytes(8, "big"), bytes(100)) for number in range(index, index + 100)])
except DiskFull as error:
    print("full:", error, store.get([bytes(8)]) == [bytes(100)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "the disk is full" in done.stdout
    assert done.stdout.rstrip().endswith("True")


def test_no_disk_is_taken_that_is_not_used(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, 1 << 40)
    store.put([(b"a", b"1")])
    assert sum(each.stat().st_blocks * 512 for each in tmp_path.iterdir()) < 1 << 20
    assert {oct(each.stat().st_mode & 0o777) for each in tmp_path.iterdir()} == {"0o600"}
    store.close()


def test_a_fork_that_leaves_it_alone_does_no_harm(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, 1 << 30)
    store.put([(b"a", b"1")])
    pid = os.fork()
    if pid == 0:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os._exit(0)
    os.waitpid(pid, 0)
    fill(store, 1_000)
    assert store.get([b"a"]) == [b"1"]
    store.close()


class TestDiskStoreThatReadsInThreads(ColdStoreContract):
    """As if nothing was in the page cache."""

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskStore]:
        monkeypatch.setattr("lowtide.disk.store.COLD_SHARE", -1.0)
        store = DiskStore(tmp_path, 1 << 30)
        yield store
        store.soon([b"nothing", b"of", b"this"])  # It may be closed at any moment.
        store.close()


def test_threads_read_what_only_the_disk_has_and_nothing_else(tmp_path: Path) -> None:
    with _filled(tmp_path):
        pass
    if not _dropped(tmp_path):
        pytest.skip("pages of this file system stay in memory")
    with _filled(tmp_path, 0) as store:
        chosen = Random(3)
        keys = [chosen.randrange(FILLED).to_bytes(8, "big") for _ in range(40)]
        assert store.cold_share == 0
        assert store.get(keys) == [bytes(100)] * len(keys)
        assert store.cold_share > COLD_SHARE, "they were read one after the other"
        before = _faults()
        later = [chosen.randrange(FILLED).to_bytes(8, "big") for _ in range(40)]
        assert store.get(later) == [bytes(100)] * len(later)
        assert _faults() - before <= 2, "the threads have met the faults"
        for _ in range(60):
            store.get(later)
        assert store.cold_share < COLD_SHARE


def test_what_is_put_in_order_fills_its_pages(tmp_path: Path) -> None:
    with _filled(tmp_path / "ascending") as ascending, _filled(tmp_path / "mixed", 0) as mixed:
        numbers = Random(5).sample(range(FILLED), FILLED)
        for index in range(0, FILLED, 1_000):
            mixed.put(sorted((number.to_bytes(8, "big"), bytes(100)) for number in numbers[index : index + 1_000]))
        assert ascending.entries == mixed.entries == FILLED
        assert ascending.used_bytes < 0.8 * mixed.used_bytes


FILLED = 40_000


@contextmanager
def _filled(folder: Path, count: int = FILLED) -> Iterator[DiskStore]:
    folder.mkdir(exist_ok=True)
    with closing(DiskStore(folder, 1 << 30)) as store:
        fill(store, count)
        yield store


def _dropped(folder: Path) -> bool:
    """Drop a closed store's pages from the page cache; return whether they can be on the disk alone."""
    if file_system_of(folder) in ("tmpfs", "overlay"):
        return False
    with (folder / "data.mdb").open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True
