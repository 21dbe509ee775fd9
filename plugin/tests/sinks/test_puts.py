"""Puts: what a flow may say, what conf gives, versions, batches, and stores of a user's own."""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

import lowtide as lt
from lowtide.conf import Conf
from lowtide.errors import ConfError
from lowtide.sinks.puts import carrier as carriers
from lowtide.sinks.puts.access import redis_settings, web_settings
from lowtide.sinks.puts.contract import Put, Refused, Unavailable, version_of
from lowtide.sinks.puts.endpoint import Puts
from lowtide.sinks.puts.errors import PutRefused
from lowtide.sinks.staged.contract import Carriage, StagedRow


@dataclass(frozen=True)
class Doc:
    id: str
    price: float = 1.5
    gone: Annotated[bool, lt.Alias("is gone")] = False
    number: int | None = None


@dataclass
class Memory:
    """A store of a user's own, which cannot compare; it pickles, so its lock is not part of it."""

    batches: list[list[Put]] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)

    def put(self, puts: Sequence[Put]) -> None:
        if self.faults:
            raise self.faults.pop()
        self.batches.append([*puts])

    def __deepcopy__(self, _: Any) -> Memory:
        return self

    def __str__(self) -> str:
        return "memory"


def sink_of(put: Any, **named: Any) -> Puts:
    return lt.puts("docs", Doc, **{"key": "id", "put": put, "eventual": True, **named})


def rows(*keys: str, first: int = 0, **fields: Any) -> list[StagedRow]:
    return [
        StagedRow(first + place, 0, key.encode(), msgspec.json.encode({"id": key, "is gone": False, **fields}))
        for place, key in enumerate(keys)
    ]


def carriage(limit_s: float = 20.0) -> Carriage:
    return Carriage("shop", "id", 3, "docs", 1, 2, {"limit_s": limit_s})


def carry(store: Memory, rows: Sequence[StagedRow], limit_s: float = 20.0, **named: Any) -> Mapping[int, Any]:
    """Carry one lane's rows, and return the progress once all are put."""
    with closing(sink_of(store, **named).carrier(carriage(limit_s))) as carrier:
        assert carrier.open({0: 0}) == {0: 0}
        carrier.take(0, rows)
        carrier.mark(0, 77)
        carrier.settle(time.monotonic())
        carrier.settle(math.inf)
        assert carrier.progress()[0].visible_ms == 77
        store.counts = carrier.counts()
        return carrier.progress()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lt.puts("", Doc, key="id", put=lt.redis()), "puts takes a name"),
        (lambda: lt.puts("docs", "Doc", key="id", put=lt.redis()), "the dataclass of its records"),  # type: ignore[arg-type]
        (lambda: lt.puts("docs", Doc, key="id", put=Memory), "put= takes a store"),  # type: ignore[arg-type]
        (lambda: lt.puts("docs", Doc, key="id", put="redis"), "put= takes a store"),  # type: ignore[arg-type]
        (lambda: lt.puts("docs", Doc, key="id", put=Memory()), "memory may not refuse a record that is older"),
        (lambda: lt.puts("docs", Doc, key="id", put=lt.http()), "http may not refuse a record that is older"),
    ],
)
def test_what_puts_cannot_mean_is_refused_where_it_is_written(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(lt.FlowError, match=said) as caught:
        make()
    assert "test_puts.py" in caught.value.where


@dataclass(frozen=True)
class Marked:
    id: Annotated[str, lt.Key()]
    source: Annotated[str, lt.Header("source")]


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        (Puts("docs", Doc, "name", lt.redis()), "Doc has no field 'name', which should be the key"),
        (Puts("docs", Doc, "price", lt.redis()), "a key must be str, int or UUID, but 'price' is float"),
        (Puts("docs", Doc, "number", lt.redis()), "a key must be str, int or UUID, but 'number' is int | None"),
        (Puts("docs", Doc, "id", lt.redis(), deleted="number"), "deleted= names a bool of Doc, found 'number'"),
        (Puts("docs", Marked, "id", lt.redis()), "Marked.id is marked Key, which only a message has"),
        (Puts("docs", Marked, "id", lt.redis()), "Marked.source is marked Header, which only a message has"),
    ],
)
def test_check_finds_what_does_not_fit_the_record(sink: Puts, said: str) -> None:
    assert any(each.startswith(said) for each in sink.faults())
    assert not Puts("docs", Doc, "id", lt.redis(), "gone").faults()


def test_explain_says_where_records_go_and_what_may_go_back() -> None:
    assert str(sink_of(lt.redis("cache"), eventual=False)) == (
        'puts into "docs" in redis of cache as JSON of Doc, by key "id"'
    )
    assert str(sink_of(Memory())).endswith('"docs" in memory as JSON of Doc, by key "id", may go back for a moment')
    assert sink_of(lt.redis()).place != sink_of(lt.elasticsearch()).place


