"""Waits in a DAG until everything before a moment has been delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.moments import ms_of
from lowtide_airflow.triggers.delivered import DeliveredTimeTrigger
from lowtide_airflow.ui.links import JobLink
from lowtide_snapshots.errors import SnapshotsError

__all__ = ["DeliveredTimeSensor"]


class DeliveredTimeSensor(BaseSensorOperator):
    """Waits until all of a job's output of before a moment is durable in its sinks (R18), also over its death.

    A job that is dead delivers nothing, so it is waited for until it is recovered. One with `delivery =
    "at_least_once"` tells no delivered time: the task fails, or is skipped. Returns `delivered_ms`.

    Args:
        job: the job's name.
        at: the moment, ISO or ms since 1970; in UTC unless it names a zone.
        connection: the Airflow connection's id.
        deferrable: whether it waits in the triggerer, which costs no worker.
        poll_s: how often the triggerer looks.
        if_untold: of a job that tells no delivered time: "fail", or "skip".
        kwargs: as of every sensor; `timeout` seconds after which it fails, `poke_interval` if it is not deferrable.
    """

    template_fields: Sequence[str] = ("job", "at", "connection", "deferrable", "poll_s", "if_untold")
    ui_color = "#d7ecee"
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        job: Any,
        at: Any,
        connection: Any = "lowtide_default",
        deferrable: bool = True,
        poll_s: float = 1.0,
        if_untold: str = "fail",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", 2)
        super().__init__(**kwargs)
        self.job = job
        self.at = at
        self.connection = connection
        self.deferrable = deferrable
        self.poll_s = poll_s
        self.if_untold = if_untold

    def execute(self, context: Any) -> Any:
        """Look once, and wait in the triggerer where that is wanted."""
        JobLink.note(context, job=self.job, connection=self.connection)
        if not self.deferrable:
            super().execute(context)
            return {"job": self.job, "delivered_ms": self._delivered_ms()}
        delivered = self._delivered_ms()
        if delivered is not None and delivered >= self.at_ms:
            return {"job": self.job, "delivered_ms": delivered}
        until = datetime.now(UTC).timestamp() + self.timeout
        trigger = DeliveredTimeTrigger(
            job=self.job, connection=self.connection, at_ms=self.at_ms, until=until, poll_s=float(self.poll_s)
        )
        return self.defer(trigger=trigger, method_name="delivered")

    def poke(self, context: Any) -> bool:
        """Look once."""
        delivered = self._delivered_ms()
        return delivered is not None and delivered >= self.at_ms

    def delivered(self, context: Any, event: Mapping[str, Any]) -> Any:
        """Go on when the moment is over."""
        if event.get("error"):
            raise SnapshotsError(str(event["error"]))
        return {"job": self.job, "delivered_ms": event["delivered_ms"]}

    @property
    def at_ms(self) -> int:
        """The moment in ms since 1970."""
        text = str(self.at)
        if text.isdecimal():
            return int(text)
        try:
            return ms_of(text)
        except ValueError as error:
            raise AirflowFailException(f"at is {text!r}: give ISO, or ms since 1970") from error

    def _delivered_ms(self) -> int | None:
        with LowtideHook(self.connection).job(self.job) as client:
            look = client.look()
        if look.told_ms is None and look.life is not None and look.life.delivery == "at_least_once":
            untold = f'job "{self.job}" delivers at least once, so nobody knows what is durable for good'
            raise (AirflowSkipException if self.if_untold == "skip" else AirflowFailException)(untold)
        return look.told_ms
