"""A program that starts its job again by itself: which life is stopped in the end. No Spark."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from own_sleep import not_at_all, sleep_is

from lowtide import Flow, json, kafka
from lowtide.conf import Conf
from lowtide.driver.causes import error_of
from lowtide.errors import LifeEnded, LowtideError, ServiceUnavailable
from lowtide.flow.plan import compiler
from lowtide.flow.plan.plan import Plan
from lowtide.jobs import runner as runner_module
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.runner import Runner
from lowtide.jobs.signals import HEARD, INTERRUPTED, StopAsked
from lowtide.process.identity import Process
from lowtide.service.standbys import HAND_OVER


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that takes too long ends the process, and that would be this one."""
    monkeypatch.setattr("lowtide.jobs.signals.Signals.limit", lambda _: None)


class Ending:
    """Stands where a job stands; ends when it is waited for; `unready`, while its workers are; `unbegun`, before."""

    secret, token, certificate, control, address = b"", "", "", None, ""

    def __init__(self, error: LowtideError, *, unready: bool = False, unbegun: bool = False, lost: bool = True) -> None:
        self.error = error
        self.unready = unready
        self.unbegun = unbegun
        self.lost = lost
        self.incarnation = 0 if unbegun else 1
        self.stopped = 0
        self.superseded = False
        self.finished = False
        self.failed: list[BaseException] = []
        self.followed = False
        self.handed_over = False
        self.stop_asked = False

    def begin(self) -> None:
        if self.unbegun:
            raise self.error

    def wait(self, _go_on: Any) -> None:
        raise self.error

    def wait_for_workers(self, _limit_s: float) -> None:
        if self.unready:
            raise self.error

    def follow_up(self, start: Any) -> Any:
        return start

    def has_spark(self) -> bool:
        return True

    def can_be_followed(self) -> bool:
        return True

    def fail(self, error: BaseException) -> None:
        self.failed.append(error)

    def is_followed(self) -> None:
        self.followed = True

    def is_handed_over(self) -> None:
        self.handed_over = True

    def stop(self, *, session: bool = True) -> None:
        self.stopped += 1


def lived(monkeypatch: pytest.MonkeyPatch, folder: JobFolder, *lives: Ending, **of_job: object) -> LowtideError:
    """Run these lives, one after the other; why the program ends."""
    begun = iter(lives)
    monkeypatch.setattr(Runner, "_prepare", lambda _: next(begun))
    monkeypatch.setattr("lowtide.driver.job.Job.prepare", classmethod(lambda *_, **__: next(begun)))
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    sleep_is(monkeypatch, not_at_all)
    folder.make()
    conf = Conf.load(overrides={f"job.{name}": value for name, value in of_job.items()})
    with pytest.raises(LowtideError) as raised:
        Runner(Flow("job"), conf, folder, "a life of a test", None)._live()
    return raised.value


@pytest.mark.parametrize("error", [LifeEnded("a worker died once more"), ServiceUnavailable("no broker for too long")])
def test_each_life_is_stopped_once_and_the_last_one_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: LowtideError
) -> None:
    lives = [Ending(LifeEnded("a worker died")), Ending(error)]
    folder = JobFolder(tmp_path, "job")
    assert lived(monkeypatch, folder, *lives, restarts=1) is error
    assert [(life.stopped, life.followed) for life in lives] == [(1, True), (1, False)]
    state = folder.state()
    assert state is not None
    assert state.restarts == 1


def test_a_life_lost_in_the_first_start_is_followed_as_later_ones_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    last = ServiceUnavailable("no broker for too long")
    lives = [
        Ending(LifeEnded("a worker died"), unready=True),
        Ending(LifeEnded("a worker died"), unready=True),
        Ending(ServiceUnavailable("not ready in time"), unready=True),
        Ending(last),
    ]
    folder = JobFolder(tmp_path, "job")
    assert lived(monkeypatch, folder, *lives, restarts=3) is last
    assert [(life.stopped, life.followed) for life in lives] == [(1, True)] * 3 + [(1, False)]
    state = folder.state()
    assert state is not None
    assert state.restarts == 3


