"""The stores of the tests keep the contract that the store on disk keeps."""

from __future__ import annotations

import pytest
from cold_contract import ColdStoreContract
from cold_stores import CruelStore, DictStore, StoreFailed

from lowtide.core.operators.state.cold import ColdStore


class TestDictStore(ColdStoreContract):
    @pytest.fixture
    def store(self) -> ColdStore:
        return DictStore()


class TestCruelStore(ColdStoreContract):
    @pytest.fixture
    def store(self) -> ColdStore:
        return CruelStore()


def test_a_cruel_store_refuses_what_the_contract_does_not_allow() -> None:
    store = CruelStore()
    for keys in ([b""], [b"x" * 512], []):
        with pytest.raises(AssertionError):
            store.get(keys)
    for entries in ([(b"b", b""), (b"a", b"")], [(b"a", b""), (b"a", None)]):
        with pytest.raises(AssertionError, match="ascend"):
            store.put(entries)


def test_a_cruel_store_fails_in_one_call() -> None:
    store = CruelStore(2)
    store.put([(b"a", b"1")])
    with pytest.raises(StoreFailed):
        store.get([b"a"])
    assert store.get([b"a"]) == [b"1"]
