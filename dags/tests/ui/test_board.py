"""The jobs that the page shows, and how often it reads them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from lowtide_airflow.errors import ConnectionInvalid, JobsFileRefused
from lowtide_airflow.job.services import Services
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.ui import board
from lowtide_airflow.ui.board import Board

ORDERS = JobEntry("orders", "flow.py", connection="there")


class Airflow:
    """Its jobs file and its connections, none of which leads anywhere."""

    def __init__(self, *entries: JobEntry) -> None:
        self.entries = entries
        self.damaged = False
        self.asked: list[str] = []
        self.board = Board(self.read, self.services, "lowtide_default")

    def read(self) -> tuple[JobEntry, ...]:
        if self.damaged:
            raise JobsFileRefused("flwo is not a key", where="airflow.toml", way_out="did you mean flow?")
        return self.entries

    def services(self, connection: str) -> Services:
        self.asked.append(connection)
        raise ConnectionInvalid(f"Airflow has no connection {connection!r}", way_out="make one")


def test_a_job_is_looked_for_only_where_the_jobs_file_or_the_default_says() -> None:
    airflow = Airflow(ORDERS)
    assert airflow.board.job("there", "orders").state == "unreachable"
    assert airflow.board.job("lowtide_default", "any").state == "unreachable"
    with pytest.raises(LookupError):
        airflow.board.job("aws_default", "orders")
    assert airflow.asked == ["there", "lowtide_default"]


def test_jobs_of_a_place_that_is_not_there_are_listed_and_it_is_said() -> None:
    answer = Airflow(ORDERS).board.jobs()
    assert [(each.job, each.state, each.listed) for each in answer.jobs] == [("orders", "unreachable", True)]
    assert [each.what for each in answer.troubles] == ["Airflow has no connection 'there'"]


def test_a_default_connection_that_nobody_made_is_no_trouble() -> None:
    assert Airflow().board.jobs().troubles == []


def test_a_jobs_file_that_cannot_be_read_is_said_to_whoever_looks() -> None:
    airflow = Airflow(ORDERS)
    airflow.damaged = True
    assert [each.way_out for each in airflow.board.jobs().troubles] == ["did you mean flow?"]
    assert "flwo is not a key" in [each.what for each in airflow.board.job("lowtide_default", "orders").troubles]


def test_many_who_watch_cost_as_much_as_one() -> None:
    airflow = Airflow(ORDERS)
    with ThreadPoolExecutor(8) as pool:
        answers = set(map(id, pool.map(lambda _: airflow.board.job("there", "orders"), range(40))))
    assert len(answers) == 1
    assert airflow.asked == ["there"]


def test_only_so_many_jobs_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "MOST_PAGES", 3)
    airflow = Airflow(ORDERS)
    for number in range(10):
        airflow.board.job("there", f"job {number}")
    assert len(airflow.board._pages) == 3
