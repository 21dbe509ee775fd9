"""Which jobs the page shows, and looks at them that are kept for a moment: many who watch cost as much as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from lowtide_airflow.client import JobClient, jobs_at
from lowtide_airflow.jobs_file import JobEntry
from lowtide_airflow.place import Place
from lowtide_airflow.ui.answers import JobAnswer, JobLine, JobsAnswer, Trouble
from lowtide_airflow.ui.sight import Sight
from lowtide_snapshots.errors import SnapshotsError

__all__ = ["Watching"]

JOB_KEPT_S = 1.5
JOBS_KEPT_S = 5.0
LIMIT_S = 4.0
"""How long a place may take to answer."""
MOST_JOBS = 200
MOST_SIGHTS = 50
AT_ONCE = 8


@dataclass
class _Kept:
    """What was seen of one job last, and the lock of whoever looks."""

    sight: Sight
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: JobAnswer | None = None
    at_s: float = float("-inf")


class Watching:
    """Looks at jobs for the page; any thread may ask.

    Args:
        entries: reads the jobs file (errors: SnapshotsError).
        place: the place that an Airflow connection names, by its id (errors: SnapshotsError).
        default: the connection that is always looked at.
    """

    def __init__(self, entries: Callable[[], Iterable[JobEntry]], place: Callable[[str], Place], default: str) -> None:
        self._read = entries
        self._place = place
        self._default = default
        self._lock = threading.Lock()
        self._sights: dict[tuple[str, str], _Kept] = {}
        self._jobs_lock = threading.Lock()
        self._jobs: JobsAnswer | None = None
        self._jobs_s = float("-inf")

    def jobs(self) -> JobsAnswer:
        """All jobs, each with its state."""
        with self._jobs_lock:
            if self._jobs is None or time.monotonic() - self._jobs_s > JOBS_KEPT_S:
                self._jobs = self._found()
                self._jobs_s = time.monotonic()
            return self._jobs

    def job(self, connection: str, job: str) -> JobAnswer:
        """One job; of a place that does not answer, that it does not.

        Raises:
            LookupError: the connection is none of those that jobs are looked for at. Others are nobody's business here.
        """
        if connection not in self._connections(self._entries()[0]):
            raise LookupError(connection)
        kept = self._kept(connection, job)
        with kept.lock:
            if kept.answer is None or time.monotonic() - kept.at_s > JOB_KEPT_S:
                kept.answer = self._looked(kept.sight, connection, job)
                kept.at_s = time.monotonic()
            return kept.answer

    def _kept(self, connection: str, job: str) -> _Kept:
        with self._lock:
            found = self._sights.pop((connection, job), None) or _Kept(Sight(connection, job))
            self._sights[connection, job] = found
            while len(self._sights) > MOST_SIGHTS:
                del self._sights[next(iter(self._sights))]
            return found

    def _looked(self, sight: Sight, connection: str, job: str) -> JobAnswer:
        entries, troubles = self._entries()
        entry = next((each for each in entries if (each.name, each.connection) == (job, connection)), None)
        try:
            with JobClient(self._near(connection), job) as client:
                answer = sight.look(client, entry, _now_ms())
        except SnapshotsError as error:
            return JobAnswer(job, connection, _now_ms(), "unreachable", troubles=[*troubles, Trouble.of(error)])
        return replace(answer, troubles=[*answer.troubles, *troubles])

    def _found(self) -> JobsAnswer:
        entries, troubles = self._entries()
        listed = [(entry.connection, entry.name) for entry in entries]
        found = dict.fromkeys(listed, "")
        places: dict[str, Place] = {}
        for connection in self._connections(entries):
            try:
                places[connection] = self._near(connection)
                found |= {(connection, name): "" for name in jobs_at(places[connection])}
            except SnapshotsError as error:
                places.pop(connection, None)
                if connection != self._default or any(each == connection for each, _ in listed):
                    troubles.append(Trouble.of(error))
        asked = list(found)[:MOST_JOBS]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            states = pool.map(lambda each: _state(places.get(each[0]), each[1]), asked)
            lines = [
                JobLine(name, connection, state, (connection, name) in listed)
                for (connection, name), state in zip(asked, states, strict=True)
            ]
        return JobsAnswer(_now_ms(), lines, troubles)

    def _connections(self, entries: Iterable[JobEntry]) -> list[str]:
        return list(dict.fromkeys([*(entry.connection for entry in entries), self._default]))

    def _entries(self) -> tuple[list[JobEntry], list[Trouble]]:
        try:
            return list(self._read()), []
        except SnapshotsError as error:
            return [], [Trouble.of(error)]

    def _near(self, connection: str) -> Place:
        return replace(self._place(connection), limit_s=LIMIT_S)


def _state(place: Place | None, job: str) -> str:
    if place is None:
        return "unreachable"
    try:
        with JobClient(place, job) as client:
            return client.look().state
    except SnapshotsError:
        return "unreachable"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
