"""The conf's `[redis.NAME]`, `[elasticsearch.NAME]` and `[http.NAME]`, as clients take them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from lowtide.conf import Conf, HttpConf
from lowtide.conf.named import named
from lowtide.conf.secret import read_secret
from lowtide.errors import ConfError

DOES = "puts records into a store"


def redis_settings(conf: Conf, name: str) -> dict[str, Any]:
    """Return the keyword arguments of a client of Redis, secrets included.

    Raises:
        ConfError: the conf has no such table, or a secret that it names is not there, or TLS is half set up.
    """
    found = named(conf.redis, "redis", name, does=DOES, keys="its url")
    if found.ssl_ca_file is not None and not found.url.startswith("rediss:"):
        what, where = f"[redis.{name}] has ssl_ca_file, and an url without TLS", f"[redis.{name}] of the conf"
        raise ConfError(what, where=where, way_out="write rediss://... or leave out ssl_ca_file")
    given = {
        "url": found.url,
        "username": found.username,
        "password": read_secret(f"redis.{name}", "password", found.password_env, found.password_file),
        "ssl_ca_certs": found.ssl_ca_file,
    }
    return {key: value for key, value in given.items() if value is not None}


def web_settings(tables: Mapping[str, HttpConf], table: str, name: str, scheme: str) -> dict[str, Any]:
    """Return where a server is and how to log in, secrets included.

    Args:
        tables: All of them by name.
        table: What they are called: "http", "elasticsearch".
        name: Which one.
        scheme: What its header of the login calls a token.

    Raises:
        ConfError: the conf has no such table, a secret that it names is not there, or it has two logins.
    """
    found, where = named(tables, table, name, does=DOES, keys="its url"), f"{table}.{name}"
    password = read_secret(where, "password", found.password_env, found.password_file)
    token = read_secret(where, "token", found.token_env, found.token_file)
    if token is not None and found.username is not None:
        what = f"[{where}] has both a username and a token"
        raise ConfError(what, where=f"[{where}] of the conf", way_out="leave one out")
    login = f"{scheme} {token}" if token is not None else None
    if found.username is not None:
        login = "Basic " + base64.b64encode(f"{found.username}:{password or ''}".encode()).decode()
    return {
        "url": found.url.rstrip("/"),
        "table": where,
        "login": login,
        "ca_file": found.ssl_ca_file,
        "certificate_file": found.ssl_certificate_file,
        "key_file": found.ssl_key_file,
    }
