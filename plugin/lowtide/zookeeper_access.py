"""How one gets into ZooKeeper: the secret of the `[zookeeper]` table, read at the moment of use."""

from __future__ import annotations

import os
from pathlib import Path

from lowtide.conf import ZooKeeperConf
from lowtide.errors import ConfError

__all__ = ["zookeeper_auth"]


def zookeeper_auth(zookeeper: ZooKeeperConf) -> str | None:
    """Return `user:password`, or None where the conf names no secret.

    Raises:
        ConfError: the variable or the file is not there, both are named, or it is no `user:password`.
    """
    variable, file = zookeeper.auth_env, zookeeper.auth_file
    if variable is None and file is None:
        return None
    if variable is not None and file is not None:
        raise _wrong("both auth_env and auth_file are set", "leave one out")
    if variable is not None:
        auth = os.environ.get(variable, "")
        if not auth:
            raise _wrong(f"auth_env names the environment variable {variable}, which is not set", f"set {variable}")
    else:
        assert file is not None
        try:
            auth = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise _wrong(f"auth_file names {file}, which cannot be read", "correct the path") from error
    if ":" not in auth:
        raise _wrong("the secret is not of the form user:password", "write it so")
    return auth


def _wrong(what: str, way_out: str) -> ConfError:
    return ConfError(what, where="[zookeeper] of the conf", way_out=way_out)
