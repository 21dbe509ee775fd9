"""Takes a snapshot of a running job, verifies and commits it, and prunes: one DAG per job of the jobs file.

`take` requests the snapshot and waits until its manifest is in the store, `verify` reads every part, `commit` makes it
the one to recover from (one ZooKeeper transaction), `prune` drops commits that the jobs file does not keep. Runs do not
overlap, and are skipped while the job does not run. A snapshot with a name is kept until `lowtide snapshots drop`.
"""

from pathlib import Path
from typing import Any

from airflow.sdk import Param

from lowtide_airflow.job_dag import asset_of, job_arguments, job_dag, param
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import (
    CommitSnapshotOperator,
    PruneSnapshotsOperator,
    TakeSnapshotOperator,
    VerifySnapshotOperator,
)


def snapshot(entry: JobEntry) -> None:
    """The DAG of one job."""
    params = {
        "name": Param(
            None,
            type=["null", "string"],
            maxLength=200,
            description="With a name it is never pruned.",
        ),
        "keep": Param(entry.keep, type="integer", minimum=1, description="How many commits without a name to keep."),
        "if_down": Param(
            "skip", type="string", enum=["skip", "fail"], description="What to do if the job does not run."
        ),
    }
    job = job_arguments(entry)
    with job_dag(entry, "snapshot", doc=__doc__ or "", schedule=entry.schedule, params=params):
        take = TakeSnapshotOperator(task_id="take", **job, name=param("name"), if_down=param("if_down"))
        output: Any = take.output
        taken = output["snapshot"]
        verify = VerifySnapshotOperator(task_id="verify", **job, snapshot=taken)
        commit = CommitSnapshotOperator(task_id="commit", **job, snapshot=taken, outlets=[asset_of(entry, "commits")])
        prune = PruneSnapshotsOperator(task_id="prune", **job, keep=param("keep"), max_age_s=entry.max_age_s)
        take >> verify >> commit >> prune


for each in read_jobs(Path(__file__).parent, "snapshot"):
    snapshot(each)
