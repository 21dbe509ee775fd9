"""Snapshots of state on disk: what is saved is what was pinned, whoever dies meanwhile; and it comes back (R14, W9)."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from core_rig import Event, notice, plan, reader, worker
from hanging import HANGS_S
from programs import source_rows
from stage_rig import deployment

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import DiskSetting
from lowtide.assignment.messages import PartEmpty, PartWritten, ShareFailed, ShareNews, ShareSaved
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.program import Captured, Program
from lowtide.core.operators.state import packing
from lowtide.disk import copies, reading
from lowtide.disk.pins import PinnedStore
from lowtide.disk.store import DiskStore
from lowtide.errors import LifeEnded
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import Message
from lowtide.worker import part_chains, state_loader, state_on_disk
from lowtide.worker import saver as saver_module
from lowtide.worker.saver import Saver
from lowtide.worker.state_loader import Shelving, load_state
from lowtide.worker.state_on_disk import StateOnDisk
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.stores import StoreSetting
from lowtide_tracker import Notice, Request

pytest.importorskip("lmdb", reason="lowtide[disk] is not installed")

PLAN = plan()
WORKER = "1/0"
BIRTH = Birth(WORKER, 1, 1, 2, 1, "0", "", bytes(16))
KEYS = 120


class Rig:
    """A worker with its state on disk, and one with all in memory to which the same happens."""

    def __init__(self, folder: Path, memory_bytes: int = 0, seed: int = 1, copies_bytes: int = 0) -> None:
        self.chosen = Random(seed)
        self.store = StoreSetting(str(folder / "store"))
        self.setting = DiskSetting(str(folder / "state"), memory_bytes, 1 << 30, copies_bytes=copies_bytes)
        self.disk = StateOnDisk(self.setting, "test", 1, 1)
        self.disk.shelves._write_at = 8
        self.level_0 = reader(10**6)
        self.core, self.twin = worker(1, "optimistic"), worker(1, "optimistic")
        self.core.program.shelve(self.disk.shelves)
        self.saver = Saver(PLAN, self.store, incarnation=1)
        self.saver.disk = self.disk
        self.saver.add(WORKER, self.core)
        self.offset = self.notices = self.requests = 0
        self.tick = 10

    def feed(self, count: int = 60) -> None:
        """Records of some keys, and min time moves on behind them."""
        for _ in range(count):
            self.tick += self.chosen.randrange(3)
            key, number = f"user-{self.chosen.randrange(KEYS)}", self.chosen.choice((0, 1, 2, -1))
            at = Position(0, self.offset)
            self.offset += 1
            message = Message(at, self.tick, None, msgspec.json.encode(Event(key, number)))
            for frame in self.level_0.rows(source_rows([message]), 0).frames:
                for core in (self.core, self.twin):
                    core.frame(frame)
        self.move()

    def move(self, request: Request | None = None) -> int:
        """Min time comes to four ticks before the newest record, maybe with a request for a snapshot."""
        self.notices += 1
        tick = self.tick - 4
        plain = notice(self.notices, tick, tick)
        said = Notice(1, self.notices, self.notices - 1, plain.min_times, plain.global_min, (), request)
        for core in (self.core, self.twin):
            core.notice(said)
        return tick

    def ask(self) -> Captured:
        """Request a snapshot; return what it has to have."""
        self.requests += 1
        tick = self.tick - 4
        self.move(Request(self.requests, tick))
        expected = self.twin.program.capture(tick, self.saver._shares[WORKER].base)
        self.twin.unpin()
        return expected

    def save(self, meanwhile: Callable[[], None] = lambda: None) -> list[ShareNews]:
        """Save what is pinned, and meanwhile let something happen; return what was said."""
        said: list[ShareNews] = []
        deadline = time.monotonic() + HANGS_S
        while self.core.pinned is not None:
            assert time.monotonic() < deadline
            said += [news for _, news in self.saver.begin()]
            if self.saver.pinning:
                meanwhile()
                select.select([self.disk], [], [], 0.01)
        while self.saver.writes:
            assert time.monotonic() < deadline
            meanwhile()
            select.select(self.saver.descriptors(), [], [], 0.01)
            said += [news for _, news in self.saver.hear()]
        return said

    def close(self) -> None:
        self.saver.close()
        self.disk.close()


@pytest.fixture(name="rig")
def _rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(saver_module, "PATIENCE_S", 0.2)  # Other tests keep the machine busy.
    rig = Rig(tmp_path, 30_000)
    yield rig
    rig.close()


def parts_of(said: list[ShareNews]) -> dict[tuple[str, int], Part | None]:
    found: dict[tuple[str, int], Part | None] = {}
    for each in said:
        if isinstance(each, PartWritten):
            found[each.part.vertex, each.part.unit] = each.part
        elif isinstance(each, PartEmpty):
            found[each.vertex, each.unit] = None
    return found


def shown(state: Captured) -> dict[str, dict[int, list[str]]]:
    """The units that have state, in any order of keys."""
    return {
        name: {unit: sorted(map(repr, keys)) for unit, keys in sorted(units.items()) if keys}
        for name, units in state.items()
    }


def loaded(rig: Rig, parts: dict[tuple[str, int], Part | None], tick: int) -> Captured:
    restored = tuple(part for part in parts.values() if part is not None)
    return load_state(deployment(plan=PLAN, store=rig.store, restored=restored, recovered=True, start=tick), BIRTH)


@pytest.mark.parametrize("memory_bytes", [0, 30_000])
def test_what_was_pinned_is_saved_while_the_worker_goes_on(rig: Rig, memory_bytes: int) -> None:
    """A snapshot after the other, each with only the units that have changed since; and the state goes on."""
    rig.disk.shelves._limit_bytes = memory_bytes
    known: dict[tuple[str, int], Part | None] = {}
    for _ in range(6):
        rig.feed()
        expected = rig.ask()
        tick = rig.tick - 4
        before = rig.disk.shelves.written
        said = rig.save(lambda: rig.feed(5))
        assert ShareSaved(rig.requests) in said
        parts = parts_of(said)
        assert {unit for _, unit in parts} == set(expected["one"])
        assert shown(loaded(rig, parts, tick)) == shown(expected)
        assert rig.disk.shelves.written > before, "it is written while it is saved"
        known |= parts
        rig.saver.committed(WORKER, tick)
        whole = rig.twin.program.capture(rig.tick - 4)
        assert shown(rig.core.program.capture(rig.tick - 4)) == shown(whole)
    assert rig.disk.entries > KEYS / 3


def test_state_goes_from_disk_to_memory_and_back(rig: Rig, tmp_path: Path) -> None:
    rig.feed(200)
    rig.ask()
    tick = rig.tick - 4
    parts = parts_of(rig.save())
    made = deployment(
        plan=PLAN,
        store=rig.store,
        restored=tuple(part for part in parts.values() if part is not None),
        recovered=True,
        start=tick,
    )
    state = load_state(made, BIRTH)
    memory, again = worker(1, "optimistic"), worker(1, "optimistic")
    memory.restore(state, tick)
    disk = StateOnDisk(rig.setting, "test", 2, 1)
    again.program.shelve(disk.shelves)
    assert load_state(made, BIRTH, Shelving(again.program, ["one"])) == {}, "it goes to the disk unit by unit"
    again.restore({}, tick)
    assert disk.entries == sum(len(keys) for keys in state["one"].values())
    for core in (memory, again):
        assert shown(core.program.capture(tick)) == shown(state)
    disk.close()


def test_nothing_is_written_until_the_copy_is_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the word to the process that reads until the fork the store stays as it is, whatever leaves memory."""
    rig.feed()
    expected = rig.ask()
    shelves, fork = rig.disk.shelves, os.fork
    monkeypatch.setattr(os, "fork", lambda: fork() if shelves.held else pytest.fail("it was not held"))
    rig.saver.begin()
    assert shelves.held
    assert rig.core.pinned is not None, "R14: what is below T stays until then"
    before = shelves.written
    for _ in range(5):
        rig.feed(60)
    assert shelves.written == before
    waiting = len(shelves._late)
    said = rig.save()
    assert not rig.disk.shelves.held
    assert waiting >= 8, "what is at rest makes room for what is not"
    assert shown(loaded(rig, parts_of(said), 0)) == shown(expected)


