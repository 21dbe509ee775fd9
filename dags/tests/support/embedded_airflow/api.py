"""A small client of Airflow's REST API, version 2: enough to run DAGs and see their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self
from urllib.parse import quote

import httpx
import msgspec

from embedded_airflow.errors import AirflowRefused, AirflowSilent, RunFailed

REQUEST_LIMIT_S = 60.0
POLL_S = 0.3
BUSY_LIMIT_S = 20.0
"""Time that a request is repeated that fails inside Airflow: while its processes start, they lock each other's file."""
SIGN_IN = "/auth/token"
PAGE = 100
"""Rows of one answer: Airflow's own limit."""


class Dag(msgspec.Struct, frozen=True):
    """A DAG that Airflow has read; `has_errors` if its file could not be read the last time."""

    id: str = msgspec.field(name="dag_id")
    paused: bool = msgspec.field(name="is_paused")
    has_errors: bool = msgspec.field(name="has_import_errors")


class DagRun(msgspec.Struct, frozen=True):
    """One run of a DAG; `kind` is "manual", "scheduled", "asset_triggered", …"""

    dag: str = msgspec.field(name="dag_id")
    id: str = msgspec.field(name="dag_run_id")
    state: str
    kind: str = msgspec.field(name="run_type")
    logical_date: datetime | None
    queued: datetime | None = msgspec.field(name="queued_at")
    began: datetime | None = msgspec.field(name="start_date")
    ended: datetime | None = msgspec.field(name="end_date")
    conf: dict[str, Any] | None

    @property
    def over(self) -> bool:
        """True if it has ended, one way or the other."""
        return self.state in ("success", "failed")


class TaskRun(msgspec.Struct, frozen=True):
    """One task of a run; `state` is None before it is due, `map_index` -1 if it is not mapped."""

    dag: str = msgspec.field(name="dag_id")
    run: str = msgspec.field(name="dag_run_id")
    id: str = msgspec.field(name="task_id")
    state: str | None
    tries: int = msgspec.field(name="try_number")
    map_index: int
    began: datetime | None = msgspec.field(name="start_date")
    ended: datetime | None = msgspec.field(name="end_date")
    pid: int | None


class Health(msgspec.Struct, frozen=True):
    """Airflow's processes, each with its last heartbeat; None for one that is not healthy."""

    database: bool
    parts: dict[str, datetime | None]

    def missing(self, since: datetime) -> list[str]:
        """Return the processes without a heartbeat since a time: an older one is not from this start."""
        late = [name for name, beat in self.parts.items() if beat is None or beat < since]
        return late if self.database else ["database", *late]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Health:
        """Read it from the API's answer."""
        parts = {}
        for name in ("scheduler", "triggerer", "dag_processor"):
            beat = answer[name][f"latest_{name}_heartbeat"]
            parts[name] = datetime.fromisoformat(beat) if beat and answer[name]["status"] == "healthy" else None
        return cls(answer["metadatabase"]["status"] == "healthy", parts)


class SignedIn(httpx.Auth):
    """A user's token; fetched with the first request, and again when Airflow does not accept it any more."""

    requires_response_body = True

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._body = {"username": user, "password": password}
        self._token = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """See `httpx.Auth`."""
        if not self._token:
            answer = yield httpx.Request("POST", request.url.join(SIGN_IN), json=self._body)
            if answer.is_error:
                raise refused("POST", SIGN_IN, self.user, answer)
            self._token = answer.json()["access_token"]
        request.headers["Authorization"] = f"Bearer {self._token}"
        answer = yield request
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            # A token lasts a day, or as long as Airflow's secret.
            self._token = ""


