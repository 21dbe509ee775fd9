"""URIs of a job's assets, `lowtide://JOB/WHAT`: checked, made, and turned into OpenLineage's datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

if TYPE_CHECKING:
    from airflow.sdk import Asset

SCHEME = "lowtide"
OF_A_JOB = ("commits", "recoveries", "deaths", "hours", "delivered_hours")
FILES = "files"
FORMS = ", ".join([*[f"{SCHEME}://JOB/{what}" for what in OF_A_JOB], f"{SCHEME}://JOB/{FILES}/SINK"])


def uri_of(job: str, what: str, sink: str | None = None) -> str:
    """Return the URI of a job's asset.

    Args:
        job: the job's name.
        what: one of `OF_A_JOB`, or "files".
        sink: of "files", the sink's name in the flow.
    """
    uri = f"{SCHEME}://{quote(job, safe='')}/{what}"
    return uri if sink is None else f"{uri}/{quote(sink, safe='')}"


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return a URI as it is (errors: ValueError if no asset of a job has such a one)."""
    what, *rest = uri.path.strip("/").split("/")
    fits = (what in OF_A_JOB and not rest) or (what == FILES and len(rest) == 1 and rest[0])
    if not uri.netloc or not fits or uri.query:
        raise ValueError(f'"{uri.geturl()}" is no asset of a Lowtide job: write one of {FORMS}')
    return uri


def create_asset(*, job: str, what: str, sink: str | None = None, extra: dict[str, Any] | None = None) -> Asset:
    """Return an asset; the arguments are those of `uri_of`."""
    from airflow.sdk import Asset

    return Asset(uri=uri_of(job, what, sink), extra=extra or {})


def convert_asset_to_openlineage(asset: Asset, _lineage_context: Any) -> Any:
    """Return OpenLineage's dataset: the namespace is the job's, the name what it has."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    uri = urlsplit(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{uri.netloc}", name=unquote(uri.path.strip("/")))
