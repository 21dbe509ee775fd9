"""A host's line to a caller process: a real one, which is killed, hangs, leaks and floods."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, NoReturn

import cloudpickle
import pytest

import lowtide.calls.line as line
from lowtide.calls.inside import call_key
from lowtide.calls.line import CallerDied, Callers
from lowtide.calls.outcome import Answered, CallFailed, Question
from lowtide.calls.setting import CallSetting
from lowtide.errors import LifeEnded
from lowtide.flow.schema.fields import decoder_of

PATIENCE_S = 60.0
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class Item:
    name: str


@dataclass(frozen=True)
class Price:
    name: str
    euros: int


async def priced(item: Item) -> Price:
    return Price(item.name, len(item.name))


def setting(function: Callable[..., Any], name: str = "price", **rest: Any) -> CallSetting:
    return CallSetting(name, function, Item, Price, **{"concurrency": 8, "timeout_s": 30.0, **rest})


class Clock:
    """The real time, and what a test adds to it."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


@contextmanager
def calling(*settings: CallSetting, max_bytes: int = 1 << 26, **rest: Any) -> Iterator[Callers]:
    callers = Callers(settings, max_bytes=max_bytes, **rest)
    try:
        yield callers
    finally:
        callers.close(5.0)


def questions(names: Sequence[str]) -> list[Question]:
    return [Question(number, f"key of {name}", Item(name)) for number, name in enumerate(names)]


def turn(callers: Callers, patience_s: float = 0.05) -> list[Answered]:
    """One turn of a host's loop."""
    callers.send()
    select.select([callers], [], [], patience_s)
    return callers.answers()


def turns_until(callers: Callers, done: Callable[[list[Answered]], object], patience_s: float = 0.05) -> list[Answered]:
    """Turns of a host's loop until something holds of all answers that have come."""
    deadline = time.monotonic() + PATIENCE_S
    found: list[Answered] = []
    while not done(found):
        assert time.monotonic() < deadline, f"it takes too long: {found}"
        found += turn(callers, patience_s)
    return found


def answered(callers: Callers, count: int) -> list[Answered]:
    """The next answers, by their questions' ids, none of which comes twice."""
    found = turns_until(callers, lambda answers: len(answers) >= count)
    assert len({each.id for each in found}) == len(found) == count
    return sorted(found, key=lambda each: each.id)


def ends(process: int) -> None:
    """Wait for the end of a process, by its descriptor."""
    assert select.select([process], [], [], PATIENCE_S)[0]
    os.close(process)


def prices(answers: Sequence[Answered]) -> list[int]:
    return [-1 if each.value is None else decoder_of(Price)(each.value)[0].euros for each in answers]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_questions_of_several_calls_are_answered_by_their_ids() -> None:
    async def doubled(item: Item) -> Price:
        return Price(item.name, 2 * len(item.name))

    def of_key(item: Item, key: str) -> Price:
        assert key == call_key()
        return Price(key, len(key))

    with calling(setting(priced), setting(doubled, "two"), setting(of_key, "key", pass_keys=True)) as callers:
        for call in range(3):
            callers.ask(call, [Question(10 * call + number, "k" * number, Item("x" * number)) for number in range(4)])
        assert prices(answered(callers, 12)) == [0, 1, 2, 3, 0, 2, 4, 6, 0, 1, 2, 3]


def test_a_batch_is_made_of_questions_that_were_asked_apart() -> None:
    async def sizes(items: list[Item]) -> list[Price]:
        return [Price(item.name, len(items)) for item in items]

    with calling(setting(sizes, batch=3, within_s=30.0)) as callers:
        for question in questions(["a", "b", "c"]):
            callers.ask(0, [question])
            callers.send()
        assert prices(answered(callers, 3)) == [3, 3, 3]


def test_a_final_failure_is_an_answer_with_the_users_traceback() -> None:
    async def gone(item: Item) -> Price:
        raise ConnectionResetError(f"no {item.name}")

    with calling(setting(gone, retries=1)) as callers:
        callers.ask(0, questions(["tea"]))
        failure = answered(callers, 1)[0].failure
    assert failure is not None
    assert (failure.what, failure.tries) == ("raised ConnectionResetError: no tea", 2)
    assert "in gone\n" in failure.traceback_text


