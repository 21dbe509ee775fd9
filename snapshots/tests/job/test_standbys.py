"""The lease's record of what its holder runs, and the programs that wait for it, on a real ZooKeeper."""

import threading
from typing import Any

import pytest
from hanging import HANGS_S

pytest.importorskip("kazoo", reason="kazoo is an extra")

from lowtide_snapshots.job.layout import Layout
from lowtide_snapshots.job.standbys import Standby

pytestmark = pytest.mark.zookeeper

LAYOUT = Layout("f1", 2, 4, 8, 1, "local[8]", {"job.slack_ms": "2", "job.grouping": "optimistic"})
FIRST, SECOND = Standby("2026-01-01T00:00:00+00:00", "a"), Standby("2026-01-01T00:00:01+00:00", "b", True)


def test_who_leads_is_read_with_what_it_runs(place: Any) -> None:
    mine, other = place.open(), place.open()
    assert other.leader() is None
    mine.take_lease("the first", 0, place.nobody, LAYOUT)
    assert other.leader() == ("the first", LAYOUT)
    assert other.holder() == "the first"


def test_a_lease_taken_again_says_what_its_holder_runs(place: Any) -> None:
    mine = place.open()
    mine.take_lease("the same", 0, place.nobody, LAYOUT)
    mine.raise_incarnation()
    place.expire(mine)
    mine.keep_lease()
    assert place.open().leader() == ("the same", LAYOUT)


def test_a_leader_of_an_older_version_says_who_it_is(place: Any) -> None:
    place.open().take_lease("an older one", 0, place.nobody)
    assert place.open().leader() == ("an older one", Layout())
    assert Layout().differences(LAYOUT) == []


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (LAYOUT, []),
        (Layout("f1", 2, 4, 8, 3, "spark://there", LAYOUT.settings), []),
        (Layout("f2", 2, 4, 8, 1, "local[8]", LAYOUT.settings), ["the flow's steps or the text of its files"]),
        (Layout("f1", 2, 2, 8, 1, "local[8]", LAYOUT.settings), ["parallelism (4 there, 2 here)"]),
        (
            Layout("f1", 2, 4, 8, 1, "local[8]", {"job.slack_ms": "5", "job.grouping": "optimistic"}),
            ["job.slack_ms (2 there, 5 here)"],
        ),
    ],
)
def test_what_decides_answers_must_be_the_same_and_places_may_differ(other: Layout, differs: list[str]) -> None:
    assert LAYOUT.differences(other) == differs


@pytest.mark.parametrize("lives", [0, 1], ids=["before its first life", "in a life"])
def test_the_lease_of_a_dead_process_is_freed_before_its_session_ends(place: Any, lives: int) -> None:
    mine, service, other = place.open(), place.open(), place.open()
    mine.take_lease("the dead one", 0, place.nobody)
    for _ in range(lives):
        mine.raise_incarnation()
    assert not service.free_lease(other.lease_token)
    assert service.holder() == "the dead one"
    assert service.free_lease(mine.lease_token)
    assert service.holder() is None
    assert not service.free_lease(mine.lease_token)


def test_the_lease_of_another_process_of_the_same_name_is_not_freed(place: Any) -> None:
    """Two containers may have the same numbers."""
    mine, service = place.open(), place.open()
    place.living(mine, "process 1 on here")
    mine.close()
    place.open().take_lease("process 1 on here", 0, place.nobody)
    assert not service.free_lease(mine.lease_token)
    assert service.holder() == "process 1 on here"


def test_the_lease_of_a_life_that_begins_meanwhile_is_not_freed(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The incarnation is checked in the transaction, so a life that begins meanwhile keeps its lease."""
    mine, service = place.open(), place.open()
    place.living(mine, "the dead one")

    def another() -> None:
        mine.close()
        place.living(place.open(), "the next one")

    place.before_commit(monkeypatch, service, another)
    service.free_lease(mine.lease_token)
    assert service.holder() == "the next one"


def test_standbys_are_seen_the_longest_first_and_go_with_their_sessions(place: Any) -> None:
    first, second, seen = place.open(), place.open(), place.open()
    assert seen.standbys() == []
    second.show_standby(SECOND)
    first.show_standby(FIRST)
    first.show_standby(FIRST)
    assert seen.standbys() == [FIRST, SECOND]
    first.show_standby(Standby(FIRST.since, FIRST.holder, True))
    assert seen.standbys() == [Standby(FIRST.since, FIRST.holder, True), SECOND]
    second.show_standby(None)
    second.show_standby(None)
    first.close()
    assert seen.standbys() == []


def test_who_watches_the_lease_is_told_when_it_comes_free(place: Any) -> None:
    mine, other = place.open(), place.open()
    held, free = threading.Event(), threading.Event()
    mine.take_lease("the first", 0, place.nobody)
    other.watch_lease(lambda data: (free if data is None else held).set())
    assert held.wait(HANGS_S)
    mine.close()
    assert free.wait(HANGS_S)
