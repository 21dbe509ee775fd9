"""A real PostgreSQL for tests: a server of its own, in a folder that is thrown away."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from guard import Guard
from tests.waiting import HANGS_S

USER = "postgres"
PLACES = ("/usr/local/bin", "/usr/lib/postgresql/*/bin", "/opt/homebrew/bin")


NO_POSTGRES = "there is no PostgreSQL here, install it with `make postgres`"


class PostgresMissing(Exception):
    """There is no PostgreSQL on this machine."""


class PostgresServer:
    """A server on a free port of the loopback; a context.

    As PostgreSQL refuses to run as root, root runs it as the user `postgres`, which its packages make.

    Args:
        primary: If given, this is a standby that streams from it.
        options: More options of the program.

    Attributes:
        port: Where it listens.
        folder: What it keeps.
        settings: What clients need, as libpq names it.
        as_user: What a command begins with that is to run as the same user.
    """

    def __init__(self, primary: PostgresServer | None = None, options: str = "") -> None:
        self._primary, self._options = primary, options
        self._programs = _programs()
        self.folder = Path(tempfile.mkdtemp(prefix="lowtide-postgres-"))
        self.as_user: list[str] = []
        if os.geteuid() == 0:
            self.as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
            shutil.chown(self.folder, USER)
        self.port = free_port()

    @property
    def settings(self) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.port, "dbname": "postgres", "user": USER}

    def __enter__(self) -> Self:
        if self._primary is None:
            self._run("initdb", "-D", str(self._data), "-A", "trust", "-N", "-U", USER, "--locale=C.UTF-8")
        else:
            where = ("-h", "127.0.0.1", "-p", str(self._primary.port), "-U", USER)
            self._run("pg_basebackup", *where, "-D", str(self._data), "-R", "-c", "fast")
        # Whoever kills the tests leaves it to nobody else.
        stop = f"'{self._programs}/pg_ctl' -D '{self._data}' -m immediate stop; rm -rf '{self.folder}'"
        self._guard = Guard(*self.as_user, "sh", "-c", stop)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.close()
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Starts it, and waits until it takes connections."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=60 {self._options}"
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", options, "-w", "-t", str(int(HANGS_S)), "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def promote(self) -> None:
        """Has a standby take writes."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "promote")

    def ask(self, statement: str, *parameters: Any, **settings: Any) -> list[tuple[Any, ...]]:
        """Returns what a statement returns, in a connection of its own."""
        import psycopg

        with psycopg.connect(**{**self.settings, **settings}, autocommit=True) as connection:
            found = connection.execute(statement, parameters or None)
            return found.fetchall() if found.description else []

    def pids(self, application: str) -> list[int]:
        """Returns the server's processes for connections of an application."""
        asked = "select pid from pg_stat_activity where application_name = %s"
        return [pid for (pid,) in self.ask(asked, application)]

    def freeze(self, pid: int) -> None:
        """Stops a process of the server: what its client sends waits for it."""
        os.kill(pid, signal.SIGSTOP)

    def thaw(self, pid: int) -> None:
        """Lets it go on."""
        os.kill(pid, signal.SIGCONT)

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self.as_user, str(self._programs / program), *arguments]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/")
        assert done.returncode == 0, done.stdout.decode(errors="replace")


class Pooler:
    """PgBouncer before a server, which gives each transaction any of two connections; a context.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server, self.port = server, free_port()

    def __enter__(self) -> Self:
        folder, server = self._server.folder, self._server
        (folder / "pooler.ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port} user=postgres pool_size=2\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\nmax_client_conn = 100\nserver_lifetime = 1\n"
        )
        pooler = shutil.which("pgbouncer")
        assert pooler is not None, "install it: apt install pgbouncer"
        self._process = subprocess.Popen(
            [*server.as_user, pooler, "-q", str(folder / "pooler.ini")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._guard = Guard("kill", "-KILL", str(self._process.pid))
        until(self._answers, "PgBouncer takes connections")
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.close()
        self._process.terminate()
        self._process.wait(HANGS_S)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def until(found: Any, what: str) -> Any:
    """Returns what a function returns once it is true."""
    deadline = time.monotonic() + HANGS_S
    while not (result := found()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return result


def _programs() -> Path:
    """Returns the folder of PostgreSQL's programs, of the newest version first."""
    places = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    for pattern in PLACES:
        places += sorted(Path("/").glob(pattern.lstrip("/")), key=_version, reverse=True)
    for place in places:
        if all((place / program).exists() for program in ("initdb", "pg_ctl", "postgres")):
            return place
    raise PostgresMissing(NO_POSTGRES)


def _version(place: Path) -> int:
    digits = place.parent.name
    return int(digits) if digits.isdigit() else 0
