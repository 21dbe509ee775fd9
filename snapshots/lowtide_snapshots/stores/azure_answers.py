"""Classifies Azure's refusals and failures: try again, never, full, or not there."""

from __future__ import annotations

from azure.core import exceptions as azure_errors

from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.stores.errors import NotThere, StoreFull, StoreRefused, StoreUnavailable

FAILURES = (azure_errors.AzureError,)
"""Errors of Azure's clients."""

# Beside every 5xx: what passes, said with a status of 4xx.
_PASSES = {"Md5Mismatch", "OperationTimedOut", "ServerBusy"}
_EXISTS = {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "UnauthorizedBlobOverwrite"}
_WAYS_OUT = {
    "AccountIsDisabled": "enable the storage account",
    "AuthenticationFailed": "correct the key, the SAS token or the identity; also set this machine's clock",
    "AuthorizationFailure": "correct the key or the SAS token, or allow this machine in the account's network rules",
    "AuthorizationPermissionMismatch": "give the identity the role Storage Blob Data Contributor on the container, "
    "or a SAS token the permissions rwdlc",
    "BlobArchived": "bring the object back from the archive tier",
    "BlobImmutableDueToPolicy": "give the container no immutability policy that lasts longer than snapshots are kept",
    "ContainerBeingDeleted": "wait until the container is deleted, then create it",
    "ContainerNotFound": "create the container, or correct the store's URL",
}


class NotTrusted(azure_errors.ServiceRequestError):
    """Correct the endpoint or its certificate: the connection is not trusted."""


def code_of(error: Exception) -> tuple[int, str]:
    """HTTP status and Azure's code of an answer; (0, "") where there was no answer."""
    if not isinstance(error, azure_errors.HttpResponseError):
        return 0, ""
    code = getattr(error, "error_code", None)
    headers = getattr(error.response, "headers", {})
    code = headers.get("x-ms-error-code") if code is None else code
    return int(error.status_code or 0), str(getattr(code, "value", code) or "")


def exists(status: int, code: str) -> bool:
    """Return whether a put was refused because there is an object of this name."""
    return code in _EXISTS or (status == 412 and not code)


def meaning(error: Exception, where: str) -> SnapshotsError:
    """The error of this package for one of Azure's; `StoreUnavailable` is worth another try, the others are not."""
    status, code = code_of(error)
    message = str(getattr(error, "message", "") or error).partition("\n")[0]
    if status >= 300:
        return _answered(status, code, message, where)
    if isinstance(error, NotTrusted):
        return _refused(f"the connection is not trusted: {message}", where, "correct the endpoint or its certificate")
    if type(error).__name__ == "AzureSigningError":  # Of a private module.
        return _refused("the key is not one of Azure's", where, "correct AZURE_STORAGE_KEY")
    if isinstance(error, azure_errors.ClientAuthenticationError):
        return _refused(
            f"no credentials: {message}",
            where,
            "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or give this machine "
            "an identity",
        )
    return unavailable(message, where)


def unavailable(why: str, where: str) -> StoreUnavailable:
    """The error of a server that does not answer, or not now."""
    return StoreUnavailable(
        f"the Azure server fails: {why}",
        where=where,
        way_out="check that it runs and can be reached, then try again",
    )


def _answered(status: int, code: str, message: str, where: str) -> SnapshotsError:
    said = f"{code or status}: {message or 'nothing more'}"
    if status == 507:
        return StoreFull(f"the Azure server is full: {said}", where=where, way_out="make room, or raise the quota")
    if status == 501 or code in ("UnsupportedHeader", "FeatureVersionMismatch"):
        return _refused(
            f"the Azure server lacks a feature that is needed, probably puts with If-None-Match: {said}",
            where,
            "use a server with conditional puts",
        )
    # Azurite has no code of its own for what was spoilt on the way.
    if code in _PASSES or status >= 500 or status in (408, 429) or (status == 400 and "contentMD5" in message):
        return unavailable(said, where)
    if status == 404 and code != "ContainerNotFound":
        return NotThere(
            "no such object", where=where, way_out="check whether it was deleted, and that this is the right container"
        )
    return _refused(
        f"the Azure server refuses: {said}",
        where,
        _WAYS_OUT.get(code, "correct the credentials, their permissions, the account or the store's URL"),
    )


def _refused(what: str, where: str, way_out: str) -> StoreRefused:
    return StoreRefused(what, where=where, way_out=way_out)
