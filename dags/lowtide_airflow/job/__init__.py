"""A job seen from outside, without Airflow: what is known of it, its snapshots, its starts, its deaths.

    services = Services("zk-1:2181", snapshots_url="s3://lowtide/production", token=token)
    with JobClient(services, "orders") as job:
        print(job.status().state, job.delivered_ms(), [commit.id for commit in job.commits()])

Nothing in this folder imports Airflow.
"""

from __future__ import annotations

from lowtide_airflow.job.client import JobClient, jobs_at
from lowtide_airflow.job.services import Services
from lowtide_airflow.job.snapshots import JobSnapshots
from lowtide_airflow.job.status import JobStatus
from lowtide_snapshots.job.life import Life

__all__ = ["JobClient", "JobSnapshots", "JobStatus", "Life", "Services", "jobs_at"]
