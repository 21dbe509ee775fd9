"""Submissions: start a job exactly once, over all tries of the start.

A submission's key is the same in every try of a task. The first life that a program begins takes the key in ZooKeeper,
in the transaction that makes it the job's life. So of two programs submitted with one key exactly one runs the job,
whenever either of them comes up, and a later try finds that life by the key.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from lowtide_airflow.errors import RunsAlready, SubmitFailed
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.deaths import Deaths
from lowtide_airflow.job.program import Launcher, Log, Start
from lowtide_snapshots.job.life import AIRFLOW

SURROUNDINGS = 4
"""Exit status of a command that could not run anything: no broker, no ZooKeeper, or the job runs already."""
USAGE = 2
MOST_CHARS = 160
"""Of a key, which must leave room for its next forms: the control API accepts 200."""
DIGEST_CHARS = 33
MOST_TRIES = 20
"""Limit on the lives that one task may begin, one after the other."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission that has been made.

    Attributes:
        key: its key, in the form that was used.
        incarnation: the life that it began; None while the cluster has not started its program yet.
        adopted: whether an earlier try made it.
    """

    key: str
    incarnation: int | None
    adopted: bool


def key_of(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the key of a task instance, the same in all its tries, of at most 160 characters."""
    mapped = "" if map_index < 0 else f"[{map_index}]"
    key = f"{AIRFLOW}{dag_id}/{run_id}/{task_id}{mapped}"
    if len(key) <= MOST_CHARS:
        return key
    return f"{key[: MOST_CHARS - DIGEST_CHARS]}~{hashlib.sha256(key.encode()).hexdigest()[: DIGEST_CHARS - 1]}"


def submit_once(
    client: JobClient,
    launcher: Launcher,
    start: Start,
    key: str,
    *,
    log: Log = lambda _: None,
    dead: int = 0,
    accepted: str | None = None,
    again_within_s: float = 30.0,
    pause_s: float = 2.0,
) -> Submission:
    """Submit a job unless that was done; returns once its life has begun, or a cluster has accepted it.

    Args:
        client: the job, connected.
        launcher: starts its program.
        start: what to start. A later form of the key continues from the last commit instead, once a life has been
            rewound or has committed something: nothing is delivered again twice.
        key: the task instance's.
        log: called with each step, as a line.
        dead: lives up to this one are known to be over.
        accepted: the form of the key under which a cluster accepted an earlier try; the program may still be queued.
        again_within_s: for how long to submit again while the surroundings refuse it: after a kill, a job's folder
            stays locked until its last process has ended.
        pause_s: between two tries.

    Raises:
        RunsAlready: the job runs, and not by this submission.
        SubmitFailed: the command refused or failed; the text has its output.
    """
    deadline = time.monotonic() + again_within_s
    submitted = False
    while True:
        form, incarnation = _latest(client, key, dead, log, pause_s)
        if incarnation is not None:
            log(f"submission {form!r} has begun life {incarnation}")
            return Submission(form, incarnation, adopted=not submitted)
        _must_be_free(client)
        if form == accepted:
            log(f"a cluster has accepted submission {form!r} and not started it yet; it is not submitted again")
            return Submission(form, None, adopted=True)
        submitted = True
        try:
            launcher.submit(start if form == key else _rest_of(client, start, key, log), form, log)
        except SubmitFailed as error:
            begun = client.submission(form) is not None
            if error.code != SURROUNDINGS or (not begun and time.monotonic() > deadline):
                raise
            if not begun:
                log(f"submitting again in {pause_s:g} s: {error.what}")
                time.sleep(pause_s)
            continue
        return Submission(form, client.submission(form), adopted=False)


