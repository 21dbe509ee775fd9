"""The whole story of a cluster: provisioned, used, a host lost for good, recovered on the others, destroyed.

    sudo make infra-demo

The last line is one JSON object, and the exit status is 0 only if nothing was lost, doubled, out of order or left over.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click
import cluster
from cluster_job import ClusterJob, JobFailed
from embedded_airflow.api import AirflowApi, DagRun
from embedded_airflow.errors import AirflowSilent
from lowtide_hosts.host import Host

NETWORK = "lowtide"
RATE = 200.0
FEED_LIMIT_S = 900.0
BEFORE_S = 20.0
AFTER_S = 30.0
READY_LIMIT_S = 240.0
RECOVER_LIMIT_S = 180.0
SETTLE_LIMIT_S = 180.0
SETTLED_S = 5.0
LOST = "worker-2"
SNAPSHOT_DAG = "lowtide_snapshot__orders"
AIRFLOW_LIMIT_S = 180.0


class Story:
    """The story, step by step."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._job = ClusterJob(NETWORK)

    def say(self, what: str) -> None:
        """Print a step."""
        sys.stdout.write(f"{time.monotonic() - self._began:6.1f} s  {what}\n")
        sys.stdout.flush()

    def tell(self) -> int:
        """Tell it; return the exit code."""
        self.say("provisioning the cluster, which needs root")
        up_s = cluster.make(())
        try:
            self._expect("all stands as it should", stands=True)
            figures = self._use()
        finally:
            self.say("destroying it")
            at = time.monotonic()
            left = cluster.destroy()
        down_s = time.monotonic() - at
        figures |= {"up_s": round(up_s, 1), "down_s": round(down_s, 1), "leftovers": sum(left.values())}
        self.say("all compared")
        sys.stdout.write(json.dumps(figures) + "\n")
        return int(bool(figures["lost"] or figures["duplicated"] or figures["out_of_order"] or figures["leftovers"]))

    def _use(self) -> dict[str, Any]:
        job = self._job
        job.place()
        job.make_topics()
        self.say("starting the job on the cluster")
        job.start(limit_s=READY_LIMIT_S)
        self.say(f"feeding {RATE:.0f} orders a second")
        job.feed(RATE, FEED_LIMIT_S)
        job.until("delivered", lambda view: view.totals.delivered > RATE * BEFORE_S, READY_LIMIT_S)
        self._snapshot()
        recover_s = self._lose_a_host()
        time.sleep(AFTER_S)
        self._expect(f"{LOST} is missing", stands=False)
        sent = job.fed(0.0)
        self._settle(sent)
        self.say(f"stopping the job, comparing every byte of {sent} records")
        job.stop()
        verdict = job.judge()
        for difference in verdict.pop("differences"):
            self.say(difference)
        return verdict | {"sent": sent, "recover_s": round(recover_s, 1)}

    def _expect(self, what: str, *, stands: bool) -> None:
        """Check that Terraform's plan is empty, or that it is not."""
        if cluster.stands() != stands:
            raise JobFailed(f"Terraform does not see that {what}: make infra-plan")
        self.say(f"Terraform sees that {what}")

    def _lose_a_host(self) -> float:
        """Lose a worker's host for good; return the seconds until output came again."""
        host, before = Host.find(NETWORK, LOST), self._job.view()
        assert host is not None, f"{LOST} is up"
        assert before is not None, "the job answers"
        self.say(f"{LOST} is lost for good, after {before.totals.delivered} deliveries")
        at = time.monotonic()
        host.lose()
        self._job.until(
            "recovered",
            lambda view: view.incarnation > before.incarnation and view.totals.delivered > 0,
            RECOVER_LIMIT_S,
        )
        recover_s = time.monotonic() - at
        self.say(f"output is back after {recover_s:.1f} s, on the hosts that are left")
        return recover_s

    def _snapshot(self) -> None:
        """Let Airflow take a snapshot, verify and commit it."""
        host = Host.find(NETWORK, "airflow")
        assert host is not None, "Airflow's host is up"
        password = json.loads((host.home / "airflow/passwords.json").read_text())["admin"]
        with AirflowApi(f"http://{host.address}:8080", "admin", password) as airflow:
            airflow.wait_for_dags([SNAPSHOT_DAG], AIRFLOW_LIMIT_S)
            self.say(f"Airflow's {SNAPSHOT_DAG} is switched on")
            airflow.unpause(SNAPSHOT_DAG)
            # The schedule begins a run at once, and only one runs at a time.
            deadline = time.monotonic() + AIRFLOW_LIMIT_S
            while (run := self._first_run(airflow)) is None or not run.over:
                if time.monotonic() > deadline:
                    raise JobFailed(f"Airflow has not taken a snapshot within {AIRFLOW_LIMIT_S:.0f} s")
                time.sleep(2.0)
            airflow.wait(SNAPSHOT_DAG, run.id, AIRFLOW_LIMIT_S)
        self.say("the snapshot is committed")

    @staticmethod
    def _first_run(airflow: AirflowApi) -> DagRun | None:
        try:
            return next(iter(airflow.runs(SNAPSHOT_DAG)), None)
        except AirflowSilent:  # Two cores carry twelve hosts, so it may be slow.
            return None

    def _settle(self, sent: int) -> None:
        """Wait until nothing more is delivered; a life's total counts records that it has replayed again."""
        before, deadline = -1, time.monotonic() + SETTLE_LIMIT_S
        while time.monotonic() < deadline:
            view = self._job.view()
            delivered = -1 if view is None else view.totals.delivered
            if delivered == before >= 0:
                return
            before = delivered
            time.sleep(SETTLED_S)
        raise JobFailed(f"the job still delivers {SETTLE_LIMIT_S:.0f} s after the last of {sent} records")


if __name__ == "__main__":
    try:
        sys.exit(Story().tell())
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
