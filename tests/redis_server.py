"""A real Redis for tests: a server of its own, in a folder that is thrown away."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from guard import Guard
from tests.postgres_server import free_port, until
from tests.waiting import HANGS_S

NO_REDIS = "there is no Redis here, install it with `make redis`"


class RedisMissing(Exception):
    """There is no Redis on this machine."""


class RedisServer:
    """A server on a free port of the loopback; a context.

    Attributes:
        port: Where it listens.
        client: A connection to it, past all proxies.
    """

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RedisMissing(NO_REDIS)
        self._program, self.port = program, free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="lowtide-redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    def __enter__(self) -> Self:
        import redis

        self.client: Any = redis.Redis(port=self.port, decode_responses=True, socket_timeout=HANGS_S)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *options: str) -> None:
        """Starts it, and waits until it answers; what it had is still there."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._guard = Guard("kill", "-KILL", str(self._process.pid))
        until(self._answers, "Redis takes connections")

    def stop(self) -> None:
        """Kills it."""
        assert self._process is not None
        assert self._guard is not None
        self._guard.close()
        self._process.kill()
        self._process.wait()

    def read(self, name: str) -> dict[str, Any]:
        """Returns by key what readers see of the records of a sink."""
        keys = sorted(self.client.scan_iter(f"{name}:*", 10_000))
        with self.client.pipeline() as line:
            for key in keys:
                line.hget(key, "value")
            values = line.execute()
        found = zip(keys, values, strict=True)
        return {key.removeprefix(f"{name}:"): json.loads(value) for key, value in found if value is not None}

    def _answers(self) -> bool:
        import redis

        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False
