"""Begins a job again that has died."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from lowtide_airflow.asset_events import payloads
from lowtide_airflow.client import JobClient
from lowtide_airflow.deaths import MOST_ENDED, WITHIN_S, again_in_vain
from lowtide_airflow.errors import RunsAlready, SubmitFailed
from lowtide_airflow.job_look import JobLook
from lowtide_airflow.operators.job_operator import is_true
from lowtide_airflow.operators.starting import StartingOperator
from lowtide_airflow.submission import SURROUNDINGS
from lowtide_airflow.triggers.recovered import RecoveredTrigger
from lowtide_airflow.triggers.settled import JobSettledTrigger
from lowtide_airflow.ui.links import JobLink
from lowtide_snapshots.commits.choice import Choice
from lowtide_snapshots.errors import NoGoodCommit, NoSuchCommit, SnapshotsError, ZooKeeperUnavailable
from lowtide_snapshots.stores.errors import StoreUnavailable

__all__ = ["RecoverFlow"]

FIRST_PAUSE_S, MOST_PAUSE_S = 10.0, 120.0
"""Between two tries while the surroundings are away; each pause is twice the one before."""


class RecoverFlow(StartingOperator):
    """Begins a job again from its last good commit, and waits until it delivers beyond the point of its failure.

    The commit is chosen and verified, every part of it, before anything is started; a damaged one is passed over in
    favour of the one before. A job that runs again by then, by its program's own doing or somebody else's, is only
    waited for. One that somebody stopped is left: the task is skipped.

    While Kafka, ZooKeeper or the store is away it is tried again, without a worker in between. Where a machine should
    not decide, `recovered` is False, with `why`: "no_good_commit" (there are commits, and all are damaged), "in_vain"
    (the flow's own function or record ended it), "too_often", or "not_begun" (no try has begun it). With `forced` the
    task fails instead.

    Returns `recovered`, `job`, `connection`, `dead` (the life that died), `cause`, and where it was recovered
    `incarnation`, `commit`, `delivered_ms`, `told_ms` (at its death); else `why`, `says`.

    Args:
        death: what a `JobDiedTrigger` told, or a list of such. By default that of the events which started the DAG run;
            without any it is looked how it stands with the job.
        forced: begin it again though a machine should not decide.
        most: how many lives may end by themselves before a person is asked.
        within_s: within how long.
        outage_s: how long it is tried again while its surroundings are away.
        no_state: begin without state if no commit is good.
        limit_s: how long it may take until it delivers beyond the point of its failure.
        job, flow, conf, settings, submit, spark, connection, poll_s: as of `StartingOperator`.
    """

    template_fields: Sequence[str] = (
        *StartingOperator.template_fields,
        "death",
        "forced",
        "most",
        "within_s",
        "outage_s",
    )
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: Any,
        flow: Any,
        death: Any = None,
        forced: Any = False,
        most: Any = MOST_ENDED,
        within_s: Any = WITHIN_S,
        outage_s: Any = 86_400.0,
        limit_s: Any = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, flow=flow, limit_s=limit_s, **kwargs)
        self.death = death
        self.forced = forced
        self.most = most
        self.within_s = within_s
        self.outage_s = outage_s

    def execute(self, context: Any) -> Any:
        """Begin it again, or find out that this is done or is not to be done."""
        JobLink.note(context, job=self.job, connection=self.connection)
        return self._try(context, self._newest_death(context))

    def again(self, context: Any, event: Any, death: Any, since: float, pause_s: float) -> Any:
        """Try it once more after an outage."""
        return self._try(context, death, since, pause_s)

    def settled(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when it is clear how it stands with the job."""
        said = self._heard(context, event)
        if said is None:
            return self._not_begun(str(event["error"]), self._newest_death(context))
        return self._try(context, said["death"] or self._newest_death(context), settled=True)

    def _try(
        self,
        context: Any,
        death: Mapping[str, Any] | None,
        since: float | None = None,
        pause_s: float = FIRST_PAUSE_S,
        *,
        settled: bool = False,
    ) -> Any:
        """Begin it again if it is dead; where the surroundings are away, later."""
        since = time.time() if since is None else since
        try:
            with self.client() as client:
                look = client.look()
                told = death is not None and death["incarnation"] >= look.incarnation
                unclear = look.state == "starting" and client.submission(self.key(context)) is None
                if settled or told or not (unclear or look.state in ("failed", "gone", "unknown")):
                    return self._recover(context, client, look, death or _seen(look))
        except (SubmitFailed, StoreUnavailable, ZooKeeperUnavailable) as error:
            passes = not isinstance(error, SubmitFailed) or error.code == SURROUNDINGS
            if passes and time.time() - since < float(self.outage_s):
                self.log.warning("it is tried again in %g s: %s", pause_s, error)
                following = {"death": death, "since": since, "pause_s": min(2 * pause_s, MOST_PAUSE_S)}
                trigger = TimeDeltaTrigger(timedelta(seconds=pause_s))
                return self.defer(trigger=trigger, method_name="again", kwargs=following)
            if not passes and not self._is_last_try(context):
                raise
            return self._not_begun(str(error), death)
        except AirflowFailException as error:
            return self._not_begun(str(error), death)
        if look.state == "unknown":
            raise AirflowFailException(f'there never was a job "{self.job}"')
        self.log.info("it is looked whether it begins again by itself")
        return self.defer(trigger=JobSettledTrigger(**self.waits(self.limit_s)), method_name="settled")

    def recovered(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when it has delivered beyond the point of its failure, or its new life has ended."""
        said = self._heard(context, event)
        if said is None:
            return self._not_begun(str(event["error"]), self._newest_death(context))
        kept = ("dead", "cause", "told_ms", "incarnation", "commit", "delivered_ms")
        done = {"recovered": True, "job": self.job, "connection": self.connection} | {n: said[n] for n in kept}
        self.log.info('job "%s" is recovered: %s', self.job, done)
        self.note(context, **done)
        return done

    def _recover(self, context: Any, client: JobClient, look: JobLook, death: Mapping[str, Any]) -> Any:
        if look.state == "stopped":
            raise AirflowSkipException(f'job "{self.job}" was stopped, so it is left')
        if look.state == "running" and look.incarnation <= death["incarnation"]:
            raise AirflowSkipException(f'job "{self.job}" has not died: life {look.incarnation} of it runs')
        if look.state != "running":
            if is_true(self.forced):
                self.no_state = is_true(self.no_state) and not self._has_good_commit(client)
            elif (refused := self._refused(client, death)) is not None:
                return refused
            try:
                begun = self.begin(context, client, dead=death["incarnation"])
                self.log.info("submitted as %r, life %s", begun.key, begun.incarnation)
            except RunsAlready as error:
                self.log.info("somebody else has begun it again: %s", error)
        trigger = RecoveredTrigger(
            dead=death["incarnation"], told_ms=death["told_ms"], cause=death["cause"], **self.waits(self.limit_s)
        )
        return self.defer(trigger=trigger, method_name="recovered")

    def _refused(self, client: JobClient, death: Mapping[str, Any]) -> dict[str, Any] | None:
        """Why a machine should not decide, to be handed on; None if it may."""
        lives, now = client.lives(), datetime.now(UTC)
        vain = again_in_vain(str(death["cause"]), lives, now, most=int(self.most), within_s=float(self.within_s))
        if vain is not None:
            return self._not(*vain, death)
        try:
            choice = self._choice(client)
        except NoGoodCommit as error:
            return None if is_true(self.no_state) else self._not("no_good_commit", str(error), death)
        self.no_state = False
        if choice is None:
            self.log.info("it has no commits: it reads its sources again from where its first life began")
            return None
        for commit, why in choice.skipped:
            self.log.warning("DAMAGED, so passed over: commit %s: %s", commit.id, why)
        self.log.info("commit %s is whole, with all before %d ms", choice.commit.id, choice.commit.min_time_ms)
        return None

    def _choice(self, client: JobClient) -> Choice | None:
        """The commit to begin from, every part of it read; None if there are none (NoGoodCommit: all are damaged)."""
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

    def _heard(self, context: Any, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What a trigger told; None if it is an error that no try follows (SnapshotsError: another one does)."""
        try:
            return self.told(event)
        except SnapshotsError:
            if self._is_last_try(context) and not is_true(self.forced):
                return None
            raise

    def _is_last_try(self, context: Any) -> bool:
        instance = context["ti"]
        return int(instance.try_number) > int(instance.max_tries)

    def _not_begun(self, says: str, death: Mapping[str, Any] | None) -> dict[str, Any]:
        if is_true(self.forced):
            raise AirflowFailException(says)
        return self._not("not_begun", says, death or {"incarnation": 0, "cause": ""})

    def _not(self, why: str, says: str, death: Mapping[str, Any]) -> dict[str, Any]:
        self.log.error("a person has to decide: %s", says)
        return {
            "recovered": False,
            "job": self.job,
            "connection": self.connection,
            "dead": death["incarnation"],
            "cause": death["cause"],
            "why": why,
            "says": says,
        }

    def _newest_death(self, context: Any) -> dict[str, Any] | None:
        given = self.death if isinstance(self.death, list) else [self.death] if self.death else []
        deaths = given or [said for said in payloads(context) if "incarnation" in said]
        ours = [dict(death) for death in deaths if death.get("job") == self.job]
        return max(ours, key=lambda death: int(death["incarnation"]), default=None)


def _seen(look: JobLook) -> dict[str, Any]:
    """The death of the life before the one that runs, or of the last one, as far as it can be seen now."""
    life = look.said
    ended = not look.alive
    return {
        "job": look.job,
        "incarnation": look.incarnation if ended else look.incarnation - 1,
        "cause": life.cause if life is not None and ended else "",
        "told_ms": look.told_ms,
    }
