"""An Airflow that lives as long as a `with` block and the process that started it."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from embedded_airflow.api import POLL_S, AirflowApi
from embedded_airflow.component import STOP_GRACE_S, Component
from embedded_airflow.errors import AirflowDied, AirflowSilent, PortTaken
from embedded_airflow.home import HOST, Home, Settings

MIGRATE_LIMIT_S = 120.0
START_LIMIT_S = 150.0
PARTS = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
"""Airflow's processes. All of them read the log files, so none has to serve logs."""
API = "api-server"
API_GRACE_S = 2.0
"""The API server has answered its last requests by then; what follows is the interpreter's clean-up."""
# Below the kernel's range for outgoing connections, so that a port found free stays free.
PORTS = range(20_000, 32_000)
PORT_TRIES = 200

Say = Callable[[str], None]


class EmbeddedAirflow:
    """Airflow with sqlite, on loopback; its processes end with the block, and with this process however it dies.

    Attributes:
        home: the folder with its configuration, passwords, database and logs.
    """

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        parts: Sequence[str] = tuple(PARTS),
        say: Say = lambda _: None,
    ) -> None:
        """Describe what to run; nothing is started yet.

        Args:
            home: created if it is missing, reused if not.
            settings: see `Settings`.
            port: of its pages and API; 0 picks a free one.
            environment: variables for its processes, besides ours: `AIRFLOW_CONN_…`, for instance. Variables of ours
                that belong to another Airflow are left out.
            parts: the processes to start; the API server is always one of them.
            say: called with each step, as a line.
        """
        self.home = Home(home)
        self._settings = settings
        self._port = port
        self._environment = self.home.environment(dict(environment or {}))
        self._names = [name for name in PARTS if name in {API, *parts}]
        self._say = say
        self._parts: dict[str, Component] = {}
        self._apis: dict[str, AirflowApi] = {}
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The address of Airflow's pages and API; known once it has been started."""
        return f"http://{HOST}:{self._port}"

    def api(self, user: str = "admin") -> AirflowApi:
        """Return Airflow's API for the user "admin", "op" or "viewer"."""
        if user not in self._apis:
            self._apis[user] = AirflowApi(self.url, user, self.home.passwords()[user])
        return self._apis[user]

    def __enter__(self) -> Self:
        """Start Airflow and wait until all of it is healthy.

        Raises:
            HomeInUse: another process runs an Airflow in this home.
            PortTaken: another process listens on the port.
            AirflowDied: a process ended during the start; the message has its last lines.
            AirflowSilent: Airflow was not healthy in time.
        """
        with ExitStack() as stack:
            stack.enter_context(self.home.locked())
            self._port = _placed(self._port)
            self.home.prepare(self._settings, self._port)
            stack.callback(self._close)
            self._migrate()
            began = datetime.now(UTC)
            self._parts = {name: self._component(name, *PARTS[name]) for name in self._names}
            for part in self._parts.values():
                part.start()
            self._wait(began, self._names)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- one process -------------------------------------------------------------------------------------------------

    def part(self, name: str) -> Component:
        """Return one of the processes: "api-server", "scheduler", "dag-processor", "triggerer"."""
        return self._parts[name]

    def ended(self) -> list[Component]:
        """Return the processes that were started and do not run any more."""
        return [part for part in self._parts.values() if not part.running]

    def stop(self, name: str) -> None:
        """Stop one process, gently first."""
        self._say(f"stopping Airflow's {name}")
        self.part(name).stop()

    def kill(self, name: str) -> None:
        """Kill one process and those it has started, as a power failure would."""
        self._say(f"SIGKILL to Airflow's {name}")
        self.part(name).kill()

    def start(self, name: str) -> None:
        """Start one process again, and wait until Airflow is healthy."""
        self._say(f"starting Airflow's {name}")
        began = datetime.now(UTC)
        self.part(name).start()
        self._wait(began, [name])

    # -- the whole ---------------------------------------------------------------------------------------------------

    def _component(self, name: str, *words: str) -> Component:
        grace_s = API_GRACE_S if name == API else STOP_GRACE_S
        return Component(name, words, self.home.logs / f"{name}.log", self._environment, grace_s)

    def _migrate(self) -> None:
        self._say("making Airflow's database")
        migration = self._component("migration", "db", "migrate")
        migration.start()
        try:
            code = migration.wait(MIGRATE_LIMIT_S)
        finally:
            migration.stop()
        if code != 0:
            how = f"ended with {code}" if code is not None else f"did not end within {MIGRATE_LIMIT_S:.0f} s"
            raise _died(migration, f"`airflow db migrate` {how}")
        self.home.tune()

    def _wait(self, began: datetime, names: list[str]) -> None:
        """Wait until Airflow is healthy, and these processes have had a heartbeat since they were started."""
        deadline = time.monotonic() + START_LIMIT_S
        warm = API not in names
        ours = [self._parts[name] for name in names]
        self._say(f"waiting for Airflow's {', '.join(names)}")
        missing = [API]
        while missing:
            for part in ours:
                if not part.running:
                    raise _died(part, f"Airflow's {part.name} ended with {part.exit_code} while it started")
            if time.monotonic() > deadline:
                what = f"Airflow is not healthy after {START_LIMIT_S:.0f} s, missing: {', '.join(missing)}"
                raise AirflowSilent(what, where=str(self.home.logs), way_out="see the logs of the missing processes")
            time.sleep(POLL_S)
            missing = self._missing(began, names)
            if not warm and API not in missing:
                self.api().warm_up()
                warm = True

    def _missing(self, began: datetime, names: list[str]) -> list[str]:
        try:
            late = self.api().health().missing(began)
        except AirflowSilent:
            return [API]
        return [name for name in late if name.replace("_", "-") in names or name == "database"]

    def _close(self) -> None:
        """Stop everything: first the processes that run tasks, then the API that tasks use."""
        self._say("stopping Airflow")
        for name, part in self._parts.items():
            if name != API:
                part.ask_to_stop()
        for part in reversed(self._parts.values()):
            part.stop()
        for api in self._apis.values():
            api.close()
        self._apis = {}


def _died(part: Component, what: str) -> AirflowDied:
    return AirflowDied(
        f"{what}; its last lines:\n{part.last_words()}",
        where=f"the whole log is {part.log}",
        way_out="correct what the lines name; if the database is damaged, remove Airflow's folder",
    )


def _placed(port: int) -> int:
    """A free port of loopback: the given one, or any."""
    if port:
        if not _free(port):
            what = f"port {port} of {HOST} is taken"
            raise PortTaken(what, way_out="end the process that listens there, or name another port")
        return port
    for _ in range(PORT_TRIES):
        found = random.SystemRandom().choice(PORTS)
        if _free(found):
            return found
    raise PortTaken(f"no free port between {PORTS.start} and {PORTS.stop} in {PORT_TRIES} tries")


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
