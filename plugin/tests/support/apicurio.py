"""A real schema registry for tests: Apicurio Registry, which keeps its schemas in memory and speaks Confluent's API.

It is not part of the product: Ivy fetches it as it does the product's jars (142 MB, once for all clones), and it ends
with the block that it is started for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lowtide.cache import cache_folder
from lowtide.embedded.ports import HOST
from lowtide.embedded.server import Server
from lowtide.embedded.supervise import stop, up
from lowtide.jars.java import Java
from lowtide.jars.third_party import ivy_command

SHA256 = "3cda1b34aa020fb4ac4dd6a66018d757e81e437f97e20a1f92d366b70091c6ba"
FETCH_LIMIT_S = 400.0
ANSWER_LIMIT_S = 5.0
HEAP_MB = 256
IVY_FILE = Path(__file__).with_name("apicurio.xml")


class Apicurio(Server):
    """One registry on loopback."""

    name = "registry"

    @property
    def url(self) -> str:
        """The prefix of its API."""
        return f"http://{self.address}/apis/ccompat/v7"

    def prepare(self, java: Java) -> None:
        """Nothing: everything is in its command line."""

    def command(self, java: Java) -> list[str]:
        """A small JVM that is soon there."""
        (jar,) = fetched().glob("*-runner.jar")
        settings = {"quarkus.http.host": HOST, "quarkus.http.port": self.port, "quarkus.log.level": "WARN"}
        return [
            str(java.executable),
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-jar",
            str(jar),
        ]

    def answers(self) -> bool:
        """True if it lists its subjects."""
        try:
            self.ask("GET", "/subjects")
        except OSError:
            return False
        return True

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Its answer (errors: OSError)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:
            return json.loads(answer.read() or b"null")

    def add(self, subject: str, schema: str) -> int:
        """The number of a schema, which is registered under a subject."""
        return int(self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})["id"])

    def versions(self, subject: str) -> list[dict[str, Any]]:
        """The versions of a subject, the oldest first: `id`, `version`, `schema`."""
        place = f"/subjects/{quote(subject, safe='')}/versions"
        return [self.ask("GET", f"{place}/{number}") for number in self.ask("GET", place)]

    def demand(self, compatibility: str) -> None:
        """Let it refuse schemas that are not so compatible with those before them, e.g. `BACKWARD`."""
        self.ask("PUT", "/config", {"compatibility": compatibility})

    def stop(self) -> None:
        """Be away from now on."""
        stop(self)


@contextmanager
def apicurio(folder: Path) -> Iterator[Apicurio]:
    """A registry until the block ends, or this process; what it prints lies in `folder`."""
    fetched()  # The time that this takes is not the server's.
    (server,) = up([Apicurio(folder / "registry", 0)], dies_with_us=True)
    assert isinstance(server, Apicurio)
    try:
        yield server
    finally:
        server.stop()


def fetched() -> Path:
    """The folder of the registry's jars, fetched if it is not there; safe with several processes at once."""
    folder = cache_folder() / "apicurio" / SHA256[:12]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not folder.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix="fetch-", dir=folder.parent))
            try:
                _unpacked(_retrieved(scratch), scratch / "jars")
                (scratch / "jars").rename(folder)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _retrieved(scratch: Path) -> Path:
    command = [*ivy_command(IVY_FILE, scratch / "ivy"), "-confs", "registry", "-types", "tar.gz"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    archives = list((scratch / "ivy").rglob("*.tar.gz"))
    assert len(archives) == 1, (done.stdout + done.stderr)[-2_000:]
    (archive,) = archives
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert found == SHA256, f"another registry was fetched: SHA-256 {found}"
    return archive


def _unpacked(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
