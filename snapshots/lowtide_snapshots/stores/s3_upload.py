"""Putting one object into S3 if it is not there: in one request, or in several where it is large."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress
from functools import partial
from typing import Any

from lowtide_snapshots.stores.errors import StoreDamaged
from lowtide_snapshots.stores.s3_answers import FAILURES, code_of, unavailable
from lowtide_snapshots.stores.tries import Tries

# The smallest that S3 takes for all but the last is 5 MiB.
SLICE_BYTES = 8 * 1024 * 1024
# How often an upload restarts after another process has ended it.
ROUNDS = 3
_FORGOTTEN = ("NoSuchUpload", "ConditionalRequestConflict")


class Upload:
    """One object on its way.

    Every request carries the SHA-256 of its bytes, which the server holds against what it got.

    Attributes:
        digest: the SHA-256 of the object, in lower hex.
    """

    def __init__(self, client: Any, bucket: str, key: str, data: memoryview) -> None:
        self._client = client
        self._at = {"Bucket": bucket, "Key": key}
        self._where = f"s3://{bucket}/{key}"
        self._data = data
        self._slices = [data[at : at + SLICE_BYTES] for at in range(0, len(data), SLICE_BYTES)] or [data]
        digests = [hashlib.sha256(piece).digest() for piece in self._slices]
        self._checksums = [_base64(digest) for digest in digests]
        self._composite = f"{_base64(hashlib.sha256(b''.join(digests)).digest())}-{len(digests)}"
        self._changed = 0
        self.digest = digests[0].hex() if len(digests) == 1 else hashlib.sha256(data).hexdigest()

    def run(self, tries: Tries, name: str) -> bool:
        """Put the object.

        Returns:
            Whether it is there now, whole; False if another one of this name is.

        Raises:
            SnapshotsError: as of `Store.put`.
        """
        if len(self._slices) == 1:
            return tries(name, self._once)
        return self._in_slices(tries, name)

    def _once(self) -> bool:
        try:
            self._client.put_object(
                **self._at,
                Body=bytes(self._data),
                IfNoneMatch="*",
                ChecksumSHA256=self._checksums[0],
                Metadata={"sha256": self.digest},
            )
        except FAILURES as error:
            return self._after(error)
        return self._is_there()

    def _in_slices(self, tries: Tries, name: str) -> bool:
        found = tries(name, self._found)
        for _ in range(ROUNDS):
            if found is not None:
                return found
            upload = tries(name, self._begin)
            try:
                parts = [tries(name, partial(self._slice, upload, at)) for at in range(len(self._slices))]
                found = tries(name, partial(self._complete, upload, parts))
            finally:
                # The remains of one that cannot be aborted are not an object; a rule of the bucket removes them.
                if not found:
                    self._abort(upload)
        raise unavailable(f"it forgot {ROUNDS} uploads before they were complete", self._where)

    def _begin(self) -> str:
        answer = self._client.create_multipart_upload(
            **self._at, ChecksumAlgorithm="SHA256", Metadata={"sha256": self.digest}
        )
        return str(answer["UploadId"])

    def _slice(self, upload: str, at: int) -> dict[str, Any]:
        answer = self._client.upload_part(
            **self._at,
            UploadId=upload,
            PartNumber=at + 1,
            Body=bytes(self._slices[at]),
            ChecksumSHA256=self._checksums[at],
        )
        return {"PartNumber": at + 1, "ETag": answer["ETag"], "ChecksumSHA256": self._checksums[at]}

    def _complete(self, upload: str, parts: list[dict[str, Any]]) -> bool | None:
        """The same as `run`; None if the upload has to restart."""
        try:
            self._client.complete_multipart_upload(
                **self._at, UploadId=upload, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
            )
        except FAILURES as error:
            if code_of(error)[1] in _FORGOTTEN:
                return self._found()
            return self._after(error)
        return self._is_there()

    def _abort(self, upload: str) -> None:
        with suppress(*FAILURES):
            self._client.abort_multipart_upload(**self._at, UploadId=upload)

    def _after(self, error: Exception) -> bool:
        """Return whether this object is stored after a put that failed, or seemed to; raise the error if nothing is."""
        status, code = code_of(error)
        if status == 412:
            return self._must_find("it reported an existing object, but there is none")
        if 300 <= status < 500 and code != "RequestTimeout":
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
            head = self._client.head_object(**self._at, ChecksumMode="ENABLED")
        except FAILURES as error:
            if code_of(error)[0] == 404:
                return None
            raise
        if head["ContentLength"] != len(self._data):
            return False
        if head.get("ChecksumSHA256") in (self._checksums[0], self._composite):
            return True
        return self._compared(head["Metadata"].get("sha256"))

    def _compared(self, said: str | None) -> bool:
        """The same for a server that keeps no checksums, or one put in other slices: what is there is read."""
        answer = self._client.get_object(**self._at)
        if hashlib.sha256(answer["Body"].read()).hexdigest() == self.digest:
            return True
        if said != self.digest:
            return False
        # It may have been the way here; but not twice.
        self._changed += 1
        if self._changed > 1:
            raise self._damaged()
        raise unavailable("its answer has other bytes than it announced", self._where)

    def _damaged(self) -> StoreDamaged:
        return StoreDamaged(
            f"it stored something else than the {len(self._data)} bytes that were put",
            where=self._where,
            way_out="check the server's disks; the object is useless and may be deleted",
        )


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
