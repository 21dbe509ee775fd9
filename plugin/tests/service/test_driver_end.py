"""The service frees the lease of a driver program that was killed, at once, and of no other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hanging import HANGS_S

from lowtide.service.driver_end import DriverEnd
from lowtide_snapshots.errors import ZooKeeperUnavailable


@pytest.fixture(name="program")
def _program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        yield program
        program.kill()


def test_the_lease_is_freed_when_the_program_is_killed_and_not_before(program: subprocess.Popen[bytes]) -> None:
    async def freed() -> list[str]:
        done, said = asyncio.Event(), []

        async def free() -> None:
            said.append("freed")
            done.set()

        watch = DriverEnd(program.pid, free)
        watch.start()
        await asyncio.sleep(0)
        said.append("killed")
        program.kill()
        await asyncio.wait_for(done.wait(), HANGS_S)
        await watch.close()
        return said

    assert asyncio.run(freed()) == ["killed", "freed"]


def test_the_end_of_the_service_waits_for_what_it_has_begun(program: subprocess.Popen[bytes]) -> None:
    async def freed() -> bool:
        begun, done = asyncio.Event(), False

        async def free() -> None:
            nonlocal done
            begun.set()
            await asyncio.sleep(0.01)
            done = True

        watch = DriverEnd(program.pid, free)
        watch.start()
        program.kill()
        await asyncio.wait_for(begun.wait(), HANGS_S)
        await watch.close()
        return done

    assert asyncio.run(freed())


def test_a_watch_that_has_ended_frees_nothing(program: subprocess.Popen[bytes]) -> None:
    async def freed() -> list[str]:
        said: list[str] = []

        async def free() -> None:
            said.append("freed")

        watch = DriverEnd(program.pid, free)
        watch.start()
        await watch.close()
        program.kill()
        program.wait()
        await asyncio.sleep(0.05)
        return said

    assert asyncio.run(freed()) == []


def test_without_zookeeper_the_sessions_end_has_to_do(
    program: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async def tried() -> None:
        done = asyncio.Event()

        async def free() -> None:
            done.set()
            raise ZooKeeperUnavailable("ZooKeeper did not answer", where="there", way_out="start it")

        watch = DriverEnd(program.pid, free)
        watch.start()
        program.kill()
        await asyncio.wait_for(done.wait(), HANGS_S)
        await watch.close()

    asyncio.run(tried())
    assert "could not free the lease" in caplog.text
