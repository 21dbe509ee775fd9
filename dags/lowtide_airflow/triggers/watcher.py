"""Triggers for asset watchers: they poll a job for ever, and yield an event for each death or each complete hour."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lowtide_airflow.compat import Kept, kept_by_asset
from lowtide_airflow.job.client import JobClient
from lowtide_airflow.job.deaths import FAILED_S, GONE_S, Deaths
from lowtide_airflow.job.folders import EPOCH
from lowtide_airflow.jobs_file import name_in_ids
from lowtide_airflow.triggers.base import Outage, StoredArguments
from lowtide_airflow.triggers.shared import SharedJob

__all__ = [
    "DeliveredTimePassedTrigger",
    "FolderCompleteTrigger",
    "JobDiedTrigger",
    "JobEventTrigger",
    "event_payloads",
]

T = TypeVar("T")

REMEMBER_AFTER_S = 60.0
"""Time from an event until its number is stored in Airflow. The triggerer passes an event on within a second, and until
then it exists nowhere else; and if the DAG is paused, its watcher goes on until Airflow reads the DAG file again, by
default after 30 s, while its events are dropped."""
REMEMBERED_WITHIN_S = 60.0
"""Time for which a watcher tries to read the last number before it starts without one."""


class JobEventTrigger(StoredArguments, BaseEventTrigger):
    """Polls a job for ever, and yields its events.

    Every event is yielded at least once. Airflow stores the number of the last one under `stored_key`, so that a
    restarted triggerer resumes there; events of the last `REMEMBER_AFTER_S` before the restart are yielded again.

    Args:
        job: the job's name.
        lowtide_conn_id: the Airflow connection's id.
        poll_interval: seconds between two polls.
    """

    stored_key = "lowtide_event"

    def __init__(self, *, job: str, lowtide_conn_id: str, poll_interval: float = 1.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.lowtide_conn_id = lowtide_conn_id
        self.poll_interval = poll_interval
        self._pending: deque[tuple[float, int]] = deque()
        """Numbers that Airflow is to store, each with the time from which on; ascending in time."""
        self._polling = Outage()
        self._storing = Outage()

    @abstractmethod
    async def poll(self, job: SharedJob) -> list[tuple[int, dict[str, Any] | None]]:
        """Return the new events in order, each with its number; called every `poll_interval`.

        None in place of an event yields nothing: the number is stored at once, instead of all earlier ones.
        """

    @abstractmethod
    def resume(self, number: int | None) -> None:
        """Continue after the event with this number; None if there was none, or it is unknown."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the events."""
        self.resume(await self._remembered())
        async with SharedJob(self.lowtide_conn_id, self.job) as job:
            while True:
                for number, payload in await self.poll(job):
                    if payload is None:
                        self._pending = deque([(time.monotonic(), number)])
                    else:
                        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                        self._pending.append((time.monotonic() + REMEMBER_AFTER_S, number))
                await self._remember_due(time.monotonic())
                await asyncio.sleep(self.poll_interval)

    async def read(self, job: SharedJob, function: Callable[[JobClient], T]) -> T | None:
        """Call a function with the job's client; None if it fails, which is logged now and then."""
        try:
            found = await job.call(function)
        except Exception as error:  # noqa: BLE001 - Airflow does not restart a watcher that has ended
            if self._polling.is_news(error, time.monotonic()):
                self.log.warning('cannot poll job "%s", trying again: %s', self.job, self._polling.text)
            return None
        if self._polling.is_over():
            self.log.info('job "%s" can be polled again', self.job)
        return found

    async def _remember_due(self, now_s: float) -> None:
        """Store the newest number that is old enough; if Airflow does not, the next poll tries again."""
        pending = self._pending
        while len(pending) > 1 and pending[1][0] <= now_s:
            pending.popleft()
        if pending and pending[0][0] <= now_s and await self._remember(pending[0][1]):
            pending.popleft()

    async def _remembered(self) -> int | None:
        """Return the stored number; None if there is none, or Airflow does not answer."""
        store, deadline = self._kept(), time.monotonic() + REMEMBERED_WITHIN_S
        while store is not None:
            try:
                found = await store.aget(self.stored_key)
                return None if found is None else int(str(found))
            except Exception as error:  # noqa: BLE001 - Airflow does not restart a watcher that has ended
                # A ValueError stays: it is not a number, or several assets have this trigger and so share no store.
                if isinstance(error, ValueError) or time.monotonic() > deadline:
                    self.log.warning("cannot read the last event's number, starting without it: %s", error)
                    return None
                if self._storing.is_news(error, time.monotonic()):
                    self.log.warning("cannot read the last event's number, trying again: %s", self._storing.text)
            await asyncio.sleep(self.poll_interval)
        return None

    async def _remember(self, number: int) -> bool:
        """Store a number; returns whether Airflow has done so."""
        try:
            store = self._kept()
            if store is not None:
                await store.aset(self.stored_key, number)
        except Exception as error:  # noqa: BLE001 - a repeated event does no harm
            if self._storing.is_news(error, time.monotonic()):
                self.log.warning("Airflow did not store event number %s: %s", number, self._storing.text)
            return False
        if self._storing.is_over():
            self.log.info("Airflow stores event numbers again")
        return True

    def _kept(self) -> Kept | None:
        of = {name: value for name, value in self.serialize()[1].items() if name != "poll_interval"}
        return kept_by_asset(self, name_in_ids(self.job), of)


