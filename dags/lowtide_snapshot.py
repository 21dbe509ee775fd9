"""Takes a snapshot of a running job, verifies and commits it, and prunes: one DAG per job of the jobs file.

`take` asks the job and waits until the manifest is in the store, `verify` reads every part, `commit` makes it the one
to recover from (one ZooKeeper transaction), `prune` drops what the jobs file does not keep. Runs do not overlap. While
the job does not run they are skipped. A snapshot with a name is kept until it is dropped: `lowtide snapshots drop`.
"""

from pathlib import Path
from typing import Any

from airflow.sdk import Param

from lowtide_airflow.job_dag import asset_of, job_dag, place_of_job
from lowtide_airflow.jobs_file import JobEntry, read_jobs
from lowtide_airflow.operators import CommitSnapshot, PruneSnapshots, TakeSnapshot, VerifySnapshot


def snapshot(entry: JobEntry) -> None:
    """The DAG of one job."""
    params = {
        "name": Param(None, type=["null", "string"], maxLength=200, description="What to call it; it is then kept."),
        "keep": Param(entry.keep, type="integer", minimum=1, description="How many commits without a name are kept."),
        "if_down": Param(
            "skip", type="string", enum=["skip", "fail"], description="What to do if the job does not run."
        ),
    }
    place = place_of_job(entry)
    with job_dag(entry, "snapshot", doc=__doc__ or "", schedule=entry.schedule, params=params) as dag:
        take = TakeSnapshot(task_id="take", **place, name=dag.param("name"), if_down=dag.param("if_down"))
        output: Any = take.output
        taken = output["snapshot"]
        verify = VerifySnapshot(task_id="verify", **place, snapshot=taken)
        commit = CommitSnapshot(task_id="commit", **place, snapshot=taken, outlets=[asset_of(entry, "commits")])
        prune = PruneSnapshots(task_id="prune", **place, keep=dag.param("keep"), max_age_s=entry.max_age_s)
        take >> verify >> commit >> prune


for each in read_jobs(Path(__file__).parent):
    snapshot(each)
