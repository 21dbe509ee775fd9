"""Answers for the page, kept for a moment each, so that many viewers cost as much as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lowtide_airflow.job.client import JobClient, jobs_at
from lowtide_airflow.job.services import Services
from lowtide_airflow.jobs_file import JobEntry, jobs_to_recover, read_mistakes
from lowtide_airflow.ui.job_page import JobPage
from lowtide_snapshots.errors import LowtideError
from lowtide_snapshots.page.answers import JobAnswer, JobLine, JobsAnswer, Trouble

JOB_KEPT_S = 1.5
JOBS_KEPT_S = 5.0
LIMIT_S = 4.0
"""Limit on ZooKeeper's answer."""
MOST_JOBS = 200
MOST_PAGES = 50
AT_ONCE = 8


@dataclass
class _Kept:
    """The last answer about one job, and the lock of the thread that reads it."""

    page: JobPage
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: JobAnswer | None = None
    at_s: float = float("-inf")


class Board:
    """Answers the page's requests; for any number of threads.

    Args:
        entries: reads the jobs file (errors: LowtideError).
        services: reads an Airflow connection, by its id (errors: LowtideError).
        default: the id of the connection that the page always shows.
        mistakes: reads those of the jobs file that leave a job without a DAG.
    """

    def __init__(
        self,
        entries: Callable[[], Iterable[JobEntry]],
        services: Callable[[str], Services],
        default: str,
        mistakes: Callable[[], Iterable[LowtideError]] = tuple,
    ) -> None:
        self._read = entries
        self._mistakes = mistakes
        self._services = services
        self._default = default
        self._lock = threading.Lock()
        self._pages: dict[tuple[str, str], _Kept] = {}
        self._jobs_lock = threading.Lock()
        self._jobs: JobsAnswer | None = None
        self._jobs_s = float("-inf")

    def jobs(self) -> JobsAnswer:
        """Return all jobs, each with its state."""
        with self._jobs_lock:
            if self._jobs is None or time.monotonic() - self._jobs_s > JOBS_KEPT_S:
                self._jobs = self._read_jobs()
                self._jobs_s = time.monotonic()
            return self._jobs

    def job(self, connection: str, job: str) -> JobAnswer:
        """Return one job; "unreachable" if its services do not answer.

        Raises:
            LookupError: the page does not show this connection: neither the jobs file nor the default names it.
        """
        if connection not in self._connections(self._entries()[0]):
            raise LookupError(connection)
        kept = self._kept(connection, job)
        with kept.lock:
            if kept.answer is None or time.monotonic() - kept.at_s > JOB_KEPT_S:
                kept.answer = self._read_job(kept.page, connection, job)
                kept.at_s = time.monotonic()
            return kept.answer

    def _kept(self, connection: str, job: str) -> _Kept:
        with self._lock:
            found = self._pages.pop((connection, job), None) or _Kept(JobPage(connection, job))
            self._pages[connection, job] = found
            while len(self._pages) > MOST_PAGES:
                del self._pages[next(iter(self._pages))]
            return found

    def _read_job(self, page: JobPage, connection: str, job: str) -> JobAnswer:
        entries, troubles = self._entries()
        entry = next((each for each in entries if (each.name, each.connection) == (job, connection)), None)
        try:
            with JobClient(self._quick(connection), job) as client:
                answer = page.answer(client, entry, _now_ms())
        except LowtideError as error:
            return JobAnswer(job, connection, _now_ms(), "unreachable", troubles=[*troubles, Trouble.of(error)])
        return replace(answer, troubles=[*answer.troubles, *troubles])

    def _read_jobs(self) -> JobsAnswer:
        entries, troubles = self._entries()
        listed = [(entry.connection, entry.name) for entry in entries]
        found = dict.fromkeys(listed, "")
        reached: dict[str, Services] = {}
        for connection in self._connections(entries):
            try:
                services = self._quick(connection)
                found |= {(connection, name): "" for name in jobs_at(services)}
                reached[connection] = services
            except LowtideError as error:
                if connection != self._default or any(each == connection for each, _ in listed):
                    troubles.append(Trouble.of(error))
        shown = list(found)[:MOST_JOBS]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            states = pool.map(lambda each: _state(reached.get(each[0]), each[1]), shown)
            lines = [
                JobLine(name, connection, state, (connection, name) in listed)
                for (connection, name), state in zip(shown, states, strict=True)
            ]
        return JobsAnswer(_now_ms(), "airflow", round(JOBS_KEPT_S * 1000), lines, troubles)

    def _connections(self, entries: Iterable[JobEntry]) -> list[str]:
        return list(dict.fromkeys([*(entry.connection for entry in entries), self._default]))

    def _entries(self) -> tuple[list[JobEntry], list[Trouble]]:
        try:
            return list(self._read()), [Trouble.of(error) for error in self._mistakes()]
        except LowtideError as error:
            return [], [Trouble.of(error)]

    def _quick(self, connection: str) -> Services:
        return replace(self._services(connection), limit_s=LIMIT_S)


def airflow_board() -> Board:
    """Return the board of this Airflow: of its jobs file and its connections."""
    from airflow.configuration import conf

    from lowtide_airflow.compat import AirflowException
    from lowtide_airflow.errors import ConnectionInvalid
    from lowtide_airflow.hook import LowtideHook

    def services(connection: str) -> Services:
        try:
            return LowtideHook(connection).get_conn()
        except AirflowException as error:
            raise ConnectionInvalid(
                f"Airflow has no connection {connection!r}",
                where="Airflow's connections",
                way_out="create one of type lowtide with this id, or name another in the jobs file",
            ) from error

    folder = conf.get("core", "dags_folder")
    # For a dead job, the page says what restarts it.
    return Board(
        lambda: jobs_to_recover(folder),
        services,
        LowtideHook.default_conn_name,
        lambda: read_mistakes(folder),
    )


def _state(services: Services | None, job: str) -> str:
    if services is None:
        return "unreachable"
    try:
        with JobClient(services, job) as client:
            return client.status().state
    except LowtideError:
        return "unreachable"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