def test_a_pin_that_nothing_needs_any_more_is_let_go(rig: Rig) -> None:
    """While it was asked for, a commit became known that has everything."""
    rig.feed()
    rig.ask()
    assert rig.saver.begin() == []
    rig.saver.committed(WORKER, rig.tick + 1)
    said = rig.save()
    assert ShareSaved(1) in said
    assert parts_of(said) == {}
    assert not rig.saver.pinning
    assert not rig.disk.shelves.held


# -- deaths ----------------------------------------------------------------------------------------------------------


def assert_lost_and_next_one_is_whole(rig: Rig, said: list[ShareNews], cause: str) -> None:
    """The snapshot failed and the job goes on; the next one has everything."""
    (failed,) = [each for each in said if isinstance(each, ShareFailed)]
    assert cause in str(failed.cause)
    assert not rig.disk.shelves.held
    assert rig.core.pinned is None
    rig.disk.greet()  # As the host does when there is something to read, here the end.
    rig.feed()
    expected = rig.ask()
    said = rig.save(lambda: rig.feed(3))
    assert ShareSaved(rig.requests) in said
    assert shown(loaded(rig, parts_of(said), 0)) == shown(expected)
    assert shown(rig.core.program.capture(rig.tick - 4)) == shown(rig.twin.program.capture(rig.tick - 4))


