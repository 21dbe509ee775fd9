"""What every cold store does."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from cold_stores import DictStore

from lowtide.core.operators.state.cold import LONGEST_KEY_BYTES, ColdStore, Entry


class ColdStoreContract:
    """The tests of a store; a subclass has a fixture `store`."""

    @pytest.fixture
    def store(self) -> Iterator[ColdStore]:
        raise NotImplementedError

    def test_a_new_store_is_empty(self, store: ColdStore) -> None:
        assert store.get([b"a", b"b"]) == [None, None]
        assert store.range(b"", b"\xff", 10) == []

    def test_the_last_put_wins(self, store: ColdStore) -> None:
        store.put([(b"a", b"1"), (b"b", b"2")])
        store.put([(b"b", b"")])
        assert store.get([b"b", b"a", b"c", b"b"]) == [b"", b"1", None, b""]

    def test_what_is_deleted_is_gone(self, store: ColdStore) -> None:
        store.put([(b"a", b"1"), (b"b", b"2")])
        store.put([(b"a", None), (b"c", None)])
        assert store.get([b"a", b"b"]) == [None, b"2"]
        assert store.range(b"a", b"z", 10) == [(b"b", b"2")]
        store.put([(b"a", b"3")])
        assert store.get([b"a"]) == [b"3"]

    def test_a_range_begins_with_its_first_key_and_ends_before_its_end(self, store: ColdStore) -> None:
        keys = [b"a", b"a\0", b"a\xff", b"b", b"b\0"]
        store.put([(key, key) for key in keys])
        assert store.range(b"a", b"b", 10) == [(key, key) for key in keys[:3]]
        assert store.range(b"a\0", b"b\0", 2) == [(key, key) for key in keys[1:3]]
        assert store.range(b"c", b"d", 1) == []
        assert store.range(b"a", b"a", 1) == []

    def test_the_longest_key_and_a_large_value_fit(self, store: ColdStore) -> None:
        key, value = b"\xff" * LONGEST_KEY_BYTES, bytes(range(256)) * 4_000
        store.put([(b"\0", b"x"), (key, value)])
        assert store.get([key, b"\0"]) == [value, b"x"]

    def test_it_is_as_a_dict_is(self, store: ColdStore) -> None:
        model, chosen = DictStore(), random.Random(7)
        keys = [bytes([number % 5]) + number.to_bytes(2, "big") for number in range(300)]
        for _ in range(60):
            some = sorted(chosen.sample(keys, chosen.randrange(1, 60)))
            entries: list[Entry] = [
                (key, None if chosen.random() < 0.4 else chosen.randbytes(chosen.randrange(300))) for key in some
            ]
            store.put(entries)
            model.put(entries)
            asked = chosen.sample(keys, 40)
            assert store.get(asked) == model.get(asked)
            first, end = sorted(chosen.sample(keys, 2))
            limit = chosen.randrange(1, 80)
            assert store.range(first, end, limit) == model.range(first, end, limit)
