"""One run: load, faults one after the other, an end, and the verdict."""

from __future__ import annotations

import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import TimeoutExpired

from tests.judging import committed
from tests.shop import Load, now_ms

from lowtide.errors import LowtideError
from lowtide.local.oracle import read_output
from lowtide.status.job_view import JobView

from .faults import do, resume
from .photographer import Photographer
from .processes import send
from .reader import Reader
from .schedule import TIMELESS, Fault
from .stage import FIRST_PERCENT, LANES, Play, Stage, Stuck
from .sweeper import commits_of, damages
from .verdict import Result, judged

PER_S = 120
READY_WITHIN_S = 180.0
SETTLED_WITHIN_S = 240.0
"""Time that the job may take to be over a fault; a busy machine is slow."""
MOST_BEHIND_MS = 30_000
"""The next fault may find the job catching up, but not further behind than this: else it never would."""
DELIVERED_WITHIN_S = 240.0
LINGER_S = 2.0
"""After the last message that is due: one too many would still come."""
POLL_S = 0.2
SURE_MS = 500
"""So long after now must what is delivered have been written."""
SEEN_WITHIN_S = 10.0
"""Time that the reader may be behind what the job says."""

Say = Callable[[str], None]


class Run:
    """One run; `result` is its account, however it ends.

    Args:
        faults: In this order.
        folder: Where everything lies.
        cluster: Whether Spark's executors are processes of their own.
        shards: How many the job's tracker has: faults of the tracker meet one of them or their merge.
        standbys: How many programs wait to take the job over, before each fault.
        within_s: No fault is begun after so long.
        say: Called with what happens.
        progress: Called with the state, a few times a second.
        play: Which job it is.
    """

    def __init__(
        self,
        faults: Sequence[Fault],
        folder: Path,
        *,
        cluster: bool = False,
        shards: int = 1,
        standbys: int = 0,
        within_s: float = 3600.0,
        say: Say = lambda _: None,
        progress: Say = lambda _: None,
        play: Play = Play(),  # noqa: B008 - a frozen value
    ) -> None:
        self.result = Result()
        self._faults = faults
        self._stage = Stage(folder, cluster=cluster, say=say, shards=shards, standbys=standbys, play=play)
        self._within_s = within_s
        self._say, self._progress = say, progress
        self._next = "the job's start"
        self._life = 0
        self._photographer = Photographer(self._stage.client)
        self._reader: Reader

    def run(self) -> Result:
        """Do it all."""
        with self._stage as stage:
            conf = stage.shop.conf
            self._reader = Reader(conf.kafka, stage.shop.sink, LANES)
            stage.rate(FIRST_PERCENT)
            stage.start()
            with self._reader:
                try:
                    self._under_load()
                except Stuck as error:
                    self._fail(str(error))
                except Exception as error:  # noqa: BLE001 - reported, and what was delivered is judged all the same
                    self._fail("".join(traceback.format_exception(error)))
                resume(stage)
                self._end()
        return self.result

    def _under_load(self) -> None:
        self._await_start()
        with ExitStack() as stack:
            stack.enter_context(Load(self._stage.shop, per_s=PER_S))
            self._settle(within_s=READY_WITHIN_S)
            stack.enter_context(self._photographer)
            self._await_commit()
            began = time.monotonic()
            for number, fault in enumerate(self._faults, 1):
                if time.monotonic() - began > self._within_s:
                    raise Stuck(f"after {number - 1} faults {self._within_s:g} s are over")
                after = self._faults[number] if number < len(self._faults) else "the end"
                self._next = f"{number}/{len(self._faults)} {fault}, then {after}"
                self._fault(number, fault)
            self._next = "the end"

    def _fault(self, number: int, fault: Fault) -> None:
        """Do one fault, and wait until the job is over it."""
        self._wait(fault.after_s)
        self._await_standbys()
        before, since = self._life, time.monotonic()
        self._say(f"{number}/{len(self._faults)} {fault}")
        do(self._stage, fault, self._settle)
        self.result.faults[fault.kind] += 1
        self.result.kills = self._stage.killed
        # A life knows at once what was delivered before it: only what is written from now on shows that output flows.
        life = self._settle(before if fault.ends_life else 0)
        if life > before and fault.kind not in TIMELESS:
            self._reader.await_more(SEEN_WITHIN_S)
            self.result.recoveries_s.append(self._reader.silence_s(since))
            self._say(f"life {life}, after {self.result.recoveries_s[-1]:.1f} s without output")

    def _settle(self, above: int = 0, within_s: float = SETTLED_WITHIN_S) -> int:
        """Wait until a life above a number delivers what is written from now on; start programs as need be.

        A life that began while the broker's clock was ahead may be so too, by a minute, until time has caught up.

        Returns:
            The life's number.
        """
        sure_ms = now_ms() + SURE_MS
        deadline = time.monotonic() + within_s
        while True:
            self._stage.revive()
            view = self._shown()
            delivered_ms = view.delivered_time_ms or 0 if view is not None else 0
            least_ms = max(sure_ms, now_ms() - MOST_BEHIND_MS)
            if view is not None and view.incarnation > above and least_ms < delivered_ms < now_ms() + SURE_MS:
                return view.incarnation
            if time.monotonic() > deadline:
                raise Stuck(f"the job does not deliver after {within_s:g} s: {self._stage.state()}\n{view}")
            time.sleep(POLL_S)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._shown()
            time.sleep(min(POLL_S, left))

    def _await_start(self) -> None:
        """Wait until the job would take a record: what is written before only makes it late."""
        deadline = time.monotonic() + READY_WITHIN_S
        while self._stage.client() is None:
            self._stage.revive()
            self._shown()
            if time.monotonic() > deadline:
                raise Stuck(f"the job does not run after {READY_WITHIN_S:g} s: {self._stage.state()}")
            time.sleep(POLL_S)

    def _await_standbys(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._stage.stand_ready():
            self._stage.revive()
            self._shown()
            if time.monotonic() > deadline:
                raise Stuck(f"the standbys are not ready within {READY_WITHIN_S:g} s")
            time.sleep(POLL_S)

    def _await_commit(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._photographer.became["committed"]:
            self._stage.revive()
            self._shown()
            if time.monotonic() > deadline:
                raise Stuck(f"nothing was committed within {READY_WITHIN_S:g} s: {self._photographer.why}")
            time.sleep(POLL_S)

    def _shown(self) -> JobView | None:
        view, state, taken = self._stage.view(), self._stage.state(), self._photographer.became
        if view is not None:
            self._life = max(self._life, view.incarnation)
            now = f"life {view.incarnation}, {(view.lag_ms or 0) / 1000:.1f} s behind"
        else:
            now = f"{state.phase}: {state.step}" if state is not None else "the program starts"
        snapshots = f"{taken['committed']} snapshots committed, {taken['failed']} failed"
        self._progress(f"{self._next} | {now} | {self._reader.count:,} delivered, {snapshots}")
        return view

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Wait until all is delivered, stop the job, and judge; what cannot be judged is a failure."""
        self._say("the load has stopped; waiting until all is delivered")
        try:
            self._drain()
            code = self._stage.stop()
            if code:
                self._fail(f"stopped, the job's program ended with {code}")
            self._recover()
        except (Stuck, TimeoutExpired, LowtideError) as error:
            self._fail(f"at the end: {error}")
        program = self._stage.program
        if program is not None and program.process.poll() is None:
            send(self._stage.everything(program), signal.SIGKILL)
        try:
            self._judge()
        except LowtideError as error:
            self._fail(f"nothing could be judged: {error}")

    def _recover(self) -> None:
        """Begin from the oldest and from the newest savepoint that the job has named as done; all have to be there."""
        shop, named = self._stage.shop, self._photographer.savepoints
        there = {commit.name: commit.id for commit in commits_of(shop.conf, shop.name)}
        for name in named:
            if name not in there:
                self._fail(f'"{name}" was committed, and is not there')
        for name in dict.fromkeys((*named[:1], *named[-1:])):
            if name in there:
                self._say(f'beginning from "{name}"')
                self._stage.start(there[name])
                self._settle(self._life)
                if code := self._stage.stop():
                    self._fail(f'stopped, the program that began from "{name}" ended with {code}')

    def _drain(self) -> None:
        shop, deadline = self._stage.shop, time.monotonic() + DELIVERED_WITHIN_S
        self._settle()
        while True:
            sinks, letters = shop.judge.expected()
            due = sum(map(len, sinks["out"].values())), letters.total()
            came = committed(shop.conf, shop.sink), committed(shop.conf, shop.letters)
            if came[0] >= due[0] and came[1] >= due[1]:
                self._wait(LINGER_S)
                return
            self._say(f"{came[0]:,} of {due[0]:,} messages are delivered, {came[1]:,} of {due[1]:,} dead letters")
            if time.monotonic() > deadline:
                raise Stuck(f"not all is delivered after {DELIVERED_WITHIN_S:g} s")
            self._stage.revive()
            self._wait(2.0)

    def _judge(self) -> None:
        shop = self._stage.shop
        sinks, letters = shop.judge.expected()
        lanes = read_output(shop.conf.kafka, shop.sink)
        found = read_output(shop.conf.kafka, shop.letters)
        came = Counter((each.key, each.value) for lane in found.values() for each in lane)
        verdict = judged(self.result, sinks["out"], lanes, letters, came)
        taken = dict(self._photographer.became)
        self._say(f"{verdict}; {came.total():,} dead letters of {letters.total():,}")
        for wrong in shop.judge.wrong_floors(self._stage.clock.believed_ms):
            self._fail(f"a wrong floor: {wrong}")
        for damaged in damages(shop.conf, shop.name):
            self._fail(f"a damaged snapshot: {damaged}")
        said = f"{self._photographer.asked} snapshots asked for: {taken}, {len(self._photographer.savepoints)} by name"
        self._say(f"{said}; {self._stage.starts} programs started")

    def _fail(self, why: str) -> None:
        self.result.failures.append(why)
        self._say(f"FAILED: {why}")
