"""Putting one object into Azure if it is not there: in one request, or in blocks where it is large."""

from __future__ import annotations

import hashlib
import uuid
from functools import partial
from typing import Any

from azure.core import MatchConditions

from lowtide_snapshots.stores.azure_answers import FAILURES, code_of, exists, meaning, unavailable
from lowtide_snapshots.stores.errors import StoreDamaged, StoreUnavailable
from lowtide_snapshots.stores.tries import Tries

SLICE_BYTES = 8 * 1024 * 1024
# How often an upload restarts after another put has dropped its blocks.
ROUNDS = 3


class Upload:
    """One object on its way.

    Every request carries the MD5 of its bytes, which the server holds against what it got. Blocks that are never
    committed are no object, and Azure drops them after a week.

    Attributes:
        digest: the SHA-256 of the object, in lower hex.
    """

    def __init__(self, client: Any, where: str, data: memoryview) -> None:
        self._client = client
        self._where = where
        self._data = data
        self._changed = 0
        self.digest = hashlib.sha256(data).hexdigest()

    def run(self, tries: Tries, name: str) -> bool:
        """Put the object.

        Returns:
            Whether it is there now, whole; False if another one of this name is.

        Raises:
            SnapshotsError: as of `Store.put`.
        """
        found = tries(name, self._once if len(self._data) <= SLICE_BYTES else self._found)
        return found if found is not None else self._in_blocks(tries, name)

    def _once(self) -> bool | None:
        """The same as `run`; None if blocks of another upload are in the way, which a commit of others drops."""
        try:
            self._client.upload_blob(
                bytes(self._data), overwrite=False, validate_content=True, metadata={"sha256": self.digest}
            )
        except FAILURES as error:
            if exists(*code_of(error)):
                return self._found()
            return self._after(error)
        return self._is_there()

    def _in_blocks(self, tries: Tries, name: str) -> bool:
        for _ in range(ROUNDS):
            # All blocks of a name have names of one length, those that a killed writer has left included.
            upload = uuid.uuid4().hex
            blocks = []
            for number, at in enumerate(range(0, len(self._data), SLICE_BYTES)):
                blocks.append(f"{upload}{number:06d}")
                tries(name, partial(self._block, blocks[-1], self._data[at : at + SLICE_BYTES]))
            found = tries(name, partial(self._commit, blocks))
            if found is not None:
                return found
        raise unavailable(f"it forgot {ROUNDS} uploads before they were complete", self._where)

    def _block(self, block: str, data: memoryview) -> None:
        self._client.stage_block(block, bytes(data), length=len(data), validate_content=True)

    def _commit(self, blocks: list[str]) -> bool | None:
        """The same as `run`; None if the upload has to restart."""
        try:
            self._client.commit_block_list(
                blocks,
                metadata={"sha256": self.digest},
                validate_content=True,
                match_condition=MatchConditions.IfMissing,
            )
        except FAILURES as error:
            if code_of(error)[1] == "InvalidBlockList":
                return self._found()
            return self._after(error)
        return self._is_there()

    def _after(self, error: Exception) -> bool:
        """Return whether this object is stored after a put that failed, or seemed to; raise the error if nothing is."""
        status, code = code_of(error)
        if exists(status, code):
            return self._must_find("it reported an existing object, but there is none")
        if status >= 300 and not isinstance(meaning(error, self._where), StoreUnavailable):
            raise error
        try:
            found = self._found()
        except FAILURES:
            raise error from None
        if found is None:
            raise error
        return found

    def _is_there(self) -> bool:
        """Read back what the server says that it has stored."""
        if self._must_find("it confirmed the object, but there is none"):
            return True
        raise self._damaged()

    def _must_find(self, otherwise: str) -> bool:
        found = self._found()
        if found is None:
            raise unavailable(otherwise, self._where)
        return found

    def _found(self) -> bool | None:
        """Return whether the stored object is this one; None if there is none."""
        try:
            about = self._client.get_blob_properties()
        except FAILURES as error:
            status, code = code_of(error)
            if status == 404 and code != "ContainerNotFound":
                return None
            raise
        said = sha256_of(about)
        if about.size != len(self._data) or said not in (None, self.digest):
            return False
        # The server's own sum of what it got in one request; of blocks it has none, but held each against its sum.
        stored = about.content_settings.content_md5
        if stored is not None:
            return bytes(stored) == hashlib.md5(self._data, usedforsecurity=False).digest()
        return said is not None or self._compared()

    def _compared(self) -> bool:
        """The same for what somebody else has put in blocks: what is there is read."""
        data = self._client.download_blob().readall()
        return hashlib.sha256(data).hexdigest() == self.digest

    def _damaged(self) -> StoreDamaged:
        return StoreDamaged(
            f"it stored something else than the {len(self._data)} bytes that were put",
            where=self._where,
            way_out="check the server's disks; the object is useless and may be deleted",
        )


def sha256_of(about: Any) -> str | None:
    """Return what an object's metadata says of its SHA-256; servers spell the keys as they like."""
    for key, value in (about.metadata or {}).items():
        if key.lower() == "sha256":
            return str(value)
    return None
