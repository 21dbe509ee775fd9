"""Begins a job again that has died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from lowtide_airflow.asset_events import payloads
from lowtide_airflow.client import JobClient
from lowtide_airflow.deaths import again_in_vain
from lowtide_airflow.errors import RunsAlready
from lowtide_airflow.job_look import JobLook
from lowtide_airflow.operators.job_operator import is_true
from lowtide_airflow.operators.starting import StartingOperator
from lowtide_airflow.triggers.recovered import RecoveredTrigger
from lowtide_airflow.triggers.settled import JobSettledTrigger
from lowtide_airflow.ui.links import JobLink
from lowtide_snapshots.errors import NoGoodCommit, NoSuchCommit

__all__ = ["RecoverFlow"]


class RecoverFlow(StartingOperator):
    """Begins a job again from its last good commit, and waits until it delivers beyond the point of its failure.

    The commit is chosen and verified, every part of it, before anything is started; a damaged one is passed over in
    favour of the one before. A job that runs again by then, by its program's own doing or somebody else's, is only
    waited for. One that somebody stopped is left: the task is skipped.

    Where a machine should not decide, nothing is started and `recovered` is False, with `why`: "no_good_commit" (there
    are commits, and all are damaged), "in_vain" (the flow's own function or record ended it) or "too_often".

    Returns `recovered`, `job`, `connection`, `dead` (the life that died), `cause`, and where it was recovered
    `incarnation`, `commit`, `delivered_ms`, `told_ms` (at its death); else `why`, `says`.

    Args:
        death: what a `JobDiedTrigger` told, or a list of such. By default that of the events which started the DAG run;
            without any it is looked how it stands with the job.
        forced: begin it again though a machine should not decide.
        most: how many lives may end by themselves before a person is asked.
        within_s: within how long.
        limit_s: how long it may take until it delivers beyond the point of its failure.
        job, flow, conf, settings, submit, spark, no_state, connection, poll_s: as of `StartingOperator`.
    """

    template_fields: Sequence[str] = (*StartingOperator.template_fields, "death", "forced", "most", "within_s")
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: Any,
        flow: Any,
        death: Any = None,
        forced: Any = False,
        most: Any = 5,
        within_s: Any = 1800.0,
        limit_s: Any = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(job=job, flow=flow, limit_s=limit_s, **kwargs)
        self.death = death
        self.forced = forced
        self.most = most
        self.within_s = within_s

    def execute(self, context: Any) -> Any:
        """Begin it again, or find out that this is done or is not to be done."""
        JobLink.note(context, job=self.job, connection=self.connection)
        death = self._newest_death(context)
        with self.client() as client:
            look, begun = client.look(), client.submission(self.key(context))
            if look.state == "unknown":
                raise AirflowFailException(f'there never was a job "{self.job}"')
            told = death is not None and death["incarnation"] >= look.incarnation
            ended, starting = look.state in ("failed", "gone"), look.state == "starting" and begun is None
            if told or not (ended or starting):
                return self._recover(context, client, look, death or _seen(look))
        self.log.info("it is looked whether it begins again by itself")
        return self.defer(trigger=JobSettledTrigger(**self.waits(self.limit_s)), method_name="settled")

    def settled(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when it is clear how it stands with the job."""
        said = self.told(event)
        with self.client() as client:
            look = client.look()
            return self._recover(context, client, look, said["death"] or self._newest_death(context) or _seen(look))

    def recovered(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when it has delivered beyond the point of its failure, or its new life has ended."""
        said = self.told(event)
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
            refused = None if is_true(self.forced) else self._refused(client, death)
            if refused is not None:
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
        if is_true(self.no_state):
            return None
        with client.snapshots() as snapshots:
            try:
                choice = snapshots.choose()
            except NoGoodCommit as error:
                return self._not("no_good_commit", str(error), death)
            except NoSuchCommit:
                self.log.info("it has no commits: it reads its sources again from where its first life began")
                return None
        for commit, why in choice.skipped:
            self.log.warning("DAMAGED, so passed over: commit %s: %s", commit.id, why)
        self.log.info("commit %s is whole, with all before %d ms", choice.commit.id, choice.commit.min_time_ms)
        return None

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
