"""The contract of every store; a store's own tests subclass it."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable

import pytest

from lowtide_snapshots.stores import Store
from lowtide_snapshots.stores.errors import AlreadyThere, NameRefused, NotThere

OpenStore = Callable[..., Store]
SMALL = b"to be or not to be"


class StoreContract:
    """The fixture `store` is an empty store; `again` another one at the same place."""

    @pytest.mark.parametrize("data", [b"", SMALL, bytes(range(256)) * 4096], ids=["empty", "small", "1 MiB"])
    @pytest.mark.parametrize("view", [bytes, memoryview])
    def test_what_is_put_is_got_by_all(
        self, store: Store, again: Store, data: bytes, view: Callable[[bytes], bytes]
    ) -> None:
        store.put("job/parts/a%20b/00003/1.parquet", view(data))
        assert again.get("job/parts/a%20b/00003/1.parquet") == data

    def test_the_same_may_be_put_again_and_nothing_else(self, store: Store, again: Store) -> None:
        store.put("a/b", SMALL)
        first = store.names("")
        again.put("a/b", SMALL)
        for other in (b"other", SMALL + b"!", b"", SMALL[::-1]):
            with pytest.raises(AlreadyThere, match="a/b"):
                again.put("a/b", other)
        assert store.get("a/b") == SMALL
        assert store.names("") == first

    def test_of_many_who_put_one_name_one_wins_whole(self, store: Store) -> None:
        won: list[int] = []

        def put(number: int) -> None:
            try:
                store.put("contended", bytes([number]) * 100_000)
                won.append(number)
            except AlreadyThere:
                pass

        threads = [threading.Thread(target=put, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert store.get("contended") == bytes(won) * 100_000

    def test_what_is_not_there_is_said(self, store: Store) -> None:
        store.put("a/b", SMALL)
        for name in ("a", "a/c", "a/b/c", "b"):
            with pytest.raises(NotThere, match=name):
                store.get(name)

    def test_names_are_all_and_ascending(self, store: Store) -> None:
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=2)
        names = ["b/2", "b/10", "b.c/1", "a", "b/1/x", "b%2Fc/1", "ä/ö", "B/1"]
        for length, name in enumerate(names):
            store.put(name, bytes(length))
        found = store.names("")
        assert [entry.name for entry in found] == sorted(names)
        assert {entry.name: entry.bytes for entry in found} == {name: at for at, name in enumerate(names)}
        assert all(before <= entry.modified <= before + datetime.timedelta(minutes=1) for entry in found)

    def test_a_prefix_is_of_the_text_not_of_the_folders(self, store: Store) -> None:
        for name in ("b/10", "b/2", "b/1/x", "bb/1", "a"):
            store.put(name, SMALL)
        for prefix in ("b", "b/", "b/1", "b/1/", "b/1/x", "c", "c/d", "a", "a/"):
            wanted = [name for name in ["a", "b/1/x", "b/10", "b/2", "bb/1"] if name.startswith(prefix)]
            assert [entry.name for entry in store.names(prefix)] == wanted

    def test_an_empty_store_has_no_names(self, store: Store) -> None:
        assert store.names("") == store.names("job/") == []
        store.delete(["a/b"])

    def test_what_is_deleted_is_gone_and_may_come_again(self, store: Store) -> None:
        for name in ("a/1", "a/2", "b"):
            store.put(name, SMALL)
        store.delete(iter(["a/1", "never/there", "b"]))
        assert [entry.name for entry in store.names("")] == ["a/2"]
        with pytest.raises(NotThere):
            store.get("a/1")
        store.put("a/1", b"new")
        assert store.get("a/1") == b"new"
        store.delete([])

    def test_a_check_leaves_nothing(self, store: Store) -> None:
        store.check()
        assert store.names("") == []

    @pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/.", "a/.hidden", "a\0b"])
    def test_what_is_no_name_is_refused(self, store: Store, name: str) -> None:
        for act in (lambda: store.put(name, SMALL), lambda: store.get(name), lambda: store.delete([name])):
            with pytest.raises(NameRefused):
                act()
        assert store.names("") == []

    @pytest.mark.parametrize("prefix", ["../", "/", "a/../b", "a//"])
    def test_what_begins_no_name_is_refused(self, store: Store, prefix: str) -> None:
        with pytest.raises(NameRefused):
            store.names(prefix)

    def test_many_threads_may_use_it(self, store: Store) -> None:
        def work(number: int) -> None:
            for turn in range(5):
                store.put(f"{number}/{turn}", bytes([number, turn]))
                assert store.get(f"{number}/{turn}") == bytes([number, turn])
            done.append(number)

        done: list[int] = []
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == list(range(8))
        assert len(store.names("")) == 40


def took_s(act: Callable[[], object]) -> float:
    """Time that something took."""
    started = time.monotonic()
    act()
    return time.monotonic() - started
