"""A job: one flow running on Spark, from its start to the end of its life."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle

from lowtide.assignment.client import ServiceClient
from lowtide.assignment.messages import JobState
from lowtide.conf import Conf
from lowtide.conf.token import job_token
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.connectors.schema_registry import bound
from lowtide.driver import preflight
from lowtide.driver.assignments import deployment_of, setting_of
from lowtide.driver.borrowed_floors import refuse_borrowing
from lowtide.driver.bounds import has_an_end
from lowtide.driver.broker_watch import BrokerWatch
from lowtide.driver.causes import error_of, error_of_query, exception_of
from lowtide.driver.checkpoints import CheckpointFolder
from lowtide.driver.commit_followers import CommitFollowers, Follower
from lowtide.driver.commit_hooks import tell
from lowtide.driver.connections import protections_of
from lowtide.driver.frozen import refuse_outgrown, settled
from lowtide.driver.lag_group import LagGroup
from lowtide.driver.layout import layout_of
from lowtide.driver.life_note import LifeNote
from lowtide.driver.opening import begin_life, open_life
from lowtide.driver.query import start_query
from lowtide.driver.recovery import StartFrom, refuse_stateless
from lowtide.driver.refusals import fence_ends_life
from lowtide.driver.rehearsal import rehearse
from lowtide.driver.session import (
    drop_executors,
    executors_with_slots,
    has_executors,
    keep_classes,
    master_of,
    session_runs,
    start_session,
)
from lowtide.driver.standby import Waiting
from lowtide.driver.state import disk_of
from lowtide.driver.traces import traces_of
from lowtide.errors import LifeEnded, LowtideError, ServiceUnavailable
from lowtide.events import EventLog
from lowtide.flow.plan.compiler import compile_job
from lowtide.flow.plan.plan import Plan
from lowtide.flow.plan.plan_pickle import dump_plan, register_modules
from lowtide.flow.steps.graph import FlowGraph
from lowtide.process.identity import called
from lowtide.process.lent_store import lend_from
from lowtide.status.certificate import read_certificate
from lowtide.status.control_client import ControlClient
from lowtide_snapshots.commits.log import ZooKeeperCommitLog
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.job.control_address import ControlAddress, fingerprint

LOG = logging.getLogger(__name__)

POLL_MS = 200
"""Interval of checks that the job still runs; a signal waits as long at most."""
END_POLL_S = 0.5
"""Interval at which a job whose sources end asks its service whether it has finished."""
FOLLOWERS_LIMIT_S = 5.0
"""Wait at a stop for what follows commits."""
CAUSE_LIMIT_S = 1.0
"""Wait for the service's own cause of an end when Spark has already ended the query."""

Said = Callable[[str], None]