def test_versions_ascend_with_offsets_and_more_so_with_generations() -> None:
    versions = [version_of(generation, offset) for generation in (0, 1, 32_767) for offset in (0, 1, (1 << 48) - 1)]
    assert versions == sorted(set(versions))
    assert versions[-1] < 1 << 63
    assert {Put("a", None, each).offset for each in versions} == {0, 1, (1 << 48) - 1}


def test_a_batch_has_the_last_put_of_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "BATCH_PUTS", 2)
    store = Memory()
    progress = carry(store, rows("a", "b", "a", "c", "a", "c", first=10))
    assert progress[0].needed == 16
    found = [[(put.key, put.version & 0xFF) for put in batch] for batch in store.batches]
    assert found == [[("a", 12), ("b", 11)], [("c", 15), ("a", 14)]]
    assert {put.version >> 48 for batch in store.batches for put in batch} == {3}


def test_the_field_that_deletes_is_no_part_of_the_value() -> None:
    store, price = Memory(), msgspec.Raw(b"1.50")
    made = [*rows("a", price=price), *rows("b", first=1), StagedRow(2, 0, b"b", b'{"id":"b","is gone":true}')]
    carry(store, made, deleted="gone")
    assert [(put.key, put.value) for put in store.batches[0]] == [("a", b'{"id":"a","price":1.50}'), ("b", None)]
    carry(store, made[:1])
    assert store.batches[1][0].value == made[0].value


def test_what_may_succeed_later_is_put_again_and_all_else_ends_the_sink_by_name() -> None:
    store = Memory(faults=[Unavailable("busy"), ConnectionResetError(), TimeoutError()])
    assert carry(store, rows("a"))[0].needed == 1
    assert store.counts == {"puts taken": 1, "puts older": 0, "puts again": 3}
    for fault, said in (
        (Refused("b", "too long"), "refuses key 'b', offset 1 of the staged log: too long"),
        (ValueError("oops"), "put raised ValueError: oops, for 2 keys up to offset 1"),
    ):
        with pytest.raises(PutRefused, match=said):
            carry(Memory(faults=[fault]), rows("a", "b"))
    with pytest.raises(lt.ServiceUnavailable, match="within 0 s: busy"):
        carry(Memory(faults=[Unavailable("busy")] * 9), rows("a"), limit_s=0)


def test_puts_that_the_store_has_newer_versions_of_are_counted_apart() -> None:
    class Comparing(Memory):
        older = 5

        def put(self, puts: Sequence[Put]) -> None:
            self.older += 1
            super().put(puts)

    store = Comparing(faults=[Unavailable("half of it is done")])
    carry(store, rows("a", "b", "c"))
    assert store.counts == {"puts taken": 2, "puts older": 1, "puts again": 3}


def test_rows_that_wait_for_a_slow_store_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "AHEAD_ROWS", 4)
    goes_on = threading.Event()

    class Slow(Memory):
        def put(self, puts: Sequence[Put]) -> None:
            goes_on.wait(20)
            super().put(puts)

    store, taken = Slow(), threading.Event()
    with closing(sink_of(store).carrier(carriage())) as carrier:
        carrier.open({0: 0})

        def take() -> None:
            for first in range(0, 16, 4):
                carrier.take(0, rows(*"abcd", first=first))
            taken.set()

        threading.Thread(target=take, daemon=True).start()
        assert not taken.wait(0.1)
        goes_on.set()
        assert taken.wait(20)


def test_lanes_share_a_few_clients_and_a_batch_has_puts_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    class Copied(Memory):
        copies: ClassVar[list[Copied]] = []

        def __deepcopy__(self, _: Any) -> Copied:
            self.copies.append(Copied())
            return self.copies[-1]

    for workers, lines in ((2, 4), (6, 6), (None, 4)):
        Copied.copies.clear()
        with closing(sink_of(Copied()).carrier(replace(carriage(), lanes=32, workers=workers))) as carrier:
            carrier.open(dict.fromkeys(range(32), 0))
            assert len(Copied.copies) == lines
            monkeypatch.setattr(carriers, "BATCH_PUTS", 100)
            for lane in range(32):
                carrier.take(lane, rows(f"{lane}", f"{lane}"))
            carrier.settle(math.inf)
            assert {each.needed for each in carrier.progress().values()} == {2}
        put = [each.key for client in Copied.copies for batch in client.batches for each in batch]
        assert sorted(set(put), key=int) == [f"{lane}" for lane in range(32)]
        assert all(int(each.key) % lines == number for number, client in enumerate(Copied.copies)
                   for batch in client.batches for each in batch)  # fmt: skip


