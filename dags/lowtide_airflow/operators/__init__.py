"""What Airflow does with jobs. Every operator finds out by itself what an earlier try of its task has done."""

from __future__ import annotations

from lowtide_airflow.operators.keeping import CommitSnapshot, PruneSnapshots, VerifySnapshot
from lowtide_airflow.operators.previewing import PreviewFlow
from lowtide_airflow.operators.recovering import RecoverFlow
from lowtide_airflow.operators.running import RunFlow
from lowtide_airflow.operators.stopping import StopFlow
from lowtide_airflow.operators.taking import TakeSnapshot

__all__ = [
    "CommitSnapshot",
    "PreviewFlow",
    "PruneSnapshots",
    "RecoverFlow",
    "RunFlow",
    "StopFlow",
    "TakeSnapshot",
    "VerifySnapshot",
]
