"""PostgreSQL and Redis for a run alone, as the tests start them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lowtide.conf import Conf
from lowtide.conf.tables import IcebergConf, PostgresConf, RedisConf
from lowtide.errors import LowtideError
from lowtide_bench.outlets.stores import POSTGRES

CLONE = Path(__file__).parents[3]
PATHS = (CLONE, CLONE / "snapshots/tests/support")
"""Folders that the tests' servers import from."""


class ServersMissing(LowtideError):
    """The tests' servers are missing: run it from a clone of the repository."""


@contextmanager
def servers(conf: Conf, folder: Path, stores: Collection[str]) -> Iterator[Conf]:
    """Start what the stores need; give the conf that names it.

    Raises:
        ServersMissing: this is no clone, or one of the servers is not installed.
    """
    catalog = IcebergConf(type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    conf = dataclasses.replace(conf, iceberg={"default": catalog})
    sys.path += [str(path) for path in PATHS if str(path) not in sys.path]
    try:
        from tests.postgres_server import PostgresMissing, PostgresServer
        from tests.redis_server import RedisMissing, RedisServer
    except ImportError as error:
        way_out = "run lowtide bench in the environment of a clone (make env)"
        raise ServersMissing(f"the tests in {CLONE} cannot be used: {error}", way_out=way_out) from error
    try:
        with ExitStack() as stack:
            if POSTGRES in stores:
                # Each row's time of commit is asked for after a run: nobody has to look meanwhile.
                postgres = stack.enter_context(PostgresServer(options="-c track_commit_timestamp=on"))
                conf = dataclasses.replace(conf, postgres={"default": PostgresConf(**postgres.settings)})
            if "redis" in stores:
                redis = stack.enter_context(RedisServer())
                conf = dataclasses.replace(conf, redis={"default": RedisConf(url=f"redis://{redis.address}/0")})
            yield conf
    except (PostgresMissing, RedisMissing) as error:
        raise ServersMissing(str(error), way_out="`make postgres redis`, or leave it out of --stores") from error


def asked(conf: Conf, statement: str) -> list[tuple[Any, ...]]:
    """Return what PostgreSQL answers, in a connection of its own."""
    import psycopg

    from lowtide.sinks.postgres.access import settings_of

    with psycopg.connect(**settings_of(conf, "default"), autocommit=True) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


def postmaster_of(conf: Conf) -> int:
    """Return PostgreSQL's first process, which is not this process's child."""
    [(folder,)] = asked(conf, "show data_directory")
    return int((Path(folder) / "postmaster.pid").read_text().split()[0])
