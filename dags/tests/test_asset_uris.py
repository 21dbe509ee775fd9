"""URIs of assets, without Airflow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from lowtide_airflow.asset_uris import convert_asset_to_openlineage, sanitize_uri, uri_of


@pytest.mark.parametrize("job", ["orders", "a b", "lake/orders", "größe", "50%"])
def test_what_is_made_is_taken_as_it_is(job: str) -> None:
    for uri in (uri_of(job, "hours"), uri_of(job, "files", "to lake")):
        assert sanitize_uri(urlsplit(uri)).geturl() == uri


@pytest.mark.parametrize(
    "uri",
    [
        "lowtide://orders",
        "lowtide://orders/",
        "lowtide:///hours",
        "lowtide://orders/minutes",
        "lowtide://orders/hours/lake",
        "lowtide://orders/files",
        "lowtide://orders/files/lake/2026",
        "lowtide://orders/hours?at=13",
    ],
)
def test_anything_else_is_refused_with_what_there_is(uri: str) -> None:
    with pytest.raises(ValueError, match="lowtide://JOB/files/SINK"):
        sanitize_uri(urlsplit(uri))


def test_a_dataset_has_the_jobs_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenLineage's client, which takes these two, is not installed here."""
    found: list[dict[str, str]] = []
    facet: Any = SimpleNamespace(Dataset=lambda **said: found.append(said))
    monkeypatch.setitem(__import__("sys").modules, "airflow.providers.common.compat.openlineage.facet", facet)
    asset: Any = SimpleNamespace(uri=uri_of("orders", "files", "to lake"))
    convert_asset_to_openlineage(asset, None)
    assert found == [{"namespace": "lowtide://orders", "name": "files/to lake"}]