def test_a_service_lost_before_the_first_life_begins_is_followed_and_the_start_keeps_its_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = LifeEnded("the service is gone")
    lives = [Ending(gone, unbegun=True), Ending(gone, unbegun=True), Ending(gone, unready=True), Ending(gone)]
    lives[1].incarnation = 1
    keys: list[bool] = []
    others = iter(lives[1:])

    def prepare(*_: Any, submitted: bool, **__: Any) -> Any:
        keys.append(submitted)
        return next(others)

    monkeypatch.setattr(Runner, "_prepare", lambda _: lives[0])
    monkeypatch.setattr("lowtide.driver.job.Job.prepare", prepare)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    sleep_is(monkeypatch, not_at_all)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    conf = Conf.load(overrides={"job.restarts": 3})
    with pytest.raises(LifeEnded):
        Runner(Flow("job"), conf, folder, "a life of a test", None)._live()
    assert [(life.stopped, life.followed) for life in lives] == [(1, True)] * 3 + [(1, False)]
    assert keys == [False, True, True], "the key is taken with the first number of a life"


def test_a_first_start_that_is_refused_ends_at_once_while_its_service_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = LifeEnded("the topic of what was delivered is gone")
    life = Ending(refused, unbegun=True, lost=False)
    assert lived(monkeypatch, JobFolder(tmp_path, "job"), life, restarts=9) is refused
    assert (life.stopped, life.followed) == (1, False)


@pytest.mark.parametrize(
    "error",
    [
        error_of('{"kind": "flow", "what": "step \\"mood\\": raised ValueError"}'),
        error_of('{"kind": "interpreter", "what": "an executor has another Python"}'),
        ServiceUnavailable("not ready in time"),
    ],
)
def test_a_first_start_that_would_fail_again_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: LowtideError
) -> None:
    life = Ending(error, unready=True)
    assert lived(monkeypatch, JobFolder(tmp_path, "job"), life, restarts=9) is error
    assert (life.stopped, life.followed) == (1, False)


@dataclass(frozen=True)
class Order:
    number: int


