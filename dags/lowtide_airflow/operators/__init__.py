"""Operators for jobs. Each finds out by itself what an earlier try of its task has done."""

from __future__ import annotations

from lowtide_airflow.operators.job import PreviewFlowOperator, RunFlowOperator, StopFlowOperator
from lowtide_airflow.operators.recover import RecoverFlowOperator
from lowtide_airflow.operators.snapshot import (
    CommitSnapshotOperator,
    PruneSnapshotsOperator,
    TakeSnapshotOperator,
    VerifySnapshotOperator,
)

__all__ = [
    "CommitSnapshotOperator",
    "PreviewFlowOperator",
    "PruneSnapshotsOperator",
    "RecoverFlowOperator",
    "RunFlowOperator",
    "StopFlowOperator",
    "TakeSnapshotOperator",
    "VerifySnapshotOperator",
]


def __getattr__(name: str) -> object:
    """Refuse a former name, and give the current one."""
    if f"{name}Operator" in __all__:
        raise ImportError(f"{__name__}.{name} is now called {name}Operator: import that", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
