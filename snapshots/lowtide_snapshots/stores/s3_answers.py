"""Classifies an S3 server's refusals and failures: try again, never, full, or not there."""

from __future__ import annotations

from typing import Any

from botocore import exceptions as botocore_errors

from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.stores.errors import NotThere, StoreFull, StoreRefused, StoreUnavailable

FAILURES = (botocore_errors.BotoCoreError, botocore_errors.ClientError)
"""Errors of boto3."""

# Beside every 5xx: what passes, some of it said with a status of 4xx.
_PASSES = {
    "BadDigest",
    "ConditionalRequestConflict",
    "IncompleteBody",
    "OperationAborted",
    "RequestTimeout",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "XAmzContentChecksumMismatch",
    "XAmzContentSHA256Mismatch",
}
_FULL = {"InsufficientStorage", "QuotaExceeded", "QuotaExceededException", "XMinioStorageFull"}
_AWAY = (
    botocore_errors.HTTPClientError,
    botocore_errors.ConnectionError,
    botocore_errors.IncompleteReadError,
    botocore_errors.ResponseStreamingError,
)
_WAYS_OUT = {
    "AccessDenied": "allow the credentials to get, put, delete and list below the store's prefix",
    "ExpiredToken": "the credentials have expired: get new ones",
    "ExpiredTokenException": "the credentials have expired: get new ones",
    "NoSuchBucket": "create the bucket, or correct the store's URL",
    "RequestTimeTooSkewed": "set this machine's clock",
}


def code_of(error: Exception) -> tuple[int, str]:
    """HTTP status and S3's code of an answer; (0, "") where there was no answer."""
    if not isinstance(error, botocore_errors.ClientError):
        return 0, ""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status), str(error.response.get("Error", {}).get("Code", ""))


def meaning(error: Exception, where: str) -> SnapshotsError:
    """The error of this package for one of boto3's; `StoreUnavailable` is worth another try, the others are not."""
    if isinstance(error, botocore_errors.ClientError):
        return _answered(error, where)
    if isinstance(error, botocore_errors.SSLError):
        return _refused(f"the connection is not trusted: {error}", where, "correct the endpoint or its certificate")
    if isinstance(error, _AWAY):
        return unavailable(str(error), where)
    if isinstance(error, botocore_errors.NoCredentialsError):
        return _refused("no credentials", where, "set them in the environment, a profile or a role")
    return _refused(f"cannot send the request: {error}", where, "correct the store's setting or the credentials")


def unavailable(why: str, where: str) -> StoreUnavailable:
    """The error of a server that does not answer, or not now."""
    return StoreUnavailable(
        f"the S3 server fails: {why}",
        where=where,
        way_out="check that it runs and can be reached, then try again",
    )


def _answered(error: Any, where: str) -> SnapshotsError:
    status, code = code_of(error)
    said = f"{code or status}: {error.response.get('Error', {}).get('Message', '') or 'nothing more'}"
    if code in _FULL or status == 507:
        return StoreFull(f"the S3 server is full: {said}", where=where, way_out="make room, or raise the quota")
    if code == "NotImplemented" or status == 501:
        return _refused(
            f"the S3 server lacks a feature that is needed, probably puts with If-None-Match: {said}",
            where,
            "use a server with conditional puts",
        )
    if code in _PASSES or status >= 500 or status == 429:
        return unavailable(said, where)
    if code in ("404", "NoSuchKey"):
        return NotThere(
            "no such object", where=where, way_out="check whether it was deleted, and that this is the right bucket"
        )
    return _refused(
        f"the S3 server refuses: {said}",
        where,
        _WAYS_OUT.get(code, "correct the credentials, their permissions, the region or the store's URL"),
    )


def _refused(what: str, where: str, way_out: str) -> StoreRefused:
    return StoreRefused(what, where=where, way_out=way_out)
