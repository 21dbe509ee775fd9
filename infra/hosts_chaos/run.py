"""One run: a job under load on a cluster, faults one after another, and the verdict."""

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
from lowtide_hosts.network import Network
from packets import Packets

from lowtide.errors import LowtideError
from lowtide.status.job_view import JobView

from .errors import Undone
from .faults import do, mended
from .logins import LOGINS, refused
from .schedule import ENDING, HARMLESS, Fault

RATE = 100.0
EXECUTORS = 2
LANES = 6
"""More than workers, from the first start on: the job grows when it continues elsewhere."""
MOST_FED_S = 3 * 3600.0
READY_LIMIT_S = 300.0
SETTLE_LIMIT_S = 300.0
REVIVE_AFTER_S = 60.0
"""After this long without an answer, restart the job, as Airflow would."""
LATE_MS = 8_000
"""The next fault may find the job catching up, but not further behind than this."""
DRAIN_LIMIT_S = 300.0
WATCHED_S = 10.0
POLL_S = 0.25
MARKERS = {"a customer": rb"customer-\d", "a frame": rb"\x9c\x04\x00[\s\S]{0,400}customer-\d"}
"""What nobody may read between hosts, as regular expressions: a record's value, alone and after a frame's head."""
CLEAR = ("exchange.sealed=never", "exchange.tls=never")

Say = Callable[[str], object]


