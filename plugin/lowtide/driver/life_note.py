"""A life's own entry in ZooKeeper, for observers outside the job."""

from __future__ import annotations

import logging
import os
import socket
from datetime import UTC, datetime
from typing import Literal

from msgspec import to_builtins

from lowtide.process.identity import called
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import SnapshotsError, cause_of
from lowtide_snapshots.job.control_address import ControlAddress
from lowtide_snapshots.job.store import JobStore

BRIEF_S = 1.0
"""Longest wait of a stop until ZooKeeper has its note."""

LOG = logging.getLogger(__name__)


class LifeNote:
    """The note of one life: it runs, it was stopped, or why it has ended.

    Attributes:
        incarnation: The life's number; 0 before it has one, and then nothing is written.
        commit: The id of the snapshot that it began from; None for none.
        control: Where its control API listens; None before it does.
        cause: Why it failed; None if it has not.
        ran: Whether it has come to run.
        finished: Whether all sources have ended, and everything is delivered and committed.
        again: Whether its program begins another life after it; None where that is not known.
        handed_over: Whether it is stopped for a standby to continue the job.
        submission: The key under which the program was submitted; None for none, and once a life of it has run.
        log: The file of the program's log; empty where that is its output.
    """

    def __init__(self, store: JobStore, delivery: str) -> None:
        """Say where it is kept.

        Args:
            store: The job's nodes, connected when something is written.
            delivery: "exactly_once" or "at_least_once".
        """
        self.incarnation = 0
        self.commit: str | None = None
        self.control: ControlAddress | None = None
        self.cause: Cause | None = None
        self.ran = False
        self.finished = False
        self.again: bool | None = False
        self.handed_over = False
        self.submission: str | None = None
        self.log = ""
        self._store = store
        self._delivery = delivery

    def fail(self, error: Exception) -> None:
        """Note why the life has ended, unless there is a cause already; it is written with the end."""
        self.cause = self.cause or cause_of(error)

    def running(self) -> None:
        """Say that it runs."""
        self._say("running")

    def stopping(self) -> None:
        """Note that it is being stopped on purpose, if it is: it then counts as stopped even if killed meanwhile."""
        if not self.cause:
            self._say("stopping", BRIEF_S)

    def over(self) -> None:
        """Note how it has ended."""
        self._say("failed" if self.cause else "stopped")

    def _say(self, phase: Literal["running", "stopping", "stopped", "failed"], limit_s: float | None = None) -> None:
        """Write the note, unless ZooKeeper is away."""
        if not self.incarnation:
            return
        life = {
            "incarnation": self.incarnation,
            "phase": phase,
            "cause": to_builtins(self.cause),
            **({"control": ""} if self.control is None else self.control.fields()),
            "commit": self.commit,
            "submission": self.submission,
            "delivery": self._delivery,
            "ran": self.ran,
            "finished": self.finished,
            "again": self.again,
            "handed_over": self.handed_over,
            "driver": called(os.getpid()),
            "log": f"{socket.gethostname()}:{self.log}" if self.log else "",
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            self._store.set_life(self.incarnation, life, limit_s)
        except SnapshotsError as error:
            LOG.warning("could not record in ZooKeeper that the job is %s: %s", phase, error)
