"""Redis takes puts: what is late does not win, and what is killed or cut loses nothing."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.postgres_server import free_port
from tests.puts_contract import Doc, PutsContract, newest, rows_of
from tests.redis_server import RedisServer
from tests.waiting import HANGS_S, wait_until

from lowtide.errors import ServiceUnavailable
from lowtide.sinks.puts.contract import PutStore
from lowtide.sinks.puts.redis import Redis
from lowtide.testing.proxy import LossyProxy

pytestmark = [pytest.mark.redis]


class TestRedis(PutsContract):
    @pytest.fixture(autouse=True)
    def _redis(self, redis: RedisServer) -> Iterator[None]:
        self.redis, self.login = redis, dict[str, str]()
        self.cutting = threading.Event()
        with LossyProxy(redis.address) as self.proxy:
            self.address = self.proxy.address
            yield
            self.cutting.set()

    def store(self) -> PutStore:
        return Redis()

    def settings(self) -> Mapping[str, Any]:
        return {"redis": {"url": f"redis://{self.address}/0", **self.login}, "table": "redis.default"}

    def read(self) -> dict[str, Any]:
        return self.redis.read(self.name)

    def hold_next(self) -> threading.Event:
        self.proxy.struck.clear()
        self.proxy.arm("hold", 0)
        return self.proxy.struck

    def release(self) -> None:
        self.proxy.release()

    def cut_at_random(self, seed: int | None) -> None:
        if seed is None:
            self.cutting.set()
            return
        draw = random.Random(seed)

        def cut() -> None:
            while not self.cutting.is_set():
                self.proxy.struck.clear()
                self.proxy.arm("cut before" if draw.random() < 0.5 else "cut after", draw.randrange(6))
                self.proxy.struck.wait(0.2)

        threading.Thread(target=cut, daemon=True).start()

    def away(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"

    def test_a_deleted_key_keeps_its_version_for_a_day(self) -> None:
        self.carried({0: rows_of([Doc("a", 1), Doc("a", 2, gone=True)]), 1: []})
        key, client = f"{self.name}:a", self.redis.client
        assert client.hgetall(key) == {"version": "0000000000000000002"}
        assert 86_000_000 < client.pttl(key) <= 86_400_000
        self.carried({0: rows_of([Doc("a", 1)], 4), 1: []})
        assert client.hgetall(key) == {"value": '{"id":"a","number":1}', "version": "0000000000000000004"}
        assert client.pttl(key) == -1

    def test_a_key_that_is_something_else_is_refused_by_name(self) -> None:
        self.redis.client.set(f"{self.name}:b", "a string")
        error = self.refused([Doc("a", 1), Doc("b", 2), Doc("c", 3)])
        assert "refuses key 'b', offset 2 of the staged log: redis://" in str(error)
        assert "WRONGTYPE" in str(error)
        assert self.redis.client.hget(f"{self.name}:a", "value") == '{"id":"a","number":1}'

    def test_a_server_that_is_killed_and_comes_again_has_all(self) -> None:
        log = {0: rows_of([Doc(f"{number % 50}", number) for number in range(3_000)])}
        self.address = self.redis.address
        with self.carrier() as carrier:
            for first in range(0, 3_000, 100):
                if first == 1_500:
                    self.redis.stop()
                    threading.Timer(0.3, self.redis.start).start()
                carrier.take(0, log[0][first : first + 100])
                time.sleep(0.001)
            carrier.mark(0, 10**6)
            self.settle(carrier, [0])
        assert self.read() == newest(log)

    def test_a_server_that_is_full_is_waited_for(self) -> None:
        client = self.redis.client
        client.config_set("maxmemory", 1)
        try:
            with self.carrier() as carrier:
                carrier.take(0, rows_of([Doc("a", 1)]))
                carrier.mark(0, 10**6)
                time.sleep(0.3)
                carrier.settle(time.monotonic())
                assert carrier.progress()[0].needed == 0
                client.config_set("maxmemory", 0)
                self.settle(carrier, [0])
        finally:
            client.config_set("maxmemory", 0)

    def test_a_login_that_is_refused_is_named_at_once(self) -> None:
        self.redis.client.acl_setuser("reader", enabled=True, passwords=["+secret"], commands=["+hget"], keys=["*"])
        for password, said in (("wrong", "WRONGPASS|invalid username"), ("secret", "no permissions")):
            self.login = {"username": "reader", "password": password}
            with self.carrier() as carrier:
                carrier.take(0, rows_of([Doc("a", 1)]))
                with pytest.raises(ServiceUnavailable, match=said) as caught:
                    wait_until(lambda: carrier.settle(time.monotonic()), HANGS_S, "it is refused")
            assert password not in str(caught.value)

    def test_the_rights_that_the_page_names_are_enough(self) -> None:
        page = (Path(__file__).parents[1] / "docs" / "puts.md").read_text(encoding="utf-8")
        (rights,) = re.findall(r"The user needs `(\+eval [^`]+)`", page)
        self.redis.client.acl_setuser(
            "writer", enabled=True, passwords=["+secret"], commands=rights.split(), keys=[f"{self.name}:*"]
        )
        self.login = {"username": "writer", "password": "secret"}
        self.carried({0: rows_of([Doc("a", 1), Doc("b", 2), Doc("b", 3, gone=True)]), 1: []})
        assert set(self.read()) == {"a"}

    @pytest.mark.slow
    def test_five_thousand_puts_a_second(self) -> None:
        rows = rows_of([Doc(f"{number}", number) for number in range(50_000)])
        with self.carrier() as carrier:
            began_s = time.monotonic()
            for first in range(0, len(rows), 500):
                carrier.take(0, rows[first : first + 500])
            carrier.mark(0, 10**6)
            self.settle(carrier, [0])
            took_s = time.monotonic() - began_s
        assert len(rows) / took_s > 5_000