@dataclass
class Result:
    """The account of a run.

    Attributes:
        faults: Number of faults done of each kind.
        lives: Number of lives of the job.
        logins: Number of wrong logins refused, each with a clear error.
        delivered: Records in the sink's topic; None before they were judged.
        lost: Records that were due and did not come.
        duplicated: Records that came too often or were not due at all.
        out_of_order: Other places at which lanes differ.
        packets: Packets with something in them that went between hosts and were searched.
        missed: Packets that came too fast to be searched.
        markers: Number of those in which each of `MARKERS` was found.
        silences_s: For each fault, the longest time without output.
        failures: All other failures, in words.
    """

    faults: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    logins: int = 0
    delivered: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    out_of_order: int | None = None
    packets: int = 0
    missed: int = 0
    markers: dict[str, int] = field(default_factory=dict)
    silences_s: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Return whether all came exactly once and in order, and nothing else went wrong."""
        return (self.lost, self.duplicated, self.out_of_order) == (0, 0, 0) and not self.failures

    def line(self) -> str:
        """Return the last line."""
        spent = list(self.silences_s.values())
        known = {
            "faults": sum(self.faults.values()), "kinds": dict(sorted(self.faults.items())), "lives": self.lives,
            "logins_refused": self.logins,
            "delivered": self.delivered, "lost": self.lost, "duplicated": self.duplicated,
            "out_of_order": self.out_of_order,
            "packets": self.packets, "packets_missed": self.missed, "markers": self.markers,
            "silence_p50_s": round(median(spent), 1) if spent else None,
            "silence_max_s": round(max(spent), 1) if spent else None,
            "failures": len(self.failures),
        }  # fmt: skip
        return json.dumps(known)


class Run:
    """One run; `result` is its account, however it ends.

    Args:
        faults: The faults, in this order.
        network: The network of the cluster, which is up.
        within_s: Begin no fault after this time.
        clear: Seal and encrypt nothing, so that the search for markers has to find them.
        mend: Recreates what has died of the cluster.
        move: Replaces the hosts of Spark and the driver, and returns the new driver's name. None: they stay.
        say: Called with each event.
        progress: Called with the current state, now and then.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        network: str,
        *,
        within_s: float,
        clear: bool,
        mend: Callable[[], object],
        move: Callable[[], str] | None,
        say: Say,
        progress: Say,
    ) -> None:
        self.result = Result()
        self._faults = faults
        self._network = network
        self._within_s = within_s
        self._clear = clear
        self._settings = (f"job.lanes={LANES}", *(CLEAR if clear else ()))
        self._mend, self._move, self._say, self._progress = mend, move, say, progress
        self._job = ClusterJob(network)
        self._output = _Output()

    def run(self) -> Result:
        """Do it all."""
        network = Network.find(self._network)
        assert network is not None, "it is up"
        try:
            with Packets(network.bridge, MARKERS) as packets:
                self._run(packets)
            self._search(packets)
            self._say("comparing every byte")
            self._judge(self._job.judge(LANES))
            if not self._clear:
                self._log_in_wrongly()
        except (JobFailed, Undone, LowtideError) as error:
            self.result.failures.append(str(error))
        except Exception:  # noqa: BLE001 - report it, and mend the cluster
            self.result.failures.append(traceback.format_exc())
        finally:
            mended(self._network)
        return self.result

    def _run(self, packets: Packets) -> None:
        """Run the job to its end."""
        self._job.place()
        self._job.make_topics(LANES)
        self._begin()
        self._watch(WATCHED_S)
        self._all(packets)
        if self._move is not None:
            self._go_on_elsewhere(self._move)
        self._say("all faults are done: waiting for the rest")
        self._drain()
        self._job.stop()

    def _search(self, packets: Packets) -> None:
        result = self.result
        result.packets, result.missed, result.markers = packets.seen, packets.missed, packets.found
        markers = sum(packets.found.values())
        self._say(f"wires: {packets.seen} packets, {markers} markers, {packets.missed} packets missed")
        result.failures += misread(packets, clear=self._clear)

    def _begin(self) -> None:
        self._say("starting the job")
        self._job.start(*self._settings, limit_s=READY_LIMIT_S)
        self._say(f"writing {RATE:.0f} orders a second")
        self._job.feed(RATE, MOST_FED_S)
        self._settle("the job's start")
        self._see_workers_everywhere()

    def _see_workers_everywhere(self) -> None:
        """See that no executor is without a worker: else nothing crosses hosts, and all that follows shows nothing."""
        view = self._job.until("running", lambda view: view.phase == "running", SETTLE_LIMIT_S)
        on = Counter(worker.executor for worker in view.workers)
        self._say("workers: " + ", ".join(f"{count} on executor {executor}" for executor, count in sorted(on.items())))
        if len(on) < EXECUTORS:
            raise JobFailed(f"all {on.total()} workers are on {len(on)} of {EXECUTORS} executors\n{self._job.log()}")

    def _go_on_elsewhere(self, move: Callable[[], str]) -> None:
        """Continue the job from its last commit on another Spark, with hosts of other names and one more worker."""
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
        self._say(f"life {self._output.life} continues from commit {commit}")
        self._watch(WATCHED_S)

    def _photograph(self) -> None:
        """Request a snapshot, which the job may be unable to take now."""
        client = self._job.client()
        if client is not None:
            with suppress(LowtideError):
                client.take_snapshot()

    def _log_in_wrongly(self) -> None:
        for login in LOGINS:
            self._say(f"{login.what} is wrong: {refused(self._job, login, f'job.lanes={LANES}').strip()}")
            self.result.logins += 1

    def _spread(self) -> None:
        """Have workers on more than one host, so that frames go between them: a lost executor's are given to others."""
        view = self._job.until("running", lambda view: view.phase == "running", SETTLE_LIMIT_S)
        if len({worker.executor for worker in view.workers}) > 1:
            return
        self._say("all workers are on one host: starting the job again")
        self._job.stop()
        self._output.begin()
        self._job.start(*self._settings, limit_s=READY_LIMIT_S)
        self._settle("the job's start", after=view.incarnation)

    def _all(self, packets: Packets) -> None:
        began = time.monotonic()
        for number, fault in enumerate(self._faults, 1):
            if fault.host.partition("-")[0] == fault.other.partition("-")[0] == "worker":
                self._spread()
            self._photograph()
            self._watch(fault.after_s)
            if time.monotonic() - began > self._within_s:
                raise JobFailed(f"only {number - 1} faults were done within {self._within_s:.0f} s")
            self._say(f"{number}/{len(self._faults)} {fault}")
            self._output.begin()
            life = self._output.life
            self._do(fault, packets)
            self.result.faults[fault.kind] += 1
            self._output.over()
            # Packets that left a host before it was lost still arrive, for a moment.
            silence_s = self._settle(str(fault), after=life if fault.kind in ENDING else 0)
            if fault.kind in HARMLESS and self._output.life != life:
                raise JobFailed(f"life {life} ended of {fault}")
            self.result.silences_s[f"{number} {fault}"] = silence_s
            self._say(f"output is back; the longest silence was {silence_s:.1f} s, life {self._output.life}")
            if fault.kind == "worker-lost":
                self._say("a new host takes the place of the lost one")
                self._mend()

    def _do(self, fault: Fault, packets: Packets) -> None:
        """Do a fault, and watch the job meanwhile."""
        with ThreadPoolExecutor(1) as hands:
            done = hands.submit(do, self._network, fault, self._mend, packets)
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
        """Wait until a newer life has timely output; return the longest time without output."""
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
            self._job.start(*self._settings, limit_s=READY_LIMIT_S)
            self._say("the program had ended; started it again")
        except JobFailed as error:  # It is running already, or cannot start yet.
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
        """Wait until min time has passed the last order."""
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


def misread(packets: Packets, *, clear: bool) -> list[str]:
    """Return a failure for each marker that was found, as nobody may read it; in the clear for each that was not."""
    failures = []
    for what, found in packets.found.items():
        if bool(found) != clear:
            ends = " to ".join(f"{address}:{port}" for address, port in packets.where.get(what, ()))
            failures.append(
                f"{what} was found in {found} of {packets.seen} packets" + (ends and f", first from {ends}")
            )
    return failures


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
        """Note that a fault begins."""
        self.came = False
        self._at = time.monotonic()
        self._longest_s = 0.0

    def over(self) -> None:
        """Note that it is over: output so far does not show that more will come."""
        self.came = False

    def see(self, view: JobView) -> None:
        """Note the job's report of its delivered records."""
        if view.incarnation != self.life:
            self.life, self._delivered, self.came = view.incarnation, 0, False
        if view.totals.delivered > self._delivered:
            now = time.monotonic()
            self._longest_s = max(self._longest_s, now - self._at)
            self._at, self._delivered, self.came = now, view.totals.delivered, True

    @property
    def silence_s(self) -> float:
        return self._longest_s
