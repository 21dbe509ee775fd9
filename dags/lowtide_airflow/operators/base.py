"""Base of the operators: the job, its connection, waiting, retries, and the errors that a retry cannot fix."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseOperator

from lowtide_airflow.arguments import is_true, seconds
from lowtide_airflow.compat import AirflowFailException
from lowtide_airflow.errors import ConnectionInvalid, JobsFileRefused, SnapshotFailed, SubmitFailed
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.log import tell_log
from lowtide_airflow.job.submission import key_of
from lowtide_airflow.lineage import AssetLineage
from lowtide_airflow.triggers.base import JobTrigger
from lowtide_snapshots.errors import (
    CommitRefused,
    ControlRefused,
    EntryDiffers,
    Fenced,
    FormatTooNew,
    LowtideError,
    RecordRefused,
    TokenRefused,
    ZooKeeperRefused,
)
from lowtide_snapshots.stores.errors import StoreRefused

__all__ = ["RETRIES", "RETRY_DELAY", "LowtideOperator"]

FINAL = (
    CommitRefused,
    ConnectionInvalid,
    ControlRefused,
    EntryDiffers,
    Fenced,
    FormatTooNew,
    JobsFileRefused,
    RecordRefused,
    StoreRefused,
    TokenRefused,
    ZooKeeperRefused,
)
"""Errors that a retry would meet again. A missing snapshot is none: a folder that is not mounted lacks all of them."""
RETRIES, RETRY_DELAY = 2, timedelta(seconds=10)
"""Of every task: Airflow may lose a worker under each of them."""
FINAL_CODES = (2, 3, 6)
"""Exit statuses of a command whose conf, arguments or flow are wrong, or whose commits are damaged."""


class LowtideOperator(AssetLineage, BaseOperator):
    """Base of the operators.

    A task is retried twice by default: each try finds what an earlier one has done. Retries also serve deferrals that
    end at once, which Airflow's scheduler may mark as failed.

    Args:
        job: the job's name.
        lowtide_conn_id: the Airflow connection's id.
        deferrable: wait in the triggerer, which takes no worker slot; by default `[operators] default_deferrable`.
        poll_interval: seconds between two polls while it waits.
        timeout: seconds, or a timedelta, that it may take.
    """

    template_fields: Sequence[str] = ("job", "lowtide_conn_id", "deferrable", "poll_interval", "timeout")
    ui_color = "#d7ecee"

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str = LowtideHook.default_conn_name,
        deferrable: bool | str = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | str = 1.0,
        timeout: float | str | timedelta = 300.0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("retries", RETRIES)
        kwargs.setdefault("retry_delay", RETRY_DELAY)
        super().__init__(**kwargs)
        self.job = job
        self.lowtide_conn_id = lowtide_conn_id
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.timeout = timeout

    @property
    def hook(self) -> LowtideHook:
        """The hook of the connection."""
        return LowtideHook(self.lowtide_conn_id)

    @contextmanager
    def client(self) -> Iterator[JobClient]:
        """Connect to the job; an error that a retry would meet again fails the task for good."""
        with self.no_vain_retries(), self.hook.job(self.job) as client:
            yield client

    @contextmanager
    def no_vain_retries(self) -> Iterator[None]:
        """Fail the task for good on an error that a retry would meet again."""
        try:
            yield
        except FINAL as error:
            raise AirflowFailException(str(error)) from error
        except SubmitFailed as error:
            if error.code not in FINAL_CODES:
                raise
            raise AirflowFailException(str(error)) from error

    def key(self, context: Mapping[str, Any]) -> str:
        """Return the key of this task instance, the same in all its tries."""
        instance = context["ti"]
        return key_of(instance.dag_id, instance.run_id, instance.task_id, instance.map_index)

    def tell_log(self, client: JobClient | None = None) -> None:
        """Log where the job's own log is, and its last lines if the job has died; nothing while ZooKeeper is away.

        Args:
            client: the job, connected; None to connect for this.
        """
        with suppress(LowtideError), self.hook.job(self.job) if client is None else nullcontext(client) as seen:
            tell_log(seen.status(), self.log.info, self.log.error)

    def on_kill(self) -> None:
        """Say that nothing is taken back: jobs and snapshots belong to no task."""
        self.log.warning('the task was killed; job "%s" goes on, and with it whatever the task has begun', self.job)

    def wait(self, kind: type[JobTrigger], then: str, context: Any, *, limited: bool = True, **arguments: Any) -> Any:
        """Wait for a trigger's event, in the triggerer or here, and return the result of the method that takes it.

        Args:
            kind: the trigger.
            then: the method's name.
            context: the task's.
            limited: whether to give up after `timeout`.
            arguments: the trigger's own.
        """
        trigger = kind(
            job=self.job,
            lowtide_conn_id=self.lowtide_conn_id,
            end_time=time.time() + seconds(self.timeout) if limited else None,
            poll_interval=float(self.poll_interval),
            **arguments,
        )
        if is_true(self.deferrable):
            self.defer(trigger=trigger, method_name=then)
        return getattr(self, then)(context, asyncio.run(_only_event(trigger)))

    def checked(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a trigger's event (errors: LowtideError, if the event is of one)."""
        if event.get("error"):
            raise LowtideError(str(event["error"]))
        return event

    def checked_snapshot(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the snapshot of a trigger's event.

        Raises:
            SnapshotFailed: it was abandoned; a retry takes another one.
        """
        if event.get("error"):
            raise SnapshotFailed(str(event["error"]), way_out="a retry takes another snapshot; see the job's log")
        found: Mapping[str, Any] = event["snapshot"]
        return found

    def note(self, context: Mapping[str, Any], **extra: Any) -> None:
        """Attach values to the events of the assets that the task updates."""
        for asset in self.outlets:
            context["outlet_events"][asset].extra = extra


async def _only_event(trigger: JobTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError(f"{trigger} ended without an event")
