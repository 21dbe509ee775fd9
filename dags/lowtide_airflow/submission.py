"""Begins a life of a job once, however often it is tried: by whom, with which key, and what became of it.

A submission's key is the same in each try of a task, and the first life that a program begins takes it in ZooKeeper, in
the transaction that makes it the job's life. So of two programs that were submitted with one key exactly one runs the
job, whenever either of them wakes, and whoever tries again finds out by the key.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

from lowtide_airflow.client import JobClient
from lowtide_airflow.deaths import Deaths
from lowtide_airflow.errors import RunsAlready, SubmitFailed
from lowtide_airflow.job_look import AIRFLOW
from lowtide_airflow.submit import Said, Start, Submit

__all__ = ["Begun", "begin", "key_of"]

SURROUNDINGS = 4
"""With what a command ends for which nothing had run: no broker, no ZooKeeper, or somebody runs the job already."""
USAGE = 2
MOST_CHARS = 160
"""Of a key, which has to leave room for its next forms: the control API takes 200."""
DIGEST_CHARS = 33
MOST_TRIES = 20
"""How many lives one task may begin, each after the end of the one before."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A submission that stands.

    Attributes:
        key: under which.
        incarnation: the life that it began; None while the cluster has not started its program yet.
        adopted: whether an earlier try had submitted it.
    """

    key: str
    incarnation: int | None
    adopted: bool


def key_of(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """The key of a task instance, the same in all its tries; of at most 160 characters."""
    mapped = "" if map_index < 0 else f"[{map_index}]"
    key = f"{AIRFLOW}{dag_id}/{run_id}/{task_id}{mapped}"
    if len(key) <= MOST_CHARS:
        return key
    return f"{key[: MOST_CHARS - DIGEST_CHARS]}~{hashlib.sha256(key.encode()).hexdigest()[: DIGEST_CHARS - 1]}"


def begin(
    client: JobClient,
    submit: Submit,
    start: Start,
    key: str,
    *,
    say: Said = lambda _: None,
    dead: int = 0,
    taken: str | None = None,
    again_within_s: float = 30.0,
    pause_s: float = 2.0,
) -> Begun:
    """Submit a job unless that was done; returns once its life has begun, or a cluster has taken it.

    Args:
        client: the job, connected.
        submit: who runs its program.
        start: what is to be started.
        key: of this task instance.
        say: told what is done.
        dead: lives up to this one are known to be over.
        taken: the form of the key with which an earlier try has handed it to a cluster, where it may still be queued.
        again_within_s: for how long it is submitted again while its surroundings refuse it: after a kill a job's folder
            stays locked until its last process has gone.
        pause_s: between two tries.

    Raises:
        RunsAlready: somebody else runs the job.
        SubmitFailed: the command refused or failed, with what it said.
    """
    deadline = time.monotonic() + again_within_s
    submitted = False
    while True:
        form, incarnation = _latest(client, key, dead, say, pause_s)
        if incarnation is not None:
            say(f"submission {form!r} has begun life {incarnation}")
            return Begun(form, incarnation, adopted=not submitted)
        _must_be_free(client)
        if form == taken:
            say(f"a cluster has taken submission {form!r} and not begun it yet; it is not handed over again")
            return Begun(form, None, adopted=True)
        submitted = True
        try:
            submit.submit(start, form, say)
        except SubmitFailed as error:
            begun = client.submission(form) is not None
            if error.code != SURROUNDINGS or (not begun and time.monotonic() > deadline):
                raise
            if not begun:
                say(f"it is submitted again in {pause_s:g} s: {error.what}")
                time.sleep(pause_s)
            continue
        return Begun(form, client.submission(form), adopted=False)


def _latest(client: JobClient, key: str, dead: int, say: Said, pause_s: float) -> tuple[str, int | None]:
    """The form of the key that is to be used now, and the life that it began; None if it has begun none.

    A key begins one life. Where that has died since, a later try of the task may begin another one, with the key's
    next form: `KEY#2`. One that was stopped was meant to end, and is not followed. Where a form has been used, those
    before it are over.
    """
    form, incarnation = key, client.submission(key)
    for number in range(2, MOST_TRIES + 2):
        if incarnation is None:
            return form, None
        following = f"{key}#{number}"
        begun = client.submission(following)
        if begun is None and incarnation > dead and not _died(client, incarnation, say, pause_s):
            return form, incarnation
        form, incarnation = following, begun
    raise SubmitFailed(
        f"{MOST_TRIES} lives of this submission have ended",
        where=f'job "{client.job}", submission {key!r}',
        way_out="see the causes in the job's log; then begin a new DAG run",
        code=USAGE,
    )


def _must_be_free(client: JobClient) -> None:
    look = client.look()
    if look.state == "running" and look.life is not None:
        raise RunsAlready(
            f'job "{client.job}" runs already: life {look.incarnation}, by {look.holder}, '
            + (f"submission {look.life.submission!r}" if look.life.submission else "not submitted under a key"),
            where=f"{client.place.zookeeper}, /{client.place.root}",
            way_out="stop it first, or leave it",
        )


def _died(client: JobClient, incarnation: int, say: Said, pause_s: float) -> bool:
    """Whether a life, and each that its program has begun after it, has died for good; waits until that is clear."""
    deaths = Deaths(incarnation - 1)
    while True:
        look = client.look()
        if look.state not in ("failed", "gone") or not _of_one_program(client, incarnation, look.incarnation):
            return False
        if deaths.look(look, time.monotonic()) is not None:
            return True
        say(f"life {look.incarnation} is {look.state}; it is waited whether its program begins it again")
        time.sleep(pause_s)


def _of_one_program(client: JobClient, first: int, last: int) -> bool:
    """Whether the lives from one to another were begun by one program, as far as they have said anything."""
    drivers = {life.driver for life in client.lives() if first <= life.incarnation <= last}
    return first == last or len(drivers) == 1
