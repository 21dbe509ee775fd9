"""Runs one job in this process, from its start to its end, and keeps its folder up to date."""

from __future__ import annotations

import os
import signal
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import msgspec

from lowtide.conf import Conf
from lowtide.driver.job import Job
from lowtide.driver.recovery import StartFrom
from lowtide.driver.session import session_runs
from lowtide.driver.spark_conf import submitted
from lowtide.errors import LifeEnded, LowtideError, ServiceUnavailable
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.graph import FlowGraph
from lowtide.jobs.broker import check_broker
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.jvm import child_jvm, end_jvm, lead_output, said_of
from lowtide.jobs.log import Log
from lowtide.jobs.progress import Progress, age_s
from lowtide.jobs.reporter import Reporter
from lowtide.jobs.restarts import Restarts
from lowtide.jobs.signals import INTERRUPTED, Signals, StopAsked, end_now
from lowtide.jobs.state import JobState, now
from lowtide.process.identity import Process
from lowtide.process.mark import VARIABLE, end_marked
from lowtide.service.standbys import HAND_OVER
from lowtide_snapshots.cause import Cause

JVM_END_LIMIT_S = 10.0
LEFT_OVER_GRACE_S = 6.0
"""Time for processes to end after the JVM has; the fork servers' own grace is shorter."""
FINISHED = "all its sources have ended, and everything is delivered"
HANDED_OVER = "it was handed over to a standby"
ABANDONED = "its supervisor was killed, so it stopped"


