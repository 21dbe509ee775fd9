"""HTTP servers take puts, one for each or in bulk as Elasticsearch does; the server is ours, and a bad one if asked."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.put_server import REFUSED, PutServer
from tests.puts_contract import Doc, PutsContract, newest, rows_of
from tests.waiting import HANGS_S, wait_until

import lowtide
from lowtide.conf import Conf
from lowtide.doctor import Surroundings
from lowtide.doctor.stores import puts as doctor_puts
from lowtide.errors import ServiceUnavailable
from lowtide.sinks.puts.contract import PutStore
from lowtide.sinks.puts.elasticsearch import Elasticsearch
from lowtide.sinks.puts.endpoint import puts
from lowtide.sinks.puts.http import Http
from lowtide.status.certificate import made_certificate


class OverHttp(PutsContract):
    path: ClassVar[str] = ""
    ca_file: str | None = None

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with PutServer() as self.server:
            yield

    def settings(self) -> Mapping[str, Any]:
        where = {"url": f"{self.server.url}{self.path}", "table": "http.default", "login": "Bearer abc"}
        return {**where, "ca_file": self.ca_file, "certificate_file": None, "key_file": None}

    def read(self) -> dict[str, Any]:
        return self.server.read(self.name)

    def hold_next(self) -> threading.Event:
        self.server.hold_next()
        return self.server.struck

    def release(self) -> None:
        self.server.release()

    def cut_at_random(self, seed: int | None) -> None:
        self.server.reset_at_random(seed)

    def away(self) -> None:
        self.server.answer = lambda: 503

    def test_what_the_server_never_takes_is_named(self) -> None:
        error = self.refused([Doc("a", 1), Doc(REFUSED, 2), Doc("c", 3)])
        assert f"refuses key {REFUSED!r}, offset 2 of the staged log: {self.server.url}" in str(error)
        assert " 400 " in str(error)

    def test_a_server_that_asks_to_wait_is_waited_for(self) -> None:
        answers = iter([429, 503, 502, 408])
        self.server.answer = lambda: next(answers, 0)
        log = {0: rows_of([Doc("a", 1)]), 1: []}
        self.carried(log)
        assert self.read() == newest(log)

    def test_a_login_that_is_refused_is_named_at_once(self) -> None:
        self.server.token = "Bearer other"
        with self.carrier() as carrier:
            carrier.take(0, rows_of([Doc("a", 1)]))
            with pytest.raises(ServiceUnavailable, match=r"(?s)401.*correct \[http.default\]") as caught:
                wait_until(lambda: carrier.settle(time.monotonic()), HANGS_S, "the login is refused")
        assert "abc" not in str(caught.value)

    def test_an_old_put_that_comes_late_is_counted_as_older(self) -> None:
        log = rows_of([Doc("a", number) for number in range(3)])
        self.carried({0: log, 1: []})
        self.carried({0: log[:1], 1: []})
        assert self.server.counts == {"done": 1, "older": 1}, "the last of a batch, then an older one"

    def test_a_server_that_does_not_compare_goes_back(self) -> None:
        """The contract's test of late puts can fail: this server fails it."""
        self.server.compares = False
        with pytest.raises(AssertionError):
            self.test_a_late_put_does_not_win_over_the_next_carriers()

    def test_a_servers_certificate_has_to_be_of_the_authority_that_the_conf_names(self, tmp_path: Path) -> None:
        certificate, other = made_certificate("127.0.0.1"), made_certificate("127.0.0.1")
        self.server.wrap(certificate.tls)
        (tmp_path / "ca.pem").write_text(certificate.pem)
        (tmp_path / "other.pem").write_text(other.pem)
        log = {0: rows_of([Doc("a", 1)]), 1: []}
        self.ca_file = str(tmp_path / "ca.pem")
        self.carried(log)
        assert self.read() == newest(log)
        for ca_file in (str(tmp_path / "other.pem"), None):
            self.ca_file = ca_file
            with self.carrier(limit_s=0.2) as carrier:
                carrier.take(0, log[0])
                with pytest.raises(ServiceUnavailable, match="certificate verify failed"):
                    carrier.settle(math.inf)


class TestElasticsearch(OverHttp):
    def store(self) -> PutStore:
        return Elasticsearch()


class TestHttp(OverHttp):
    path = "/v1"

    def store(self) -> PutStore:
        return Http(compares=True)

    def test_an_idempotency_key_is_of_one_put_alone(self) -> None:
        log = {0: rows_of([Doc("a", 1), Doc("b", 2), Doc("c", 3, gone=True)]), 1: rows_of([Doc("d", 4)])}
        self.carried(log)
        self.carried(log)
        assert len(self.server.once) == 8
        assert len(set(self.server.once)) == len({key for key, _ in self.server.once}) == 4


def test_doctor_finds_a_server_that_says_that_it_compares_and_does_not() -> None:
    with PutServer() as server:
        conf = Conf.load(None, {"http.default.url": f"{server.url}/v1", "elasticsearch.default.url": server.url})
        flow = lowtide.Flow("shop")
        docs = flow.read("docs", lowtide.kafka("docs", lowtide.json(Doc)))
        docs.write("posted", puts("posted", Doc, key="id", put=Http(compares=True)))
        docs.write("found", puts("found", Doc, key="id", put=Elasticsearch()))
        assert doctor_puts(Surroundings(conf, flow)).found == "not tried"
        answer = doctor_puts(Surroundings(conf, flow, probe=True))
        assert answer.verdict == "ok"
        assert '"posted" in http takes records and refuses older ones' in answer.found
        assert server.read("posted") == server.read("found") == {}
        server.compares = False
        answer = doctor_puts(Surroundings(conf, flow, probe=True))
        assert answer.verdict == "fail"
        assert '"posted" in http takes a record that is older than what it has' in answer.found
        server.answer = lambda: 503
        assert "does not answer" in doctor_puts(Surroundings(conf, flow, probe=True)).found
        server.answer = lambda: 400
        answer = doctor_puts(Surroundings(conf, flow, probe=True))
        assert (answer.verdict, "nothing was tried" in answer.found) == ("warn", True)
