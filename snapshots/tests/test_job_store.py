"""A job's place on a real ZooKeeper, with what can go wrong there: processes, sessions, servers and answers that go."""

import contextlib
import dataclasses
import functools
import logging
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lowtide_snapshots.errors import (
    EntryDiffers,
    Fenced,
    LeaseTaken,
    RecordDiffers,
    RecordRefused,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from lowtide_snapshots.job_record import JobRecord

kazoo_client = pytest.importorskip("kazoo.client", reason="kazoo is an extra")
# Not imported by its name: only these tests may know that there is an embedded server.
embedded = pytest.importorskip("lowtide.embedded", reason="the embedded ZooKeeper is lowtide's")

from lowtide_snapshots.job_store import JobStore, jobs  # noqa: E402 - kazoo is there

pytestmark = pytest.mark.zookeeper

SHORT_S = 1.0
LONG_S = 10.0
MULTI = 14
ENTRY = {"number": 0, "source": "documents", "topic_id": "x", "partition": 0, "offset": 0, "opening": 0}
HOLDER = """
import sys, time
from lowtide_snapshots.job_store import JobStore

store = JobStore(sys.argv[1], sys.argv[2], session_timeout_s=1.0).open()
store.take_lease("the one that is killed", 0, print)
print("held", flush=True)
time.sleep(60)
"""

WRITES: dict[str, Callable[[JobStore, int], None]] = {
    "add_fronts": lambda store, life: store.add_fronts(life, [ENTRY]),
    "add_sink_ids": lambda store, life: store.add_sink_ids(life, ["late"]),
    "set_lasts_id": lambda store, life: store.set_lasts_id(life, "late"),
    "tell": lambda store, life: store.tell(life, 10**9),
    "set_life": lambda store, life: store.set_life(life, {"phase": "late"}),
}


def content(store: JobStore) -> tuple[Any, ...]:
    return (store.fronts(), store.sink_ids(), store.lasts_id(), store.told(), store.life())


def nobody(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture(name="services", scope="module")
def _services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with embedded.EmbeddedServices(tmp_path_factory.mktemp("zookeeper") / "services", only=["zookeeper"]) as services:
        yield services


@pytest.fixture(name="job")
def _job() -> str:
    return f"job-{uuid.uuid4().hex[:8]}"


Open = Callable[..., JobStore]


@pytest.fixture(name="store")
def _store(services: Any, job: str) -> Iterator[Open]:
    """Opens stores of this test's job."""
    with contextlib.ExitStack() as opened:

        def open_one(name: str = job, hosts: str = services.zookeeper, **settings: Any) -> JobStore:
            return opened.enter_context(JobStore(hosts, name, **{"session_timeout_s": SHORT_S} | settings))

        yield open_one


def living(store: JobStore, holder: str = "test") -> int:
    """Begins a life."""
    store.take_lease(holder, 0, nobody)
    return store.raise_incarnation()


def expire(store: JobStore) -> None:
    """Ends a store's session behind its back, as the server does when a process stands still for too long."""
    client = store._zk._client
    before = store._zk.session
    other = kazoo_client.KazooClient(store._zk.hosts, client_id=client.client_id)
    other.start()
    other.stop()
    other.close()
    assert eventually(lambda: store._zk.connected and store._zk.session != before)


def eventually(true: Callable[[], object], timeout_s: float = 15.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_the_record_is_frozen_at_the_first_start_and_stays(store: Open, job: str) -> None:
    first = JobRecord(job, 2, 128, 4, "log", 1, ("documents=docs",))
    assert store().record() is None
    assert store().freeze(first) == store().record() == first
    for other in (
        {"slack_ms": 3},
        {"units": 64},
        {"lanes": 5},
        {"timestamps": "x"},
        {"hash_version": 2},
        {"sources": ()},
    ):
        with pytest.raises(RecordDiffers) as raised:
            store().freeze(dataclasses.replace(first, **other))
        assert raised.value.fields == tuple(other)
    assert store().freeze(first) == store().record() == first
    with pytest.raises(RecordRefused, match="same name"):
        store().freeze(dataclasses.replace(first, job="other"))


def test_of_two_drivers_one_leads_and_the_other_hears_whom_it_waits_for(store: Open) -> None:
    heard: list[str] = []
    first, second = store(), store()
    living(first, "the first")
    started = time.monotonic()
    with pytest.raises(LeaseTaken, match=r"(?s)run by the first.*what to do: stop that one") as raised:
        second.take_lease("the second", 0.5, heard.append)
    assert raised.value.holder == "the first"
    assert 0.5 <= time.monotonic() - started < 3
    assert len(heard) == 1
    assert "the first" in heard[0]
    assert first.holder() == second.holder() == "the first"
    with pytest.raises(LeaseTaken, match="does not hold the lease"):
        second.raise_incarnation()
    assert second.incarnation() == 1


def test_the_lease_of_a_driver_that_ends_is_free_at_once(store: Open, services: Any, job: str) -> None:
    with JobStore(services.zookeeper, job, session_timeout_s=LONG_S) as first:
        living(first)
        assert store().alive()
    second = store()
    assert not second.alive()
    second.take_lease("the second", 0, nobody)
    assert second.raise_incarnation() == 2


def test_the_lease_of_a_driver_that_was_killed_comes_free(store: Open, services: Any, job: str) -> None:
    command = [sys.executable, "-c", HOLDER, services.zookeeper, job]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGKILL)
    waited: list[str] = []
    mine = store()
    mine.take_lease("the next", LONG_S, waited.append)
    assert len(waited) == 1
    assert "the one that is killed" in waited[0]
    assert mine.holder() == "the next"


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_older_life_writes_nothing(store: Open, write: Callable[[JobStore, int], None]) -> None:
    old, new = store(), store()
    write(old, living(old))
    expire(old)
    assert living(new) == 2
    before = content(new)
    for late in (old, new):
        with pytest.raises(Fenced, match=r"incarnation 1 .* is over: incarnation 2 is the current one") as raised:
            write(late, 1)
        assert raised.value.current == 2
        with pytest.raises(Fenced):
            late.check(1)
    assert content(new) == before
    write(new, 2)
    new.check(2)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_life_that_ends_between_its_check_and_its_write_writes_nothing(
    store: Open, write: Callable[[JobStore, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = store(), store()
    life = living(old)
    expire(old)
    asked = old._lease.checked

    def overtaken(incarnation: int) -> Any:
        found = asked(incarnation)
        if new.incarnation() == life:
            living(new)
        return found

    monkeypatch.setattr(old._lease, "checked", overtaken)
    before = content(new)
    with pytest.raises(Fenced, match="incarnation 2 is the current one"):
        write(old, life)
    assert content(new) == before


def test_without_a_life_nothing_is_written(store: Open) -> None:
    with pytest.raises(Fenced, match="it has no incarnation"):
        store().tell(0, 1)
    with pytest.raises(Fenced, match="it has no incarnation"):
        store().check(0)


def test_the_front_register_only_grows_and_takes_all_or_none(store: Open) -> None:
    mine = store()
    life = living(mine)
    entries = [ENTRY | {"number": number, "partition": number} for number in range(12)]
    mine.add_fronts(life, reversed(entries[:11]))
    mine.add_fronts(life, entries[9:])
    assert store().fronts() == entries
    with pytest.raises(EntryDiffers, match="fronts/0000000003"):
        mine.add_fronts(life, [ENTRY | {"number": 12}, ENTRY | {"number": 3, "topic_id": "made anew"}])
    with pytest.raises(EntryDiffers):
        mine.add_fronts(life, [ENTRY | {"number": 12}, ENTRY | {"number": 12, "offset": 7}])
    assert mine.fronts() == entries
    with pytest.raises(RecordRefused, match="number"):
        mine.add_fronts(life, [ENTRY | {"number": None}])


def test_what_was_told_never_falls(store: Open) -> None:
    mine = store()
    assert mine.told() is None
    life = living(mine)
    for tick, told in ((5, 5), (3, 5), (5, 5), (17, 17), (-1, 17)):
        mine.tell(life, tick)
        assert store().told() == told


def test_transactional_ids_are_never_forgotten(store: Open) -> None:
    mine = store()
    life = living(mine)
    mine.add_sink_ids(life, ["lowtide.a/b.1.0", "."])
    many = {f"lowtide.ü.1.{lane}" for lane in range(1500)}
    mine.add_sink_ids(life, many)
    mine.add_sink_ids(life, [])
    assert store().sink_ids() == many | {"lowtide.a/b.1.0", "."}


def test_the_lasts_topic_is_set_once(store: Open) -> None:
    mine = store()
    life = living(mine)
    assert mine.lasts_id() is None
    mine.set_lasts_id(life, "one")
    mine.set_lasts_id(life, "one")
    with pytest.raises(EntryDiffers, match=r"(?s)one.*two.*another name"):
        mine.set_lasts_id(life, "two")
    assert mine.lasts_id() == "one"


def test_a_life_says_what_there_is_to_know_of_it(store: Open) -> None:
    mine = store()
    life = living(mine, "host 1, pid 2")
    for said in ({"control": "127.0.0.1:1", "phase": "running"}, {"phase": "ended", "cause": "ü" * 1000}):
        mine.set_life(life, said)
        assert store().life() == said
    with pytest.raises(RecordRefused, match="no JSON form"):
        mine.set_life(life, {"phase": object()})
    with pytest.raises(RecordRefused, match="too many"):
        mine.set_life(life, {"phase": "x" * 1_000_000})
    mine.close()
    assert (store().holder(), store().life()) == (None, said)


@pytest.mark.slow
def test_a_restart_of_zookeeper_within_the_time_out_changes_nothing(store: Open, services: Any) -> None:
    mine = store(session_timeout_s=LONG_S)
    life = living(mine, "the same")
    mine.tell(life, 5)
    session = mine._zk.session
    services.stop("zookeeper", grace_s=0)
    try:
        for _ in range(20):
            mine.keep_lease()
            time.sleep(0.05)
    finally:
        services.start("zookeeper")
    assert eventually(lambda: mine._zk.connected)
    mine.keep_lease()
    mine.tell(life, 6)
    assert (mine._zk.session, mine.holder(), mine.incarnation(), mine.told()) == (session, "the same", 1, 6)


def test_after_an_expired_session_the_lease_is_taken_again_if_the_life_is_ours(store: Open) -> None:
    mine = store()
    life = living(mine, "the same")
    expire(mine)
    assert store().holder() is None
    mine.keep_lease()
    assert store().holder() == "the same"
    mine.tell(life, 5)


def test_after_an_expired_session_a_life_is_over_if_another_leads(store: Open) -> None:
    mine, other = store(), store()
    living(mine)
    expire(mine)
    other.take_lease("the other", 0, nobody)
    with pytest.raises(Fenced, match="the other holds its lease"):
        mine.keep_lease()
    other.raise_incarnation()
    other.close()
    with pytest.raises(Fenced, match="incarnation 2 is the current one"):
        mine.keep_lease()
    assert not store().alive()


def test_a_lease_that_was_taken_away_is_noticed(store: Open) -> None:
    mine = store()
    living(mine)
    mine._zk._client.delete(mine._paths.lease)
    living(store())

    def noticed() -> bool:
        try:
            mine.keep_lease()
        except Fenced:
            return True
        return False

    assert eventually(noticed, 3 * SHORT_S)


def before_commit(monkeypatch: pytest.MonkeyPatch, store: JobStore, act: Callable[[], object]) -> None:
    """Lets something happen once, between what a store reads and its transaction."""
    commit = store._zk._commit

    def late(operations: Any) -> bool:
        monkeypatch.setattr(store._zk, "_commit", commit)
        act()
        return commit(operations)

    monkeypatch.setattr(store._zk, "_commit", late)


def test_a_lease_is_not_taken_again_by_a_life_that_is_over(store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = store(), store()
    living(mine)
    expire(mine)

    def whole_life() -> None:
        living(other)
        other.close()

    before_commit(monkeypatch, mine, whole_life)
    with pytest.raises(Fenced, match="incarnation 2"):
        mine.keep_lease()
    assert not store().alive()


def test_the_incarnation_is_raised_only_with_the_lease(store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = store()
    mine.take_lease("mine", 0, nobody)
    before_commit(monkeypatch, mine, lambda: mine._zk._client.delete(mine._paths.lease))
    with pytest.raises(LeaseTaken, match="nobody does"):
        mine.raise_incarnation()
    assert mine.incarnation() == 0


def test_a_lease_of_our_own_session_that_is_being_ended_is_waited_for(store: Open) -> None:
    mine, ended = store(), store()
    living(mine)
    ended._lease._token = mine._lease._token
    expire(mine)
    ended.take_lease("test", 0, nobody)
    mine.keep_lease()
    with pytest.raises(LeaseTaken, match="does not hold the lease"):
        mine.raise_incarnation()
    ended.close()
    mine.keep_lease()
    assert mine.raise_incarnation() == 2


@pytest.mark.slow
def test_keeping_the_lease_does_not_wait_for_a_zookeeper_that_hangs(store: Open, services: Any) -> None:
    mine = store(session_timeout_s=3.0)
    life = living(mine)
    time.sleep(1.1)
    os.kill(services.pid("zookeeper"), signal.SIGSTOP)
    try:
        started = time.monotonic()
        mine.keep_lease()
        assert 0.5 < time.monotonic() - started < 2
    finally:
        os.kill(services.pid("zookeeper"), signal.SIGCONT)
    mine.keep_lease()
    mine.tell(life, 1)


class Proxy:
    """Stands before ZooKeeper, and ends a connection at the next transaction: before it, or with its answer."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.drop: str | None = None
        self.dropped = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server, contextlib.suppress(OSError):
            while True:
                for readable in select.select([client, server], [], [])[0]:
                    data = readable.recv(65536)
                    if not data:
                        return
                    transaction = (
                        readable is client and len(data) >= 12 and struct.unpack(">iii", data[:12])[2] == MULTI
                    )
                    drop, self.drop = (self.drop, None) if transaction else (None, self.drop)
                    self.dropped += drop is not None
                    if drop == "request":
                        return
                    (server if readable is client else client).sendall(data)
                    if drop == "answer":
                        server.recv(65536)
                        return


@pytest.mark.parametrize("drop", ["request", "answer"])
def test_a_write_whose_answer_is_lost_is_done_once(store: Open, services: Any, drop: str) -> None:
    proxy = Proxy(services.zookeeper)
    try:
        mine = store(hosts=proxy.hosts, session_timeout_s=LONG_S)
        proxy.drop = drop
        mine.take_lease("me", 0, nobody)
        proxy.drop = drop
        assert mine.raise_incarnation() == 1
        assert proxy.dropped == 2
        for write in WRITES.values():
            proxy.drop = drop
            write(mine, 1)
        proxy.drop = drop
        mine.tell(1, 10**9 + 1)
        assert proxy.dropped == 2 + len(WRITES) + 1
        versions = [mine._zk.get(path) for path in (mine._paths.incarnation, mine._paths.told, mine._paths.life)]
        assert [node and node.version for node in versions] == [0, 1, 0]
        assert content(store()) == ([ENTRY], {"late"}, "late", 10**9 + 1, {"phase": "late"})
    finally:
        proxy.close()


@pytest.mark.slow
def test_without_zookeeper_every_call_ends_in_time_and_says_where(
    store: Open, services: Any, caplog: pytest.LogCaptureFixture
) -> None:
    mine = store(limit_s=0.5)
    life = living(mine)
    services.stop("zookeeper")
    try:
        with caplog.at_level(logging.DEBUG):
            for call in (mine.incarnation, mine.fronts, functools.partial(mine.tell, life, 1), mine.raise_incarnation):
                started = time.monotonic()
                with pytest.raises(ZooKeeperUnavailable, match=rf"(?s){re.escape(services.zookeeper)}.*start or mend"):
                    call()
                assert time.monotonic() - started < 1.5
            mine.keep_lease()
        said = [record for record in caplog.records if record.name == "lowtide_snapshots.kazoo"]
        assert {record.levelno for record in said} <= {logging.WARNING}
        assert len(said) == len({record.msg for record in said})
        with pytest.raises(ZooKeeperUnavailable):
            store(limit_s=0.5)
        started = time.monotonic()
        mine.close()
        assert time.monotonic() - started < 3
    finally:
        services.start("zookeeper")


def test_to_look_makes_nothing(store: Open, services: Any, job: str) -> None:
    mine = store()
    assert (mine.record(), mine.holder(), mine.alive(), mine.incarnation()) == (None, None, False, 0)
    assert content(mine) == ([], set(), None, None, None)
    assert job not in jobs(services.zookeeper)
    assert jobs(services.zookeeper, root="nothing/here") == []


def test_a_job_may_have_any_name(store: Open, services: Any) -> None:
    names = ["a/b", "潮 & Ebbe", "%2F", ".", "..", "zookeeper", "a b"]
    for number, name in enumerate(names):
        mine = JobStore(services.zookeeper, name, root="by/name")
        with mine:
            mine.freeze(JobRecord(name, number + 1, 128, 4, "log", 1, ()))
    assert jobs(services.zookeeper, root="by/name") == sorted(names)
    for number, name in enumerate(names):
        with JobStore(services.zookeeper, name, root="/by/name/") as mine:
            record = mine.record()
            assert record is not None
            assert (record.job, record.slack_ms) == (name, number + 1)
    with pytest.raises(RecordRefused, match="no name"):
        JobStore(services.zookeeper, "")


def test_a_job_with_a_password_is_closed_to_others(store: Open, services: Any, job: str) -> None:
    mine = store(auth="user:right", root="locked")
    life = living(mine)
    mine.tell(life, 5)
    assert store(auth="user:right", root="locked").told() == 5
    for auth in ("user:wrong", None):
        other = store(auth=auth, root="locked")
        with pytest.raises(ZooKeeperRefused, match="user and password"):
            other.told()
        with pytest.raises(ZooKeeperRefused):
            other.take_lease("other", 0, nobody)
    store("beside it", auth="user:wrong", root="locked").freeze(JobRecord("beside it", 1, 1, 1, "log", 1, ()))
    assert jobs(services.zookeeper, root="locked") == ["beside it", job]


def test_a_store_that_was_closed_can_be_opened_again(store: Open) -> None:
    mine = store()
    assert living(mine) == 1
    mine.close()
    mine.close()
    mine.open()
    assert living(mine) == 2
