"""Lineage of a task for OpenLineage, whose provider reads no assets off a task: they become datasets here."""

from __future__ import annotations

from typing import Any


class AssetLineage:
    """Mixin of operators whose inlets and outlets are OpenLineage's inputs and outputs."""

    inlets: list[Any]
    outlets: list[Any]

    def get_openlineage_facets_on_start(self) -> Any:
        """Return the datasets; OpenLineage's provider asks when the task begins, and again when it ends."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        return OperatorLineage(inputs=_datasets(self.inlets), outputs=_datasets(self.outlets))


def _datasets(annotations: list[Any]) -> list[Any]:
    """The datasets of assets, and of the tables and files that OpenLineage's provider knows by itself."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager
    from airflow.providers.openlineage.utils.utils import translate_airflow_asset
    from airflow.sdk import Asset

    found = [
        translate_airflow_asset(each, None) if isinstance(each, Asset) else ExtractorManager.convert_to_ol_dataset(each)
        for each in annotations
    ]
    return [each for each in found if each is not None]
