"""Turns the conf's `[postgres.NAME]` into libpq's parameters."""

from __future__ import annotations

from typing import Any

from lowtide.conf import Conf
from lowtide.conf.named import named
from lowtide.conf.secret import read_secret
from lowtide.errors import ConfError
from lowtide.sinks.postgres.line import psycopg_of


def settings_of(conf: Conf, name: str) -> dict[str, Any]:
    """Return the parameters of a connection, secrets included.

    Raises:
        ConfError: the conf has no such table, a secret that it names is not there, or psycopg is not installed.
    """
    table = f"postgres.{name}"
    found = named(conf.postgres, "postgres", name, does="writes to PostgreSQL", keys="host, dbname and user")
    psycopg = psycopg_of()
    dsn = read_secret(table, "dsn", found.dsn_env, found.dsn_file)
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn) if dsn is not None else {}
    except psycopg.Error:
        # The error's own text may quote the password.
        raise ConfError("the dsn cannot be read", where=f"[{table}] of the conf", way_out="correct it") from None
    own = {
        "host": found.host,
        "port": found.port,
        "dbname": found.dbname,
        "user": found.user,
        "password": read_secret(table, "password", found.password_env, found.password_file),
        "sslmode": "verify-full" if found.ssl_ca_file is not None else None,
        "sslrootcert": found.ssl_ca_file,
        "sslcert": found.ssl_certificate_file,
        "sslkey": found.ssl_key_file,
    }
    return {**given, **{key: value for key, value in own.items() if value is not None}}
