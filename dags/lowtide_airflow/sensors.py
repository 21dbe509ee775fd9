"""Sensors: wait until everything before a moment, or all that came of a label, is durable in a job's sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseSensorOperator

from lowtide_airflow.arguments import is_true
from lowtide_airflow.compat import AirflowFailException, AirflowSkipException
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.job.log import tell_log
from lowtide_airflow.lineage import AssetLineage
from lowtide_airflow.triggers.base import OUTAGES
from lowtide_airflow.triggers.job import DeliveredTimeTrigger, LabelEndedTrigger
from lowtide_airflow.ui.links import JobLink
from lowtide_snapshots.commits.moment import ms_of
from lowtide_snapshots.errors import LowtideError, TokenRefused
from lowtide_snapshots.job.news import step_of_labels

__all__ = ["DeliveredTimeSensor", "LabelEndedSensor"]


class DeliveredTimeSensor(AssetLineage, BaseSensorOperator):
    """Waits until all of a job's output from before a moment is durable in its sinks (R18), across its deaths.

    A dead job delivers nothing, so the sensor waits until it is recovered. A job with `delivery = "at_least_once"` has
    no delivered time: the task fails, or is skipped. Returns `delivered_ms`.

    Args:
        job: the job's name.
        at: the moment, ISO or ms since 1970; in UTC unless it names a zone.
        lowtide_conn_id: the Airflow connection's id.
        deferrable: wait in the triggerer, which takes no worker slot; by default `[operators] default_deferrable`.
        poll_interval: seconds between two polls of the triggerer.
        timeout: seconds, or a timedelta, after which the task fails.
        if_at_least_once: what to do with a job that has no delivered time: "fail", or "skip".
        kwargs: see `BaseSensorOperator`; `poke_interval` if it is not deferrable.
    """

    template_fields: Sequence[str] = (
        "job",
        "at",
        "lowtide_conn_id",
        "deferrable",
        "poll_interval",
        "if_at_least_once",
    )
    ui_color = "#d7ecee"
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: str,
        at: str | int,
        lowtide_conn_id: str = LowtideHook.default_conn_name,
        deferrable: bool | str = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | str = 1.0,
        timeout: float | timedelta | None = None,
        if_at_least_once: str = "fail",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", 2)
        super().__init__(**kwargs if timeout is None else {**kwargs, "timeout": timeout})
        self.job = job
        self.at = at
        self.lowtide_conn_id = lowtide_conn_id
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.if_at_least_once = if_at_least_once

    def execute(self, context: Any) -> Any:
        """Poll once, then wait in the triggerer if the sensor is deferrable."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        _tell_log(self)
        if not is_true(self.deferrable):
            super().execute(context)
            return {"job": self.job, "delivered_ms": self._delivered_ms()}
        delivered = self._delivered_ms()
        if delivered is not None and delivered >= self.at_ms:
            return {"job": self.job, "delivered_ms": delivered}
        trigger = DeliveredTimeTrigger(
            job=self.job,
            lowtide_conn_id=self.lowtide_conn_id,
            at_ms=self.at_ms,
            end_time=datetime.now(UTC).timestamp() + self.timeout,
            poll_interval=float(self.poll_interval),
        )
        return self.defer(trigger=trigger, method_name="delivered")

    def poke(self, context: Any) -> bool:
        """Poll once."""
        delivered = self._delivered_ms()
        return delivered is not None and delivered >= self.at_ms

    def delivered(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when everything before the moment is delivered."""
        if event.get("error"):
            raise LowtideError(str(event["error"]))
        return {"job": self.job, "delivered_ms": event["delivered_ms"]}

    @property
    def at_ms(self) -> int:
        """The moment in ms since 1970."""
        return _ms_of(self.at)

    def _delivered_ms(self) -> int | None:
        with LowtideHook(self.lowtide_conn_id).job(self.job) as client:
            status = client.status()
        if status.delivered_ms is None and status.life is not None and status.life.delivery == "at_least_once":
            unknown = f'job "{self.job}" delivers at least once, so it has no delivered time'
            raise (AirflowSkipException if self.if_at_least_once == "skip" else AirflowFailException)(unknown)
        return status.delivered_ms


class LabelEndedSensor(AssetLineage, BaseSensorOperator):
    """Waits until the substream of a label has ended, and all that came of it is durable in the job's sinks (R18).

    The flow has a `when_done(STEP, through=..., label=...)`; a label is a document, a session, a request. The end is
    known for as long as its `keep=` says. A dead job cannot be asked, so the sensor waits until it is recovered.
    Returns `ended_ms`. With `begun` it waits for the beginning, of a `when_begun(STEP, label=...)`.

    Args:
        job: the job's name.
        step: the name of the `when_done`.
        substream: the label, as text.
        at: the end is at this moment or later, ISO or ms since 1970; by default at any.
        begun: wait for the beginning of the substream instead of its end.
        lowtide_conn_id: the Airflow connection's id.
        deferrable: wait in the triggerer, which takes no worker slot; by default `[operators] default_deferrable`.
        poll_interval: seconds between two polls of the triggerer.
        timeout: seconds, or a timedelta, after which the task fails.
        kwargs: see `BaseSensorOperator`; `poke_interval` if it is not deferrable.
    """

    template_fields: Sequence[str] = (
        "job",
        "step",
        "substream",
        "at",
        "begun",
        "lowtide_conn_id",
        "deferrable",
        "poll_interval",
    )
    ui_color = "#d7ecee"
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: str,
        step: str,
        substream: str,
        at: str | int = 0,
        begun: bool | str = False,
        lowtide_conn_id: str = LowtideHook.default_conn_name,
        deferrable: bool | str = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | str = 1.0,
        timeout: float | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", 2)
        super().__init__(**kwargs if timeout is None else {**kwargs, "timeout": timeout})
        self.job = job
        self.step = step
        self.substream = substream
        self.at = at
        self.begun = begun
        self.lowtide_conn_id = lowtide_conn_id
        self.deferrable = deferrable
        self.poll_interval = poll_interval

    def execute(self, context: Any) -> Any:
        """Wait in the triggerer if the sensor is deferrable."""
        JobLink.note(context, job=self.job, connection=self.lowtide_conn_id)
        _tell_log(self)
        if not is_true(self.deferrable):
            super().execute(context)
            return {"job": self.job, "ended_ms": self._ended_ms()}
        trigger = LabelEndedTrigger(
            job=self.job,
            lowtide_conn_id=self.lowtide_conn_id,
            step=self._labels_of,
            substream=self.substream,
            at_ms=_ms_of(self.at),
            end_time=datetime.now(UTC).timestamp() + self.timeout,
            poll_interval=float(self.poll_interval),
        )
        return self.defer(trigger=trigger, method_name="ended")

    def poke(self, context: Any) -> bool:
        """Poll once."""
        ended = self._ended_ms()
        return ended is not None and ended >= _ms_of(self.at)

    def ended(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Resume when the label has ended."""
        if event.get("error"):
            raise LowtideError(str(event["error"]))
        return {"job": self.job, "ended_ms": event["ended_ms"]}

    @property
    def _labels_of(self) -> str:
        """The name of the step that keeps the labels."""
        return step_of_labels(self.step, begun=is_true(self.begun))

    def _ended_ms(self) -> int | None:
        """Return the time of its end, in ms; None also while the job does not answer."""
        try:
            with LowtideHook(self.lowtide_conn_id).job(self.job) as client:
                return client.control().ended_ms(self._labels_of, self.substream)
        except (*OUTAGES, TokenRefused) as error:
            self.log.warning('cannot ask job "%s", trying again: %s', self.job, error)
            return None


def _tell_log(sensor: DeliveredTimeSensor | LabelEndedSensor) -> None:
    """Log where the job's own log is, and its last lines if the job is dead; nothing while ZooKeeper is away."""
    with suppress(LowtideError), LowtideHook(sensor.lowtide_conn_id).job(sensor.job) as client:
        tell_log(client.status(), sensor.log.info, sensor.log.error)


def _ms_of(at: str | int) -> int:
    """A moment in ms since 1970."""
    text = str(at)
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return ms_of(text)
    except ValueError as error:
        raise AirflowFailException(f"at is {text!r}: give ISO, or ms since 1970") from error
