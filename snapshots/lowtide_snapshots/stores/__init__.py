"""Where parts and manifests lie: one contract, with a folder behind it.

Another store is one file with a class, one test class, and one line in `_SCHEMES`.
"""

from __future__ import annotations

from collections.abc import Callable

from lowtide_snapshots.stores.contract import Entry, Store, StoreSetting
from lowtide_snapshots.stores.errors import StoreRefused

__all__ = ["Entry", "Store", "StoreSetting", "open_store"]


def open_store(setting: StoreSetting) -> Store:
    """The store that a setting names; nothing is asked of it yet, see `Store.check`.

    Raises:
        StoreRefused: the URL names no store, or one that is not installed, or the credentials cannot be read.
    """
    scheme = "file" if setting.url.startswith("/") else setting.url.partition(":")[0]
    if scheme not in _SCHEMES or "\0" in setting.url:
        raise _no_store(setting.url)
    return _SCHEMES[scheme](setting)


def _folder(setting: StoreSetting) -> Store:
    from lowtide_snapshots.stores.folder import FolderStore

    path = setting.url.removeprefix("file:")
    if path.startswith("///"):
        path = path[2:]
    if not path or path.startswith("//"):
        raise _no_store(setting.url)
    return FolderStore(path)


_SCHEMES: dict[str, Callable[[StoreSetting], Store]] = {"file": _folder}


def _no_store(url: str) -> StoreRefused:
    return StoreRefused(f"{url!r} names no store", way_out="give /path or file:path as the store's URL")
