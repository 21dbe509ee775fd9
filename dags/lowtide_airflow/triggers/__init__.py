"""Triggers: poll a job in Airflow's triggerer until something happens to it."""

from __future__ import annotations

from lowtide_airflow.triggers.job import (
    DeliveredTimeTrigger,
    JobEndedTrigger,
    JobFinishedTrigger,
    JobRunningTrigger,
    JobSettledTrigger,
    LabelEndedTrigger,
    RecoveredTrigger,
)
from lowtide_airflow.triggers.snapshot import SnapshotTrigger
from lowtide_airflow.triggers.watcher import DeliveredTimePassedTrigger, FolderCompleteTrigger, JobDiedTrigger

__all__ = [
    "DeliveredTimePassedTrigger",
    "DeliveredTimeTrigger",
    "FolderCompleteTrigger",
    "JobDiedTrigger",
    "JobEndedTrigger",
    "JobFinishedTrigger",
    "JobRunningTrigger",
    "JobSettledTrigger",
    "LabelEndedTrigger",
    "RecoveredTrigger",
    "SnapshotTrigger",
]