class JobDiedTrigger(JobEventTrigger):
    """Yields each death of a job: `job`, `incarnation`, `cause`, `delivered_at_death_ms`.

    A job is dead when its lease is free and it was not stopped, for long enough that its program would have restarted
    it. While ZooKeeper is away deaths are not detected, and no life could begin either. A failed start by a task of
    Airflow is handled by that task and yields no event.

    Args:
        gone_s: how long the lease must be free if the life reported no end.
        failed_s: how long it must be free if the life reported its end.
        job, lowtide_conn_id, poll_interval: see `JobEventTrigger`.
    """

    stored_key = "lowtide_reported_incarnation"

    def __init__(
        self,
        *,
        job: str,
        lowtide_conn_id: str,
        poll_interval: float = 1.0,
        gone_s: float = GONE_S,
        failed_s: float = FAILED_S,
    ) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, poll_interval=poll_interval)
        self.gone_s = gone_s
        self.failed_s = failed_s
        self._deaths = Deaths()

    def resume(self, number: int | None) -> None:
        """See `JobEventTrigger.resume`."""
        self._deaths = Deaths(number or 0, gone_s=self.gone_s, failed_s=self.failed_s)

    async def poll(self, job: SharedJob) -> list[tuple[int, dict[str, Any] | None]]:
        """See `JobEventTrigger.poll`."""
        status = await self.read(job, lambda client: client.status())
        if status is None:
            return []
        before = self._deaths.reported
        death = self._deaths.observe(status, time.monotonic())
        if death is not None:
            by_a_task = status.current is not None and status.current.is_failed_task_start
            return [(death.incarnation, None if by_a_task else death.as_object())]
        # What is taken back is stored at once: a life that dies while no triggerer runs would count as reported.
        return [(self._deaths.reported, None)] if self._deaths.reported < before else []


class DeliveredTimePassedTrigger(JobEventTrigger):
    """Yields each slot of time once it is complete: `job`, `from_ms`, `to_ms`, `delivered_ms`.

    Slots come in order; those completed while no triggerer ran come when it is back. The first one is the next that
    completes.

    Args:
        every_s: the length of a slot; slots are counted from 1970.
        job, lowtide_conn_id, poll_interval: see `JobEventTrigger`.
    """

    stored_key = "lowtide_reported_ms"

    def __init__(self, *, job: str, lowtide_conn_id: str, every_s: int = 3600, poll_interval: float = 1.0) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, poll_interval=poll_interval)
        self.every_s = every_s
        self._reported_ms: int | None = None

    def resume(self, number: int | None) -> None:
        """See `JobEventTrigger.resume`."""
        self._reported_ms = number

    async def poll(self, job: SharedJob) -> list[tuple[int, dict[str, Any] | None]]:
        """See `JobEventTrigger.poll`."""
        delivered = await self.read(job, lambda client: client.delivered_ms())
        if delivered is None:
            return []
        slot_ms = self.every_s * 1000
        complete = delivered // slot_ms * slot_ms
        if self._reported_ms is None:
            self._reported_ms = complete
            return [(complete, None)]
        before, self._reported_ms = self._reported_ms, max(self._reported_ms, complete)
        return [
            (end, {"job": self.job, "from_ms": end - slot_ms, "to_ms": end, "delivered_ms": delivered})
            for end in range(before + slot_ms, complete + 1, slot_ms)
        ]


class FolderCompleteTrigger(JobEventTrigger):
    """Yields each folder of a sink of files once it is complete.

    The event has `job` and `sink`; `from` and `to`, the folder's first log time and its end, ISO, UTC; `folder`;
    `files`, a glob for its files, and `done`, the file that lists them. A folder is complete when delivered time has
    passed its end: readers see all of its files.

    Folders come in order, also those without files; those completed while no triggerer ran come when it is back. The
    first one is the next that completes.

    Args:
        sink: the sink's name in the flow.
        job, lowtide_conn_id, poll_interval: see `JobEventTrigger`.
    """

    stored_key = "lowtide_reported_folder_ms"

    def __init__(self, *, job: str, sink: str, lowtide_conn_id: str, poll_interval: float = 1.0) -> None:
        super().__init__(job=job, lowtide_conn_id=lowtide_conn_id, poll_interval=poll_interval)
        self.sink = sink
        self._reported: datetime | None = None

    def resume(self, number: int | None) -> None:
        """See `JobEventTrigger.resume`."""
        self._reported = None if number is None else EPOCH + timedelta(milliseconds=number)

    async def poll(self, job: SharedJob) -> list[tuple[int, dict[str, Any] | None]]:
        """See `JobEventTrigger.poll`."""
        found = await self.read(job, lambda client: (client.folders(self.sink), client.delivered_ms()))
        if found is None or found[1] is None:
            return []
        folders, delivered = found[0], EPOCH + timedelta(milliseconds=found[1])
        if self._reported is None:
            self._reported = folders.first(delivered)
            return [(_ms(self._reported), None)]
        events: list[tuple[int, dict[str, Any] | None]] = []
        for begins, ends in folders.complete(self._reported, delivered):
            span = {"from": begins.isoformat(), "to": ends.isoformat()}
            events.append((_ms(ends), {"job": self.job, "sink": self.sink, **span, **folders.found(begins)}))
            self._reported = ends
        return events


def _ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def event_payloads(context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the payloads of the asset events that triggered a DAG run, each asset's oldest first.

    Args:
        context: a task's.

    Returns:
        The payload of a trigger's event, the extra of a task's; nothing for a run that was started by hand.
    """
    found = []
    for events in (context.get("triggering_asset_events") or {}).values():
        for event in events:
            extra = dict(event.extra or {})
            found.append(dict(extra["payload"]) if extra.get("from_trigger") else extra)
    return found