def stop_begun(client: JobClient, key: str, *, within_s: float = 30.0, pause_s: float = 1.0) -> str:
    """Stop the life that a submission began, or that its program began after it, as soon as it runs.

    Args:
        client: the job, connected.
        key: the submission's first form.
        within_s: how long to wait for a life that is to begin, or starts.
        pause_s: between two polls.

    Returns:
        A sentence about what came of it.
    """
    deadline = time.monotonic() + within_s
    while True:
        begun, status = _last_begun(client, key), client.status()
        if begun is not None and not status.alive:
            return f'job "{client.job}" does not run'
        if status.state == "running":
            if begun is None or not _of_one_program(client, begun, status.incarnation):
                return f'job "{client.job}" goes on, as this task did not begin its life {status.incarnation}'
            client.control().stop()
            return f'job "{client.job}" is asked to stop'
        if time.monotonic() > deadline:
            return f'job "{client.job}" does not run yet, and was not stopped: if it comes to run, stop it'
        time.sleep(pause_s)


def _last_begun(client: JobClient, key: str) -> int | None:
    """Return the last life that a submission began, in any form of its key; None if it has begun none."""
    begun = client.submission(key)
    for number in range(2, MOST_TRIES + 2):
        following = client.submission(f"{key}#{number}") if begun is not None else None
        if following is None:
            break
        begun = following
    return begun


def _latest(client: JobClient, key: str, dead: int, log: Log, pause_s: float) -> tuple[str, int | None]:
    """Return the form of the key to use now, and the life that it began; None if it has begun none.

    A key begins one life. If that has died since, a later try of the task may begin another one, with the key's next
    form: `KEY#2`. A life that was stopped was meant to end and is not followed. If a form has been used, those before
    it are over.
    """
    form, incarnation = key, client.submission(key)
    for number in range(2, MOST_TRIES + 2):
        if incarnation is None:
            return form, None
        following = f"{key}#{number}"
        begun = client.submission(following)
        if begun is None and incarnation > dead and not _died(client, incarnation, log, pause_s):
            return form, incarnation
        form, incarnation = following, begun
    raise SubmitFailed(
        f"{MOST_TRIES} lives of this submission have ended",
        where=f'job "{client.job}", submission {key!r}',
        way_out="see the causes in the job's log, then start a new DAG run",
        code=USAGE,
    )


def _rest_of(client: JobClient, start: Start, key: str, log: Log) -> Start:
    """Return where a later form of a key begins: where the key's first form did, as far as that is not done yet.

    A redelivery is done once a life has run since, for that life had rewound the job first. A chosen commit, or a start
    without state, is done with once a life has committed something since; until then the last commit is another one.
    """
    first = client.submission(key)
    assert first is not None, "the form before has begun a life"
    last = client.last_commit()
    ran = start.redeliver and any(life.incarnation >= first and life.control for life in client.lives())
    if ran or (start != start.plain() and last is not None and last.incarnation >= first):
        log(f"life {first} began where this task asked it to; the next one continues from the last commit")
        return start.plain()
    return start


def _must_be_free(client: JobClient) -> None:
    status = client.status()
    if status.state == "running" and status.life is not None:
        raise RunsAlready(
            f'job "{client.job}" is already running: life {status.incarnation}, by {status.holder}, '
            + (f"submission {status.life.submission!r}" if status.life.submission else "not submitted under a key"),
            where=f"{client.services.zookeeper}, /{client.services.root}",
            way_out="stop it first, or leave it",
        )


def _died(client: JobClient, incarnation: int, log: Log, pause_s: float) -> bool:
    """Return whether a life, and each that its program began after it, has died for good; wait until that is clear."""
    deaths = Deaths(incarnation - 1)
    while True:
        status = client.status()
        if status.state not in ("failed", "gone") or not _of_one_program(client, incarnation, status.incarnation):
            return False
        if deaths.observe(status, time.monotonic()) is not None:
            return True
        log(f"life {status.incarnation} is {status.state}; waiting for its program to restart it")
        time.sleep(pause_s)


def _of_one_program(client: JobClient, first: int, last: int) -> bool:
    """Return whether one program began all lives from one to another, as far as they have reported."""
    drivers = {life.driver for life in client.lives() if first <= life.incarnation <= last}
    return first == last or len(drivers) == 1
