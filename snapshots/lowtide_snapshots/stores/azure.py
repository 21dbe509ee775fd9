"""A store in Azure's Blob Storage, or on a server that speaks its protocol; needs azure-storage-blob."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError

from lowtide_snapshots.format.parts import Data, sha256
from lowtide_snapshots.stores.azure_access import connected
from lowtide_snapshots.stores.azure_answers import FAILURES, meaning, unavailable
from lowtide_snapshots.stores.azure_upload import SLICE_BYTES, Upload, sha256_of
from lowtide_snapshots.stores.contract import Entry, StoreSetting, check_store, checked_name, checked_prefix
from lowtide_snapshots.stores.errors import AlreadyThere, NotThere, StoreDamaged, StoreRefused
from lowtide_snapshots.stores.tries import Tries

DELETED_AT_ONCE = 8


class AzureStore:
    """Objects in a container, below a prefix.

    A process that was forked from one that has used the store may use it, too: it makes a client of its own, as one
    connection of two processes would mix their answers.

    Attributes:
        where: the URL, with the endpoint or the account.
    """

    def __init__(self, setting: StoreSetting) -> None:
        url = urlsplit(setting.url)
        if "@" in url.netloc:
            raise StoreRefused(
                "the store's URL must not contain credentials or an account",
                where=f"az://...@{url.netloc.rpartition('@')[2]}",
                way_out="give az://container/prefix; the account is a setting, and the credentials come from the "
                "environment or the machine's identity",
            )
        if not url.netloc or url.query or url.fragment:
            raise StoreRefused(
                f"{setting.url.partition('?')[0]!r} is not az://container/prefix",
                way_out="give az://container/prefix as the store's URL, and a SAS token in the environment",
            )
        if any(sign in (setting.endpoint or "") for sign in "?@"):
            raise StoreRefused(
                "the store's endpoint must not contain credentials",
                where=setting.url,
                way_out="give https://account.blob.core.windows.net, and the credentials in the environment",
            )
        at = setting.endpoint or setting.account
        self.where = f"{setting.url} at {at}" if at else setting.url
        self._setting = setting
        self._container = url.netloc
        prefix = url.path.strip("/")
        self._root = f"{prefix}/" if prefix else ""
        self._tries = Tries(setting.limit_s, self.where, FAILURES, meaning)
        # By process; those of the process that forked this one stay untouched, as their locks may be held for ever.
        self._clients: dict[int, Any] = {}
        self._client()

    def put(self, name: str, data: Data) -> None:
        """See `Store.put`; what is larger than a slice goes in several requests."""
        whole = memoryview(data).cast("B")
        if Upload(self._blob(name), f"{self.where}, {name}", whole).run(self._tries, name):
            return
        raise AlreadyThere(
            "an object of this name exists with other bytes, and objects never change",
            where=f"{self.where}, {name}",
            way_out="find out who wrote it; two jobs of one name must not share a store",
        )

    def get(self, name: str) -> bytes:
        """See `Store.get`; what is larger than a slice comes in several requests."""
        data, wanted = self._read(name)
        if wanted is None or sha256(data) == wanted:
            return data
        # It may have been the way here; but not twice.
        data, wanted = self._read(name)
        if wanted is None or sha256(data) == wanted:
            return data
        raise StoreDamaged(
            f"received {len(data)} bytes whose SHA-256 is not {wanted}, as stored",
            where=f"{self.where}, {name}",
            way_out="check the server's disks",
        )

    def names(self, prefix: str) -> list[Entry]:
        """See `Store.names`."""
        begin = self._root + checked_prefix(prefix)
        found: list[Entry] = []
        token: str | None = None
        while True:
            page, token = self._tries(prefix, partial(self._page, begin, token))
            for item in page:
                name = item.name[len(self._root) :]
                # Accounts with folders list them, too.
                if name and not name.endswith("/") and "hdi_isfolder" not in (item.metadata or {}):
                    found.append(Entry(name, item.size, item.last_modified))
            if not token:
                return sorted(found)

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`; Azure's request for many takes no SAS token everywhere, so that there is one for each."""
        with ThreadPoolExecutor(DELETED_AT_ONCE) as pool:
            for _ in pool.map(self._delete, [checked_name(name) for name in names]):
                pass

    def sweep(self, prefix: str) -> None:
        """See `Store.sweep`: Azure itself drops blocks that were never committed, a week after the last of them."""
        checked_prefix(prefix)

    def check(self) -> None:
        """See `Store.check`; sees that the server has conditional puts, too."""
        check_store(self)

    def close(self) -> None:
        """See `Store.close`."""
        self._client().close()

    def _key(self, name: str) -> str:
        return self._root + checked_name(name)

    def _client(self) -> Any:
        """Return this process' client of the container."""
        process = os.getpid()
        if process not in self._clients:
            try:
                self._clients[process] = connected(self._setting, self._container, self._tries.one_s)
            except (*FAILURES, ValueError) as error:
                raise StoreRefused(
                    f"cannot send requests: {error}",
                    where=self.where,
                    way_out="correct the store's endpoint or the credentials",
                ) from None
        return self._clients[process]

    def _blob(self, name: str) -> Any:
        return self._client().get_blob_client(self._key(name))

    def _page(self, begin: str, token: str | None) -> tuple[list[Any], str | None]:
        listed = self._client().list_blobs(name_starts_with=begin, include=["metadata"])
        pages = listed.by_page(continuation_token=token)
        found = list(next(pages, ()))
        return found, pages.continuation_token

    def _read(self, name: str) -> tuple[bytes, str | None]:
        """Return an object, and what it says of its SHA-256."""
        blob = self._blob(name)
        first = self._tries(name, partial(self._slice, blob, name))
        size, about = first.size, first.properties
        slices = [next(first.chunks(), b"")]
        for at in range(SLICE_BYTES, size, SLICE_BYTES):
            rest = {"offset": at, "length": min(SLICE_BYTES, size - at)}
            same = {"etag": about.etag, "match_condition": MatchConditions.IfNotModified}
            slices.append(self._tries(name, partial(self._slice, blob, name, **rest, **same)).readall())
        return b"".join(slices), sha256_of(about)

    def _slice(self, blob: Any, name: str, **asked: Any) -> Any:
        try:
            return blob.download_blob(**asked)
        except ResourceModifiedError:
            raise StoreDamaged(
                "the object changed while it was read, and objects never change",
                where=f"{self.where}, {name}",
                way_out="find out who wrote it; two jobs of one name must not share a store",
            ) from None
        except ValueError as error:
            raise unavailable(f"its answer is not Azure's: {error}", f"{self.where}, {name}") from None

    def _delete(self, name: str) -> None:
        blob = self._blob(name)
        with suppress(NotThere):
            self._tries(name, partial(blob.delete_blob, delete_snapshots="include"))


def prepare() -> None:
    """Import what a client needs, which a process and all that it forks do once."""
    import azure.identity  # noqa: F401