# -- killed --------------------------------------------------------------------------------------------------------


def test_a_killed_caller_is_made_again_and_asks_open_questions_by_the_same_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = tmp_path / "asked"

    async def deadly(item: Item) -> Price:
        with asked.open("a") as file:
            file.write(f"{os.getpid()} {item.name} {call_key()}\n")
        if item.name == "fatal" and len({each.split()[0] for each in lines(asked)}) == 1:
            await asyncio.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        while item.name == "slow" and len({each.split()[0] for each in lines(asked)}) == 1:
            await asyncio.sleep(0.01)
        return Price(item.name, len(item.name))

    with calling(setting(deadly)) as callers:
        callers.ask(0, questions(["tea", "slow", "fatal", "rice"]))
        assert prices(answered(callers, 4)) == [3, 4, 5, 4]
        assert callers.restarts == 1
    by_process: dict[str, list[str]] = {}
    for each in lines(asked):
        by_process.setdefault(each.split()[0], []).append(each.partition(" ")[2])
    first, second = map(sorted, by_process.values())
    assert first == ["fatal key of fatal", "rice key of rice", "slow key of slow", "tea key of tea"]
    assert second == ["fatal key of fatal", "slow key of slow"]
    assert "was killed by SIGKILL; another one asks 2 questions" in caplog.text


async def fatal(item: Item) -> Price:
    os.kill(os.getpid(), signal.SIGKILL)
    return Price(item.name, 0)


def test_three_deaths_within_a_minute_end_the_life(caplog: pytest.LogCaptureFixture) -> None:
    with calling(setting(fatal), setting(priced, "other")) as callers:
        callers.ask(0, questions(["tea"]))
        with pytest.raises(CallerDied) as died:
            answered(callers, 1)
        assert callers.restarts == 2
    assert isinstance(died.value, LifeEnded)
    assert str(died.value) == (
        "the process that asks services ended 3 times within 60 s: at last it was killed by SIGKILL\n"
        '  where: calls "price", "other"\n'
        "  what to do: if the machine ran out of memory (`dmesg` says so), lower the calls' concurrency or batch, or "
        "look for what their functions keep; then start the job again"
    )


def test_deaths_that_lie_further_apart_do_not() -> None:
    clock = Clock()
    with calling(setting(fatal), now=clock) as callers:
        callers.ask(0, questions(["tea"]))
        for death in range(1, 5):
            turns_until(callers, lambda _, death=death: callers.restarts == death)  # type: ignore[misc]
            clock.ahead_s += 31.0
        assert callers.restarts == 4


def test_answers_that_came_before_the_last_death_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "READ_BYTES", 1_000)

    async def fatal_at_last(item: Item) -> Price:
        if item.name == "fatal":
            await asyncio.sleep(0.2)
            os.kill(os.getpid(), signal.SIGKILL)
        return Price(item.name, len(item.name))

    with calling(setting(fatal_at_last)) as callers:
        callers.ask(0, [Question(1000, "k", Item("fatal"))])
        turns_until(callers, lambda _: callers.restarts == 2)
        callers.ask(0, questions(["x" * number for number in range(100)]))
        callers.send()
        ends(os.pidfd_open(callers.pid))
        assert prices(sorted(callers.answers(), key=lambda each: each.id)) == list(range(100))
        with pytest.raises(CallerDied):
            callers.answers()


def test_a_crash_of_a_library_is_named_by_its_signal() -> None:
    async def crashes(item: Item) -> NoReturn:
        ctypes.string_at(0)
        raise AssertionError

    with calling(setting(crashes)) as callers:
        callers.ask(0, questions(["tea"]))
        with pytest.raises(CallerDied, match="at last it was killed by SIGSEGV"):
            answered(callers, 1)


class Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def test_functions_that_cannot_be_loaded_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    with calling(setting(Unloadable())) as callers:  # type: ignore[arg-type]
        callers.ask(0, questions(["tea"]))
        with pytest.raises(CallerDied) as died:
            turns_until(callers, lambda _: False)
    assert "at last it cannot load the calls' functions: ValueError: invalid literal for int()" in died.value.what
    assert "Fatal error" not in capfd.readouterr().err


# -- hung ----------------------------------------------------------------------------------------------------------


def test_a_loop_that_does_not_turn_is_killed_after_it_has_said_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen = tmp_path / "seen"

    async def never_awaits(item: Item) -> Price:
        if not seen.exists():
            seen.touch()
            time.sleep(3600)
        return Price(item.name, 1)

    monkeypatch.setattr(line, "SILENCE_LIMIT_S", 2.5)
    with calling(setting(never_awaits)) as callers:
        callers.ask(0, questions(["tea", "rice"]))
        assert prices(answered(callers, 2)) == [1, 1]
        assert callers.restarts == 1
    assert re.search(r'File ".*test_line.py", line \d+ in never_awaits', capfd.readouterr().err)


def test_a_stopped_process_that_goes_on_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(line, "DUMP_S", 3600.0)
    with calling(setting(priced), now=clock) as callers:
        callers.ask(0, questions(["tea"]))
        answered(callers, 1)
        os.kill(callers.pid, signal.SIGSTOP)
        turns_until(callers, lambda _: not turn(callers, 0.2))
        clock.ahead_s = 30.0
        turn(callers)
        os.kill(callers.pid, signal.SIGCONT)
        callers.ask(0, questions(["rice"]))
        assert prices(answered(callers, 1)) == [4]
        clock.ahead_s = 7200.0
        turn(callers, 2.0)
        callers.ask(0, questions(["rice"]))
        assert prices(answered(callers, 1)) == [4]
        assert callers.restarts == 0


def test_three_silent_processes_end_the_life_and_the_way_out_is_to_await() -> None:
    clock = Clock()

    def stop() -> None:
        callers.ask(0, questions(["tea"]))
        answered(callers, 1)
        os.kill(callers.pid, signal.SIGSTOP)
        while turn(callers, 0.2) or select.select([callers], [], [], 0)[0]:
            pass
        clock.ahead_s += line.SILENCE_LIMIT_S + 0.1
        turn(callers)
        clock.ahead_s += line.DUMP_S

    with calling(setting(priced), now=clock) as callers:
        for restarts in (1, 2):
            stop()
            turns_until(callers, lambda _, restarts=restarts: callers.restarts == restarts)  # type: ignore[misc]
        stop()
        with pytest.raises(CallerDied) as died:
            turns_until(callers, lambda _: False)
    assert re.search(r"at last it gave no sign of life for 2\d s and was killed$", died.value.what)
    assert died.value.way_out.startswith("an async def function never returns to its event loop: let it await")


def test_where_all_threads_hang_another_process_goes_on_with_their_tries(caplog: pytest.LogCaptureFixture) -> None:
    def hangs(item: Item) -> Price:
        if item.name == "hangs":
            threading.Event().wait()
        return Price(item.name, 1)

    with calling(setting(hangs, concurrency=2, timeout_s=0.1, retries=3)) as callers:
        callers.ask(0, questions(["hangs", "fine", "hangs"]))
        answers = answered(callers, 3)
        assert callers.restarts == 3  # Each of the tries but the last has left two threads that hang.
    assert prices(answers) == [-1, 1, -1]
    assert answers[0].failure == answers[2].failure == CallFailed("gave no answer within 0.1 s", 4)
    assert 'ends itself: all 2 calls of step "price" hang; another one asks 2 questions' in caplog.text


# -- leaking -------------------------------------------------------------------------------------------------------


def test_the_kernel_takes_a_leaking_caller_before_its_host() -> None:
    with calling(setting(priced)) as callers:
        callers.ask(0, questions(["tea"]))
        answered(callers, 1)
        assert Path(f"/proc/{callers.pid}/oom_score_adj").read_text() == "1000\n"
        assert Path("/proc/self/oom_score_adj").read_text() != "1000\n"


