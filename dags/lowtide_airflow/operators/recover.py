"""Operator that restarts a job that has died."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger

from lowtide_airflow.arguments import is_true, seconds
from lowtide_airflow.compat import AirflowFailException, AirflowSkipException
from lowtide_airflow.errors import RunsAlready, SubmitFailed
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.deaths import MAX_DEATHS, WITHIN_S, why_not_restart
from lowtide_airflow.job.status import JobStatus
from lowtide_airflow.job.submission import SURROUNDINGS
from lowtide_airflow.operators.job import StartOperator
from lowtide_airflow.triggers.job import JobSettledTrigger, RecoveredTrigger
from lowtide_airflow.triggers.watcher import event_payloads
from lowtide_airflow.ui.links import JobLink
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.commits.choice import Choice
from lowtide_snapshots.errors import LowtideError, NoGoodCommit, NoSuchCommit, ZooKeeperUnavailable
from lowtide_snapshots.stores.errors import StoreUnavailable

__all__ = ["RecoverFlowOperator"]

FIRST_PAUSE_S, MOST_PAUSE_S = 10.0, 120.0
"""Between two tries during an outage; each pause is twice the one before."""


class RecoverFlowOperator(StartOperator):
    """Restarts a job from its last good commit, and waits until it delivers beyond the point of failure.

    The commit is chosen and verified, every part of it, before anything is started; a damaged one is passed over for
    the one before. If the job runs again by then, restarted by its program or by hand, the task only waits for it. If
    it was stopped, the task is skipped.

    While Kafka, ZooKeeper or the store is away it tries again, deferred in between. If a person has to decide,
    `recovered` is False and `why` is "no_good_commit" (there are commits, and all are damaged), "in_vain" (the flow's
    own function or record ended it), "too_often", or "not_begun" (no try has started it). With `forced` the task fails
    instead.

    Returns `recovered`, `job`, `connection`, `dead` (the life that died), `cause`; and if it was recovered
    `incarnation`, `commit`, `delivered_ms`, `delivered_at_death_ms`, otherwise `why`, `says`.

    Args:
        death: the event of a `JobDiedTrigger`, or a list of such. By default that of the events which triggered the DAG
            run; without any, the job's current status decides.
        forced: restart it even if a person should decide.
        max_deaths: how many lives may end by themselves before a person is asked.
        within_s: the time in which they are counted.
        outage_s: how long to try again during an outage.
        no_state: begin without state if no commit is good.
        timeout: seconds, or a timedelta, that it may take to deliver beyond the point of failure.
        job, flow, conf_file, settings, and all arguments of spark-submit: see `StartOperator`.
        lowtide_conn_id, deferrable, poll_interval: see `LowtideOperator`.
    """

    template_fields: Sequence[str] = (
        *StartOperator.template_fields,
        "death",
        "forced",
        "max_deaths",
        "within_s",
        "outage_s",
    )
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: str,
        flow: str,
        death: Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        forced: bool | str = False,
        max_deaths: int | str = MAX_DEATHS,
        within_s: float | str | timedelta = WITHIN_S,
        outage_s: float | str | timedelta = 86_400.0,
        timeout: float | str | timedelta = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, flow=flow, timeout=timeout, **kwargs)
        self.death = death
        self.forced = forced
        self.max_deaths = max_deaths
        self.within_s = within_s
        self.outage_s = outage_s

    def execute(self, context: Any) -> Any:
        """Restart the job, or find out that this is done or must not be done."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        return self._try(context, self._newest_death(context))

    def again(self, context: Any, event: Any, death: Any, since: float, pause_s: float) -> Any:
        """Resume after a pause during an outage."""
        return self._try(context, death, since, pause_s)

    def settled(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when a job that was starting or ending runs, is stopped, or has died."""
        found = self._checked_unless_last(context, event)
        if found is None:
            return self._not_begun(str(event["error"]), self._newest_death(context))
        return self._try(context, found["death"] or self._newest_death(context), settled=True)

    def recovered(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when the job has delivered beyond the point of failure, or its new life has ended."""
        self.tell_log()
        found = self._checked_unless_last(context, event)
        if found is None:
            return self._not_begun(str(event["error"]), self._newest_death(context))
        kept = ("dead", "cause", "delivered_at_death_ms", "incarnation", "commit", "delivered_ms")
        page = {"job": self.job, "connection": self.lowtide_conn_id}
        done = {"recovered": True, **page, **{name: found[name] for name in kept}}
        self.log.info('job "%s" is recovered: %s', self.job, done)
        self.note(context, **done)
        return done

    def _try(
        self,
        context: Any,
        death: Mapping[str, Any] | None,
        since: float | None = None,
        pause_s: float = FIRST_PAUSE_S,
        *,
        settled: bool = False,
    ) -> Any:
        """Restart the job if it is dead; later if its surroundings are away."""
        since = time.time() if since is None else since
        while True:
            try:
                with self.client() as client:
                    status = client.status()
                    reported = death is not None and death["incarnation"] >= status.incarnation
                    unclear = status.state == "starting" and client.submission(self.key(context)) is None
                    if settled or reported or not (unclear or status.state in ("failed", "gone", "unknown")):
                        return self._recover(context, client, status, death or _death_of(status))
                break
            except (SubmitFailed, StoreUnavailable, ZooKeeperUnavailable) as error:
                passes = not isinstance(error, SubmitFailed) or error.code == SURROUNDINGS
                if not passes and not self._is_last_try(context):
                    raise
                if not passes or time.time() - since >= seconds(self.outage_s):
                    return self._not_begun(str(error), death)
                self.log.warning("trying again in %g s: %s", pause_s, error)
            except AirflowFailException as error:
                return self._not_begun(str(error), death)
            following = min(2 * pause_s, MOST_PAUSE_S)
            if is_true(self.deferrable):
                arguments = {"death": death, "since": since, "pause_s": following}
                self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=pause_s)), method_name="again", kwargs=arguments)
            time.sleep(pause_s)
            pause_s = following
        if status.state == "unknown":
            raise AirflowFailException(f'job "{self.job}" was never started')
        self.log.info("waiting to see whether the job restarts by itself")
        return self.wait(JobSettledTrigger, "settled", context)

    def _recover(self, context: Any, client: JobClient, status: JobStatus, death: Mapping[str, Any]) -> Any:
        if status.state == "stopped":
            raise AirflowSkipException(f'job "{self.job}" was stopped, so it is left alone')
        if status.state == "running" and status.incarnation <= death["incarnation"]:
            raise AirflowSkipException(f'job "{self.job}" has not died: its life {status.incarnation} is running')
        if status.state != "running":
            if is_true(self.forced):
                self.no_state = is_true(self.no_state) and not self._has_good_commit(client)
            elif (undecided := self._needs_a_person(client, death)) is not None:
                return undecided
            try:
                submission = self.submit_job(context, client, dead=death["incarnation"])
                self.log.info("submitted as %r, life %s", submission.key, submission.incarnation)
            except RunsAlready as error:
                self.log.info("it was restarted in the meantime: %s", error)
        return self.wait(
            RecoveredTrigger,
            "recovered",
            context,
            dead=death["incarnation"],
            delivered_at_death_ms=death["delivered_at_death_ms"],
            cause=death["cause"],
        )

    def _needs_a_person(self, client: JobClient, death: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result that asks a person to decide; None if the restart may go ahead."""
        lives, now, within_s = client.lives(), datetime.now(UTC), seconds(self.within_s)
        noted = next((life.cause for life in lives if life.incarnation == death["incarnation"]), None)
        cause = noted or Cause.of(death["cause"])
        why = why_not_restart(cause, lives, now, max_deaths=int(self.max_deaths), within_s=within_s)
        if why is not None:
            return self._undecided(*why, death)
        try:
            choice = self._choice(client)
        except NoGoodCommit as error:
            return None if is_true(self.no_state) else self._undecided("no_good_commit", str(error), death)
        self.no_state = False
        if choice is None:
            self.log.info("it has no commits: it reads its sources again from where its first life began")
            return None
        for commit, damage in choice.skipped:
            self.log.warning("DAMAGED, skipped: commit %s: %s", commit.id, damage)
        self.log.info("commit %s is whole; it has everything before %d ms", choice.commit.id, choice.commit.min_time_ms)
        return None

    def _choice(self, client: JobClient) -> Choice | None:
        """The commit to begin from, after reading every part; None without any (NoGoodCommit: all are damaged)."""
        with client.snapshots() as snapshots:
            try:
                return snapshots.choose()
            except NoSuchCommit:
                return None

    def _has_good_commit(self, client: JobClient) -> bool:
        try:
            return self._choice(client) is not None
        except NoGoodCommit:
            return False

    def _checked_unless_last(self, context: Any, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A trigger's event; None if it is an error on the last try (LowtideError: another try follows)."""
        try:
            return self.checked(event)
        except LowtideError:
            if self._is_last_try(context) and not is_true(self.forced):
                return None
            raise

    def _is_last_try(self, context: Any) -> bool:
        instance = context["ti"]
        return int(instance.try_number) > int(instance.max_tries)

    def _not_begun(self, says: str, death: Mapping[str, Any] | None) -> dict[str, Any]:
        if is_true(self.forced):
            raise AirflowFailException(says)
        return self._undecided("not_begun", says, death or {"incarnation": 0, "cause": ""})

    def _undecided(self, why: str, says: str, death: Mapping[str, Any]) -> dict[str, Any]:
        self.log.error("a person has to decide: %s", says)
        return {
            "recovered": False,
            "job": self.job,
            "connection": self.lowtide_conn_id,
            "dead": death["incarnation"],
            "cause": death["cause"],
            "why": why,
            "says": says,
        }

    def _newest_death(self, context: Any) -> dict[str, Any] | None:
        given = self.death if isinstance(self.death, list) else [self.death] if self.death else []
        deaths = given or [payload for payload in event_payloads(context) if "incarnation" in payload]
        ours = [dict(death) for death in deaths if death.get("job") == self.job]
        return max(ours, key=lambda death: int(death["incarnation"]), default=None)


def _death_of(status: JobStatus) -> dict[str, Any]:
    """The death of the life before the running one, or of the last one, as far as the status shows it."""
    life = status.current
    ended = not status.alive
    return {
        "job": status.job,
        "incarnation": status.incarnation if ended else status.incarnation - 1,
        "cause": str(life.cause or "") if life is not None and ended else "",
        "delivered_at_death_ms": status.delivered_ms,
    }
