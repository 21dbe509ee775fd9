"""The store in memory: the contract, its limit, and who may open it."""

from __future__ import annotations

import pytest
from store_contract import SMALL, StoreContract

from lowtide_snapshots import stores
from lowtide_snapshots.stores import Store, StoreSetting, lend, open_store
from lowtide_snapshots.stores.errors import AlreadyThere, StoreFull, StoreRefused
from lowtide_snapshots.stores.memory import MIB, MemoryStore


@pytest.fixture
def store() -> Store:
    return MemoryStore(64 * MIB)


@pytest.fixture
def again(store: Store) -> Store:
    return store


class TestMemoryStore(StoreContract):
    """The contract."""


def test_what_does_not_fit_is_refused_and_what_is_there_stays() -> None:
    store = MemoryStore(100)
    store.put("a", bytes(60))
    with pytest.raises(StoreFull, match=r"memory_mb"):
        store.put("b", bytes(41))
    store.put("a", bytes(60))
    with pytest.raises(AlreadyThere):
        store.put("a", bytes(99))
    store.put("b", bytes(40))
    store.delete(["a", "a", "never"])
    store.put("c", bytes(60))
    assert [entry.name for entry in store.names("")] == ["b", "c"]
    store.limit_bytes = 10
    assert store.get("c") == bytes(60)
    with pytest.raises(StoreFull):
        store.put("d", b"d")


def test_what_is_put_does_not_change_with_its_buffer() -> None:
    store, buffer = MemoryStore(100), bytearray(SMALL)
    store.put("a", memoryview(buffer))
    buffer[0] = 0
    assert store.get("a") == SMALL


def test_only_processes_to_which_it_is_lent_open_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_LENT", {})
    with pytest.raises(StoreRefused, match="keep them in a folder, S3 or Azure"):
        open_store(StoreSetting("memory:"))
    lend(lambda setting: MemoryStore(setting.memory_mb * MIB))
    opened = open_store(StoreSetting("memory:", memory_mb=1))
    with pytest.raises(StoreFull):
        opened.put("a", bytes(MIB + 1))
    with pytest.raises(StoreRefused, match="not the URL of a store"):
        open_store(StoreSetting("memory:elsewhere"))
