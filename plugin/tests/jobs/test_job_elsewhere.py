"""A job that runs on another machine, found by its place in a real ZooKeeper, and who gets its token."""

from __future__ import annotations

import io
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from controlled import TOKEN, ControlledJob, controlled
from kept_snapshots import record
from seen import SHAPE, moment

from lowtide.cli.running_jobs import control_of
from lowtide.conf import Conf
from lowtide.events import EventLog
from lowtide_snapshots.errors import TokenRefused
from lowtide_snapshots.job.store import JobStore

pytestmark = pytest.mark.zookeeper


class Elsewhere:
    """A life that runs, and the answer to a command in another folder."""

    def __init__(self, zookeeper: str, folder: Path, opened: ExitStack) -> None:
        token = folder / "token"
        token.write_text(TOKEN)
        self.name = f"job-{uuid.uuid4().hex[:8]}"
        usual = Conf()
        self.conf = replace(
            usual,
            job=replace(usual.job, folder=str(folder / "jobs")),
            zookeeper=replace(usual.zookeeper, hosts=zookeeper),
            control=replace(usual.control, token_file=str(token)),
        )
        store = opened.enter_context(JobStore(zookeeper, self.name))
        store.freeze(record(self.name))
        store.take_lease("process 7 on another machine", 1.0, lambda _: None)
        self.store, self.life = store, store.raise_incarnation()
        shape = replace(SHAPE, job=self.name, incarnation=self.life)
        self.served: ControlledJob = opened.enter_context(controlled(shape, EventLog(self.name, 1, io.StringIO())))
        self.served.watch.look(0.0, moment(5000))

    def say(self, **control: Any) -> None:
        """What the life, or somebody else, writes of it."""
        self.store.set_life(self.life, {"incarnation": self.life, "phase": "running", **control})


@pytest.fixture(name="elsewhere")
def _elsewhere(zookeeper: str, tmp_path: Path) -> Iterator[Elsewhere]:
    with ExitStack() as opened:
        yield Elsewhere(zookeeper, tmp_path, opened)


def test_it_is_asked_with_the_token_that_both_know(elsewhere: Elsewhere) -> None:
    elsewhere.say(**elsewhere.served.at.fields())
    assert control_of(elsewhere.conf, elsewhere.name).status().job == elsewhere.name


def test_another_address_in_zookeeper_gets_neither_a_connection_nor_the_token(elsewhere: Elsewhere) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.2)
        host, port = other.getsockname()
        for forged in ({"control": f"{host}:{port}"}, elsewhere.served.at.fields() | {"control": f"{host}:{port}"}):
            elsewhere.say(**forged)
            with pytest.raises(TokenRefused, match=f'{host}:{port} is the control API of job "') as refused:
                control_of(elsewhere.conf, elsewhere.name).stop()
            assert TOKEN not in str(refused.value)
        with pytest.raises(TimeoutError):
            other.accept()
    assert elsewhere.served.stops == []