@pytest.mark.parametrize("given", ["flow", "plan"])
def test_all_lives_of_a_program_run_the_plan_that_was_compiled_once(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And none if a command has compiled it before, as `lowtide recover` does."""
    flow, conf = Flow("job"), Conf.load(overrides={"job.restarts": 1})
    flow.read("orders", kafka("orders", json(Order))).write("out", kafka("out", json(Order)))
    compiled: list[Plan] = []
    begun: list[Plan] = []
    logs: list[str] = []
    real = compiler.compile_flow

    def compiling(*args: Any, **named: Any) -> Plan:
        compiled.append(real(*args, **named))
        return compiled[-1]

    def start(plan: Plan, *_: Any, log: str, **__: Any) -> Ending:
        begun.append(plan)
        logs.append(log)
        return Ending(LifeEnded("a worker died"))

    monkeypatch.setattr(compiler, "compile_flow", compiling)
    monkeypatch.setattr("lowtide.driver.job.Job.prepare", start)
    monkeypatch.setattr(runner_module, "check_broker", lambda _: None)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    what = flow if given == "flow" else compiler.compile_job(flow, conf)
    with pytest.raises(LifeEnded, match="a worker died"):
        Runner(what, conf, folder, "a life of a test", None).run()
    (plan,) = compiled
    first, second = begun
    assert first == replace(plan, lanes=first.lanes)
    assert first is second
    assert given == "flow" or first is what
    assert logs == [str(folder.log_file)] * 2


def test_what_the_flow_itself_brings_about_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    life = Ending(error_of('{"kind": "flow", "what": "step \\"mood\\": raised ValueError"}'))
    assert "mood" in str(lived(monkeypatch, JobFolder(tmp_path, "job"), life, restarts=9))
    assert (life.stopped, life.followed) == (1, False)


def test_a_session_stays_the_programs_own_while_no_life_can_begin_in_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else nobody stops it any more: a life that finds it without a fork server fails, and all that follow."""
    left = [True, True, False]
    given: list[bool] = []

    def start(*_: Any, follows: bool, **__: Any) -> Any:
        given.append(follows)
        raise ServiceUnavailable("no broker yet")

    monkeypatch.setattr(Runner, "_prepare", lambda _: Ending(LifeEnded("a transaction was not ended in time")))
    monkeypatch.setattr("lowtide.driver.job.Job.prepare", start)
    monkeypatch.setattr(runner_module, "session_runs", lambda: left.pop(0))
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    sleep_is(monkeypatch, not_at_all)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    runner = Runner(Flow("job"), Conf.load(overrides={"job.restarts": 4}), folder, "a life of a test", None)
    with pytest.raises(ServiceUnavailable, match="no broker yet"):
        runner._live()
    assert given == [True, True, True, False], "the first fails before it reaches the session, the third has stopped it"


def test_a_life_that_another_has_taken_the_place_of_is_followed_by_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    life = Ending(LifeEnded("incarnation 3 is over"))
    life.superseded = True
    assert lived(monkeypatch, JobFolder(tmp_path, "job"), life, restarts=9) is life.error
    assert life.stopped == 1


def test_whatever_else_ends_it_is_reported_as_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = OSError(28, "No space left on device")
    life = Ending(full)  # type: ignore[arg-type]
    monkeypatch.setattr(Runner, "_prepare", lambda _: life)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    with pytest.raises(OSError, match="No space"):
        Runner(Flow("job"), Conf.load(), folder, "a life of a test", None)._live()
    assert life.failed == [full]


def test_a_job_whose_supervisor_was_killed_has_not_been_stopped_by_anybody(tmp_path: Path) -> None:
    life = Ending(LifeEnded(""))
    runner = Runner(
        Flow("job"), Conf.load(), JobFolder(tmp_path, "job"), "a life of a test", Process(os.getpid(), 0, "")
    )
    runner._stop_cleanly(life)  # type: ignore[arg-type]
    assert [str(error) for error in life.failed] == ["its supervisor was killed, so it stopped"]
    own = Process.of(os.getppid())
    Runner(Flow("job"), Conf.load(), JobFolder(tmp_path, "job"), "another", own)._stop_cleanly(life)  # type: ignore[arg-type]
    assert len(life.failed) == 1


def test_a_signal_that_was_lost_on_its_way_ends_the_start_at_its_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a handler raises in a finalizer or at a fork, Python drops."""
    steps: list[str] = []

    def start(runner: Runner) -> Any:
        runner._step("starting Spark")
        with suppress(StopAsked):
            signal.raise_signal(signal.SIGTERM)
        for step in ("claiming the sinks", "starting the query"):
            steps.append(step)
            runner._step(step)

    monkeypatch.setattr(Runner, "_prepare", start)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    runner = Runner(Flow("job"), Conf.load(), folder, "a life of a test", None)
    handlers = {number: signal.getsignal(number) for number in HEARD}
    try:
        runner._signals.hear(breaks_off=True)
        with pytest.raises(StopAsked):
            runner._live()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert steps == ["claiming the sinks"]


@pytest.mark.parametrize(
    ("number", "handed_over", "says"),
    [(HAND_OVER, True, "it was handed over to a standby"), (signal.SIGTERM, False, "it received SIGTERM")],
)
def test_a_job_that_is_to_be_handed_over_says_so_before_it_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals, handed_over: bool, says: str
) -> None:
    class Asked(Ending):
        def wait(self, _go_on: Any) -> None:
            signal.raise_signal(number)

        def stop(self, *, session: bool = True) -> None:
            super().stop(session=session)
            assert self.handed_over is handed_over

    job = Asked(LifeEnded(""))
    monkeypatch.setattr(Runner, "_prepare", lambda _: job)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    handlers = {number: signal.getsignal(number) for number in (*HEARD, HAND_OVER)}
    try:
        Runner(Flow("job"), Conf.load(), folder, "a life of a test", None)._live()
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    state = folder.state()
    assert state is not None
    assert (job.stopped, state.phase, state.exit_code, str(state.cause)) == (1, "stopped", 0, says)


class Waiter(Ending):
    """A job of a standby: `left`, as `Job.stand_by` gives it."""

    def __init__(self, left: str | None, error: LowtideError, **how: bool) -> None:
        super().__init__(error, **how)
        self.left = left

    def stand_by(self, _go_on: Any, waiting: Any) -> str | None:
        waiting()
        return self.left


@pytest.mark.parametrize(
    ("left", "says"), [("life 3, of process 1 on there, has stopped", "life 3"), ("", "it was asked to stop")]
)
def test_a_standby_without_anything_to_wait_for_ends_as_a_stopped_job_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: str, says: str
) -> None:
    life = Waiter(left, LifeEnded("it was never begun"), unbegun=True)
    folder = standing(monkeypatch, tmp_path, life)
    state = folder.state()
    assert state is not None
    assert (state.phase, state.exit_code, life.stopped, life.failed) == ("stopped", 0, 1, [])
    assert f"its wait for the lease is over: {says}" in str(state.cause)


def test_a_standby_that_took_over_begins_again_where_its_first_life_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What took the leader may have taken a service as well: it restarts, as the leader would have."""
    lives = [Waiter(None, ServiceUnavailable("no broker yet"), unbegun=True, lost=False), Ending(LifeEnded("a loss"))]
    with pytest.raises(LifeEnded, match="a loss"):
        standing(monkeypatch, tmp_path, *lives)
    assert [(life.stopped, life.followed) for life in lives] == [(1, True), (1, False)]


class Signalled(Waiter):
    """A job that gets SIGTERM as it takes over, or once it runs, of itself or as its control API was asked to stop."""

    def __init__(self, *, ready: bool = False, asked: bool = False) -> None:
        super().__init__(None, LifeEnded(""))
        self.ready = ready
        self.asks = asked

    def wait_for_workers(self, _limit_s: float) -> None:
        self.stop_asked = self.asks
        if not self.ready:
            signal.raise_signal(signal.SIGTERM)

    def wait(self, _go_on: Any) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("job", "handed_over", "code", "says"),
    [
        (Signalled(), True, 0, "it received SIGTERM as it took over, and leaves the job to the next standby"),
        (Signalled(asked=True), False, INTERRUPTED, "it was stopped before it was ready"),
        (Signalled(ready=True), False, 0, "it received SIGTERM"),
    ],
    ids=["as it takes over", "the job is stopped as it takes over", "once it runs"],
)
def test_a_standby_that_is_stopped_as_it_takes_over_leaves_the_job_to_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Signalled, handed_over: bool, code: int, says: str
) -> None:
    folder = standing(monkeypatch, tmp_path, job)
    state = folder.state()
    assert state is not None
    assert (state.phase, state.exit_code, str(state.cause)) == ("stopped", code, says)
    assert (job.stopped, job.handed_over, job.failed) == (1, handed_over, [])


def standing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lives: Ending) -> JobFolder:
    """Run a standby with these lives."""
    begun = iter(lives)
    monkeypatch.setattr(Runner, "_prepare", lambda _: next(begun))
    monkeypatch.setattr("lowtide.driver.job.Job.prepare", classmethod(lambda *_, **__: next(begun)))
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    sleep_is(monkeypatch, not_at_all)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    conf = Conf.load(overrides={"job.restarts": 1})
    handlers = {number: signal.getsignal(number) for number in HEARD}
    try:
        Runner(Flow("job"), conf, folder, "a life of a test", None, standby=True).run()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return folder
