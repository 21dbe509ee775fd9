"""`lowtide stop --hand-over`: a job's program stops, and a standby continues the job at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lowtide.cli.running_jobs import control_of
from lowtide.conf import Conf
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.errors import NotRunning
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.job_end import JobEnd, end_job
from lowtide.service.standbys import NoStandby, refuse_without
from lowtide_snapshots.errors import ControlRefused
from lowtide_snapshots.job.life import Life

TAKEN_WITHIN_S = 60.0
"""Time for a standby to begin the next life, after the last one has ended."""
POLL_S = 0.05

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Successor:
    """The standby that continues a job.

    Attributes:
        holder: Its program, for people to read.
        incarnation: Its life.
    """

    holder: str
    incarnation: int


def hand_over(conf: Conf, folder: JobFolder, before: Callable[[], T], limit_s: float) -> tuple[T, JobEnd]:
    """Stop a job for a standby to continue it; return what `before` has given, and how the job ended.

    Args:
        conf: The job's.
        folder: The job's.
        before: Called once a standby is known to wait, before the job is asked to stop.
        limit_s: The job is killed if it takes longer to stop; a standby continues it then too.

    Raises:
        NoStandby: none waits; the job keeps running.
        NotRunning: it is not run by the program of this folder.
        LowtideError: ZooKeeper does not answer, or what `before` raises.
    """
    state = folder.state()
    phase = "unknown" if state is None else state.seen().phase
    if phase != "running":
        raise NotRunning(
            f'job "{folder.name}" is not run by the program of this folder, which is "{phase}"',
            where=str(folder.path),
            way_out="hand it over on the host of the program that runs it",
        )
    client = control_of(conf, folder.name)
    with ZooKeeperAccess.of(conf.zookeeper).store(folder.name) as place:
        refuse_without(folder.name, place.standbys())
    given = before()

    def ask() -> None:
        try:
            client.hand_over()
        except ControlRefused as error:
            raise NoStandby(error.what, where=error.where, way_out=error.way_out) from error

    return given, end_job(folder, limit_s, ask)


def awaited_successor(conf: Conf, folder: JobFolder, ending: JobEnd) -> Successor:
    """Wait until a standby continues a job that was handed over.

    Args:
        conf: The job's.
        folder: The job's.
        ending: How its last program ended.

    Raises:
        NoStandby: none does.
    """
    last, deadline = ending.state.incarnation or 0, time.monotonic() + TAKEN_WITHIN_S
    with ZooKeeperAccess.of(conf.zookeeper).store(folder.name) as place:
        while True:
            note = place.life()
            life = Life() if note is None else Life.of(note)
            if life.incarnation > last and life.phase == "running":
                return Successor(life.driver, life.incarnation)
            if time.monotonic() > deadline:
                raise NoStandby(
                    f'job "{folder.name}" has stopped, but no standby runs it after {TAKEN_WITHIN_S:g} s',
                    way_out="see `lowtide status` on the standbys' hosts, or start it: lowtide run flow.py --detach",
                )
            time.sleep(POLL_S)
