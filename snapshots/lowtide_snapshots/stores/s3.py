"""A store in S3, or on a server that speaks its protocol and has conditional puts; needs boto3."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.loaders import create_loader

from lowtide_snapshots.format.parts import Data, sha256
from lowtide_snapshots.stores.contract import (
    UNFINISHED_LIMIT_S,
    Entry,
    StoreSetting,
    check_store,
    checked_name,
    checked_prefix,
)
from lowtide_snapshots.stores.errors import AlreadyThere, StoreDamaged, StoreRefused
from lowtide_snapshots.stores.s3_answers import FAILURES, meaning, unavailable
from lowtide_snapshots.stores.s3_upload import Upload
from lowtide_snapshots.stores.tries import Tries

# What S3 deletes in one request.
NAMES_AT_ONCE = 1_000
CHUNK_BYTES = 1 << 20
CONNECTIONS = 32
# Said where nobody says another: servers that are not Amazon's do not care.
REGION = "us-east-1"

# What botocore reads of the service's description, a tenth of a second each time, is the same for all stores of a
# process, and of those that it forks. Credentials are not: every store reads them again.
_DESCRIPTION = create_loader()


class S3Store:
    """Objects in a bucket, below a prefix.

    Attributes:
        where: the URL, with the endpoint if it is not Amazon's.
    """

    def __init__(self, setting: StoreSetting) -> None:
        url = urlsplit(setting.url)
        if "@" in url.netloc:
            raise StoreRefused(
                "the store's URL must not contain credentials",
                where=f"s3://...@{url.netloc.rpartition('@')[2]}",
                way_out="give s3://bucket/prefix, and put the credentials into the environment, a profile or a role",
            )
        if not url.netloc or url.query or url.fragment:
            raise StoreRefused(f"{setting.url!r} has no bucket", way_out="give s3://bucket/prefix as the store's URL")
        self.where = f"{setting.url} at {setting.endpoint}" if setting.endpoint else setting.url
        self._bucket = url.netloc
        prefix = url.path.strip("/")
        self._root = f"{prefix}/" if prefix else ""
        self._tries = Tries(setting.limit_s, self.where, FAILURES, meaning)
        try:
            self._client = self._connected(setting)
        except (*FAILURES, ValueError) as error:
            raise meaning(error, self.where) from error

    def put(self, name: str, data: Data) -> None:
        """See `Store.put`; what is larger than a slice goes in several requests."""
        whole = memoryview(data).cast("B")
        upload = Upload(self._client, self._bucket, self._key(name), whole)
        if upload.run(self._tries, name):
            return
        raise AlreadyThere(
            "an object of this name exists with other bytes, and objects never change",
            where=f"{self.where}, {name}",
            way_out="find out who wrote it; two jobs of one name must not share a store",
        )

    def get(self, name: str) -> bytes:
        """See `Store.get`."""
        key, changed = self._key(name), 0

        def ask() -> bytes:
            nonlocal changed
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            data = self._read(answer)
            wanted = answer["Metadata"].get("sha256")
            if wanted is None or sha256(data) == wanted:
                return data
            changed += 1
            what = f"received {len(data)} bytes whose SHA-256 is not {wanted}, as stored"
            # It may have been the way here; but not twice.
            if changed > 1:
                raise StoreDamaged(what, where=f"{self.where}, {name}", way_out="check the server's disks")
            raise unavailable(what, f"{self.where}, {name}")

        return self._tries(name, ask)

    def names(self, prefix: str) -> list[Entry]:
        """See `Store.names`."""
        asked = {"Bucket": self._bucket, "Prefix": self._root + checked_prefix(prefix)}
        found: list[Entry] = []
        while True:
            page = self._tries(prefix, lambda: self._client.list_objects_v2(**asked))
            for item in page.get("Contents", []):
                name = item["Key"][len(self._root) :]
                if name and not name.endswith("/"):
                    found.append(Entry(name, item["Size"], item["LastModified"]))
            if not page.get("IsTruncated"):
                return sorted(found)
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, names: Iterable[str]) -> None:
        """See `Store.delete`."""
        keys = [self._key(name) for name in names]
        for at in range(0, len(keys), NAMES_AT_ONCE):
            some = keys[at : at + NAMES_AT_ONCE]
            self._tries(some[0][len(self._root) :], partial(self._delete, some))

    def sweep(self, prefix: str) -> None:
        """See `Store.sweep`: ends uploads in several requests that were never completed."""
        asked = {"Bucket": self._bucket, "Prefix": self._root + checked_prefix(prefix)}
        page = self._tries(prefix, lambda: self._client.list_multipart_uploads(**asked))
        for upload in page.get("Uploads", []):
            if (datetime.now(UTC) - upload["Initiated"]).total_seconds() > UNFINISHED_LIMIT_S:
                at = {"Bucket": self._bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                self._tries(prefix, partial(self._client.abort_multipart_upload, **at))

    def check(self) -> None:
        """See `Store.check`; sees that the server has conditional puts, too."""
        check_store(self)

    def close(self) -> None:
        """See `Store.close`."""
        self._client.close()

    def _key(self, name: str) -> str:
        return self._root + checked_name(name)

    def _connected(self, setting: StoreSetting) -> Any:
        session = _session(profile_name=setting.profile, region_name=setting.region)
        config = Config(
            # Trying again is this class's own business: it knows what may have been done.
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=self._tries.one_s,
            read_timeout=self._tries.one_s,
            max_pool_connections=CONNECTIONS,
            # Checksums are this class's own business, too.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if setting.endpoint else "auto"},
        )
        return session.client(
            "s3", region_name=session.region_name or REGION, endpoint_url=setting.endpoint, config=config
        )

    def _read(self, answer: dict[str, Any]) -> bytes:
        """The body, whose length botocore checks; one that comes in drops is given up."""
        deadline = time.monotonic() + 2 * self._tries.one_s
        chunks = []
        for chunk in answer["Body"].iter_chunks(CHUNK_BYTES):
            chunks.append(chunk)
            if time.monotonic() > deadline:
                answer["Body"].close()
                raise unavailable("an object arrives too slowly", self.where)
        return b"".join(chunks)

    def _delete(self, keys: list[str]) -> None:
        asked = {"Quiet": True, "Objects": [{"Key": key} for key in keys]}
        answer = self._client.delete_objects(Bucket=self._bucket, Delete=asked)
        for error in answer.get("Errors", []):
            if error.get("Code") != "NoSuchKey":
                # The answer about one key, in the form of an answer to a whole request.
                status = 500 if error.get("Code") == "InternalError" else 400
                said = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}
                raise meaning(ClientError(said, "DeleteObjects"), f"{self.where}, {error.get('Key')}")


def prepare() -> None:
    """Read what the service's description says, which a process and all that it forks need once."""
    nobody = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "nobody")
    _session().client("s3", region_name=REGION, **nobody).close()


def _session(**how: str | None) -> Any:
    core = botocore.session.Session()
    core.register_component("data_loader", _DESCRIPTION)
    return boto3.session.Session(botocore_session=core, **how)