def test_a_function_that_gets_no_more_memory_fails_its_try_and_the_process_goes_on() -> None:
    def leaks(item: Item) -> Price:
        import resource

        kept = []
        if item.name == "leaks":
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
            try:
                while True:
                    kept.append(bytes(8 << 20))
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
        return Price(item.name, 1)

    with calling(setting(leaks, concurrency=1)) as callers:
        callers.ask(0, questions(["leaks", "fine"]))
        first, second = answered(callers, 2)
        assert callers.restarts == 0
    assert first.failure is not None
    assert first.failure.what == "raised MemoryError: "
    assert prices([second]) == [1]


# -- flooding ------------------------------------------------------------------------------------------------------


def test_a_flood_of_answers_leaves_the_host_its_turns() -> None:
    async def long(item: Item) -> Price:
        return Price("x" * 100_000, 1)

    with calling(setting(long, concurrency=200)) as callers:
        callers.ask(0, questions(["tea"] * 200))
        found: list[int] = []

        def take(answers: list[Answered]) -> bool:
            found.append(len(answers) - sum(found))
            return len(answers) == 200

        turns_until(callers, take)
    assert max(found) <= line.READ_BYTES // 100_000 + 1


def test_open_questions_are_asked_again_however_many_they_are(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    async def waits(item: Item) -> Price:
        if not seen.exists():
            await asyncio.sleep(3600)
        return Price(item.name, len(item.name))

    with calling(setting(waits, concurrency=3 * line.AGAIN)) as callers:
        callers.ask(0, questions(["x" * number for number in range(2 * line.AGAIN + 7)]))
        turn(callers)
        seen.touch()
        os.kill(callers.pid, signal.SIGKILL)
        assert prices(answered(callers, 2 * line.AGAIN + 7)) == list(range(2 * line.AGAIN + 7))


def test_an_answer_that_is_too_large_is_a_failure() -> None:
    async def long(item: Item) -> Price:
        return Price("x" * int(item.name), 1)

    with calling(setting(long), max_bytes=100_000) as callers:
        callers.ask(0, questions(["10", "100000"]))
        first, second = answered(callers, 2)
    assert prices([first]) == [1]
    assert second.failure == CallFailed("returned 100019 bytes, at most 100000 may be", 1)


def test_a_host_does_not_wait_for_a_caller_that_does_not_read() -> None:
    with calling(setting(priced), max_bytes=16 << 20) as callers:
        callers.ask(0, questions(["tea"]))
        answered(callers, 1)
        os.kill(callers.pid, signal.SIGSTOP)
        began = time.monotonic()
        for number in range(32):
            callers.ask(0, [Question(number, "k", Item("x" * (1 << 20)))])
            callers.send()
        assert time.monotonic() - began < 5.0
        assert callers.full is True
        os.kill(callers.pid, signal.SIGCONT)
        assert prices(answered(callers, 32)) == [1 << 20] * 32
        assert callers.full is False


def test_what_the_socket_does_not_take_goes_on_as_soon_as_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "SOCKET_BUFFER_BYTES", 4096)
    with calling(setting(priced)) as callers:
        callers.ask(0, [Question(0, "k", Item("x" * (4 << 20)))])
        answers = turns_until(callers, len, patience_s=30.0)
        assert prices(answers) == [4 << 20]
        assert callers.gauges()[0].seconds.percentile_ms(50) < 15_000, "it waited for beats, one each second"


