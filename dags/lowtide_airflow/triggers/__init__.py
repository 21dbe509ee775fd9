"""What waits in Airflow's triggerer: each looks at a job now and then, and tells once what it waited for."""

from __future__ import annotations

from lowtide_airflow.triggers.delivered import DeliveredTimePassedTrigger, DeliveredTimeTrigger
from lowtide_airflow.triggers.died import JobDiedTrigger
from lowtide_airflow.triggers.ended import JobEndedTrigger
from lowtide_airflow.triggers.recovered import RecoveredTrigger
from lowtide_airflow.triggers.running import JobRunningTrigger
from lowtide_airflow.triggers.settled import JobSettledTrigger
from lowtide_airflow.triggers.snapshot import SnapshotTrigger

__all__ = [
    "DeliveredTimePassedTrigger",
    "DeliveredTimeTrigger",
    "JobDiedTrigger",
    "JobEndedTrigger",
    "JobRunningTrigger",
    "JobSettledTrigger",
    "RecoveredTrigger",
    "SnapshotTrigger",
]
