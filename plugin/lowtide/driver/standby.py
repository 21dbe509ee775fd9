"""A standby: waits for the lease of a job that another program runs, and takes it when that one is gone.

A leader that was killed is followed at once. One that ended by itself has left a note, which decides. If it was stopped
or has finished, so has the job, and its standbys end too. If it was handed over, one of them continues it at once. If
it failed, its program may begin the next life itself, and has some time for that. A fault of the flow would end the
next life like the last, so nobody begins one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum

from lowtide.errors import FlowError
from lowtide_snapshots.errors import LeaseTaken, ZooKeeperUnavailable
from lowtide_snapshots.job.layout import Layout
from lowtide_snapshots.job.life import Life
from lowtide_snapshots.job.standbys import Standby
from lowtide_snapshots.job.store import JobStore

LOG = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Interval of looks at the lease: ZooKeeper tells of each change sooner, unless its watch was lost."""
POLL_S = 0.1
"""Interval of checks that the wait is to go on."""
RESTART_LIMIT_S = 20.0
"""Time for a leader whose life has failed to begin the next one: its program pauses for 15 s at most."""


class Sequel(Enum):
    """The act of a standby when the lease is free."""

    TAKE = "take"
    WAIT = "wait"
    END = "end"


def sequel(leader: str | None, life: Life | None, incarnation: int, free_s: float) -> Sequel:
    """Decide what follows a leader that is gone.

    Args:
        leader: The process that held the lease; None if nobody has held it since this program waits.
        life: The last note of any life; None if there was none.
        incarnation: The number of the job's newest life.
        free_s: For how long the lease has been free.
    """
    if leader is None or life is None or life.driver != leader or life.incarnation != incarnation:
        return Sequel.TAKE  # The leader was killed before its life had said anything.
    if life.phase == "stopped":
        return Sequel.TAKE if life.goes_on else Sequel.END
    if life.phase != "failed":
        return Sequel.TAKE
    if life.cause is not None and life.cause.kind == "flow":
        return Sequel.END
    return Sequel.TAKE if life.again is False or free_s >= RESTART_LIMIT_S else Sequel.WAIT


class Waiting:
    """One program's wait for the lease of a job.

    Args:
        store: The job's place, connected.
        holder: How this process calls itself.
        layout: What it would run.
        say: Called with what it waits for.
    """

    def __init__(self, store: JobStore, holder: str, layout: Layout, say: Callable[[str], None]) -> None:
        self.ended = ""
        """Why there is nothing to wait for any more; empty while there is."""
        self._store = store
        self._holder = holder
        self._layout = layout
        self._say = say
        self._shown = Standby(datetime.now(UTC).isoformat(timespec="seconds"), holder)
        self._leader: str | None = None
        self._said = ""
        """The leader that was announced last."""
        self._free_s: float | None = None
        self._away = False

    def show(self, *, ready: bool) -> None:
        """Show this program among the job's standbys, and whether it could take over at once."""
        self._shown = Standby(self._shown.since, self._holder, ready)
        self._store.show_standby(self._shown)

    def refuse_other_leader(self) -> None:
        """Refuse to stand by for a leader that runs something else; one that stops from now on ends the wait.

        Raises:
            FlowError: names what differs.
        """
        leader = self._store.leader()
        if leader is not None:
            self._refuse(*leader)
            self._leader = leader[0]

    def take(self, go_on: Callable[[], bool]) -> bool:
        """Wait until the lease is this program's; False if `go_on`, asked often, says no, or the job has ended.

        Raises:
            FlowError: the leader runs another flow, or with another conf.
        """
        changed = threading.Event()
        self._store.watch_lease(lambda _: changed.set())
        looked_s = float("-inf")
        while go_on() and not self.ended:
            if changed.is_set() or time.monotonic() - looked_s >= LOOK_EVERY_S:
                changed.clear()
                looked_s = time.monotonic()
                if self._look():
                    return True
            changed.wait(POLL_S)
        return False

    def _look(self) -> bool:
        """Look at the lease; return whether it is taken now."""
        try:
            taken = self._try()
            self._store.show_standby(None if taken else self._shown)
        except ZooKeeperUnavailable as error:
            if not self._away:
                self._say(f"still standing by: {error.what}")
            self._away = True
            return False
        self._away = False
        return taken

    def _try(self) -> bool:
        leader = self._store.leader()
        if leader is not None:
            self._refuse(*leader)
            if leader[0] != self._said or self._free_s is not None:
                self._say(f"standing by: the job is run by {leader[0]}")
            self._leader = self._said = leader[0]
            self._free_s = None
            return False
        now_s = time.monotonic()
        self._free_s = now_s if self._free_s is None else self._free_s
        note = self._store.life()
        life = None if note is None else Life.of(note)
        match sequel(self._leader, life, self._store.incarnation(), now_s - self._free_s):
            case Sequel.WAIT:
                return False
            case Sequel.END:
                assert life is not None, "it has said how it ended"
                self.ended = (
                    f"life {life.incarnation}, of {life.driver}, has {life.phase}: {life.cause or 'on request'}"
                )
                return False
        try:
            self._store.take_lease(self._holder, 0.0, lambda _: None, self._layout)
        except LeaseTaken:
            return False
        self._say("taking over" if self._leader is None else f"taking over from {self._leader}")
        return True

    def _refuse(self, leader: str, layout: Layout) -> None:
        differs = layout.differences(self._layout)
        if differs:
            raise FlowError(
                f"a standby has to run what the leader runs, but {leader} has other: {'; '.join(differs)}",
                where="the lease of the job, in ZooKeeper",
                way_out="start the standby with the leader's flow and conf; to change them, stop the job, then start "
                "leader and standbys with the new ones",
            )