def kill_reader(rig: Rig) -> None:
    process = rig.disk._pins._process
    if process is not None:
        process.kill()
        process.wait()


def test_the_process_that_reads_dies_before_it_pins(rig: Rig) -> None:
    rig.feed()
    rig.ask()
    process = rig.disk._pins._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    assert rig.saver.begin() == []
    kill_reader(rig)
    assert_lost_and_next_one_is_whole(rig, rig.save(), "could not pin")


def test_the_process_that_reads_is_dead_already(rig: Rig) -> None:
    rig.feed()
    rig.ask()
    kill_reader(rig)
    assert_lost_and_next_one_is_whole(rig, rig.save(), "could not pin")


def test_the_process_that_reads_does_not_answer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_on_disk, "PIN_LIMIT_S", 0.0)
    rig.feed()
    rig.ask()
    process = rig.disk._pins._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    said = rig.save()
    monkeypatch.setattr(state_on_disk, "PIN_LIMIT_S", 10.0)
    assert_lost_and_next_one_is_whole(rig, said, "did not answer")


def test_the_process_that_reads_dies_while_parts_are_written(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy kills it at its first question, before the answer."""
    rig.feed(200)
    rig.ask()
    send, here = reading.send_message, os.getpid()

    def kill_and_send(*given: Any) -> None:
        if os.getpid() != here and rig.disk._pins._process is not None:
            os.kill(rig.disk._pins._process.pid, signal.SIGKILL)
        send(*given)

    with monkeypatch.context() as patch:
        patch.setattr("lowtide.disk.pins.send_message", kill_and_send)
        said = rig.save()
    assert_lost_and_next_one_is_whole(rig, said, "")


def test_the_process_that_writes_dies(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.feed(200)
    rig.ask()
    with monkeypatch.context() as patch:
        patch.setattr(PinnedStore, "range", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        said = rig.save()
    assert_lost_and_next_one_is_whole(rig, said, "SIGKILL")


def test_the_idle_process_dies_and_the_other_one_writes_all(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.feed(200)
    expected = rig.ask()
    put, idle = Saver._put, os.SCHED_IDLE

    def die_if_idle(*given: Any) -> Part:
        if os.sched_getscheduler(0) == idle:
            os.kill(os.getpid(), signal.SIGKILL)
        return put(*given)

    monkeypatch.setattr(Saver, "_put", staticmethod(die_if_idle))
    said = rig.save()
    assert ShareSaved(rig.requests) in said
    assert shown(loaded(rig, parts_of(said), 0)) == shown(expected)


def test_a_machine_that_is_never_idle_writes_all(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle process has no time at all; the other one reads what it would have read."""
    monkeypatch.setattr(saver_module, "PATIENCE_S", 0.0)
    rig.feed(200)
    expected = rig.ask()
    said = rig.save(lambda: rig.feed(3))
    assert shown(loaded(rig, parts_of(said), 0)) == shown(expected)


def test_no_process_can_be_forked(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    rig.feed()
    rig.ask()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", no_fork)
        said = rig.save()
    assert_lost_and_next_one_is_whole(rig, said, "could not fork")


def test_a_snapshot_is_given_up_that_makes_a_nearly_full_disk_grow(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The life goes on, and the next snapshot is whole; what is full by itself gives up none."""
    monkeypatch.setattr(state_on_disk, "GROWN_SHARE", 10)  # A commit doubles so few pages.
    rig.feed(200)
    in_use = DiskStore.__dict__["used_bytes"].fget
    used = rig.disk.gauges().bytes
    rig.disk._limit_bytes = int(used / 0.95)
    expected = rig.ask()
    assert shown(loaded(rig, parts_of(rig.save()), rig.tick - 4)) == shown(expected), "it does not grow by this one"
    rig.feed()
    rig.ask()
    grown: list[int] = []

    def used_bytes(store: DiskStore) -> int:
        return int(in_use(store)) + sum(grown)

    monkeypatch.setattr(DiskStore, "used_bytes", property(used_bytes))
    said = rig.save(lambda: grown.append(used * 10) if not rig.saver.pinning else None)
    (failed,) = [each for each in said if isinstance(each, ShareFailed)]
    assert "little room left" in failed.cause.what
    assert not [each for each in said if isinstance(each, ShareSaved)]
    assert rig.disk.gauges().given_up == 1
    rig.feed()
    rig.disk._limit_bytes *= 4
    expected = rig.ask()
    assert shown(loaded(rig, parts_of(rig.save()), rig.tick - 4)) == shown(expected)


# -- mutations: each has to be found ---------------------------------------------------------------------------------


def _write_on(disk: StateOnDisk) -> None:
    """Ask for a pin, and let the shelves write meanwhile."""
    disk._asked_s = time.monotonic()
    disk._pins.ask()


def test_what_is_written_between_pin_and_fork_would_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such entries are in neither of both that the copy has."""
    rig = Rig(tmp_path, 30_000)
    deadline = time.monotonic() + HANGS_S
    while not rig.disk._pins._greeted:
        assert time.monotonic() < deadline
        rig.disk.greet()
        time.sleep(0.01)
    monkeypatch.setattr(StateOnDisk, "pin", _write_on)
    rig.feed()
    expected = rig.ask()
    with monkeypatch.context() as patch:
        patch.setattr(StateOnDisk, "pinned", lambda _: None)  # It may answer at once.
        rig.saver.begin()
    while not select.select([rig.disk], [], [], 0.01)[0]:
        assert time.monotonic() < deadline
    for _ in range(5):
        rig.feed(60)
    assert rig.disk.shelves.written or rig.disk.shelves._late, "something has left memory"
    rig.disk.shelves.flush()
    said = rig.save()
    rig.close()
    assert shown(loaded(rig, parts_of(said), 0)) != shown(expected)


# -- copies on the machine -------------------------------------------------------------------------------------------


class Copying:
    """A worker whose machine keeps copies of the parts that it writes, and lives that begin with them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, copies_bytes: int = 1 << 30) -> None:
        monkeypatch.setattr(saver_module, "PATIENCE_S", 0.2)
        monkeypatch.setattr(part_chains, "LEAST_BYTES", 0)
        monkeypatch.setattr(part_chains, "BYTES_SHARE", 0)
        monkeypatch.setattr(part_chains, "CHANGED_SHARE", 0)
        self.rig = Rig(folder, 0, copies_bytes=copies_bytes)
        self.chains: dict[tuple[str, int], list[Part]] = {}
        self.got: list[str] = []
        """The parts that came from the store since a life began."""
        get = state_loader._load

        def noted(store: Any, part: Part, job: str, slack_ms: int) -> Any:
            self.got.append(part.name(job, slack_ms))
            return get(store, part, job, slack_ms)

        monkeypatch.setattr(state_loader, "_load", noted)
        self._lives = 1

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for chain in self.chains.values() for part in chain)

    @property
    def files(self) -> list[Path]:
        return sorted(Path(self.rig.setting.folder, copies.FOLDER).rglob("*.copy"))

    def file_of(self, part: Part) -> Path:
        return Path(self.rig.setting.folder, copies.FOLDER, f"{part.name('test', 1)}{copies.SUFFIX}")

    def save(self, records: int) -> None:
        """Take a snapshot after some records, and commit it."""
        self.rig.feed(records)
        self.rig.ask()
        self.tick = self.rig.tick - 4
        said = self.rig.save()
        assert ShareSaved(self.rig.requests) in said
        for unit, part in parts_of(said).items():
            before = self.chains.pop(unit, [])
            if part is not None:
                self.chains[unit] = [*(before if part.since is not None else []), part]
        self.rig.saver.committed(WORKER, self.tick)
        self.expected = shown(self.rig.twin.program.capture(self.rig.tick - 4))

    def begin(self, plan: Plan = PLAN, places: int = 1) -> None:
        """A life begins with the last snapshot, of so many workers, and has all that it had."""
        self.got.clear()
        self._lives += 1
        found: dict[int, list[str]] = {}
        disk = StateOnDisk(self.rig.setting, "test", self._lives, 1)
        disk.sweep_copies([part.name("test", 1) for part in self.parts], self._lives)
        made = deployment(plan=plan, store=self.rig.store, restored=self.parts, recovered=True, start=self.tick)
        for place in range(places):
            program = Program(plan, 1)
            program.shelve(disk.shelves)
            birth = replace(BIRTH, name=f"1/{place}")
            assert load_state(made, birth, Shelving(program, ["one"], disk.copies)) == {}
            program.restore({}, self.tick)
            found |= shown(program.capture(self.tick)).get("one", {})
        assert dict(sorted(found.items())) == self.expected["one"]
        disk.close()


@pytest.fixture(name="copying")
def _copying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copying]:
    made = Copying(tmp_path, monkeypatch)
    for _ in range(4):
        made.save(100)
    assert any(len(chain) > 1 for chain in made.chains.values()), "there are deltas"
    yield made
    made.rig.close()


def test_a_life_begins_with_the_copies_of_its_machine(copying: Copying) -> None:
    """Those of deltas, too; the store is not asked."""
    copying.begin()
    assert copying.got == []
    assert len(copying.files) >= len(copying.parts)
    assert {file.stat().st_mode & 0o777 for file in copying.files} == {0o600}


def test_other_parallelism_begins_with_the_same_copies(copying: Copying) -> None:
    copying.begin(replace(PLAN, parallelism=2, lanes=2), places=2)
    assert copying.got == []


@pytest.mark.parametrize("how", ["a bit", "cut off", "empty", "gone", "another part's"])
def test_what_is_damaged_or_missing_comes_from_the_store(copying: Copying, how: str) -> None:
    files = sorted(map(copying.file_of, copying.parts))
    data = files[0].read_bytes()
    if how == "gone":
        files[0].unlink()
    elif how == "another part's":
        files[0].write_bytes(files[1].read_bytes())
    elif how == "a bit":
        for at in (0, 20, 50, 85, len(data) - 1):
            damaged = bytearray(data)
            damaged[at] ^= 1
            files[0].write_bytes(damaged)
            copying.begin()
            assert copying.got
    else:
        files[0].write_bytes(data[: -7 if how == "cut off" else 0])
    copying.begin()
    chain = next(each for each in copying.chains.values() if each[0].unit == int(files[0].parent.name))
    assert copying.got == [part.name("test", 1) for part in chain], "all parts of the unit, and of no other"


def test_a_copy_of_another_snapshot_with_the_same_name_is_not_taken(copying: Copying) -> None:
    """As after a store that was put back, or of another job of this name."""
    copying.chains = {
        unit: [*chain[:-1], replace(chain[-1], sha256="0" * 64)] for unit, chain in copying.chains.items()
    }
    with pytest.raises(LifeEnded, match="does not match its manifest"):
        copying.begin()


def test_a_step_of_another_type_does_not_take_its_copies(copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACKING", packing.PACKING + 1)
    copying.begin()
    assert len(copying.got) == len(copying.parts)


def test_copies_of_no_use_go(copying: Copying) -> None:
    """Each snapshot deletes what the commit before has made useless; a start what earlier lives have left.

    Nobody touches those of other jobs, or what somebody writes at the moment.
    """
    first = copying.files[0]
    folder = Path(copying.rig.setting.folder, copies.FOLDER)
    other = folder / "other" / first.relative_to(folder / "test")
    other.parent.mkdir(parents=True)
    other.write_bytes(b"")
    written, left = first.with_name(".written"), first.with_name(".left")
    for each in (written, left):
        each.write_bytes(b"")
    os.utime(left, (0, 0))
    for _ in range(12):
        copying.save(40)
    assert len(copying.files) <= 2 * len(copying.parts)
    copying.begin()
    assert copying.got == []
    assert [file for file in copying.files if file != other] == sorted(map(copying.file_of, copying.parts))
    assert (other.exists(), written.exists(), left.exists()) == (True, True, False)


def test_without_room_there_are_fewer_copies_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Copying(tmp_path, monkeypatch, 2_000)
    some.save(300)
    size = sum(file.stat().st_size for file in some.files)
    assert 0 < size <= 2_000
    some.begin()
    assert 0 < len(some.got) < len(some.parts)
    some.rig.close()


def test_a_full_disk_costs_the_copy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork that writes may make no file of more than a few bytes but in the store."""
    write = copies.LocalCopies.write

    def full(self: Any, *given: Any) -> bool:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, before[1]))
        try:
            return write(self, *given)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(saver_module, "PUTS_AT_ONCE", 1)
    monkeypatch.setattr(copies.LocalCopies, "write", full)
    none = Copying(tmp_path, monkeypatch)
    none.save(100)
    assert none.files == []
    assert [each for each in Path(none.rig.setting.folder, copies.FOLDER).rglob("*") if each.is_file()] == []
    none.begin()
    assert len(none.got) == len(none.parts)
    none.rig.close()
