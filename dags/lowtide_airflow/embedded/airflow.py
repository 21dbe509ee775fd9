"""An Airflow of one's own, process by process: for as long as a `with` block, or the process that began it, lives."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from lowtide_airflow.embedded.api import POLL_S, AirflowApi
from lowtide_airflow.embedded.component import STOP_GRACE_S, Component
from lowtide_airflow.embedded.errors import AirflowDied, AirflowSilent, PortTaken
from lowtide_airflow.embedded.home import HOST, Home, Settings

__all__ = ["EmbeddedAirflow"]

MIGRATE_LIMIT_S = 120.0
START_LIMIT_S = 150.0
PARTS = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
"""Airflow's processes. Logs lie in files that all of them read, so nothing else has to listen."""
API = "api-server"
API_GRACE_S = 2.0
"""The API server has said all it had to say within that; what follows is the interpreter's tidying up."""
# Below the range that the kernel hands out to outgoing connections, so that a port found free stays free.
PORTS = range(20_000, 32_000)
PORT_TRIES = 200

Say = Callable[[str], None]


class EmbeddedAirflow:
    """Airflow with sqlite, on loopback; its processes end with the block, and with this process however it dies.

    Attributes:
        home: The folder with its configuration, passwords, database and logs.
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
        """Say what is to run; nothing is started yet.

        Args:
            home: Made if it is missing; what it keeps from an earlier time is used again.
            settings: What differs from Airflow to Airflow.
            port: Where its pages are; 0 takes a free one.
            environment: What its processes inherit beside ours: `AIRFLOW_CONN_…`, for instance. Variables of ours
                that belong to another Airflow are left out.
            parts: Which of its processes; the API server is always one of them.
            say: Told what happens.
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
        """Where Airflow's pages and its API are; known once it has been started."""
        return f"http://{HOST}:{self._port}"

    def api(self, user: str = "admin") -> AirflowApi:
        """Airflow's API as "admin", "op" or "viewer" has it."""
        if user not in self._apis:
            self._apis[user] = AirflowApi(self.url, user, self.home.passwords()[user])
        return self._apis[user]

    def __enter__(self) -> Self:
        """Start Airflow and wait until all of it is alive.

        Raises:
            HomeInUse: Another process runs an Airflow in this home.
            PortTaken: Somebody else listens on the port.
            AirflowDied: A process ended at its start; the message has its last lines.
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
        """One of the processes: "api-server", "scheduler", "dag-processor", "triggerer"."""
        return self._parts[name]

    def ended(self) -> list[Component]:
        """The processes that have been started and do not run any more."""
        return [part for part in self._parts.values() if not part.running]

    def stop(self, name: str) -> None:
        """Stop one process, gently first."""
        self._say(f"stopping Airflow's {name}")
        self.part(name).stop()

    def kill(self, name: str) -> None:
        """Kill one process and what it has started, as if the power had failed."""
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
        """Wait until Airflow is healthy, and these parts have been heard of since they were started."""
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
                what = f"Airflow is not healthy after {START_LIMIT_S:.0f} s, it lacks: {', '.join(missing)}"
                raise AirflowSilent(what, where=str(self.home.logs), way_out="see the log of what is lacking")
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
        """Stop everything: what runs tasks first, then what tasks talk to."""
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
        way_out="mend what the lines name; if the database is damaged, remove Airflow's folder",
    )


def _placed(port: int) -> int:
    """A free port of loopback: this one, or any."""
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
