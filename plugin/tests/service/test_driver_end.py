"""The service frees the lease of a driver program that was killed, at once, and of no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hanging import HANGS_S

from lowtide.process.doors import DoorKind, Doors
from lowtide.service.driver_end import DriverEnd
from lowtide.service.server import Service
from lowtide_snapshots.errors import ZooKeeperUnavailable

SECRET = b"the secret of a test, 32 bytes.."
LEADER = """
import sys

from lowtide.assignment.client import ServiceClient
from lowtide.conf.zookeeper_access import ZooKeeperAccess

address, secret, hosts, job = sys.argv[1:]
access = ZooKeeperAccess(hosts=hosts, root="lowtide", session_timeout_s=10.0, reach_limit_s=60.0)
store = access.store(job).open()
with ServiceClient(address, secret.encode()) as service:
    for lease in ("of its last life", store.lease_token, "of a start in the same session that was refused"):
        service.leads(job, lease, access)
store.take_lease("the leader", 0, print)
print("leads", flush=True)
input()
"""
"""A driver program that takes its lease and does not come to begin a life."""


@pytest.fixture(name="program")
def _program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        yield program
        program.kill()


def test_the_lease_is_freed_when_the_program_is_killed_and_not_before(program: subprocess.Popen[bytes]) -> None:
    said: list[str] = []
    done = threading.Event()

    def free() -> bool:
        said.append("freed")
        done.set()
        return True

    async def freed() -> None:
        watch = DriverEnd(program.pid)
        watch.frees(free)
        watch.start()
        await asyncio.sleep(0)
        said.append("killed")
        program.kill()
        assert await asyncio.to_thread(done.wait, HANGS_S)
        await watch.close()

    asyncio.run(freed())
    assert said == ["killed", "freed"]


def test_the_end_of_the_service_waits_for_what_it_has_begun(program: subprocess.Popen[bytes]) -> None:
    begun, ends, done = threading.Event(), threading.Event(), threading.Event()

    def free() -> bool:
        begun.set()
        ends.wait(HANGS_S)
        done.set()
        return True

    async def freed() -> bool:
        watch = DriverEnd(program.pid)
        watch.frees(free)
        watch.start()
        program.kill()
        assert await asyncio.to_thread(begun.wait, HANGS_S)
        closing = asyncio.create_task(watch.close())
        await asyncio.sleep(0)
        ends.set()
        await closing
        return done.is_set()

    assert asyncio.run(freed())


def test_a_watch_that_has_ended_frees_nothing(program: subprocess.Popen[bytes]) -> None:
    said: list[str] = []

    def free() -> bool:
        said.append("freed")
        return True

    async def freed() -> None:
        watch = DriverEnd(program.pid)
        watch.frees(free)
        watch.start()
        await watch.close()
        program.kill()
        program.wait()
        await asyncio.sleep(0.05)

    asyncio.run(freed())
    assert said == []


def test_without_zookeeper_the_sessions_end_has_to_do(
    program: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def free() -> bool:
        done.set()
        raise ZooKeeperUnavailable("ZooKeeper did not answer", where="there", way_out="start it")

    async def tried() -> None:
        watch = DriverEnd(program.pid)
        watch.frees(free)
        watch.start()
        program.kill()
        assert await asyncio.to_thread(done.wait, HANGS_S)
        await watch.close()

    asyncio.run(tried())
    assert "could not free the lease" in caplog.text


@pytest.mark.zookeeper
def test_a_program_that_dies_before_its_life_begins_leaves_no_lease(
    place: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits for the lease need not wait for the end of the dead program's session."""
    seen = place.open()

    async def freed() -> None:
        service = Service(SECRET, {}, Doors(DoorKind.TCP, "127.0.0.1"))
        command = [sys.executable, "-c", LEADER, service.serve(), SECRET.decode(), place.hosts, place.job]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as leader:
            assert leader.stdout is not None
            assert await asyncio.to_thread(leader.stdout.readline) == "leads\n"
            assert seen.holder() == "the leader"
            leader.kill()
        assert await asyncio.to_thread(place.eventually, lambda: seen.holder() is None)
        await service.close()

    asyncio.run(freed())
    assert "has ended: freed its lease" in caplog.text
