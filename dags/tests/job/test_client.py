"""A job seen from outside, on a real ZooKeeper and a folder as the store: alive, dead, and with one of the two away."""

from __future__ import annotations

import shutil
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lowtide_airflow.errors import ConnectionInvalid, NotRunning, SinkUnknown
from lowtide_airflow.job.client import JobClient, jobs_at
from lowtide_airflow.job.services import Services
from lowtide_snapshots.errors import (
    CommitRefused,
    CommitUnknown,
    Fenced,
    ManifestDamaged,
    NoGoodCommit,
    NoSuchCommit,
    TokenRefused,
    ZooKeeperUnavailable,
)
from lowtide_snapshots.job.layout import Layout
from lowtide_snapshots.job.standbys import Standby
from lowtide_snapshots.stores.errors import StoreUnavailable

if TYPE_CHECKING:
    from seen_job import Job

pytestmark = pytest.mark.zookeeper


def test_who_leads_a_job_and_who_waits_for_it_is_seen(job: Job, place: Any) -> None:
    client, leader, waiting = job.client(), place.open(job.name), place.open(job.name)
    assert client.status().standbys == ()
    leader.take_lease("process 1 on a test", 0, place.nobody, Layout("f1", 2, 3, 8))
    standby = Standby("2026-01-01T00:00:00+00:00", "process 2 on a test", True)
    waiting.show_standby(standby)
    status = client.status()
    assert (status.holder, status.parallelism, status.standbys) == ("process 1 on a test", 3, (standby,))
    leader.close()
    status = client.status()
    assert (status.holder, status.parallelism, status.standbys) == (None, 0, (standby,))


def test_a_job_is_looked_at_through_its_lives(job: Job) -> None:
    client = job.client()
    assert client.status().state == "unknown"
    assert client.delivered_ms() is None
    assert job.start("key one") == 1
    assert client.status().state == "starting"
    assert client.submission("key one") == 1
    assert client.submission("key two") is None
    job.say("running", submission="key one", commit=None)
    job.publish(500)
    status = client.status()
    figures = (status.incarnation, status.delivered_ms, status.lanes, status.slack_ms)
    assert (status.state, *figures) == ("running", 1, 5_000, 2, 10)
    assert status.life is not None
    assert (status.life.submission, status.life.control) == ("key one", "127.0.0.1:1")
    job.ends("failed", "worker 1/0 died")
    assert client.status().state == "failed"
    assert client.delivered_ms() == 5_000
    with pytest.raises(NotRunning, match="ended: worker 1/0 died"):
        client.control()
    job.runs()
    job.ends("stopped")
    assert client.status().state == "stopped"
    assert [(life.incarnation, life.phase) for life in client.lives()] == [(1, "failed"), (2, "stopped")]
    assert job.name in jobs_at(job.services)


def test_where_files_are_is_known_by_the_sinks_name(job: Job) -> None:
    life, client = job.runs(), job.client()
    with pytest.raises(SinkUnknown, match="its sinks of files: none"):
        client.folders("archive")
    place = {"folders": "/lake/{tick:%Y}/", "unit": "year", "files": "archive-*", "done": "done"}
    assert job.driver is not None
    job.driver.set_places(life, {"archive": place})
    assert client.folders("archive").folders == "/lake/{tick:%Y}/"
    with pytest.raises(SinkUnknown, match='its sinks of files: "archive"'):
        client.folders("archiv")


