"""A small client of Airflow's REST API, version 2: as much as is needed to run DAGs and see what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from lowtide_airflow.embedded.errors import AirflowRefused, AirflowSilent, RunFailed
from lowtide_airflow.embedded.records import Dag, DagRun, Health, TaskRun

__all__ = ["AirflowApi"]

REQUEST_LIMIT_S = 60.0
POLL_S = 0.3
BUSY_LIMIT_S = 20.0
"""How long what meets a fault of Airflow's own is asked again: its parts, while they start, lock each other's file."""
SIGN_IN = "/auth/token"
PAGE = 100
"""Rows of one answer: Airflow's own limit."""
SHOWN_CHARACTERS = 500
Found = TypeVar("Found")


class AirflowApi:
    """Airflow's API as one user sees it; it signs in with the first request.

    Every method may raise `AirflowRefused`, with the HTTP status, and `AirflowSilent` where nobody answers.
    """

    def __init__(self, url: str, user: str, password: str) -> None:
        self.url = url
        self.user = user
        self._password = password
        self._client = httpx.Client(base_url=url, timeout=REQUEST_LIMIT_S, trust_env=False)
        self._token = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of its connections."""
        self._client.close()

    # -- what there is -----------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """Which parts of Airflow are alive; needs no user."""
        return Health.of(self._send("GET", "/api/v2/monitor/health", signed=False))

    def warm_up(self) -> None:
        """Have Airflow prepare the API that its tasks talk to; it does that at the first request, for seconds."""
        self._send("GET", "/execution/health", signed=False)

    def dags(self) -> list[Dag]:
        """The DAGs whose files Airflow has read."""
        return [Dag.of(each) for each in self._pages("/api/v2/dags", "dags")]

    def import_errors(self) -> dict[str, str]:
        """The DAG files that cannot be read, with the traceback of each."""
        found = self._pages("/api/v2/importErrors", "import_errors")
        return {each["filename"]: each["stack_trace"] for each in found}

    def runs(self, dag: str = "~") -> list[DagRun]:
        """The runs of a DAG, or of all, the oldest first."""
        found = self._pages(f"/api/v2/dags/{quote(dag)}/dagRuns", "dag_runs", order_by="id")
        return [DagRun.of(each) for each in found]

    def run(self, dag: str, run: str) -> DagRun:
        """One run, as it is now."""
        return DagRun.of(self._send("GET", _run_path(dag, run)))

    def tasks(self, dag: str, run: str) -> list[TaskRun]:
        """The tasks of a run, each as its last try is."""
        return [TaskRun.of(each) for each in self._pages(f"{_run_path(dag, run)}/taskInstances", "task_instances")]

    def result(self, dag: str, run: str, task: str, key: str = "return_value") -> Any:
        """What a task has left for others."""
        path = f"{_task_path(dag, run, task)}/xcomEntries/{quote(key)}"
        return self._send("GET", path, query={"deserialize": "false"})["value"]

    def links(self, dag: str, run: str, task: str) -> dict[str, str]:
        """Where a task's buttons lead; empty for one that it has nothing to show for."""
        found: dict[str, str | None] = self._send("GET", f"{_task_path(dag, run, task)}/links")["extra_links"]
        return {name: address or "" for name, address in found.items()}

    def log(self, dag: str, run: str, task: str, try_number: int = 1) -> str:
        """The log of one try of a task, a line for each event."""
        path = f"{_task_path(dag, run, task)}/logs/{try_number}"
        content = self._send("GET", path, query={"full_content": "true"})["content"]
        return "\n".join(_log_line(each) for each in content)

    # -- what one may do ---------------------------------------------------------------------------------------------

    def pause(self, dag: str, paused: bool = True) -> None:
        """Let a DAG begin no runs by itself, or let it again."""
        self._send("PATCH", f"/api/v2/dags/{quote(dag)}", {"is_paused": paused})

    def pause_between_runs(self, dag: str) -> bool:
        """Pause a DAG unless a run of it is under way, which would stand still then; returns whether it was paused.

        A run that was due and had not begun stays queued, and begins when the DAG is let run again.
        """
        if self._runs_now(dag):
            return False
        self.pause(dag)
        if self._runs_now(dag):
            self.unpause(dag)
            return False
        return True

    def unpause(self, dag: str) -> None:
        """Let a DAG run."""
        self.pause(dag, paused=False)

    def read_again(self, dag: str) -> None:
        """Have Airflow read a DAG's file at once: only then does it watch for what a DAG that was let run waits for."""
        token = self._send("GET", f"/api/v2/dags/{quote(dag)}")["file_token"]
        self._send("PUT", f"/api/v2/parseDagFile/{quote(token)}")

    def trigger(self, dag: str, conf: Mapping[str, Any] | None = None, *, run: str | None = None) -> DagRun:
        """Begin a run.

        Args:
            dag: The DAG; if it is paused, the run waits.
            conf: Its parameters, beside those with defaults.
            run: The run's id; a second run of one id is refused with 409.
        """
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf or {})}
        if run is not None:
            body["dag_run_id"] = run
        return DagRun.of(self._send("POST", f"/api/v2/dags/{quote(dag)}/dagRuns", body))

    def answer(self, dag: str, run: str, task: str, *options: str) -> None:
        """Answer the question that a task asks under *Required actions*."""
        self._send("PATCH", f"{_task_path(dag, run, task)}/-1/hitlDetails", {"chosen_options": options})

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait_for_dags(self, wanted: Sequence[str], limit_s: float) -> None:
        """Wait until Airflow has read the files of these DAGs.

        Raises:
            AirflowSilent: It has not in time; the message has the errors of files that cannot be read.
        """

        def there() -> bool:
            return set(wanted) <= {dag.id for dag in self.dags()}

        if not waited(there, limit_s):
            missing = sorted(set(wanted) - {dag.id for dag in self.dags()})
            errors = "".join(f"\n{file}:\n{trace}" for file, trace in self.import_errors().items())
            what = f"Airflow has not read these DAGs within {limit_s:.0f} s: {', '.join(missing)}{errors}"
            raise AirflowSilent(what, where=self.url, way_out="mend the DAG file, or see the dag-processor's log")

    def wait(self, dag: str, run: str, limit_s: float) -> DagRun:
        """Wait until a run is over, and has succeeded.

        Raises:
            RunFailed: It failed; the message has the end of the failed tasks' logs.
            AirflowSilent: It was not over in time; the message says how its tasks stand.
        """

        def over() -> bool:
            return self.run(dag, run).over

        in_time = waited(over, limit_s)
        found = self.run(dag, run)
        if found.state == "success":
            return found
        tasks = self.tasks(dag, run)
        stand = ", ".join(f"{task.id} {task.state or 'not due'} ({task.tries})" for task in tasks)
        if not in_time:
            what = f"run {run} of {dag} is {found.state} after {limit_s:.0f} s: {stand}"
            raise AirflowSilent(what, where=self.url, way_out="see the tasks' logs")
        logs = "".join(f"\n{self._end_of_log(task)}" for task in tasks if task.state == "failed")
        raise RunFailed(f"run {run} of {dag} failed: {stand}{logs}", where=self.url, way_out="see the tasks' logs")

    # -- HTTP --------------------------------------------------------------------------------------------------------

    def _runs_now(self, dag: str) -> bool:
        return any(run.state == "running" for run in self.runs(dag))

    def _end_of_log(self, task: TaskRun) -> str:
        lines = self.log(task.dag, task.run, task.id, task.tries).splitlines()
        return "\n".join((f"{task.id}, try {task.tries}:", *(f"  {line}" for line in lines[-20:])))

    def _pages(self, path: str, field: str, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            answer = self._send("GET", path, query={"limit": str(PAGE), "offset": str(len(found)), **query})
            found += answer[field]
            if len(answer[field]) < PAGE or len(found) >= answer["total_entries"]:
                return found

    def _sign_in(self) -> None:
        body = {"username": self.user, "password": self._password}
        self._token = self._send("POST", SIGN_IN, body, signed=False)["access_token"]

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        signed: bool = True,
    ) -> dict[str, Any]:
        """Ask, and ask again what may be asked twice while the answer is a fault of Airflow's own."""
        deadline = time.monotonic() + BUSY_LIMIT_S
        while True:
            try:
                return self._ask(method, path, body, query=query, signed=signed)
            except AirflowRefused as error:
                twice = method != "POST" or path == SIGN_IN
                if not (httpx.codes.is_server_error(error.status) and twice and time.monotonic() < deadline):
                    raise
            time.sleep(POLL_S)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        query: Mapping[str, str] | None,
        signed: bool,
    ) -> dict[str, Any]:
        if signed and not self._token:
            self._sign_in()
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if signed else {})
        try:
            answer = self._client.request(method, path, json=body, params=query, headers=headers)
        except httpx.TransportError as error:
            what = f"Airflow does not answer: {error}"
            raise AirflowSilent(what, where=f"{self.url}{path}", way_out="see the api-server's log") from error
        if answer.status_code == httpx.codes.UNAUTHORIZED and signed and self._token:
            # A token lasts a day, or as long as Airflow's secret.
            self._token = ""
        if answer.is_error:
            said = answer.text[:SHOWN_CHARACTERS]
            what = f"Airflow refused {method} {path} as user {self.user!r} with {answer.status_code}: {said}"
            raise AirflowRefused(what, status=answer.status_code, where=self.url, way_out="see the message")
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found


def waited(done: Callable[[], bool], limit_s: float) -> bool:
    """Ask until it is so; returns whether it was in time."""
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
