"""What all operators share: the job, its connection, retries, and which errors are worth another try."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from lowtide_airflow.client import JobClient
from lowtide_airflow.errors import (
    ControlRefused,
    JobsFileRefused,
    PlaceRefused,
    SnapshotFailed,
    SubmitFailed,
    TokenRefused,
)
from lowtide_airflow.hook import LowtideHook
from lowtide_airflow.submission import key_of
from lowtide_snapshots.errors import (
    CommitRefused,
    EntryDiffers,
    Fenced,
    FormatTooNew,
    RecordRefused,
    SnapshotsError,
    ZooKeeperRefused,
)
from lowtide_snapshots.stores.errors import StoreRefused

__all__ = ["RETRIES", "RETRY_DELAY", "JobOperator", "is_true"]

IN_VAIN = (
    CommitRefused,
    ControlRefused,
    EntryDiffers,
    Fenced,
    FormatTooNew,
    JobsFileRefused,
    PlaceRefused,
    RecordRefused,
    StoreRefused,
    TokenRefused,
    ZooKeeperRefused,
)
"""What another try would end with as well. A snapshot that is missing is not: so is all of a folder that is away."""
RETRIES, RETRY_DELAY = 2, timedelta(seconds=10)
"""Of every task: Airflow may lose a worker under each of them."""
WRONG = (2, 3, 6)
"""With what a command ends whose conf, arguments or flow are wrong, or whose commits are damaged."""


class JobOperator(BaseOperator):
    """Does something with one job.

    It is tried again twice by default: whatever one try has done, the next one finds. A deferral whose event comes at
    once may be marked failed by Airflow's scheduler, too.

    Args:
        job: the job's name.
        connection: the Airflow connection's id.
        poll_s: how often a job that is waited for is looked at.
    """

    template_fields: Sequence[str] = ("job", "connection", "poll_s")
    ui_color = "#d7ecee"

    def __init__(self, *, job: Any, connection: Any = "lowtide_default", poll_s: Any = 1.0, **kwargs: Any) -> None:
        kwargs.setdefault("retries", RETRIES)
        kwargs.setdefault("retry_delay", RETRY_DELAY)
        super().__init__(**kwargs)
        self.job = job
        self.connection = connection
        self.poll_s = poll_s

    @property
    def hook(self) -> LowtideHook:
        """The jobs of the connection."""
        return LowtideHook(self.connection)

    @contextmanager
    def client(self) -> Iterator[JobClient]:
        """The job, connected; an error that another try would end with as well fails the task for good."""
        with self.no_vain_retries(), self.hook.job(self.job) as client:
            yield client

    @contextmanager
    def no_vain_retries(self) -> Iterator[None]:
        """Fail the task for good where another try would end with the same."""
        try:
            yield
        except IN_VAIN as error:
            raise AirflowFailException(str(error)) from error
        except SubmitFailed as error:
            if error.code not in WRONG:
                raise
            raise AirflowFailException(str(error)) from error

    def key(self, context: Mapping[str, Any]) -> str:
        """The key of this task instance, the same in all its tries."""
        instance = context["ti"]
        return key_of(instance.dag_id, instance.run_id, instance.task_id, instance.map_index)

    def waits(self, limit_s: float | None) -> dict[str, Any]:
        """What every trigger of this operator is told: the job, its connection, and when it gives up."""
        until = None if limit_s is None else time.time() + float(limit_s)
        return {"job": self.job, "connection": self.connection, "until": until, "poll_s": float(self.poll_s)}

    def told(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """A trigger's event.

        Raises:
            SnapshotsError: it is of an error.
        """
        if event.get("error"):
            raise SnapshotsError(str(event["error"]))
        return event

    def told_of_snapshot(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same of a snapshot's trigger.

        Raises:
            SnapshotFailed: it came to nothing; another try takes another one.
        """
        if event.get("error"):
            raise SnapshotFailed(str(event["error"]), way_out="another try takes another one; see the job's log")
        found: Mapping[str, Any] = event["snapshot"]
        return found

    def note(self, context: Mapping[str, Any], **said: Any) -> None:
        """Say of each asset that the task makes what it has made."""
        for asset in self.outlets:
            context["outlet_events"][asset].extra = said


def is_true(value: object) -> bool:
    """A yes or no that may have been a template: its text is "True" or "False" then."""
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)
