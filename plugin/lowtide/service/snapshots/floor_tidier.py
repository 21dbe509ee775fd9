"""Removes from a job's lasts topic what no start from the last commit needs, in a process of its own (R17).

`python -m lowtide.service.snapshots.floor_tidier` does it once: its task comes as one line of JSON on standard input.
Reading the topic takes 3 us of CPU per record, and the service's loop must not delay idle heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from lowtide.assignment.messages import Failed, Message, Raw, line, reader
from lowtide.errors import LowtideError
from lowtide.events import EventLog
from lowtide.logs import log_to_stderr
from lowtide.sinks.kafka.floor_archive import Tidied, tidy
from lowtide.sinks.kafka.lasts import topic_of
from lowtide_snapshots.cause import Cause

LOG = logging.getLogger(__name__)
EVERY_S = 600.0
"""The time from one to the next: a start reads what collects meanwhile in a second."""
LIMIT_S = 600.0
"""The time that one may take."""
ANSWER_LIMIT_S = 30.0
"""The time for which Kafka may give or take nothing."""
NICE = 10


class _Task(Message, frozen=True):
    """The task of the process."""

    settings: dict[str, Any]
    job: str
    topic: str
    below: list[tuple[int, int]]
    incarnation: int


class _Done(Message, frozen=True):
    """The result of the process."""

    tidied: Tidied


_read_task: Callable[[Raw], _Task] = reader(_Task, "the tidying process")
_read_answer: Callable[[Raw], _Done | Failed] = reader(_Done | Failed, "the service")


class FloorTidier:
    """Tidies one life's lasts topic; belongs to the service's event loop.

    Args:
        settings: librdkafka's, of the way in.
        job: The job's name.
        incarnation: The life.
        generation: The output generation.
        events: Receives events.
        every_s: The shortest time from one to the next.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        job: str,
        *,
        incarnation: int,
        generation: int,
        events: EventLog,
        every_s: float = EVERY_S,
    ) -> None:
        self._settings = dict(settings)
        self._job = job
        self._incarnation = incarnation
        self._topic = topic_of(job, generation)
        self._events = events
        self._every_s = every_s
        self._at_s = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def committed(self, starts: list[tuple[int, int]]) -> None:
        """Tidy after a commit, unless that is under way or was done a short time ago.

        Args:
            starts: By front the offset from which the commit reads it.
        """
        now = time.monotonic()
        if now - self._at_s < self._every_s or (self._task is not None and not self._task.done()):
            return
        self._at_s = now
        task = _Task(self._settings, self._job, self._topic, starts, self._incarnation)
        self._task = asyncio.get_running_loop().create_task(self._run(task))

    async def close(self) -> None:
        """Cancel what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, task: _Task) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lowtide.service.snapshots.floor_tidier", stdin=PIPE, stdout=PIPE
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                answer, _ = await process.communicate(line(task))
            died = Failed(Cause("loss", f"its process ended with status {process.returncode}"))
            done = _read_answer(answer) if answer else died
        except TimeoutError:
            done = Failed(Cause("other", f"it took more than {LIMIT_S:g} s"))
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        if isinstance(done, Failed):
            LOG.warning("could not remove floors from topic %s: %s", self._topic, done.cause)
        elif done.tidied.removed:
            self._events.event("floors_archived", **asdict(done.tidied))


def main() -> None:
    """Do the task on standard input once, and report the result on standard output."""
    log_to_stderr("tidying")
    os.nice(NICE)
    task = _read_task(sys.stdin.readline())
    answer: _Done | Failed
    try:
        answer = _Done(tidy(task.settings, task.job, task.topic, dict(task.below), task.incarnation, ANSWER_LIMIT_S))
    except LowtideError as error:
        answer = Failed(error.cause())
    sys.stdout.write(line(answer).decode())


if __name__ == "__main__":
    main()
