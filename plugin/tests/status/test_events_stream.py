"""Subscriptions over real HTTPS: streams last, go on after their last id, and follow a job from life to life."""

import io
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from controlled import TOKEN, ControlledJob, controlled
from hanging import HANGS_S
from seen import SHAPE

from lowtide.errors import NotRunning
from lowtide.events import EventLog
from lowtide.status import control
from lowtide.status.control_client import ControlClient
from lowtide.status.subscriber import NotYet, follow
from lowtide.status.subscriptions import Hub
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.record import Commit
from lowtide_snapshots.errors import ControlRefused, ControlUnreachable, TokenRefused
from lowtide_snapshots.job.news import News


@pytest.fixture(name="job")
def _job() -> Iterator[ControlledJob]:
    with controlled(SHAPE, EventLog("index", 3, io.StringIO())) as job:
        yield job


def commit(tick: int, name: str = "noon") -> Commit:
    return Commit(tick, f"000003-{tick:04}", name, "m", "0" * 64, 3, "2026-01-02T03:04:05.000+00:00")


def kinds(news: list[News]) -> list[tuple[str, int | None]]:
    return [(each.kind, each.time_ms) for each in news]


def test_a_subscriber_gets_each_step_until_the_life_ends(job: ControlledJob) -> None:
    job.tell(lambda hub: hub.reached("delivered", 5))
    stream = job.client().listen(["delivered", "commit", "segment:changes"])
    assert kinds([next(stream), next(stream)]) == [("life", None), ("delivered", 10)]
    job.tell(lambda hub: hub.committed([commit(3), commit(4)]))
    news = [next(stream), next(stream)]
    assert kinds(news) == [("commit", 6), ("commit", 8)]
    assert (news[0].data["snapshot"], news[0].data["name"]) == ("000003-0003", "noon")
    job.tell(lambda hub: hub.segments_reached({1: 9, 2: 8}, 8))
    assert kinds([next(stream)]) == [("segment", 18)]
    job.tell(lambda hub: hub.end(Cause("loss", "worker 1/0 is gone")))
    (last,) = stream
    assert (last.kind, "worker 1/0 is gone" in str(last.data["cause"])) == ("end", True)


def test_a_subscriber_that_shows_its_last_id_gets_nothing_twice(job: ControlledJob) -> None:
    job.tell(lambda hub: hub.committed([commit(3), commit(4), commit(5)]))
    stream = job.client().listen(["commit"])
    _, first = next(stream), next(stream)
    stream.close()
    again = job.client().listen(["commit"], last_id=first.id)
    assert kinds([next(again), next(again)]) == [("commit", 8), ("commit", 10)]
    again.close()


def test_a_moment_ends_the_stream_when_it_is_passed(job: ControlledJob) -> None:
    found: list[News] = []
    listening = threading.Thread(target=lambda: found.extend(job.client().listen(["delivered"], at_ms=100)))
    listening.start()
    for tick in (10, 49, 51):
        job.tell(partial(Hub.reached, subject="delivered", tick=tick))
    listening.join(HANGS_S)
    assert kinds(found) == [("life", None), ("delivered", 102)]


def test_subscribers_are_let_in_by_the_token_and_do_not_stand_in_the_way_of_others(
    job: ControlledJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "MAX_SUBSCRIBERS", 3)
    monkeypatch.setattr(control, "MAX_USERS", 1)
    with pytest.raises(TokenRefused):
        next(job.client("another").listen(["delivered"]))
    streams = [job.client().listen(["delivered"]) for _ in range(3)]
    assert [next(stream).kind for stream in streams] == ["life"] * 3
    assert job.client().snapshots() == []
    with pytest.raises(ControlUnreachable, match="all 3 subscriptions are taken"):
        next(job.client().listen(["delivered"]))
    for stream in streams:
        stream.close()


def test_what_cannot_be_reported_is_refused(job: ControlledJob) -> None:
    with pytest.raises(ControlRefused, match="no segment of this job") as refused:
        next(job.client().listen(["segment:speed"]))
    assert "1: last, changes; 2: index" in refused.value.way_out
    with pytest.raises(ControlRefused, match="older"):
        next(job.client().listen(["delivered"], last_id="9.5"))


