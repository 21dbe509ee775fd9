"""Names of Airflow that only tests use, from 3.0 to 3.3; the provider's are in `lowtide_airflow.compat`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk._shared.secrets_masker import redact
    from airflow.serialization.serialized_objects import DagSerialization
else:
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:
        from airflow.models.dagbag import DagBag
    try:
        from airflow.sdk._shared.secrets_masker import redact
    except ImportError:
        from airflow.sdk.execution_time.secrets_masker import redact
    try:
        from airflow.serialization.serialized_objects import DagSerialization
    except ImportError:
        from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization

__all__ = ["DagBag", "DagSerialization", "redact"]
