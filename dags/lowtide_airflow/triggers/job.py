"""Triggers for what happens to a job: it runs, ends, settles, is recovered, has delivered what is waited for."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.deaths import Death, Deaths
from lowtide_airflow.job.status import State
from lowtide_airflow.job.submission import stop_begun
from lowtide_airflow.triggers.base import OUTAGES, AsyncJob, JobTrigger, Outage
from lowtide_airflow.triggers.news import wait_for_news
from lowtide_snapshots.errors import LowtideError, TokenRefused
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_snapshots.job.news import DELIVERED, DONE

__all__ = [
    "DeliveredTimeTrigger",
    "JobEndedTrigger",
    "JobFinishedTrigger",
    "JobRunningTrigger",
    "JobSettledTrigger",
    "LabelEndedTrigger",
    "RecoveredTrigger",
]


SUBSCRIBED_S = 60.0
"""Time for which a subscription is relied on before asking ZooKeeper: a replaced life may not know that it is."""


class StartedTrigger(JobTrigger):
    """Base of the triggers that wait for a job which the task has started.

    Args:
        stop_key: the key of the submission whose life is stopped when a person kills the task that waits, which
            triggers learn of in Airflow 3.3; empty for none.
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str,
        stop_key: str = "",
        end_time: float | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, end_time=end_time, poll_interval=poll_interval)
        self.stop_key = stop_key

    async def on_kill(self) -> None:
        """Stop the job if that is wanted, or say that it goes on."""
        if not self.stop_key:
            self.log.warning('the task was killed; job "%s" goes on', self.job)
            return
        async with AsyncJob(self.lowtide_conn_id, self.job) as job:
            says = await job.call(lambda client: stop_begun(client, self.stop_key))
        self.log.warning("the task was killed: %s", says)


class JobFinishedTrigger(StartedTrigger):
    """Waits until all sources of a job have ended and everything is delivered: `incarnation`, `delivered_ms`.

    It ends with an error if the job is stopped before that, or dies.

    Args:
        incarnation: the life that runs.
        stop_key: see `StartedTrigger`.
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "the completion"

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str,
        incarnation: int,
        stop_key: str = "",
        end_time: float | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        super().__init__(
            job=job,
            lowtide_conn_id=lowtide_conn_id,
            stop_key=stop_key,
            end_time=end_time,
            poll_interval=poll_interval,
        )
        self.incarnation = incarnation
        self._deaths = Deaths(incarnation - 1)

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        status = client.status()
        if status.finished:
            return {"incarnation": status.incarnation, "delivered_ms": status.delivered_ms}
        if status.state == "stopped":
            return {"error": f'life {status.incarnation} of job "{self.job}" was stopped before its sources had ended'}
        death = self._deaths.observe(status, time.monotonic())
        return None if death is None else {"error": f"life {death.incarnation} has died: {death.cause}"}


class JobRunningTrigger(StartedTrigger):
    """Waits until the life that a submission began runs, or one after it: `incarnation`, `commit`, `control`.

    Args:
        key: the submission's.
        stop_key: see `StartedTrigger`.
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "the submitted life"

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str,
        key: str,
        stop_key: str = "",
        end_time: float | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        super().__init__(
            job=job,
            lowtide_conn_id=lowtide_conn_id,
            stop_key=stop_key,
            end_time=end_time,
            poll_interval=poll_interval,
        )
        self.key = key
        self._deaths: Deaths | None = None

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        begun = client.submission(self.key)
        if begun is None:
            return None
        status = client.status()
        life = status.current
        has_run = status.state == "running" or status.finished
        if has_run and life is not None and status.incarnation >= begun:
            return {"incarnation": status.incarnation, "commit": life.commit, "control": life.control}
        if status.state == "stopped" and status.incarnation >= begun:
            return {"error": f'life {status.incarnation} of job "{self.job}" was stopped before it ran'}
        self._deaths = self._deaths or Deaths(begun - 1)
        death = self._deaths.observe(status, time.monotonic())
        return None if death is None else {"error": f"life {death.incarnation} ended before it ran: {death.cause}"}


class JobEndedTrigger(JobTrigger):
    """Waits until the job's lease is free: `state` ("stopped", "failed", "gone"), `incarnation`, `cause`.

    Args:
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "the end"

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        status = client.status()
        if status.alive:
            return None
        life = status.current
        return {
            "state": status.state,
            "incarnation": status.incarnation,
            "cause": str(life.cause or "") if life else "",
        }


class JobSettledTrigger(JobTrigger):
    """Waits until a job that was starting or ending runs, is stopped, or has died: `state`, `death` (or None).

    Args:
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "the end or the next life"

    def __init__(
        self, *, job: str, lowtide_conn_id: str, end_time: float | None = None, poll_interval: float = 1.0
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, end_time=end_time, poll_interval=poll_interval)
        self._deaths = Deaths()

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        status = client.status()
        if status.state in ("unknown", "running", "stopped"):
            return {"state": status.state, "death": None}
        death = self._deaths.observe(status, time.monotonic())
        return None if death is None else {"state": status.state, "death": death.as_object()}


