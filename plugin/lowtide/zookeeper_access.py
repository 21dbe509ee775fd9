"""How one gets into ZooKeeper: the secret of the `[zookeeper]` table, read at the moment of use."""

from __future__ import annotations

from lowtide.conf import ZooKeeperConf
from lowtide.errors import ConfError
from lowtide.secret import read_secret

__all__ = ["zookeeper_auth"]


def zookeeper_auth(zookeeper: ZooKeeperConf) -> str | None:
    """Return `user:password`, or None where the conf names no secret.

    Raises:
        ConfError: the variable or the file is not there, both are named, or it is no `user:password`.
    """
    auth = read_secret("zookeeper", "auth", zookeeper.auth_env, zookeeper.auth_file)
    if auth is not None and ":" not in auth:
        raise ConfError(
            "the secret is not of the form user:password", where="[zookeeper] of the conf", way_out="write it so"
        )
    return auth
