"""Operators for jobs. Each finds out what an earlier try of its task has done."""

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
