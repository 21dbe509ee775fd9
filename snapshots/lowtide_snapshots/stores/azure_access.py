"""Access to an Azure container: its URL, and the credentials that the environment names."""

from __future__ import annotations

import logging
import os
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.storage.blob import ContainerClient

from lowtide_snapshots.stores.azure_transport import LOGGER, Transport
from lowtide_snapshots.stores.azure_upload import SLICE_BYTES
from lowtide_snapshots.stores.contract import StoreSetting
from lowtide_snapshots.stores.errors import StoreRefused

PUBLIC = "core.windows.net"
CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"


def connected(setting: StoreSetting, container: str, one_s: float) -> Any:
    """Return a client of a container; it asks nobody for anything yet.

    The credentials are the first of these in the environment: `AZURE_STORAGE_CONNECTION_STRING`, `AZURE_STORAGE_KEY`,
    `AZURE_STORAGE_SAS_TOKEN`; without any of them the machine's or the user's identity, as azure-identity finds it.

    Args:
        setting: the store.
        container: its name.
        one_s: how long one try may wait for the server.

    Raises:
        StoreRefused: no account is named, or two are.
        ValueError: the endpoint is not a URL, or an identity would go over plain HTTP.
    """
    said = _connection_string(setting)
    account = setting.account or said.get("AccountName") or os.environ.get("AZURE_STORAGE_ACCOUNT")
    return ContainerClient(
        _endpoint(setting, account, said),
        container,
        credential=_credential(setting, account, said),
        transport=Transport(one_s),
        logger=LOGGER,
        # Trying again is the store's own business: it knows what may have been done.
        retry_total=0,
        max_single_put_size=SLICE_BYTES,
        max_single_get_size=SLICE_BYTES,
        max_chunk_get_size=SLICE_BYTES,
    )


def _connection_string(setting: StoreSetting) -> dict[str, str]:
    text = os.environ.get(CONNECTION_STRING, "")
    said = dict(item.split("=", 1) for item in text.split(";") if "=" in item)
    if setting.account and said.get("AccountName", setting.account) != setting.account:
        raise StoreRefused(
            f"the setting names the account {setting.account}, {CONNECTION_STRING} names {said['AccountName']}",
            where=setting.url,
            way_out="correct one of them",
        )
    return said


def _endpoint(setting: StoreSetting, account: str | None, said: dict[str, str]) -> str:
    endpoint = setting.endpoint or said.get("BlobEndpoint")
    if endpoint:
        return endpoint
    protocol, suffix = said.get("DefaultEndpointsProtocol", "https"), said.get("EndpointSuffix", PUBLIC)
    return f"{protocol}://{_named(setting, account)}.blob.{suffix}"


def _named(setting: StoreSetting, account: str | None) -> str:
    if account is None:
        raise StoreRefused(
            "no storage account is named",
            where=setting.url,
            way_out="give the account in the setting, or as AZURE_STORAGE_ACCOUNT in the environment",
        )
    return account


def _credential(setting: StoreSetting, account: str | None, said: dict[str, str]) -> Any:
    key = said.get("AccountKey") if said else os.environ.get("AZURE_STORAGE_KEY")
    token = said.get("SharedAccessSignature") if said else os.environ.get("AZURE_STORAGE_SAS_TOKEN")
    if key:
        return AzureNamedKeyCredential(_named(setting, account), key)
    if token:
        return AzureSasCredential(token)
    return _identity()


def _identity() -> Any:
    from azure.identity import DefaultAzureCredential

    # It reports each way that it tries at the level INFO, at which Lowtide's processes log.
    logger = logging.getLogger("azure.identity")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
    return DefaultAzureCredential()
