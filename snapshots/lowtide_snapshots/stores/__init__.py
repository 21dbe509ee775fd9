"""Stores of parts and manifests: one contract, implemented by a folder, by S3, by Azure and by memory.

Another store is one file with a class, one test class, and one line in `_SCHEMES`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lowtide_snapshots.stores.contract import Entry, Store, StoreSetting
from lowtide_snapshots.stores.errors import StoreRefused

__all__ = ["Entry", "Store", "StoreSetting", "lend", "open_store", "prepare"]


def open_store(setting: StoreSetting) -> Store:
    """The store that a setting names; nothing is asked of it yet, see `Store.check`.

    Raises:
        StoreRefused: the URL names no store, or one that is not installed, or the credentials cannot be read.
    """
    scheme = "file" if setting.url.startswith("/") else setting.url.partition(":")[0]
    if scheme not in _SCHEMES or "\0" in setting.url:
        raise _no_store(setting.url)
    return _SCHEMES[scheme](setting)


def prepare(url: str) -> None:
    """Do now what opening such a store costs a process once, so that those which it forks find it done.

    It needs no credentials, and asks nobody for them. What is not installed is missed where the store is opened.
    """
    if url.startswith("s3:"):
        with suppress(ModuleNotFoundError):
            from lowtide_snapshots.stores.s3 import prepare as prepare_s3

            prepare_s3()
    if url.startswith("az:"):
        with suppress(ModuleNotFoundError):
            from lowtide_snapshots.stores.azure import prepare as prepare_azure

            prepare_azure()


def lend(opened: Callable[[StoreSetting], Store]) -> None:
    """Have this process, and those that it forks, open `memory:` so: only a job's own processes can.

    Args:
        opened: gives the store that is in the memory of the job's service.
    """
    _LENT["memory"] = opened


def _folder(setting: StoreSetting) -> Store:
    from lowtide_snapshots.stores.folder import FolderStore

    path = setting.url.removeprefix("file:")
    if path.startswith("///"):
        path = path[2:]
    if not path or path.startswith("//"):
        raise _no_store(setting.url)
    return FolderStore(path)


def _s3(setting: StoreSetting) -> Store:
    try:
        from lowtide_snapshots.stores.s3 import S3Store
    except ModuleNotFoundError as error:
        raise StoreRefused(
            f"a store in S3 needs {error.name}, which is not installed",
            where=setting.url,
            way_out="install it: pip install 'lowtide-snapshots[s3]'",
        ) from error
    return S3Store(setting)


def _azure(setting: StoreSetting) -> Store:
    try:
        from lowtide_snapshots.stores.azure import AzureStore
    except ModuleNotFoundError as error:
        raise StoreRefused(
            f"a store in Azure needs {error.name}, which is not installed",
            where=setting.url,
            way_out="install it: pip install 'lowtide-snapshots[azure]'",
        ) from error
    return AzureStore(setting)


def _memory(setting: StoreSetting) -> Store:
    if setting.url != "memory:":
        raise _no_store(setting.url)
    if "memory" not in _LENT:
        raise StoreRefused(
            "these snapshots are in the memory of the job's own program, and no other one can read them",
            where=setting.url,
            way_out="ask the running job; for snapshots that another program reads, keep them in a folder, S3 or Azure "
            "([snapshots].url)",
        )
    return _LENT["memory"](setting)


_LENT: dict[str, Callable[[StoreSetting], Store]] = {}
_SCHEMES: dict[str, Callable[[StoreSetting], Store]] = {
    "file": _folder,
    "s3": _s3,
    "az": _azure,
    "memory": _memory,
}


def _no_store(url: str) -> StoreRefused:
    return StoreRefused(
        f"{url!r} is not the URL of a store",
        way_out="give /path, file:path, s3://bucket/prefix, az://container/prefix or memory: as the store's URL",
    )
