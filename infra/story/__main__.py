"""The whole story of a cluster: provisioned, used, a host lost for good, recovered on the others, destroyed.

    sudo make infra-demo

The last line is one JSON object, and the exit status is 0 only if nothing was lost, doubled, out of order or left over.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from embedded_airflow.api import AirflowApi, DagRun
from embedded_airflow.errors import AirflowSilent
from lowtide_hosts.cli import leftovers
from lowtide_hosts.host import Host

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RATE = 200.0
FEED_S = 240.0
BEFORE_S = 20.0
READY_LIMIT_S = 240.0
RECOVER_LIMIT_S = 180.0
SETTLE_LIMIT_S = 180.0
LOST = "worker-2"
SNAPSHOT_DAG = "lowtide_snapshot__orders"
AIRFLOW_LIMIT_S = 180.0
RUN = "lowtide run flow.py --conf /home/lowtide/cluster.toml --detach"


class Story:
    """The story, told step by step."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.driver: Host | None = None

    def say(self, what: str) -> None:
        """Print a step."""
        sys.stdout.write(f"{time.monotonic() - self.began:6.1f} s  {what}\n")
        sys.stdout.flush()

    def make(self, target: str) -> None:
        """Call one of the Makefile's targets."""
        subprocess.run(["make", "--no-print-directory", target], cwd=ROOT, check=True)

    def on_driver(self, command: str, limit_s: float = 300.0) -> str:
        """Run a shell command on the driver's host; what it prints."""
        shell = self._shell(command)
        done = subprocess.run(shell, check=False, capture_output=True, text=True, timeout=limit_s)
        if done.returncode:
            raise SystemExit(f"`{command}` ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return done.stdout

    def run(self) -> int:
        """Tell it; the exit code."""
        self.say("provisioning the cluster")
        self.make("infra-up")
        try:
            told = self._use()
        finally:
            self.say("destroying it")
            subprocess.run(["make", "--no-print-directory", "infra-down"], cwd=ROOT, check=False)
        left = leftovers("lowtide")
        told["leftovers"] = sum(left.values())
        self.say("all compared")
        sys.stdout.write(json.dumps(told) + "\n")
        return int(bool(told["lost"] or told["duplicated"] or told["out_of_order"] or told["leftovers"]))

    def _use(self) -> dict[str, Any]:
        self.driver = Host.find("lowtide", "driver")
        assert self.driver is not None
        job = self.driver.home / "job"
        shutil.copytree(HERE / "driver", job, dirs_exist_ok=True)
        shutil.copytree(ROOT / "examples/demo", job / "demo", dirs_exist_ok=True)
        self.on_driver("python feed.py topics 2")
        self.say("starting the job on the cluster")
        self.on_driver(RUN, READY_LIMIT_S)
        self.say(f"feeding {RATE:.0f} orders a second")
        feeding = self._background(f"python feed.py {RATE} {FEED_S}")
        self._wait("delivered", lambda view: view["totals"]["delivered"] > RATE * BEFORE_S, READY_LIMIT_S)
        self._snapshot()
        before = self._view()["totals"]["delivered"]
        lost = Host.find("lowtide", LOST)
        assert lost is not None
        self.say(f"{LOST} is lost for good, after {before} deliveries")
        at = time.monotonic()
        lost.lose()
        self._wait(
            "recovered",
            lambda view: view["incarnation"] > 1 and view["totals"]["delivered"] > 0,
            RECOVER_LIMIT_S,
        )
        recover_s = time.monotonic() - at
        self.say(f"output is back after {recover_s:.1f} s, on the hosts that are left")
        feeding.wait(FEED_S + 60)
        total = int(RATE * FEED_S)
        self._settle()
        self.say("stopping the job, comparing every byte")
        self.on_driver("lowtide stop orders --conf /home/lowtide/cluster.toml")
        verdict: dict[str, Any] = json.loads(self.on_driver("python judge.py 2").splitlines()[-1])
        for difference in verdict.pop("differences"):
            self.say(difference)
        return verdict | {"sent": total, "recover_s": round(recover_s, 1)}

    def _snapshot(self) -> None:
        """Let Airflow take a snapshot, verify and commit it."""
        host = Host.find("lowtide", "airflow")
        assert host is not None
        password = json.loads((host.home / "airflow/passwords.json").read_text())["admin"]
        with AirflowApi(f"http://{host.address}:8080", "admin", password) as airflow:
            airflow.wait_for_dags([SNAPSHOT_DAG], AIRFLOW_LIMIT_S)
            self.say(f"Airflow's {SNAPSHOT_DAG} is switched on")
            airflow.unpause(SNAPSHOT_DAG)
            # The schedule begins a run at once, and there is one at a time.
            deadline = time.monotonic() + AIRFLOW_LIMIT_S
            while (run := self._first_run(airflow)) is None or not run.over:
                if time.monotonic() > deadline:
                    raise SystemExit(f"Airflow has not taken a snapshot within {AIRFLOW_LIMIT_S:.0f} s")
                time.sleep(2.0)
            airflow.wait(SNAPSHOT_DAG, run.id, AIRFLOW_LIMIT_S)
        self.say("the snapshot is committed")

    @staticmethod
    def _first_run(airflow: AirflowApi) -> DagRun | None:
        try:
            return next(iter(airflow.runs(SNAPSHOT_DAG)), None)
        except AirflowSilent:  # Two cores carry twelve hosts: it may be slow.
            return None

    def _background(self, command: str) -> subprocess.Popen[bytes]:
        assert self.driver is not None
        with (self.driver.home / "job" / "feed.log").open("wb") as log:
            return subprocess.Popen(self._shell(f"exec {command}"), stdout=log, stderr=log)

    def _shell(self, command: str) -> list[str]:
        assert self.driver is not None
        script = f". /home/lowtide/profile; {command}"
        return self.driver.inside(["sh", "-ec", script], {"PYTHONPATH": "/home/job"}, "/home/job")

    def _view(self) -> dict[str, Any]:
        shown: list[dict[str, Any]] = json.loads(
            self.on_driver("lowtide status orders --json --conf /home/lowtide/cluster.toml")
        )
        view: dict[str, Any] = shown[0]["view"]
        return view

    def _view_or_none(self) -> dict[str, Any] | None:
        try:
            return self._view()
        except (SystemExit, KeyError, TypeError, ValueError):
            return None

    def _wait(self, what: str, reached: Any, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while True:
            view = self._view_or_none()
            if view is not None and reached(view):
                return
            if time.monotonic() > deadline:
                raise SystemExit(f"not {what} within {limit_s:.0f} s: {view}")
            time.sleep(1.0)

    def _settle(self) -> None:
        before, deadline = -1, time.monotonic() + SETTLE_LIMIT_S
        while time.monotonic() < deadline:
            delivered = self._view()["totals"]["delivered"]
            if delivered == before:
                return
            before = delivered
            time.sleep(5.0)


if __name__ == "__main__":
    sys.exit(Story().run())