class Runner:
    """One life of a job; its folder is locked by the caller."""

    def __init__(
        self,
        flow: FlowGraph | Plan,
        conf: Conf,
        folder: JobFolder,
        life: str,
        supervisor: Process | None,
        *,
        start: StartFrom = StartFrom(),  # noqa: B008 - a frozen value
        standby: bool = False,
    ) -> None:
        """Say what is to run; nothing is started.

        Args:
            flow: The flow; its plan, if it was compiled with this conf before.
            conf: Where and how.
            folder: The job's folder.
            life: The mark of this life's processes.
            supervisor: The process that watches this one, if one does.
            start: Where it begins, if not at the last good commit.
            standby: Whether it waits, with Spark up, until no other program runs the job.
        """
        self._flow = flow
        self._conf = conf
        self._from = start
        self._folder = folder
        self._log = Log(folder.log_file)
        self._progress = Progress()
        self._signals = Signals(conf.job.stop_limit_s, self._give_up)
        self._state = JobState(
            name=flow.name,
            life=life,
            phase="starting",
            started_at=now(),
            runner=Process.of(os.getpid()),
            supervisor=supervisor,
        )
        self._standby = standby
        self._took_over = False
        self._gave_back = False
        """Whether it was stopped as it took over, so that the next standby takes over instead."""
        self._left = ""
        """Why a standby has nothing to wait for any more."""
        self._job: Job | None = None
        self._restarts = Restarts(conf.job.restarts, conf.job.restarts_within_s)
        self._submitted = False
        """Whether a life has taken the key of the submission."""
        self._together = False
        self._reporter = Reporter(
            self._progress, self._log, conf.kafka.bootstrap_servers, lambda step: self._note(step=step)
        )
        self._verbose = False
        self._logged_to = ""
        """The log's file, for others to know; empty where it is the program's output."""

    def run(self, *, verbose: bool = False) -> JobState:
        """Run the job until it is asked to stop.

        Args:
            verbose: Whether Spark and the workers speak on this process's output, or into the log.

        Returns:
            The state in which the life ended; its `exit_code` is the program's.

        Raises:
            LowtideError: why the job could not start, or why it failed.
        """
        os.environ[VARIABLE] = self._state.life
        self._verbose = verbose
        self._note()
        self._signals.hear(breaks_off=True)
        shares_output = verbose or submitted() or self._state.supervisor is not None
        if self._state.supervisor is not None or not shares_output:
            self._logged_to = str(self._folder.log_file)
        if self._state.supervisor is None:
            self._log.begin()
        output: AbstractContextManager[None] = nullcontext() if shares_output else self._log.taking_output()
        try:
            with output:
                self._live()
        except LowtideError as error:
            self._end("failed", error.cause(), error.exit_code)
            self._progress.say(f"the job has ended; log: {self._folder.log_file}")
            raise
        except (StopAsked, KeyboardInterrupt):
            self._end("stopped", *self._why_broken_off())
        except BaseException as error:
            self._end("failed", Cause("other", said_of(error)), 1)
            raise
        self._progress.say(f"{self._state.phase}: {self._state.cause}")
        return self._state

    def _live(self) -> None:
        """Start, watch and stop; whatever happens, no process is left when this is over."""
        failed = True
        try:
            self._job = self._prepare()
            if not self._standby or self._stand_by(self._job):
                self._watch()
            failed = False
        except Exception as error:
            if self._job is None:
                raise
            if not self._signalled_together():
                self._job.fail(error)
                raise
            traceback.print_exc()
        finally:
            self._signals.hear(breaks_off=False)
            self._progress.hide()
            self._stop(self._job, failed=failed)
        self._end(*self._why_stopped())

    def _signalled_together(self) -> bool:
        """Return whether our signal also ends Spark's JVM: it went to the whole group, as systemd's does."""
        if self._signals.asked is None:
            return False
        jvm = self._state.jvm
        self._together = jvm is not None and jvm.ended_within(JVM_END_LIMIT_S)
        return self._together

    def _prepare(self) -> Job:
        if isinstance(self._flow, FlowGraph):
            self._flow = compile_job(self._flow, self._conf)
        check_broker(self._conf)
        if submitted() and not self._verbose and lead_output(self._folder.log_file):
            self._logged_to = str(self._folder.log_file)
        return Job.prepare(self._flow, self._conf, self._step, self._from, log=self._logged_to)

    def _stand_by(self, job: Job) -> bool:
        """Wait until this program leads the job; False if it is to end without."""
        # PySpark has replaced our handler by its own.
        self._signals.hear(breaks_off=False)

        def waiting() -> None:
            self._note(phase="standby", step="", jvm=child_jvm())
            self._progress.say(f"ready to take over after {age_s():.1f} s; log: {self._folder.log_file}")

        left = job.stand_by(lambda: self._signals.asked is None, waiting)
        self._signals.hear(breaks_off=True)
        if left is not None:
            self._left = left or "it was asked to stop"
            self._note(phase="stopping")
            return False
        self._took_over = True
        self._note(phase="starting")
        return True

    def _ready(self, job: Job) -> None:
        """Wait until a job that was started takes records, and let others know."""
        try:
            # PySpark has replaced our handler by its own.
            self._signals.hear(breaks_off=True)
            self._folder.keep_secret(job.secret)
            self._folder.keep_token(job.token)
            self._folder.keep_certificate(job.certificate)
            control = {} if job.control is None else job.control.fields()
            self._note(jvm=child_jvm(), incarnation=job.incarnation, address=job.address, **control)
            self._step("waiting for the workers")
            job.wait_for_workers(self._conf.job.start_limit_s)
        finally:
            self._signals.hear(breaks_off=False)
        self._note(phase="running", step="", ready_at=now())
        self._progress.say(f"ready after {age_s():.1f} s; log: {self._folder.log_file}")
        if job.control is not None:
            name = self._folder.name
            self._progress.say(f"page: https://{job.control.address}/, which `lowtide status {name} --open` opens")

    def _watch(self) -> None:
        """Wait until the job is to stop, over as many lives as it may have.

        Raises:
            LowtideError: one has ended, or has not come to run, and no other may follow.
        """
        while True:
            job = self._job
            assert job is not None
            ready = False
            try:
                job.begin()
                ready = True
                self._ready(job)
                job.wait(lambda: self._go_on(job))  # noqa: B023 - called before the next turn
                break
            except (LifeEnded, ServiceUnavailable) as error:
                refused = isinstance(error, ServiceUnavailable) or not (ready or job.lost)
                if refused and not self._starts_again:
                    raise
                self._job = self._follow(job, error)
        self._note(phase="stopping")
        if self._finished:
            self._progress.say("all sources have reached their stops, and everything is delivered")
            return
        asked = self._signals.asked
        assert asked is not None
        if asked is HAND_OVER:
            self._progress.say("handing over to a standby")
        else:
            self._progress.say(f"stopping on {asked.name}; send it again to stop at once")

    @property
    def _starts_again(self) -> bool:
        """True while a life after the first comes to run: what took the one before may have taken a service as well."""
        return self._state.phase == "starting" and (self._took_over or self._restarts.count > 0)

    def _follow(self, last: Job, error: LowtideError) -> Job:
        """Prepare another life in place of one that has ended, in a new SparkSession if the old one is not whole."""
        self._from = last.follow_up(self._from)
        self._submitted = self._submitted or last.incarnation > 0
        if self._state.ready_at is not None:
            # The key is that of the start, and the program has started.
            self._conf = replace(self._conf, job=replace(self._conf.job, submission=None))
        follows: bool | None = None
        while True:
            asked = self._signals.asked is not None
            ends = asked or error.kind == "flow" or not last.has_spark() or last.superseded
            pause_s = None if ends else self._restarts.pause_s(time.monotonic())
            if pause_s is None:
                raise error
            self._progress.say(f"the life has ended: {error}")
            self._note(restarts=self._restarts.count, phase="starting")
            self._step(f"starting again from the last commit, restart {self._restarts.count}")
            self._signals.hear(breaks_off=True)
            if follows is None:
                follows = last.can_be_followed()
                last.fail(error)
                last.is_followed()
                # From here on there is nothing to stop, until another one has begun.
                self._job = None
                self._stop_quietly(last, session=not follows)
            else:
                # One that could not begin has stopped the session it was given, unless it failed before that.
                follows = follows and session_runs()
            time.sleep(pause_s)
            try:
                return Job.prepare(
                    self._flow,
                    self._conf,
                    self._step,
                    self._from,
                    follows=follows,
                    again=None,
                    submitted=self._submitted,
                    log=self._logged_to,
                )
            except (LifeEnded, ServiceUnavailable) as another:
                error = another

    def _go_on(self, job: Job) -> bool:
        if self._signals.asked is not None:
            return False
        self._reporter.look(job, time.monotonic())
        return True

    def _stop(self, job: Job | None, *, failed: bool) -> None:
        if self._signals.asked is None:
            self._signals.limit()
        elif job is not None:
            self._gave_back = self._took_over and self._state.ready_at is None and not job.stop_asked
            if self._gave_back or self._signals.asked is HAND_OVER:
                job.is_handed_over()
        try:
            if (failed or self._left) and job is not None:
                self._stop_quietly(job)
            elif job is not None:
                self._stop_cleanly(job)
        finally:
            ended = end_jvm(JVM_END_LIMIT_S)
            self._folder.forget_secret()
            # A JVM that PySpark had not yet met waits for nothing, and there is nothing to wait for.
            killed = end_marked(self._state.life, LEFT_OVER_GRACE_S if ended or job else 0.0)
            if killed and ended:
                self._progress.say(f"{killed} processes did not exit and were killed")

    def _stop_cleanly(self, job: Job) -> None:
        if self._is_abandoned() and not job.finished:
            job.fail(LifeEnded(ABANDONED))
        try:
            job.stop()
        except Exception:
            if not self._signalled_together():
                raise
            traceback.print_exc()

    def _stop_quietly(self, job: Job, *, session: bool = True) -> None:
        """Stop what can be stopped of a job that has failed; a second error goes to the log."""
        try:
            job.stop(session=session)
        except Exception:  # noqa: BLE001 - py4j raises all sorts when its JVM has gone
            traceback.print_exc()

    def _is_abandoned(self) -> bool:
        supervisor = self._state.supervisor
        return supervisor is not None and os.getppid() != supervisor.pid

    @property
    def _finished(self) -> bool:
        return self._job is not None and self._job.finished

    def _why_broken_off(self) -> tuple[Cause, int]:
        asked = self._signals.asked
        if asked is HAND_OVER:
            return Cause("stop", HANDED_OVER), 0
        if asked is None or not self._gave_back:
            return Cause("stop", "it was stopped before it was ready"), INTERRUPTED
        return Cause("stop", f"it received {asked.name} as it took over, and leaves the job to the next standby"), 0

    def _why_stopped(self) -> tuple[str, Cause, int]:
        if self._finished:
            return "finished", Cause("stop", FINISHED), 0
        if self._left:
            return "stopped", Cause("stop", f"its wait for the lease is over: {self._left}"), 0
        asked = self._signals.asked
        if self._is_abandoned():
            return "failed", LifeEnded(ABANDONED).cause(), LifeEnded.exit_code
        if asked is HAND_OVER:
            return "stopped", Cause("stop", HANDED_OVER), 0
        rest = ", which also ended Spark: the next start reads undelivered input again" if self._together else ""
        return "stopped", Cause("stop", f"{f'it received {asked.name}' if asked else 'it was asked to stop'}{rest}"), 0

    # -- the folder ------------------------------------------------------------------------------------------------

    def _step(self, what: str) -> None:
        self._signals.check()
        self._note(step=what)
        self._progress.say(what)

    def _note(self, **changes: Any) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        self._folder.write(self._state)

    def _end(self, phase: str, cause: Cause, code: int) -> None:
        self._note(phase=phase, cause=cause, exit_code=code, ended_at=now(), step="")

    def _give_up(self, why: str, code: int) -> None:
        """End now, with all processes of this life; what the workers hold is lost, the input is still there."""
        self._progress.say(f"{why}: killing its processes")
        jvm = child_jvm()
        if jvm is not None:
            jvm.send(signal.SIGKILL)
        end_marked(self._state.life, 0.0)
        self._folder.forget_secret()
        self._end("failed", Cause("other", f"{why} and was killed"), code)
        end_now(code)