def test_of_lanes_that_share_a_client_each_is_as_far_as_its_own_puts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "LINES", 1)
    monkeypatch.setattr(carriers, "BATCH_PUTS", 3)
    began, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    class Slow(Memory):
        def put(self, puts: Sequence[Put]) -> None:
            began.release()
            goes_on.acquire(timeout=20)
            super().put(puts)

    store = Slow()
    with closing(sink_of(store).carrier(replace(carriage(), lanes=3))) as carrier:
        carrier.open({0: 5, 1: 0, 2: 7})

        def far() -> dict[int, tuple[int, int | None]]:
            return {lane: (each.needed, each.visible_ms) for lane, each in carrier.progress().items()}

        def wait_for(expected: dict[int, tuple[int, int | None]]) -> None:
            until = time.monotonic() + 20
            while far() != expected and time.monotonic() < until:
                time.sleep(0.001)
            assert far() == expected

        carrier.take(0, rows("z", first=5))
        assert began.acquire(timeout=20), "the client is busy with it while all else comes"
        carrier.take(1, rows("a", "b"))
        carrier.mark(2, 30)
        carrier.take(0, rows("c", first=6))
        carrier.mark(0, 20)
        carrier.take(1, rows("d", first=2))
        carrier.mark(1, 10)
        assert far() == {0: (5, None), 1: (0, None), 2: (7, None)}
        goes_on.release()
        wait_for({0: (6, None), 1: (0, None), 2: (7, None)})
        goes_on.release()
        wait_for({0: (7, 20), 1: (2, None), 2: (7, 30)})
        goes_on.release()
        wait_for({0: (7, 20), 1: (3, 10), 2: (7, 30)})
    assert [[put.key for put in batch] for batch in store.batches] == [["z"], ["a", "b", "c"], ["d"]]


def test_a_connection_is_the_confs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    conf = Conf.load(
        None,
        {
            "redis.default.url": "rediss://one:6380/2",
            "redis.default.password_env": "SECRET",
            "redis.default.ssl_ca_file": "ca.pem",
            "redis.plain.url": "redis://one:6379",
            "redis.plain.ssl_ca_file": "ca.pem",
            "http.default.url": "https://two/v1/",
            "http.default.token_env": "SECRET",
            "elasticsearch.logs.url": "http://three:9200",
            "elasticsearch.logs.username": "ann",
            "elasticsearch.logs.password_env": "SECRET",
            "elasticsearch.both.url": "http://three:9200",
            "elasticsearch.both.username": "ann",
            "elasticsearch.both.token_env": "SECRET",
        },
    )
    found = {"url": "rediss://one:6380/2", "password": "s3cret", "ssl_ca_certs": "ca.pem"}
    assert redis_settings(conf, "default") == found
    with pytest.raises(ConfError, match="an url without TLS"):
        redis_settings(conf, "plain")
    with pytest.raises(ConfError, match=r"(?s)no \[redis.other\].*\[redis.default\], \[redis.plain\]"):
        redis_settings(conf, "other")
    web = web_settings(conf.http, "http", "default", "Bearer")
    assert (web["url"], web["login"]) == ("https://two/v1", "Bearer s3cret")
    assert web_settings(conf.elasticsearch, "elasticsearch", "logs", "ApiKey")["login"] == "Basic YW5uOnMzY3JldA=="
    with pytest.raises(ConfError, match="both a username and a token"):
        web_settings(conf.elasticsearch, "elasticsearch", "both", "ApiKey")
    assert sink_of(lt.http()).settings(conf)["limit_s"] == 30


@pytest.mark.parametrize("url", ["redis://ann:secret@one", "http://ann:secret@one", "ftp://one"])
def test_an_url_has_no_login(url: str) -> None:
    for table in ("redis", "http", "elasticsearch"):
        with pytest.raises(ConfError):
            Conf.load(None, {f"{table}.default.url": url})


@dataclass(frozen=True)
class Order:
    id: str
    gone: bool = False


def test_the_examples_of_the_page_do_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "puts.md"
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    flow, module = lt.Flow("shop"), ModuleType("documented_puts")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module).update(lt=lt, Order=Order, orders=flow.read("orders", lt.kafka("orders", lt.json(Order))))
    for example in examples:
        exec(compile(example, str(page), "exec"), vars(module))
    assert flow.run_locally(orders=[Order("a")]) == {key: [Order("a")] for key in ("found", "cached", "files")}
    own: Any = module
    carry(own.Folder(str(tmp_path)), rows("a", "b"))
    assert {each.name for each in tmp_path.iterdir()} == {"a.json", "b.json"}
    with pytest.raises(PutRefused, match=r"refuses key 'a/b', offset 0 of the staged log: a file's name has no slash"):
        carry(own.Folder(str(tmp_path)), rows("a/b"))
