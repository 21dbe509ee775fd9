"""Finds the running job that a command names, and a client for its control API."""

from __future__ import annotations

from pathlib import Path

from lowtide.conf import Conf
from lowtide.conf.token import job_token
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.errors import NotRunning
from lowtide.jobs.folder import JobFolder, states
from lowtide.status.control_client import ControlClient
from lowtide_snapshots.errors import TokenRefused
from lowtide_snapshots.job.control_address import ControlAddress


def only_job(root: Path) -> JobFolder:
    """Return the one job of a folder that runs.

    Raises:
        NotRunning: none does, or several do.
    """
    running = [folder for folder, state in states(root) if not state.ended]
    if len(running) != 1:
        names = ", ".join(folder.name for folder in running)
        raise NotRunning(
            f"{len(running)} jobs run" if running else "no job runs",
            where=f"{root} ([job].folder)",
            way_out=f"name one: {names}" if running else "`lowtide status` shows how the last ones ended",
        )
    return running[0]


def latest_job(root: Path) -> JobFolder:
    """Return the one job of a folder that runs, or the one that ended last if none does.

    Raises:
        NotRunning: several run, or there is no job.
    """
    known = [(state.ended_at or state.started_at, folder) for folder, state in states(root) if state.ended]
    if not known or any(not state.ended for _, state in states(root)):
        return only_job(root)
    return max(known, key=lambda each: each[0])[1]


def control_of(conf: Conf, name: str) -> ControlClient:
    """Return the control API of a running job, whose address is in its folder, or else in ZooKeeper.

    Raises:
        NotRunning: it does not run.
        TokenRefused: it runs elsewhere, and this machine does not have its token.
        ServiceUnavailable: ZooKeeper does not answer.
    """
    folder = JobFolder(Path(conf.job.folder), name)
    state = folder.state()
    seen = state.seen() if state is not None else None
    if state is not None and seen is not None and not seen.ended:
        token, control = folder.token(), state.control_address()
        if token is not None and control is not None:
            return ControlClient(control, token)
        if state.phase == "starting":
            raise NotRunning(f'job "{name}" is still starting', where=str(folder.path), way_out="wait until it runs")
    with ZooKeeperAccess.of(conf.zookeeper).store(name) as store:
        holder, life = store.holder(), store.life() or {}
    at = ControlAddress.of(name, life)
    # A driver that was killed keeps the lease until its session is over; its folder knows better.
    dead = seen is not None and seen.ended and seen.incarnation == life.get("incarnation")
    if dead or holder is None or life.get("phase") != "running" or not at.address:
        raise NotRunning(
            f'job "{name}" does not run',
            where=f"{folder.path}, and ZooKeeper at {conf.zookeeper.hosts}",
            way_out="`lowtide status` shows the jobs of this folder; start it: lowtide run flow.py --detach",
        )
    if conf.control.token_file is None:
        raise TokenRefused(
            f'job "{name}" runs as {holder}, but the token of its control API is not available here',
            where=at.address,
            way_out="run this command in the folder that the job was started in ([job].folder); or give both the same "
            "[control].token_file",
        )
    return ControlClient(at, job_token(conf.control))
