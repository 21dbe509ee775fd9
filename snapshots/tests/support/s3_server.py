"""A real S3 server for tests: versitygw, or moto where that is asked for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Self

from guard import Guard
from hanging import HANGS_S

CLONE = Path(__file__).resolve().parents[3]
ACCESS, SECRET = "lowtide", "lowtide-secret"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What boto3 needs to find these credentials and no others."""


class S3ServerMissing(Exception):
    """Nothing that the tests could run against is there."""


class S3Server:
    """A server on a free port of the loopback, its objects in a folder; a context.

    Attributes:
        real: whether it is versitygw.
        port: where it listens.
    """

    def __init__(self, folder: Path) -> None:
        self.real = os.environ.get("S3") != "moto"
        self.port = 0
        self._folder = folder
        self._client: Any = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Starts it, on the port that it had before if it had one."""
        self.port = self.port or _free_port()
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment()
            )
        self._guard = Guard("kill", "-KILL", str(self._process.pid))
        deadline = time.monotonic() + HANGS_S
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise S3ServerMissing(f"the S3 server did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def make_bucket(self) -> str:
        """A new bucket's name."""
        if self._client is None:
            import boto3

            self._client = boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                region_name="us-east-1",
                aws_access_key_id=ACCESS,
                aws_secret_access_key=SECRET,
            )
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self._client.create_bucket(Bucket=name)
        return name

    def _command(self) -> list[str]:
        if not self.real:
            return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        objects, sidecar = self._folder / "objects", self._folder / "sidecar"
        objects.mkdir(exist_ok=True)
        sidecar.mkdir(exist_ok=True)
        # Beside the objects, as not every file system keeps what versitygw has to say of them.
        backend = ["posix", "--sidecar", str(sidecar), str(objects)]
        return [program(), "--port", f"127.0.0.1:{self.port}", "--access", ACCESS, "--secret", SECRET, *backend]

    def _environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith(("VGW_", "AWS_", "ROOT_"))}


def program() -> str:
    """The path of versitygw.

    Raises:
        S3ServerMissing: it is not built.
    """
    path = subprocess.run(
        [CLONE / "tools" / "s3-server", "path"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not os.access(path, os.X_OK):
        raise S3ServerMissing(
            "the S3 server of the tests is not built: `make s3-server` builds it, and needs Go 1.25 or newer; "
            "without Go, S3=moto in the environment runs these tests against moto, which is not a real server"
        )
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False
