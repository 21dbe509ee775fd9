"""One run: a job under load on a cluster, faults one after the other, and the verdict."""

from __future__ import annotations

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from cluster_job import ClusterJob, JobFailed

from lowtide.errors import LowtideError
from lowtide.status.job_view import JobView

from .faults import Undone, do, mended
from .logins import LOGINS, refused
from .schedule import Fault

__all__ = ["Result", "Run"]

RATE = 100.0
LANES = 6
"""More than workers, from the first start on: the job grows when it goes on elsewhere."""
MOST_FED_S = 3 * 3600.0
READY_LIMIT_S = 300.0
SETTLE_LIMIT_S = 300.0
REVIVE_AFTER_S = 60.0
"""So long without an answer, and somebody starts the job again, as Airflow would."""
LATE_MS = 8_000
"""The next fault may find the job catching up, but not further behind than this."""
DRAIN_LIMIT_S = 300.0
WATCHED_S = 10.0
POLL_S = 0.25

Say = Callable[[str], object]


@dataclass
class Result:
    """The account of a run.

    Attributes:
        faults: How many of each kind were done.
        lives: How many lives the job has had.
        logins: How many wrong logins were refused, each with a clear word.
        delivered: Records in the sink's topic; None before they were judged.
        lost: Records that were due and did not come.
        duplicated: Records that came and were not due, or not so often.
        out_of_order: Places at which lanes differ besides.
        silences_s: For each fault, the longest time in which no output came.
        failures: What else went wrong, in words.
    """

    faults: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    logins: int = 0
    delivered: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    out_of_order: int | None = None
    silences_s: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Return whether all came exactly once and in order, and nothing else went wrong."""
        return (self.lost, self.duplicated, self.out_of_order) == (0, 0, 0) and not self.failures

    def line(self) -> str:
        """The last line."""
        spent = list(self.silences_s.values())
        known = {
            "faults": sum(self.faults.values()), "kinds": dict(sorted(self.faults.items())), "lives": self.lives,
            "logins_refused": self.logins,
            "delivered": self.delivered, "lost": self.lost, "duplicated": self.duplicated,
            "out_of_order": self.out_of_order,
            "silence_p50_s": round(median(spent), 1) if spent else None,
            "silence_max_s": round(max(spent), 1) if spent else None,
            "failures": len(self.failures),
        }  # fmt: skip
        return json.dumps(known)


class Run:
    """One run; `result` is its account, however it ends.

    Args:
        faults: In this order.
        network: The cluster's, which is up.
        within_s: No fault is begun after so long.
        mend: Makes what has died of the cluster again.
        move: Lets other hosts take the place of Spark's and of the driver's; the new driver's name. None: they stay.
        say: Told what happens.
        progress: Told how it stands, now and then.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        network: str,
        *,
        within_s: float,
        mend: Callable[[], object],
        move: Callable[[], str] | None,
        say: Say,
        progress: Say,
    ) -> None:
        self.result = Result()
        self._faults = faults
        self._network = network
        self._within_s = within_s
        self._mend, self._move, self._say, self._progress = mend, move, say, progress
        self._job = ClusterJob(network)
        self._output = _Output()

    def run(self) -> Result:
        """Do it all."""
        try:
            self._job.place()
            self._job.make_topics(LANES)
            self._begin()
            self._all()
            if self._move is not None:
                self._go_on_elsewhere(self._move)
            self._say("all faults are done: waiting for the rest")
            self._drain()
            self._job.stop()
            self._say("comparing every byte")
            self._judge(self._job.judge(LANES))
            self._log_in_wrongly()
        except (JobFailed, Undone, LowtideError) as error:
            self.result.failures.append(str(error))
        except Exception:  # noqa: BLE001 - whatever it is, it is told, and the cluster mended
            self.result.failures.append(traceback.format_exc())
        finally:
            mended(self._network)
        return self.result

    def _begin(self) -> None:
        self._say("starting the job")
        self._job.start(f"job.lanes={LANES}", limit_s=READY_LIMIT_S)
        self._say(f"writing {RATE:.0f} orders a second")
        self._job.feed(RATE, MOST_FED_S)
        self._settle("the job's start")

    def _go_on_elsewhere(self, move: Callable[[], str]) -> None:
        """Let the job go on from its last commit on another Spark, with hosts of other names and one worker more."""
        before = self._job.until("running", lambda view: view.phase == "running", SETTLE_LIMIT_S).snapshots.last
        self._photograph()
        commit = self._job.until("committed", lambda view: view.snapshots.last > before, SETTLE_LIMIT_S).snapshots.last
        self._job.fed(0.0)
        life = self._output.life
        self._say("Spark's hosts and the driver's are destroyed; others take their place")
        self._output.begin()
        self._job = ClusterJob(self._network, move())
        self._job.place()
        self._begin()
        if self._output.life <= life:
            raise JobFailed(f"life {self._output.life} came after life {life}")
        self._say(f"life {self._output.life} goes on from commit {commit}")
        self._watch(WATCHED_S)

    def _photograph(self) -> None:
        """Ask for a snapshot, which a job may not take now."""
        client = self._job.client()
        if client is not None:
            with suppress(LowtideError):
                client.take_snapshot()

    def _log_in_wrongly(self) -> None:
        for login in LOGINS:
            self._say(f"{login.what} is wrong: {refused(self._job, login, f'job.lanes={LANES}').strip()}")
            self.result.logins += 1

    def _all(self) -> None:
        began = time.monotonic()
        for number, fault in enumerate(self._faults, 1):
            self._photograph()
            self._watch(fault.after_s)
            if time.monotonic() - began > self._within_s:
                raise JobFailed(f"only {number - 1} faults were done within {self._within_s:.0f} s")
            self._say(f"{number}/{len(self._faults)} {fault}")
            self._output.begin()
            life = self._output.life
            self._do(fault)
            self.result.faults[fault.kind] += 1
            self._output.over()
            # What has left a host before it was lost still comes, for a moment.
            silence_s = self._settle(str(fault), after=life if fault.kind == "worker-lost" else 0)
            self.result.silences_s[f"{number} {fault}"] = silence_s
            self._say(f"output is back; the longest silence was {silence_s:.1f} s, life {self._output.life}")
            if fault.kind == "worker-lost":
                self._say("a new host takes the place of the lost one")
                self._mend()

    def _do(self, fault: Fault) -> None:
        """Do a fault, and look at the job meanwhile."""
        with ThreadPoolExecutor(1) as hands:
            done = hands.submit(do, self._network, fault, self._mend)
            while not done.done():
                self._look()
                time.sleep(POLL_S)
            done.result()

    def _watch(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look()
            time.sleep(POLL_S)

    def _settle(self, what: str, after: int = 0) -> float:
        """Wait until output comes and is not late, of a life after this one; the longest time in which none came."""
        deadline, revived = time.monotonic() + SETTLE_LIMIT_S, time.monotonic()
        heard = time.monotonic()
        while True:
            view = self._look()
            if view is not None:
                heard = time.monotonic()
                if self._output.came and view.incarnation > after and view.lag_ms is not None and view.lag_ms < LATE_MS:
                    return self._output.silence_s
            if time.monotonic() > deadline:
                raise JobFailed(f"no output within {SETTLE_LIMIT_S:.0f} s of {what}: {view}\n{self._job.log()}")
            if time.monotonic() - max(heard, revived) > REVIVE_AFTER_S:
                revived = time.monotonic()
                self._revive()
            time.sleep(POLL_S)

    def _revive(self) -> None:
        try:
            self._job.start(f"job.lanes={LANES}", limit_s=READY_LIMIT_S)
            self._say("the program had ended, and was started again")
        except JobFailed as error:  # It runs, or cannot yet.
            self._say(f"not started again: {str(error).strip().splitlines()[-1]}")

    def _look(self) -> JobView | None:
        view = self._job.view()
        if view is not None:
            self._output.see(view)
            self.result.lives = max(self.result.lives, view.incarnation)
            late = "" if view.lag_ms is None else f", {view.lag_ms} ms late"
            self._progress(f"life {view.incarnation}, {view.totals.delivered} delivered{late}")
        else:
            self._progress("the job does not answer")
        return view

    def _drain(self) -> None:
        """Wait until min time is past the last order."""
        self._job.fed(0.0)
        written_ms = time.time_ns() // 1_000_000
        self._job.until("all delivered", lambda view: (view.delivered_time_ms or 0) > written_ms, DRAIN_LIMIT_S)

    def _judge(self, verdict: dict[str, Any]) -> None:
        result = self.result
        result.lost, result.duplicated = verdict["lost"], verdict["duplicated"]
        result.out_of_order, result.delivered = verdict["out_of_order"], verdict["delivered"]
        result.failures += verdict["differences"]
        if not result.delivered:
            result.failures.append("nothing was delivered")


class _Output:
    """Output of a job over its lives.

    Attributes:
        life: The current life.
        came: Whether output of the current life has come since the fault.
    """

    def __init__(self) -> None:
        self.life = 0
        self._delivered = 0
        self.begin()

    def begin(self) -> None:
        """A fault begins."""
        self.came = False
        self._at = time.monotonic()
        self._longest_s = 0.0

    def over(self) -> None:
        """It is over: what has come so far does not show that more comes."""
        self.came = False

    def see(self, view: JobView) -> None:
        """The job has said how much it has delivered."""
        if view.incarnation != self.life:
            self.life, self._delivered, self.came = view.incarnation, 0, False
        if view.totals.delivered > self._delivered:
            now = time.monotonic()
            self._longest_s = max(self._longest_s, now - self._at)
            self._at, self._delivered, self.came = now, view.totals.delivered, True

    @property
    def silence_s(self) -> float:
        return self._longest_s