def test_what_a_function_prints_and_logs_is_in_the_log_in_whole_lines_with_its_step(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def talks(item: Item) -> Price:
        print("asking for", item.name)  # noqa: T201
        logging.getLogger("shop").warning("two\nlines")
        print("x" * 10_000)  # noqa: T201
        print("no more after", item.name, end="" if item.name == "the last" else "\n")  # noqa: T201
        return Price(item.name, 1)

    with calling(setting(talks)) as callers:
        callers.ask(0, questions(["tea"] * 20))
        answered(callers, 20)
        callers.ask(0, questions(["the last"]))
        answered(callers, 1)
        pid = callers.pid
    out, err = capfd.readouterr()
    assert out == ""
    said = [re.fullmatch(rf"[\d-]+ [\d:,]+ lowtide call price {pid} (\w+): (.*)", each) for each in err.splitlines()]
    texts = [(each[1], each[2]) for each in said if each]
    assert len(texts) == len(said)
    assert texts.count(("INFO", "asking for tea")) == 20
    assert texts.count(("WARNING", "two")) == 21
    assert sum(len(text) for _, text in texts if text.startswith("x")) == 210_000
    assert texts[-1] == ("INFO", "no more after the last"), "a line that has not ended does so with the process"


# -- the end -------------------------------------------------------------------------------------------------------


def test_a_resource_is_made_once_in_a_process_and_exited_at_its_end(tmp_path: Path) -> None:
    events = tmp_path / "events"

    @contextmanager
    def connection() -> Iterator[int]:
        with events.open("a") as file:
            file.write("made\n")
        yield 7
        with events.open("a") as file:
            file.write("exited\n")

    async def ask(item: Item, connection: int) -> Price:
        return Price(item.name, connection)

    def ask_plainly(item: Item, connection: int) -> Price:
        return Price(item.name, connection)

    for function in (ask, ask_plainly):
        events.unlink(missing_ok=True)
        with calling(setting(function, resource=connection)) as callers:
            callers.ask(0, questions(["tea"] * 20))
            assert prices(answered(callers, 20)) == [7] * 20
        assert lines(events) == ["made", "exited"]


def test_a_process_that_does_not_end_is_killed_at_the_close(caplog: pytest.LogCaptureFixture) -> None:
    callers = Callers([setting(priced)], max_bytes=1 << 20)
    callers.ask(0, questions(["tea"]))
    answered(callers, 1)
    os.kill(callers.pid, signal.SIGSTOP)
    callers.close(0.1)
    assert "has not ended within 0.1 s: it is killed" in caplog.text
    with pytest.raises(ProcessLookupError):
        os.kill(callers.pid, 0)


def test_a_caller_dies_with_its_host() -> None:
    program = """
        import sys, time
        from lowtide.calls.line import Callers
        from lowtide.calls.setting import CallSetting
        from lowtide.flow.schema.message import Message

        async def slow(message):
            await asyncio.sleep(3600)

        print(Callers([CallSetting("slow", slow, Message, Message, 1, 1.0)], max_bytes=1).pid, flush=True)
        time.sleep(3600)
    """
    host = subprocess.Popen([sys.executable, "-c", dedent(program)], stdout=subprocess.PIPE, text=True)
    with host:
        assert host.stdout is not None
        caller = os.pidfd_open(int(host.stdout.readline()))
        host.kill()
    ends(caller)


# -- figures -------------------------------------------------------------------------------------------------------


def test_gauges_count_open_questions_their_age_and_bytes_and_what_became_of_them(tmp_path: Path) -> None:
    go = tmp_path / "go"
    clock = Clock()

    async def waits(item: Item) -> Price:
        while not go.exists():
            await asyncio.sleep(0.01)
        return Price(item.name, 1)

    async def gone(item: Item) -> Price:
        raise ConnectionResetError(item.name)

    with calling(setting(waits), setting(gone, "gone", retries=2), now=clock) as callers:
        callers.ask(0, questions(["tea", "tea"]))
        callers.ask(1, [Question(10, "k", Item("rice"))])
        first, second = callers.gauges()
        assert (first.name, first.open, second.name, second.open) == ("price", 2, "gone", 1)
        assert first.open_bytes == 2 * len(b"\x81\xa4name\xa3tea")
        clock.ahead_s = 5.0
        assert callers.gauges()[0].oldest_s == pytest.approx(5.0, abs=1.0)
        answered(callers, 1)
        turns_until(callers, lambda _: callers.gauges()[1].retries == 2)
        go.touch()
        answered(callers, 2)
        first, second = callers.gauges()
        assert (first.open, first.oldest_s, first.open_bytes, first.retries, first.failures) == (0, 0.0, 0, 0, 0)
        assert (second.open, second.retries, second.failures) == (0, 2, 1)
        assert 5_000 <= first.seconds.percentile_ms(50) < 5_000 + PATIENCE_S * 1000