def test_the_token_goes_to_no_address_that_the_life_has_not_proved(job: Job) -> None:
    """Anybody may be able to write into ZooKeeper."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.2)
        host, port = other.getsockname()
        job.runs(control=f"{host}:{port}", control_proof="0" * 64)
        with pytest.raises(TokenRefused, match="nothing proves") as refused:
            job.client().control().status()
        assert f"{host}:{port}" in refused.value.what
        with pytest.raises(TimeoutError):
            other.accept()


def test_a_driver_that_leaves_without_a_word_is_gone(job: Job) -> None:
    job.runs()
    job.leave()
    status = job.client().status()
    assert (status.state, status.alive) == ("gone", False)


def test_a_snapshot_is_sealed_verified_committed_and_found(job: Job) -> None:
    job.runs()
    client = job.client()
    one = job.seal(100, name="before")
    with client.snapshots() as snapshots:
        assert [(each.id, each.phase) for each in snapshots.all()] == [(one.id, "sealed")]
        with pytest.raises(NoSuchCommit, match="has no commits"):
            snapshots.find()
        known, damages = snapshots.verify(one.id)
        assert (known.min_time_ms, damages) == (1_000, [])
        made = snapshots.commit("before")
        assert snapshots.commit(one.id) == made
        assert snapshots.find() == snapshots.find("before")
        two = job.seal(200, base=one)
        assert [each.phase for each in snapshots.all()] == ["committed", "sealed"]
        three = job.seal(300, base=one)
        snapshots.commit(three.id)
        assert snapshots.find(two.id).phase == "over"
        with pytest.raises(CommitRefused, match="not above the last commit"):
            snapshots.commit(two.id)
        with pytest.raises(NoSuchCommit, match=f'no snapshot "x"(?s:.*){three.id}'):
            snapshots.find("x")
        assert snapshots.choose().commit.id == three.id
        assert snapshots.choose(before_ms=2_500).commit.id == one.id


def test_what_a_job_left_is_committed_with_the_job_dead_but_not_over_another_life(job: Job) -> None:
    job.runs()
    client = job.client()
    one, two = job.seal(100), job.seal(200)
    job.ends()
    with client.snapshots() as snapshots:
        assert snapshots.commit(one.id).id == one.id
        job.runs()
        assert snapshots.find(two.id).phase == "over"
        with pytest.raises(Fenced):
            snapshots.commit(two.id)


def test_a_damaged_commit_is_passed_over_and_when_none_is_good_that_is_said(job: Job) -> None:
    job.runs()
    client = job.client()
    one = job.seal(100)
    job.commit(one)
    two = job.seal(200, base=one)
    job.commit(two)
    with client.snapshots() as snapshots:
        job.damage(two)
        _, damages = snapshots.verify()
        assert len(damages) == 1
        assert "SHA-256" in damages[0].why
        choice = snapshots.choose()
        assert choice.commit.id == one.id
        assert [commit.id for commit, _ in choice.skipped] == [two.id]
        job.damage(one, part=1)
        with pytest.raises(NoGoodCommit, match="cannot recover from any of these commits"):
            snapshots.choose()
        Path(job.services.snapshots_url, one.path).unlink()
        assert snapshots.find(one.id).why == "the manifest of commit 000001-0001 is damaged: no such object"
        with pytest.raises(ManifestDamaged):
            snapshots.verify(one.id)


def test_a_prune_keeps_what_it_must_and_can_be_said_beforehand(job: Job) -> None:
    job.runs()
    client = job.client()
    base = None
    made = []
    for number in range(1, 6):
        base = job.seal(number * 100, base=base, name="keep me" if number == 1 else None)
        job.commit(base)
        made.append(base.id)
    with client.snapshots() as snapshots:
        said = snapshots.prune(2, dry_run=True)
        assert (said.kept, said.dropped, said.parts) == ([made[0], *made[3:]], made[1:3], 0)
        assert len(client.commits()) == 5
        done = snapshots.prune(2)
        assert (done.dropped, done.manifests) == (said.dropped, 2)
        assert done.parts > 0
        assert [commit.id for commit in client.commits()] == [made[0], *made[3:]]
        assert snapshots.prune(2).dropped == []
        assert snapshots.verify()[1] == []


def test_a_folder_that_is_away_keeps_a_snapshot_from_being_committed_until_it_is_back(job: Job) -> None:
    job.runs()
    client = job.client()
    one = job.seal(100)
    folder = Path(job.services.snapshots_url)
    away = folder.with_name("away")
    with client.snapshots() as snapshots:
        shutil.move(folder, away)
        with pytest.raises(NoSuchCommit):
            snapshots.commit(one.id)
        assert client.commits() == []
        shutil.move(away, folder)
        assert snapshots.commit(one.id).id == one.id


def test_a_server_of_snapshots_that_is_away_is_neither_damage_nor_a_commit(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.runs()
    job.commit(job.seal(100))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    away = {"s3_endpoint": "http://127.0.0.1:1", "s3_region": "us-east-1", "store_limit_s": 0.5}
    services = Services(job.services.zookeeper, snapshots_url="s3://bucket/prefix", **away)  # type: ignore[arg-type]
    with JobClient(services, job.name) as client, client.snapshots() as snapshots:
        for look in (snapshots.choose, snapshots.verify, lambda: snapshots.commit("000001-0002"), snapshots.all):
            with pytest.raises(StoreUnavailable):
                look()
        with pytest.raises(StoreUnavailable):
            snapshots.prune(1)
        assert len(client.commits()) == 1


@pytest.mark.parametrize("drop", ["request", "answer"])
def test_a_commit_whose_answer_is_lost_is_unknown_and_a_retry_finishes_it(job: Job, drop: str) -> None:
    job.runs()
    one = job.seal(100)
    with Losing(job.services.zookeeper, drop) as proxy:
        services = Services(proxy.address, snapshots_url=job.services.snapshots_url, limit_s=5.0)
        with JobClient(services, job.name) as client, client.snapshots() as snapshots:
            proxy.armed.set()
            with pytest.raises(CommitUnknown, match="unknown whether"):
                snapshots.commit(one.id)
        proxy.back()
        with JobClient(services, job.name) as client, client.snapshots() as snapshots:
            assert [commit.id for commit in client.commits()] == ([one.id] if drop == "answer" else [])
            assert snapshots.commit(one.id).id == one.id
            assert len(client.commits()) == 1


def test_a_zookeeper_that_is_away_is_said_with_its_address(job: Job) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    services = Services(address, limit_s=0.5)
    with pytest.raises(ZooKeeperUnavailable, match=address), JobClient(services, job.name) as client:
        client.status()


def test_a_place_without_a_store_says_which_field_is_missing(job: Job) -> None:
    services = Services(job.services.zookeeper)
    with JobClient(services, job.name) as client, pytest.raises(ConnectionInvalid, match="snapshots_url"):
        client.snapshots()


class Losing:
    """Stands before ZooKeeper, and loses the first transaction once it is armed, or its answer; then lets nobody in."""

    def __init__(self, server: str, drop: str) -> None:
        host, _, port = server.partition(":")
        self._server = (host, int(port))
        self._drop = drop
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.armed = threading.Event()
        self._away = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Losing:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._listener.close()

    def back(self) -> None:
        """Lets everybody in again."""
        self.armed.clear()
        self._away.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._away.is_set():
                client.close()
                continue
            server = socket.create_connection(self._server)
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        multi = (14).to_bytes(4, "big")
        try:
            while data := source.recv(65_536):
                if asks and self.armed.is_set() and data[8:12] == multi:
                    self._away.set()
                    if self._drop == "answer":
                        target.sendall(data)
                        threading.Event().wait(0.3)
                    break
                if not asks and self._away.is_set():
                    break
                target.sendall(data)
        except OSError:
            pass
        finally:
            source.close()
            target.close()