class RecoveredTrigger(JobTrigger):
    """Waits until a later life has delivered more than a dead one: `incarnation`, `commit`, `delivered_ms`.

    The event repeats the arguments about the death.

    A job that delivers at least once stores no delivered time: its min time counts instead, which its control API gives
    while it runs. So the recovery of such a job is only seen with its token, which may be corrected in the meantime;
    for all others ZooKeeper is enough.

    Args:
        dead: the life that died.
        delivered_at_death_ms: the largest delivered time published until then; None if there was none.
        cause: of the death.
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "output beyond the point of failure"
    passing = (*OUTAGES, TokenRefused)

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str,
        dead: int,
        delivered_at_death_ms: int | None,
        cause: str = "",
        end_time: float | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, end_time=end_time, poll_interval=poll_interval)
        self.dead = dead
        self.delivered_at_death_ms = delivered_at_death_ms
        self.cause = cause
        self._deaths = Deaths(dead)

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        status = client.status()
        life = status.current
        if status.state != "running" or life is None or status.incarnation <= self.dead:
            return _end_of_recovery(status.state, self._deaths.observe(status, time.monotonic()))
        delivered = status.delivered_ms
        if delivered is None and life.delivery != "exactly_once":
            delivered = _min_time_of_at_least_once(client.control().status())
        before = self.delivered_at_death_ms if self.delivered_at_death_ms is not None else -1
        if delivered is None or delivered <= before:
            return None
        death = {"dead": self.dead, "delivered_at_death_ms": self.delivered_at_death_ms, "cause": self.cause}
        return death | {"incarnation": status.incarnation, "commit": life.commit, "delivered_ms": delivered}


def _end_of_recovery(state: State, death: Death | None) -> dict[str, Any] | None:
    if death is not None:
        return {"error": f"life {death.incarnation}, which was to recover the job, has ended: {death.cause}"}
    return {"error": "it was stopped before it had caught up"} if state == "stopped" else None


def _min_time_of_at_least_once(status: dict[str, Any]) -> int | None:
    sinks = status.get("sinks") or []
    if not sinks or any(sink.get("delivery") != "at_least_once" for sink in sinks):
        return None
    found: int | None = status.get("min_time_ms")
    return found


class SubscribedTrigger(JobTrigger):
    """A trigger that polls when the job sends news.

    While the job runs and its control API can be reached, the trigger subscribes to it and does not poll; without, as
    with a lost connection or no token, it polls, and tries again to subscribe each time.

    Attributes:
        about: the subject of the subscription.
        from_ms: the time that it is to come to, ms since 1970.
    """

    about: str
    from_ms: int

    def __init__(
        self, *, job: str, lowtide_conn_id: str, end_time: float | None = None, poll_interval: float = 1.0
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, end_time=end_time, poll_interval=poll_interval)
        self._lost = Outage()

    async def pause(self, job: AsyncJob) -> None:
        """See `JobTrigger.pause`."""
        left_s = SUBSCRIBED_S if self.end_time is None else min(SUBSCRIBED_S, max(0.0, self.end_time - time.time()))
        try:
            at, token = await job.call(_subscription)
            async with asyncio.timeout(left_s):
                news = await wait_for_news(at, token, [self.about], self.from_ms)
        except TimeoutError:
            return
        except LowtideError as error:
            if self._lost.is_news(error, time.monotonic()):
                self.log.info('job "%s" is polled: %s', self.job, self._lost.text)
        else:
            if self._lost.is_over():
                self.log.info('subscribed to job "%s" again', self.job)
            if news:  # News is found at once: it is stored before it is sent (R18).
                return
        await asyncio.sleep(self.poll_interval)


class DeliveredTimeTrigger(SubscribedTrigger):
    """Waits until everything before a time is durable in the sinks (R18), across deaths of the job: `delivered_ms`.

    ZooKeeper has the last word; see `SubscribedTrigger`.

    Args:
        at_ms: the time, ms since 1970.
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "the delivered time"
    about = DELIVERED

    def __init__(
        self, *, job: str, lowtide_conn_id: str, at_ms: int, end_time: float | None = None, poll_interval: float = 1.0
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, end_time=end_time, poll_interval=poll_interval)
        self.at_ms = self.from_ms = at_ms

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        delivered = client.delivered_ms()
        return None if delivered is None or delivered < self.at_ms else {"delivered_ms": delivered}


class LabelEndedTrigger(SubscribedTrigger):
    """Waits until the substream of a label has ended and all that came of it is delivered: `ended_ms`.

    The job's workers know, so it is asked: while it is dead nobody can be, and the trigger waits until it is recovered.
    See `SubscribedTrigger`.

    Args:
        step: the `when_done` that has labels.
        substream: the label, as text.
        at_ms: the end is at this time or later, ms since 1970.
        job, lowtide_conn_id, end_time, poll_interval: see `JobTrigger`.
    """

    waits_for = "the end of a label"
    passing = (*OUTAGES, TokenRefused)

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str,
        step: str,
        substream: str,
        at_ms: int = 0,
        end_time: float | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, end_time=end_time, poll_interval=poll_interval)
        self.step = step
        self.substream = substream
        self.at_ms = self.from_ms = at_ms
        self.about = f"{DONE}:{step}:{substream}"

    def poll(self, client: JobClient) -> dict[str, Any] | None:
        """See `JobTrigger.poll`."""
        ended = client.control().ended_ms(self.step, self.substream)
        return None if ended is None or ended < self.at_ms else {"ended_ms": ended}


def _subscription(client: JobClient) -> tuple[ControlAddress, str]:
    """Return the address to subscribe at, and its token (errors: `JobClient.control`)."""
    control = client.control()
    return control.address, control.token