class Job:
    """A started flow. Make it with `Job.start`, or `Job.prepare` and `begin`; `wait` for its end or `stop` it."""

    def __init__(
        self,
        plan: Plan,
        conf: Conf,
        session: Any,
        found: preflight.Surroundings,
        say: Said,
        start: StartFrom,
        *,
        owned: bool,
    ) -> None:
        """Make a job that has not begun; `owned`: whether the session was started for it and ends with it."""
        self._found = found
        self._say = say
        self._from = start
        self.plan = plan
        self.token: str = job_token(conf.control)
        """Requests of the control API."""
        self.control: ControlAddress | None = None
        """The control API's address; None before the life has begun."""
        self.certificate = ""
        """The control API's certificate, in PEM; empty before."""
        self._executors = 0
        """Number of them when the life was ready."""
        self._conf = conf
        self._store = ZooKeeperAccess.of(conf.zookeeper).store(plan.name)
        self._store_closed = False
        self._note = LifeNote(self._store, conf.job.delivery)
        self._session = session
        self._owned = owned
        self._side = session._jvm.io.lowtide.DriverSide.current()
        self.address: str = self._side.address()
        self.secret: bytes = bytes.fromhex(self._side.secret())
        lend_from(self.address, self.secret)
        self._service: ServiceClient | None = None
        """None before it is asked."""
        self._checkpoints = CheckpointFolder(Path(conf.spark.checkpoint_folder), plan.name)
        self._opened = False
        self._waited = False
        self._followers: CommitFollowers | None = None
        self._query: Any = None
        self._load_limit_s = 0.0
        self._brokers = BrokerWatch(conf.kafka)
        self.finished = False
        """True if all sources have ended, and everything is delivered and committed; seen by `wait`."""
        self._ends = has_an_end(plan)
        self._look_s = 0.0
        self.outage_s = 0.0
        """For how many seconds no broker was reached, seen by `wait`; 0 while one is."""

    @property
    def incarnation(self) -> int:
        """The life's number; 0 before it has begun."""
        return self._note.incarnation

    @classmethod
    def start(
        cls,
        flow: FlowGraph | Plan,
        conf: Conf,
        say: Said = lambda _: None,
        start: StartFrom = StartFrom(),  # noqa: B008 - a frozen value
    ) -> Job:
        """Check everything, start Spark and the query; see `prepare`, `begin`.

        Raises:
            LowtideError: what is wrong, where, and what to do; nothing is left running.
        """
        job = cls.prepare(flow, conf, say, start)
        try:
            job.begin()
        except BaseException as error:
            job.fail(error)
            job.stop()
            raise
        return job

    @classmethod
    def prepare(
        cls,
        flow: FlowGraph | Plan,
        conf: Conf,
        say: Said = lambda _: None,
        start: StartFrom = StartFrom(),  # noqa: B008 - a frozen value
        *,
        follows: bool = False,
        again: bool | None = False,
        submitted: bool = False,
        log: str = "",
    ) -> Job:
        """Check everything and start Spark.

        Args:
            flow: What to run; its plan, if it was compiled with this conf before.
            conf: Where and how.
            say: Called with each step in a few words, as it begins.
            start: Where it begins, if not at the last good commit.
            follows: Whether a session that runs is one that an earlier job of this program has left, to be used again.
            again: Whether the program begins another life if this one does not come to run; None if that depends.
            submitted: Whether an earlier life of this program has taken `job.submission`.
            log: The file of the program's log; empty where that is its output.

        Returns:
            A job to `begin`; `stop` it, whatever happens.

        Raises:
            LowtideError: what is wrong, where, and what to do; nothing is left running.
        """
        say("checking the flow")
        read_certificate(conf.control.tls_cert, conf.control.tls_key)  # Whether the service will be able to.
        plan = compile_job(flow, conf) if isinstance(flow, FlowGraph) else flow
        dump_plan(plan)
        disk_of(plan, conf)  # Whether the workers will be able to.
        traces_of(conf)
        preflight.check_store(conf)
        submission = conf.job.submission
        if submitted:
            conf = replace(conf, job=replace(conf.job, submission=None))
        plan, conf, found = _look_around(plan, conf, start, say)
        say(f"starting Spark, {conf.spark.master}")
        owned = follows or not session_runs()
        session = start_session(conf, plan.name)
        try:
            job = cls(plan, conf, session, found, say, start, owned=owned)
        except BaseException:
            if owned:
                session.stop()
            raise
        job._note.again, job._note.submission, job._note.log = again, submission, log
        return job

    def stand_by(self, go_on: Callable[[], bool], waiting: Callable[[], None]) -> str | None:
        """Wait until the job's lease is free, and take it; then `begin`.

        Args:
            go_on: Asked often; False ends the wait.
            waiting: Called once all is ready for a life, and the wait begins.

        Returns:
            None if the lease is taken; else why there is nothing to wait for, empty if `go_on` has ended the wait.

        Raises:
            FlowError: the leader runs something else.
            ServiceUnavailable: ZooKeeper does not answer as the wait begins.
        """
        plan, conf = self.plan, self._conf
        with fence_ends_life():
            self._store.open()
            wait = Waiting(self._store, called(os.getpid()), layout_of(plan, conf), self._say)
            wait.refuse_other_leader()
            with suppress(LifeEnded):  # Without its service a start fails, and says so.
                self._name_lease()
            wait.show(ready=False)
            if not self._rehearse(go_on):
                self._say("not rehearsed: taking over will take some seconds longer")
            wait.show(ready=True)
            waiting()
            if not wait.take(go_on):
                return wait.ended
        self._waited = True
        return None

    def _rehearse(self, go_on: Callable[[], bool]) -> bool:
        self._say("rehearsing the query")
        preflight.wait_for_slots(
            self._session,
            preflight.slots_needed(self.plan, self._found.fronts),
            self._conf.job.start_limit_s,
            self._say,
        )
        self._wait_for_executors()
        fronts = [f"{topic}-{partition}" for topic, partition in self._found.earliest]
        return rehearse(self._session, self.plan, self._conf, fronts, go_on)

    def begin(self) -> None:
        """Begin the life and start its query.

        Raises:
            LowtideError: what is wrong, where, and what to do.
        """
        if self._waited:  # What was found before may be long ago.
            with fence_ends_life():
                refuse_outgrown(self._store, self.plan)
            self.plan, self._conf, self._found = _look_around(self.plan, self._conf, self._from, self._say)
        plan, conf, found, say = self.plan, self._conf, self._found, self._say
        with fence_ends_life():
            self._store.open()
        self._name_lease()
        # Tasks of the session's earlier lives may still run: the number tells this life's apart.
        before = self.state().incarnation
        self._note.incarnation = begin_life(self._store, plan, conf, say, above=before)
        self._checkpoints.remove_left()
        opening = open_life(self._store, plan, conf, found, say, incarnation=self.incarnation, start=self._from)
        self._opened = True
        self._note.commit = None if opening.recovered is None else opening.recovered.manifest.id
        register_modules(plan)
        preflight.wait_for_slots(self._session, preflight.slots_needed(plan, found.fronts), conf.job.start_limit_s, say)
        if before < 1:  # A later life of a session does not wait for what may be lost for good.
            self._wait_for_executors()
        say("starting the query")
        deployment = deployment_of(plan, conf, found, opening)
        setting = setting_of(plan, conf, opening, self.token, protections_of(conf))
        self._load_limit_s = setting.load_limit_s
        address, self.certificate = self._asked().begin(setting, cloudpickle.dumps(deployment))
        self.control = self._note.control = ControlAddress.proved(
            self.token,
            job=plan.name,
            incarnation=self.incarnation,
            address=address,
            certificate=fingerprint(ssl.PEM_cert_to_DER_cert(self.certificate)),
        )
        self._note.running()
        fronts = {start.name: start.offset for start in opening.fronts}
        self._query = start_query(
            self._session, plan, conf, fronts, incarnation=self.incarnation, checkpoint=self._checkpoints.path
        )
        self._side.watch(str(self._query.runId()))
        self._follow_commits()

    def _name_lease(self) -> None:
        """Have the service free the lease if this process dies, at whatever step."""
        access = ZooKeeperAccess.of(self._conf.zookeeper)
        self._asked().leads(self.plan.name, self._store.lease_token, access)

    def _follow_commits(self) -> None:
        plan, group = self.plan, self._conf.kafka.report_lag_to
        place = ZooKeeperAccess.of(self._conf.zookeeper).store(plan.name)
        followers: dict[str, Follower] = {}
        if group is not None:
            followers["[kafka] report_lag_to"] = LagGroup(self._conf, group).follow
        if plan.hooks:
            followers["on_commit"] = partial(tell, plan.hooks, place, self.incarnation)
        if followers:
            self._followers = CommitFollowers(place, followers)
            self._followers.start()

    def _wait_for_executors(self) -> None:
        context = self._session.sparkContext
        asked = preflight.executors_asked(dict(context.getConf().getAll()))
        limit_s = context._jsc.sc().conf().getTimeAsSeconds(preflight.EXECUTORS_LIMIT, preflight.EXECUTORS_LIMIT_S)
        preflight.wait_for_executors(asked, lambda: executors_with_slots(self._session), float(limit_s), self._say)

    @property
    def lost(self) -> bool:
        """True if the life's service is gone, so that it cannot come to run."""
        try:
            self.state()
        except LifeEnded:
            return True
        return False

    def fail(self, error: BaseException) -> None:
        """Note why it ends although nobody asked for that, for the report when it is stopped.

        A signal that came during the start is a request.
        """
        if isinstance(error, Exception):
            self._note.fail(error)

    @property
    def stop_asked(self) -> bool:
        """True if somebody has asked its control API to stop the job; False if unknown."""
        with suppress(LifeEnded):
            return self.control is not None and self.state().stop_asked
        return False

    def is_followed(self) -> None:
        """Say that this program begins another life when this one is stopped."""
        self._note.again = True

    def is_handed_over(self) -> None:
        """Say that a standby is to continue the job when this life is stopped."""
        self._note.handed_over = True

    def wait_for_workers(self, limit_s: float) -> None:
        """Wait until every worker of the later levels is there, so that a record would be taken at once.

        Where there is state to load, `[worker].load_limit_s` is added to the limit.

        Raises:
            LifeEnded: the life ended before.
            ServiceUnavailable: it took longer than `limit_s`.
        """
        limit_s += self._load_limit_s
        deadline = time.monotonic() + limit_s
        later = (self.plan.levels - 1) * self.plan.parallelism
        while sum(worker.level > 0 and worker.attached for worker in self.state().workers) < later:
            if not self.running():
                self.wait()
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"the job was not ready within {limit_s:g} s",
                    way_out="see the log; a slow machine needs a larger job.start_limit_s",
                )
            time.sleep(0.05)
        self._executors = self.state().totals["executors"]
        self._note.ran, self._note.again = True, False
        keep_classes(self._conf)

    def running(self) -> bool:
        """Return whether the life still runs; LifeEnded if Spark's JVM has gone, which ends it as well."""
        try:
            return bool(self._query.isActive()) and not self._side.cause(self.incarnation)
        except Exception as error:
            raise LifeEnded(
                "Spark's JVM is gone: it was killed, or it exited", way_out="see the log; start the job again"
            ) from error

    def client(self) -> ControlClient:
        """Return the life's control API."""
        assert self.control is not None, "the life has not begun"
        return ControlClient(self.control, self.token)

    def _asked(self) -> ServiceClient:
        # A service that was too slow once is asked again: it may have begun the life, which has to be ended there.
        if self._service is None or self._service.closed:
            self._service = ServiceClient(self.address, self.secret)
        return self._service

    def state(self) -> JobState:
        """Return the job's state, as the service knows it."""
        return self._asked().status()

    def status(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return self.state().plain()

    def wait(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Wait for the end of the life; returns only if it has `finished`, or `go_on`, asked every `POLL_MS`, says no.

        Raises:
            LifeEnded: with the cause; whatever ended it, the input is still there.
            ServiceUnavailable: no broker was reached for too long.
        """
        try:
            while self.running():
                if not go_on():
                    return
                if self._has_finished():
                    return
                self._await()
                self.outage_s = self._brokers.look()
                with fence_ends_life():
                    self._store.keep_lease()
            raise self._cause()
        except LowtideError as error:
            self._note.fail(error)
            raise

    def _has_finished(self) -> bool:
        if self._ends and time.monotonic() >= self._look_s:
            self._look_s = time.monotonic() + END_POLL_S
            with suppress(LifeEnded):  # The cause is known in a moment.
                self.finished = self._note.finished = self.state().finished
        return self.finished

    def _await(self) -> None:
        try:
            self._query.awaitTermination(POLL_MS)
        except Exception as error:
            if self.running():
                raise LifeEnded(f"the connection to Spark is broken: {error}") from error

    def _cause(self) -> LowtideError:
        deadline = time.monotonic() + CAUSE_LIMIT_S
        while time.monotonic() < deadline:
            if cause := str(self._side.cause(self.incarnation)):
                return error_of(cause)
            time.sleep(0.02)
        exception = self._query.exception()
        return error_of_query(str(exception.get().toString()) if exception.isDefined() else "")

    def follow_up(self, start: StartFrom) -> StartFrom:
        """Return the start of the next life, if this one began at `start`: the same, until this one has committed.

        What was to be delivered again was said to be so once, if this life came so far. A commit is verified again:
        this life may have ended because a part of it is damaged.
        """
        start = replace(start, verified="")
        if not self._opened:
            return start
        start = replace(start, floors_from=None)  # It has the floors.
        if start.redeliver:
            return StartFrom()
        try:
            last = ZooKeeperCommitLog(self._store).last()
        except SnapshotsError:
            return start
        return start if last is None or last.incarnation < self.incarnation else StartFrom()

    @property
    def superseded(self) -> bool:
        """True if another life of the job has begun, so that this program must not begin one; False if unknown."""
        with suppress(SnapshotsError):
            return not self._store_closed and self._store.incarnation() > self.incarnation
        return False

    def has_spark(self) -> bool:
        """True while Spark's JVM runs."""
        try:
            return bool(self._session._jvm.System.currentTimeMillis())
        except Exception:  # noqa: BLE001 - py4j raises all sorts when its JVM has gone
            return False

    def can_be_followed(self) -> bool:
        """True if another life may begin in Spark's session: it runs, and so do the service and all executors.

        On a cluster lost executors do not matter: `stop` tells Spark of them, which replaces them if it can.
        """
        try:
            executors = self.state().executors
        except LifeEnded:
            return False
        return len(executors) >= self._executors > 0 or self._may_lose_executors()

    def _may_lose_executors(self) -> bool:
        return self._executors > 0 and has_executors(master_of(self._conf))

    def _drop_lost_executors(self) -> None:
        with suppress(LifeEnded):
            executors = self.state().executors
            if len(executors) < self._executors and self._may_lose_executors():
                lost = drop_executors(self._session, executors)
                LOG.warning("excluding lost executor %s from further tasks", ", ".join(lost))

    def stop(self, *, session: bool = True) -> None:
        """Stop the query; workers deliver what they hold. Spark stops too if the job started it and `session` is True.

        Where it stays, it gives no more tasks to executors that are lost.
        """
        self._note.stopping()
        try:
            if self._note.handed_over and not self._note.ran:
                self._give_back()  # Nothing of it has run that the next life might wait for.
            if not session:
                self._drop_lost_executors()
            try:
                self._asked().stopping(self.incarnation, self._note.cause)
            except LifeEnded:  # The service has gone, and its workers with it.
                if self._note.cause:
                    EventLog(self.plan.name, self.incarnation).event("life_ended", cause=str(self._note.cause))
            self._stop_query()
            with suppress(LifeEnded):
                killed = self._asked().finish(self.incarnation)
                if killed:
                    LOG.warning("workers did not end in time and were killed: %s", ", ".join(killed))
        finally:
            if self._followers is not None:
                self._followers.close(FOLLOWERS_LIMIT_S)
            if self._service is not None:
                self._service.close()
            if not self._store_closed:
                self._give_back()
            if self._owned and session:
                self._session.stop()
            self._checkpoints.close()

    def _give_back(self) -> None:
        """Note how the life has ended, and give the lease back."""
        self._note.over()
        self._store.close()
        self._store_closed = True

    def _stop_query(self) -> None:
        """Stop Spark's query; one that waits for Kafka is left to its thread, a daemon's, which ends with the JVM."""
        if self._query is None or not self._query.isActive():
            return
        try:
            self._query.stop()
        except Exception as error:
            if "TimeoutException" not in exception_of(error):
                raise
            LOG.warning("the query still waits for Kafka; leaving it to end with Spark")


def _look_around(plan: Plan, conf: Conf, start: StartFrom, say: Said) -> tuple[Plan, Conf, preflight.Surroundings]:
    """Hold a start against ZooKeeper and Kafka; return its plan and conf, as settled with both, and what is there.

    Raises:
        LowtideError: what is wrong, where, and what to do.
    """
    say(f"asking ZooKeeper at {conf.zookeeper.hosts}")
    refuse_stateless(plan, conf, start)
    plan, conf = settled(plan, conf)
    plan = bound(plan, conf)
    if start.floors_from is not None:
        refuse_borrowing(plan, conf, start.floors_from)
    say(f"asking Kafka at {conf.kafka.bootstrap_servers}")
    found = preflight.look(plan, conf)
    master = master_of(conf)
    preflight.check_slots(plan, found.fronts, preflight.slots_offered(master), master)
    return plan, conf, found
