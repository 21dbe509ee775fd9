"""A program that starts its job again by itself: which life is stopped in the end. No Spark."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lowtide import Flow, json, kafka
from lowtide.conf import Conf
from lowtide.driver.causes import error_of
from lowtide.errors import LifeEnded, LowtideError, ServiceUnavailable
from lowtide.flow.plan import compiler
from lowtide.flow.plan.plan import Plan
from lowtide.jobs import runner as runner_module
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.runner import Runner
from lowtide.jobs.signals import HEARD, StopAsked
from lowtide.process.identity import Process


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop that takes too long ends the process, and that would be this one."""
    monkeypatch.setattr("lowtide.jobs.signals.Signals.limit", lambda _: None)


class Ending:
    """Stands where a job stands; ends as soon as it is waited for."""

    def __init__(self, error: LowtideError) -> None:
        self.error = error
        self.stopped = 0
        self.superseded = False
        self.finished = False
        self.failed: list[BaseException] = []
        self.followed = False

    def wait(self, _go_on: Any) -> None:
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

    def stop(self, *, session: bool = True) -> None:
        self.stopped += 1


@pytest.mark.parametrize("error", [LifeEnded("a worker died once more"), ServiceUnavailable("no broker for too long")])
def test_each_life_is_stopped_once_and_the_last_one_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: LowtideError
) -> None:
    lives = [Ending(LifeEnded("a worker died")), Ending(error)]
    begun = iter(lives)
    monkeypatch.setattr(Runner, "_start", lambda _: next(begun))
    monkeypatch.setattr(Runner, "_ready", lambda _, job: job)
    monkeypatch.setattr("lowtide.driver.job.Job.start", classmethod(lambda *_, **__: next(begun)))
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    runner = Runner(Flow("job"), Conf.load(overrides={"job.restarts": 1}), folder, "a life of a test", None)
    with pytest.raises(type(error), match=str(error)):
        runner._live()
    assert [life.stopped for life in lives] == [1, 1]
    assert [life.followed for life in lives] == [True, False]
    state = folder.state()
    assert state is not None
    assert state.restarts == 1


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
    real = compiler.compile_flow

    def compiling(*args: Any, **named: Any) -> Plan:
        compiled.append(real(*args, **named))
        return compiled[-1]

    def start(plan: Plan, *_: Any, **__: Any) -> Ending:
        begun.append(plan)
        return Ending(LifeEnded("a worker died"))

    monkeypatch.setattr(compiler, "compile_flow", compiling)
    monkeypatch.setattr("lowtide.driver.job.Job.start", start)
    monkeypatch.setattr(runner_module, "check_broker", lambda _: None)
    monkeypatch.setattr(Runner, "_ready", lambda _, job: job)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    what = flow if given == "flow" else compiler.compile_job(flow, conf)
    with pytest.raises(LifeEnded, match="a worker died"):
        Runner(what, conf, folder, "a life of a test", None)._live()
    (plan,) = compiled
    assert [each is plan for each in begun] == [True, True]


def test_what_the_flow_itself_brings_about_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raised = error_of('{"kind": "flow", "what": "step \\"mood\\": raised ValueError"}')
    life = Ending(raised)
    monkeypatch.setattr(Runner, "_start", lambda _: life)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    with pytest.raises(LifeEnded, match="mood"):
        Runner(Flow("job"), Conf.load(overrides={"job.restarts": 9}), folder, "a life of a test", None)._live()
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

    monkeypatch.setattr(Runner, "_start", lambda _: Ending(LifeEnded("a transaction was not ended in time")))
    monkeypatch.setattr("lowtide.driver.job.Job.start", start)
    monkeypatch.setattr(runner_module, "session_runs", lambda: left.pop(0))
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    monkeypatch.setattr("time.sleep", lambda _: None)
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
    monkeypatch.setattr(Runner, "_start", lambda _: life)
    monkeypatch.setattr(runner_module, "end_jvm", lambda _: False)
    folder = JobFolder(tmp_path, "job")
    folder.make()
    runner = Runner(Flow("job"), Conf.load(overrides={"job.restarts": 9}), folder, "a life of a test", None)
    with pytest.raises(LifeEnded, match="incarnation 3"):
        runner._live()
    assert life.stopped == 1


def test_whatever_else_ends_it_is_told_outside_as_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = OSError(28, "No space left on device")
    life = Ending(full)  # type: ignore[arg-type]
    monkeypatch.setattr(Runner, "_start", lambda _: life)
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

    monkeypatch.setattr(Runner, "_start", start)
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
