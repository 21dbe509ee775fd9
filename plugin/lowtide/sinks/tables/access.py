"""Turns the conf into what the libraries of tables need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowtide.conf import Conf
from lowtide.conf.named import named
from lowtide.conf.secret import read_secret


def storage_options(location: str, settings: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what deltalake needs to reach a table in S3, with the credentials that boto3 finds; None for a folder."""
    if not location.startswith("s3:"):
        return None
    import boto3

    session = boto3.Session(profile_name=settings.get("profile"))
    found = session.get_credentials()
    options = {"AWS_REGION": settings.get("region") or session.region_name or "us-east-1", "conditional_put": "etag"}
    if found is not None:
        keys = found.get_frozen_credentials()
        options |= {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
        if keys.token:
            options["AWS_SESSION_TOKEN"] = keys.token
    if endpoint := settings.get("endpoint"):
        options |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http:")).lower()}
    return options


def catalog_settings(conf: Conf, name: str) -> dict[str, str]:
    """Return a catalog's properties, as pyiceberg names them, secrets included.

    Raises:
        ConfError: the conf has no such table, or a secret that it names is not there.
    """
    table = f"iceberg.{name}"
    found = named(conf.iceberg, "iceberg", name, does="writes an Iceberg table", keys="type, uri and warehouse")
    own = {
        "name": name,  # SQL catalogs keep tables under it.
        "type": found.type,
        "uri": read_secret(table, "uri", found.uri_env, found.uri_file) or found.uri,
        "warehouse": found.warehouse,
        "credential": read_secret(table, "credential", found.credential_env, found.credential_file),
        "token": read_secret(table, "token", found.token_env, found.token_file),
        "s3.endpoint": found.endpoint,
        "s3.region": found.region,
    }
    return {key: value for key, value in own.items() if value is not None}
