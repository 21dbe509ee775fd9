"""Folder of an embedded Airflow: its configuration, users, database and logs, and the lock on it."""

from __future__ import annotations

import base64
import configparser
import fcntl
import io
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from embedded_airflow.errors import HomeInUse

HOST = "127.0.0.1"
ROLES = {"admin": "admin", "op": "op", "viewer": "viewer"}
"""The users with their roles: all rights; running DAGs and editing connections; reading."""
PASSWORD_BYTES = 18
SECRET_BYTES = 32
FOREIGN = ("AIRFLOW_", "_AIRFLOW_")
"""Prefixes of environment variables that belong to another Airflow."""
TOKEN_S = 24 * 3600
"""Time that a user stays signed in."""
PRELOADED = (
    "boto3",
    "lowtide_airflow.job_dag",
    "lowtide_airflow.operators",
    "lowtide_airflow.triggers",
    "pyarrow.parquet",
)
LOCAL = """\
import sys

__all__ = []
if {{"scheduler", "dag-processor", "triggerer"}} & set(sys.argv):  # they fork what runs DAG files, tasks, triggers
    pass{imports}
"""
LOCK_LIMIT_S = 30
"""Time that a process waits for another one to finish a write to the database."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one Airflow.

    Attributes:
        dags: the folder of the DAG files.
        workers: how many tasks run at once.
        plugins: the folder of Airflow plugins; None for none.
        paused: whether new DAGs are paused.
        heartbeat_limit_s: a worker, scheduler or triggerer without a heartbeat for this long counts as dead.
        idle_sleep_s: how long the scheduler sleeps when it has nothing to do.
        refresh_s: how often Airflow searches for new DAG files, and reads known ones again.
        preload: modules to import before tasks, triggers and DAG files are forked, so that each has them.
    """

    dags: Path
    workers: int = 2
    plugins: Path | None = None
    paused: bool = True
    heartbeat_limit_s: int = 20
    idle_sleep_s: float = 0.5
    refresh_s: int = 60
    preload: tuple[str, ...] = PRELOADED


class Home:
    """One folder with everything of an embedded Airflow; the next one in it reuses its contents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @property
    def configuration(self) -> Path:
        """Airflow's configuration file; it has secrets, so only its owner can read it."""
        return self.folder / "airflow.cfg"

    @property
    def database(self) -> Path:
        """Airflow's database, an sqlite file."""
        return self.folder / "airflow.db"

    @property
    def passwords_file(self) -> Path:
        """The users' passwords as JSON; only its owner can read it."""
        return self.folder / "passwords.json"

    @property
    def logs(self) -> Path:
        """One file for each process, and the tasks' logs below `tasks`."""
        return self.folder / "logs"

    def passwords(self) -> dict[str, str]:
        """Return the password of each user."""
        found: dict[str, str] = json.loads(self.passwords_file.read_text())
        return found

    def environment(self, extra: dict[str, str]) -> dict[str, str]:
        """Return the environment of Airflow's processes: ours without another Airflow's variables, and `extra`."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return ours | {"AIRFLOW_HOME": str(self.folder), "PYTHONUNBUFFERED": "1"} | extra

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; the kernel releases it when we die.

        Raises:
            HomeInUse: another process has the lock, or the folder cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            what = f"Airflow's folder cannot be used: {error.strerror}"
            raise HomeInUse(what, where=str(self.folder), way_out="use another folder") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 20, 0).decode().strip() or "unknown"
                what = f"process {holder} runs an Airflow in this folder"
                raise HomeInUse(what, where=str(self.folder), way_out="end it, or use another folder") from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def prepare(self, settings: Settings, port: int) -> None:
        """Write the configuration and, once, the users' passwords and Airflow's own secrets."""
        (self.folder / ".gitignore").write_text("*\n")
        if not self.passwords_file.exists():
            made = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in ROLES}
            write_private(self.passwords_file, json.dumps(made, indent=1) + "\n")
        local = self.folder / "config/airflow_local_settings.py"
        local.parent.mkdir(exist_ok=True)
        local.write_text(LOCAL.format(imports="".join(f"\n    import {module}" for module in settings.preload)))
        parser = configparser.ConfigParser(interpolation=None)
        for section, options in self._options(settings, port).items():
            parser[section] = {name: str(value).replace("%", "%%") for name, value in options.items()}
        for section, name in (("core", "fernet_key"), ("api", "secret_key"), ("api_auth", "jwt_secret")):
            parser[section][name] = self._secret(section, name)
        text = io.StringIO()
        parser.write(text)
        write_private(self.configuration, text.getvalue())

    def tune(self) -> None:
        """Have the database's readers and its writer not wait for each other, nor each write for the disk."""
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")

    def _secret(self, section: str, name: str) -> str:
        """A secret of this home: the one it has, if any, as data encrypted with it needs it."""
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(self.configuration)
        kept = parser.get(section, name, fallback="")
        return kept or base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).decode()

    def _options(self, settings: Settings, port: int) -> dict[str, dict[str, object]]:
        """The settings that differ from Airflow's defaults, by section."""
        address = f"http://{HOST}:{port}"
        return {
            "core": {
                "dags_folder": settings.dags.absolute(),
                "plugins_folder": (settings.plugins or self.folder / "plugins").absolute(),
                "load_examples": False,
                "executor": "LocalExecutor",
                "parallelism": settings.workers,
                "dags_are_paused_at_creation": settings.paused,
                # No name server is needed for the machine's name.
                "hostname_callable": "socket.gethostname",
                "execution_api_server_url": f"{address}/execution/",
                "simple_auth_manager_users": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
                "simple_auth_manager_passwords_file": self.passwords_file,
                "min_serialized_dag_update_interval": 1,
            },
            "database": {"sql_alchemy_conn": f"sqlite:///{self.database}?timeout={LOCK_LIMIT_S}"},
            "api_auth": {"jwt_expiration_time": TOKEN_S},
            "api": {"host": HOST, "port": port, "base_url": address, "workers": 1},
            "scheduler": {
                "scheduler_idle_sleep_time": settings.idle_sleep_s,
                "task_instance_heartbeat_timeout": settings.heartbeat_limit_s,
                "task_instance_heartbeat_timeout_detection_interval": 2,
                # How soon the next scheduler adopts the tasks of a dead one, by default after five minutes.
                "scheduler_heartbeat_sec": 2,
                "scheduler_health_check_threshold": settings.heartbeat_limit_s,
                "orphaned_tasks_check_interval": 5,
                "trigger_timeout_check_interval": 5,
                "enable_health_check": False,
            },
            "triggerer": {"job_heartbeat_sec": 2, "triggerer_health_check_threshold": settings.heartbeat_limit_s},
            "dag_processor": {
                "parsing_processes": 1,
                "refresh_interval": settings.refresh_s,
                "min_file_process_interval": settings.refresh_s,
            },
            "logging": {
                "base_log_folder": self.logs / "tasks",
                "dag_processor_child_process_log_directory": self.logs / "dag_processor",
                "colored_console_log": False,
            },
            "usage_data_collection": {"enabled": False},
        }


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read, atomically."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    draft.replace(file)