def test_a_client_that_takes_nothing_is_dropped_and_forgotten(
    job: ControlledJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lowtide.status import event_stream

    monkeypatch.setattr(event_stream, "WRITE_LIMIT_S", 0.5)
    host, port = job.address.split(":")
    tls = ssl.create_default_context(cadata=job.certificate)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.connect((host, int(port)))
    with tls.wrap_socket(plain, server_hostname="localhost") as idle:
        shown = f"Authorization: Bearer {TOKEN}"
        idle.sendall(f"GET /events?about=commit HTTP/1.1\r\nHost: a\r\n{shown}\r\n\r\n".encode())
        assert idle.recv(1) == b"H"
        long = "n" * 4000
        job.tell(lambda hub: hub.committed([commit(tick, long) for tick in range(1, 10_000)]))
        left: list[int] = []
        for _ in range(300):
            job.tell(lambda hub: left.append(len(hub)))
            if left[-1] == 0:
                break
            threading.Event().wait(0.1)
        assert left[-1] == 0


def test_a_follower_goes_from_life_to_life_and_hears_each_thing_once(job: ControlledJob) -> None:
    lives: list[ControlClient | None] = [job.client(), None]
    followed: list[News] = []
    asked, began, over = threading.Event(), threading.Event(), threading.Event()

    def find() -> ControlClient:
        asked.set()
        at = lives[0]
        if at is None:
            began.set()
            raise NotRunning("it does not run")
        return at

    def hear() -> None:
        for news in follow(find, ["delivered", "commit"], limit_s=HANGS_S):
            followed.append(news)
            if news.kind == "commit" and news.time_ms == 12:
                over.set()

    job.tell(lambda hub: hub.committed([commit(4)]))
    job.tell(lambda hub: hub.reached("delivered", 5))
    hearing = threading.Thread(target=hear)
    hearing.start()
    for _ in range(100):
        if len(followed) >= 3:
            break
        threading.Event().wait(0.1)
    job.tell(lambda hub: hub.end(Cause("loss", "worker 1/0 is gone")))
    for _ in range(3):  # The life that is over still answers.
        asked.clear()
        assert asked.wait(HANGS_S)
    lives[0] = None
    assert began.wait(HANGS_S)
    shape = SHAPE.__class__(
        job="index", incarnation=4, started_ms=0, slack_ms=2, segments=SHAPE.segments, sinks=SHAPE.sinks
    )
    with controlled(shape, EventLog("index", 4, io.StringIO())) as later:
        later.tell(lambda hub: hub.reached("delivered", 5))
        later.tell(lambda hub: hub.committed([commit(4), commit(6)]))
        lives[0] = later.client()
        assert over.wait(HANGS_S)
        later.tell(lambda hub: hub.end(None))
        hearing.join(HANGS_S)
    assert not hearing.is_alive()
    reported = [(each.incarnation, each.kind, each.time_ms) for each in followed]
    assert reported == [
        (3, "life", None),
        (3, "commit", 8),
        (3, "delivered", 10),
        (3, "end", None),
        (4, "life", None),
        (4, "commit", 12),
        (4, "end", None),
    ]


def test_who_waits_too_long_learns_what_for(job: ControlledJob) -> None:
    with pytest.raises(NotYet, match="without news about delivered"):
        list(follow(job.client, ["delivered"], at_ms=100, limit_s=0.5))


def test_the_stream_is_what_a_browser_expects(job: ControlledJob) -> None:
    job.tell(lambda hub: hub.reached("delivered", 5))
    host, port = job.address.split(":")
    tls = ssl.create_default_context(cadata=job.certificate)
    with tls.wrap_socket(socket.create_connection((host, int(port)), 5), server_hostname="localhost") as browser:
        asked = "GET /events?about=delivered&at_ms=1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
        browser.sendall(f"{asked}{TOKEN}\r\n\r\n".encode())
        reported = b"".join(iter(lambda: browser.recv(1 << 16), b""))
    head, _, body = reported.partition(b"\r\n\r\n")
    assert b"Content-Type: text/event-stream" in head
    assert b"event: delivered\nid: 3.10\ndata: " in body
    assert json.loads(body.split(b"data: ")[-1].split(b"\n")[0])["time_ms"] == 10
