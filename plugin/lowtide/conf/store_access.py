"""The store of snapshots that the `[snapshots]` table names."""

from __future__ import annotations

from pathlib import Path

from lowtide.conf.tables import SnapshotsConf
from lowtide.process.lent_store import MEMORY
from lowtide_snapshots.stores import StoreSetting


def store_setting(conf: SnapshotsConf) -> StoreSetting:
    """Return where the store is; a folder's path is made absolute here, so that workers elsewhere mean the same."""
    url = conf.url
    if "://" not in url and url != MEMORY:
        url = str(Path(url.removeprefix("file:")).absolute())
    return StoreSetting(
        url,
        endpoint=conf.endpoint,
        region=conf.region,
        profile=conf.profile,
        account=conf.account,
        memory_mb=conf.memory_mb,
        limit_s=conf.request_limit_s,
    )