class AirflowApi:
    """Airflow's API as one user has it.

    Every method may raise `AirflowRefused`, with the HTTP status, and `AirflowSilent` if Airflow does not answer.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self.user = user
        signed_in = SignedIn(user, password)
        self._client = httpx.Client(base_url=url, auth=signed_in, timeout=REQUEST_LIMIT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """Return the health of Airflow's processes; works without a user."""
        return Health.of(self._send("GET", "/api/v2/monitor/health", auth=None))

    def warm_up(self) -> None:
        """Have Airflow prepare the API of its tasks; it does that at the first request, for seconds."""
        self._send("GET", "/execution/health", auth=None)

    def dags(self) -> list[Dag]:
        """Return the DAGs whose files Airflow has read."""
        return msgspec.convert(self._pages("/api/v2/dags", "dags"), list[Dag])

    def import_errors(self) -> dict[str, str]:
        """Return the traceback of each DAG file that cannot be read."""
        found = self._pages("/api/v2/importErrors", "import_errors")
        return {each["filename"]: each["stack_trace"] for each in found}

    def runs(self, dag: str = "~") -> list[DagRun]:
        """Return the runs of a DAG, or of all DAGs, the oldest first."""
        found = self._pages(f"/api/v2/dags/{quote(dag)}/dagRuns", "dag_runs", order_by="id")
        return msgspec.convert(found, list[DagRun])

    def run(self, dag: str, run: str) -> DagRun:
        """Return one run."""
        return msgspec.convert(self._send("GET", _run_path(dag, run)), DagRun)

    def tasks(self, dag: str, run: str) -> list[TaskRun]:
        """Return the tasks of a run, each with its last try."""
        return msgspec.convert(self._pages(f"{_run_path(dag, run)}/taskInstances", "task_instances"), list[TaskRun])

    def result(self, dag: str, run: str, task: str, key: str = "return_value") -> Any:
        """Return a task's result, or another XCom of it."""
        path = f"{_task_path(dag, run, task)}/xcomEntries/{quote(key)}"
        return self._send("GET", path, params={"deserialize": "false"})["value"]

    def links(self, dag: str, run: str, task: str) -> dict[str, str]:
        """Return the addresses of a task's buttons; empty for one without an address."""
        found: dict[str, str | None] = self._send("GET", f"{_task_path(dag, run, task)}/links")["extra_links"]
        return {name: address or "" for name, address in found.items()}

    def log(self, dag: str, run: str, task: str, try_number: int = 1) -> str:
        """Return the log of one try of a task, a line for each event."""
        path = f"{_task_path(dag, run, task)}/logs/{try_number}"
        content = self._send("GET", path, params={"full_content": "true"})["content"]
        return "\n".join(_log_line(each) for each in content)

    # -- acting ------------------------------------------------------------------------------------------------------

    def pause(self, dag: str, paused: bool = True) -> None:
        """Pause a DAG."""
        self._send("PATCH", f"/api/v2/dags/{quote(dag)}", json={"is_paused": paused})

    def unpause(self, dag: str) -> None:
        """Unpause a DAG."""
        self.pause(dag, paused=False)

    def pause_between_runs(self, dag: str) -> bool:
        """Pause a DAG unless one of its runs is under way, which would stand still; returns whether it was paused.

        A run that was due and has not begun stays queued, and begins when the DAG is unpaused.
        """

        def idle() -> bool:
            return all(run.state != "running" for run in self.runs(dag))

        if not idle():
            return False
        self.pause(dag)
        if not idle():
            self.unpause(dag)
            return False
        return True

    def read_again(self, dag: str) -> None:
        """Have Airflow read a DAG's file at once: only then do the watchers of a DAG that was unpaused start."""
        token = self._send("GET", f"/api/v2/dags/{quote(dag)}")["file_token"]
        self._send("PUT", f"/api/v2/parseDagFile/{quote(token)}")

    def trigger(self, dag: str, conf: Mapping[str, Any] | None = None, *, run: str | None = None) -> DagRun:
        """Start a run.

        Args:
            dag: the DAG; if it is paused, the run waits.
            conf: parameters that differ from their defaults.
            run: the run's id; a second run with one id is refused with 409.
        """
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf or {})}
        if run is not None:
            body["dag_run_id"] = run
        return msgspec.convert(self._send("POST", f"/api/v2/dags/{quote(dag)}/dagRuns", json=body), DagRun)

    def answer(self, dag: str, run: str, task: str, *options: str) -> None:
        """Answer a task's question under *Required actions*."""
        self._send("PATCH", f"{_task_path(dag, run, task)}/-1/hitlDetails", json={"chosen_options": options})

    def fail(self, dag: str, run: str, task: str) -> None:
        """Mark a task as failed, as a person does who has enough of it; Airflow kills it if it is under way."""
        self._send("PATCH", _task_path(dag, run, task), json={"new_state": "failed"})

    def clear(self, dag: str, run: str, task: str) -> None:
        """Have a task that is over run again, and what follows from it."""
        given = {"dry_run": False, "dag_run_id": run, "task_ids": [task], "only_failed": False}
        self._send("POST", f"/api/v2/dags/{quote(dag)}/clearTaskInstances", json={**given, "include_downstream": True})

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait_for_dags(self, wanted: Sequence[str], limit_s: float) -> None:
        """Wait until Airflow has read the files of these DAGs.

        Raises:
            AirflowSilent: it has not in time; the message has the errors of files that cannot be read.
        """

        def missing() -> list[str]:
            return sorted(set(wanted) - {dag.id for dag in self.dags()})

        if not waited(lambda: not missing(), limit_s):
            errors = "".join(f"\n{file}:\n{trace}" for file, trace in self.import_errors().items())
            what = f"Airflow has not read these DAGs within {limit_s:.0f} s: {', '.join(missing())}{errors}"
            raise AirflowSilent(what, where=self.url, way_out="correct the DAG file, or see the dag-processor's log")

    def wait(self, dag: str, run: str, limit_s: float) -> DagRun:
        """Wait until a run has succeeded.

        Raises:
            RunFailed: it failed; the message has the end of the failed tasks' logs.
            AirflowSilent: it was not over in time; the message has its tasks' states.
        """
        in_time = waited(lambda: self.run(dag, run).over, limit_s)
        found = self.run(dag, run)
        if found.state == "success":
            return found
        tasks = self.tasks(dag, run)
        states = ", ".join(f"{task.id} {task.state or 'not due'} ({task.tries})" for task in tasks)
        if not in_time:
            what = f"run {run} of {dag} is {found.state} after {limit_s:.0f} s: {states}"
            raise AirflowSilent(what, where=self.url, way_out="see the tasks' logs")
        logs = "".join(f"\n{self._end_of_log(task)}" for task in tasks if task.state == "failed")
        raise RunFailed(f"run {run} of {dag} failed: {states}{logs}", where=self.url, way_out="see the tasks' logs")

    def _end_of_log(self, task: TaskRun) -> str:
        lines = self.log(task.dag, task.run, task.id, task.tries).splitlines()
        return "\n".join((f"{task.id}, try {task.tries}:", *(f"  {line}" for line in lines[-20:])))

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _pages(self, path: str, field: str, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            answer = self._send("GET", path, params={"limit": str(PAGE), "offset": str(len(found)), **query})
            found += answer[field]
            if len(answer[field]) < PAGE or len(found) >= answer["total_entries"]:
                return found

    def _send(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        """Send a request (`httpx.Client.request`); one that failed inside Airflow again, unless it may act twice."""
        deadline = time.monotonic() + BUSY_LIMIT_S
        while True:
            try:
                answer = self._client.request(method, path, **given)
                if not answer.is_error:
                    found: dict[str, Any] = answer.json() if answer.content else {}
                    return found
                raise refused(method, path, self.user, answer)
            except httpx.TransportError as error:
                what = f"Airflow does not answer: {error}"
                raise AirflowSilent(what, where=f"{self.url}{path}", way_out="see the api-server's log") from error
            except AirflowRefused as error:
                again = httpx.codes.is_server_error(error.status) and (method != "POST" or error.path == SIGN_IN)
                if not again or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)


def refused(method: str, path: str, user: str, answer: httpx.Response) -> AirflowRefused:
    """Return the error for an answer that is one."""
    what = f"Airflow refused {method} {path} as user {user!r} with {answer.status_code}: {answer.text[:500]}"
    return AirflowRefused(what, status=answer.status_code, path=path, where=str(answer.url), way_out="see the message")


def waited(done: Callable[[], bool], limit_s: float) -> bool:
    """Poll until it is done; returns whether that was in time."""
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _run_path(dag: str, run: str) -> str:
    return f"/api/v2/dags/{quote(dag)}/dagRuns/{quote(run, safe='')}"


def _task_path(dag: str, run: str, task: str) -> str:
    return f"{_run_path(dag, run)}/taskInstances/{quote(task)}"


def _log_line(event: Any) -> str:
    if not isinstance(event, dict):
        return str(event)
    details = "".join(f"\n  {each}" for each in event.get("error_detail") or ())
    return f"{event.get('timestamp') or ''} {event.get('event', '')}{details}".strip()
