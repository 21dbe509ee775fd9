"""A life's own record in ZooKeeper: how it ended, and whether anybody asked for that."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, cast

import pytest

from lowtide.driver.life_note import BRIEF_S, LifeNote
from lowtide.errors import ServiceUnavailable
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import ZooKeeperUnavailable
from lowtide_snapshots.job.store import JobStore


class Place:
    """Stands where the job's place stands; keeps what is written."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self.limits: list[float | None] = []
        self.away = False

    def set_life(self, incarnation: int, life: Mapping[str, Any], limit_s: float | None = None) -> None:
        if self.away:
            raise ZooKeeperUnavailable("ZooKeeper did not answer")
        assert life["incarnation"] == incarnation
        self.said.append(dict(life))
        self.limits.append(limit_s)

    @property
    def phases(self) -> list[tuple[str, str]]:
        return [(life["phase"], str(Cause.of(life["cause"]) or "")) for life in self.said]


def note(place: Place, incarnation: int = 3) -> LifeNote:
    made = LifeNote(cast(JobStore, place), "exactly_once")
    made.incarnation, made.submission = incarnation, "a key"
    return made


def test_a_life_that_is_stopped_says_so_beforehand_in_case_it_is_killed_meanwhile() -> None:
    place = Place()
    life = note(place)
    life.running()
    life.stopping()
    life.over()
    assert place.phases == [("running", ""), ("stopping", ""), ("stopped", "")]
    assert place.limits == [None, BRIEF_S, None]
    assert place.said[-1].items() >= {"submission": "a key", "delivery": "exactly_once", "again": False}.items()


def test_a_life_that_fails_was_not_stopped_by_anybody_and_the_first_cause_counts() -> None:
    place = Place()
    life = note(place)
    life.fail(ServiceUnavailable("the job was not ready within 60 s"))
    life.fail(OSError("and then this"))
    life.stopping()
    life.over()
    assert place.phases == [("failed", "the job was not ready within 60 s")]
    assert not place.said[0]["ran"]


def test_an_error_without_a_text_is_a_cause_as_well() -> None:
    place = Place()
    life = note(place)
    life.fail(RuntimeError())
    life.over()
    assert place.phases == [("failed", "RuntimeError")]


def test_a_life_says_on_which_host_its_log_is_unless_it_has_none() -> None:
    place = Place()
    life = note(place)
    life.running()
    life.log = "/jobs/orders/job.log"
    life.running()
    assert [each["log"] for each in place.said] == ["", f"{socket.gethostname()}:/jobs/orders/job.log"]


def test_a_life_without_a_number_says_nothing() -> None:
    place = Place()
    note(place, incarnation=0).over()
    assert place.said == []


def test_a_zookeeper_that_is_away_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    place = Place()
    place.away = True
    note(place).running()
    assert "could not record in ZooKeeper that the job is running" in caplog.text
