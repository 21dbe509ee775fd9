"""A real server of Azure's Blob Storage for tests: Azurite."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any, Self

from guard import Guard
from hanging import HANGS_S

CLONE = Path(__file__).resolve().parents[3]
ACCOUNT, KEY = "lowtide", base64.b64encode(b"lowtide-secret").decode()
ENVIRONMENT = {"AZURE_STORAGE_KEY": KEY}
"""What the store needs to find the account's key, and no other credentials."""
NO_AZURITE = "there is no Azurite here, install it with `make azurite`"


class AzuriteMissing(Exception):
    """There is no Azurite on this machine."""


class Azurite:
    """A server on a free port of the loopback; a context.

    Args:
        folder: of its log, and of its objects.
        kept: whether objects are in the folder, so that another start finds them, or in memory.
        certificate: files of one for 127.0.0.1 and of its key; then it speaks HTTPS, and believes identities' tokens.

    Attributes:
        port: where it listens.
    """

    def __init__(self, folder: Path, *, kept: bool = True, certificate: tuple[Path, Path] | None = None) -> None:
        self.port = 0
        self._folder, self._kept, self._certificate = folder, kept, certificate
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self.port}/{ACCOUNT}"

    def start(self) -> Self:
        """Starts it, on the port that it had before if it had one; what it had is still there."""
        self.port = self.port or _free_port()
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [program(), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        command += ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        command += ["--location", str(self._folder)] if self._kept else ["--inMemoryPersistence"]
        if self._certificate:
            certificate, key = map(str, self._certificate)
            command += ["--cert", certificate, "--key", key, "--oauth", "basic"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env=os.environ | {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
            )
        self._guard = Guard("kill", "-KILL", str(self._process.pid))
        deadline = time.monotonic() + HANGS_S
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Azurite did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """Ends it, as it writes what it has only now and then."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def container(self, name: str = "", **options: Any) -> Any:
        """A client of a container that no other test has, past all stores."""
        from azure.storage.blob import ContainerClient

        name = name or f"container-{uuid.uuid4().hex[:12]}"
        key = {"account_name": ACCOUNT, "account_key": KEY}
        client = ContainerClient(self.endpoint, name, credential=key, **options)
        client.create_container()
        return client

    def make_container(self) -> str:
        """A new container's name."""
        with self.container() as client:
            return str(client.container_name)


def program() -> str:
    """The path of Azurite's program.

    Raises:
        AzuriteMissing: it is not installed.
    """
    asked = [str(CLONE / "tools" / "azurite-server"), "path"]
    path = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if not os.access(path, os.X_OK):
        raise AzuriteMissing(NO_AZURITE)
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
