"""What a forked process saves is what was pinned, whatever the worker does meanwhile; and it comes back (R14, W9)."""

from __future__ import annotations

import ctypes
import dataclasses
import io
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from core_rig import Event, notice, plan, read, reader, worker
from hanging import HANGS_S
from programs import source_rows
from stage_rig import deployment

import lowtide as lt
from lowtide.assignment.birth import Birth
from lowtide.assignment.messages import (
    PartCount,
    PartEmpty,
    PartWritten,
    Pinned,
    ShareDurable,
    ShareFailed,
    ShareNews,
    ShareSaved,
)
from lowtide.core.operators.order.order import Position
from lowtide.core.operators.state.saved_step import saved_steps
from lowtide.core.worker import WorkerCore
from lowtide.errors import LifeEnded
from lowtide.flow.plan.compiler import compile_flow
from lowtide.local.run import Message
from lowtide.worker import part_chains
from lowtide.worker import saver as saver_module
from lowtide.worker.saver import Saver
from lowtide.worker.state_loader import load_state
from lowtide_snapshots.format.entries import parts_in
from lowtide_snapshots.format.manifest import Part
from lowtide_snapshots.format.parts import PartHead, encode_part, sha256
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_tracker import Notice, Request

PLAN = plan()
WORKER = "1/0"
PR_SET_CHILD_SUBREAPER = 36


def asked(number: int, tick: int, moved: int) -> Notice:
    """A notice that carries a request for `tick`, and was merged with those up to `moved`."""
    plain = notice(number, moved, moved)
    return Notice(1, number, 0, plain.min_times, plain.global_min, (), Request(number, tick))


def fed(events: list[tuple[int, int]]) -> WorkerCore:
    level_0, level_1 = reader(), worker(1, "optimistic")
    for frame in read(level_0, events).frames:
        level_1.frame(frame)
    return level_1


def saver_of(core: WorkerCore, store: StoreSetting) -> Saver:
    """One for a worker that is alone."""
    saver = Saver(PLAN, store, incarnation=1)
    saver.add(WORKER, core)
    return saver


def said_by(saver: Saver) -> list[ShareNews]:
    """All that is reported until no process writes any more."""
    said: list[tuple[str, ShareNews]] = []
    deadline = time.monotonic() + HANGS_S
    while saver.writes:
        assert time.monotonic() < deadline
        select.select(saver.descriptors(), [], [], 0.01)
        said += saver.hear()
    return [each for _, each in said + saver.hear()]


def parts_of(said: list[ShareNews]) -> tuple[Part, ...]:
    return tuple(each.part for each in said if isinstance(each, PartWritten))


def birth(level: int = 1) -> Birth:
    return Birth(f"{level}/0", level, 1, 2, 1, "0", "", bytes(16))


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> StoreSetting:
    return StoreSetting(str(tmp_path / "store"))


def test_what_was_pinned_is_saved_while_the_worker_goes_on_and_comes_back(store: StoreSetting) -> None:
    core = fed([(5, 1), (7, 2), (9, 4)])
    core.notice(asked(1, 7, 7))
    expected = core.program.capture(7)
    saver = saver_of(core, store)
    ((_, begun),) = saver.begin()
    assert isinstance(begun, Pinned)
    assert begun.pause_ms > 0
    assert begun == Pinned(number=1, pause_ms=begun.pause_ms)
    assert core.pinned is None, "it prunes on at once"
    core.notice(notice(2, 20, 20))
    said = said_by(saver)
    assert [each for each in said if isinstance(each, ShareSaved)] == [ShareSaved(1)]
    (part,) = parts_of(said)
    assert (part.vertex, part.kind, part.tick, part.snapshot, part.rows) == ("one", "scan", 7, "000001-0001", 1)
    made = deployment(plan=PLAN, store=store, restored=(part,), recovered=True, start=7)
    assert load_state(made, birth()) == expected == {"one": {part.unit: [("a", 1)]}}


@pytest.mark.azure
def test_a_fork_of_a_process_that_uses_azure_writes_there(azurite: Any) -> None:
    where = {"endpoint": azurite.endpoint, "account": "lowtide"}
    store = StoreSetting(f"az://{azurite.make_container()}/jobs", **where)
    with closing(open_store(store)) as used:
        used.check()
        test_what_was_pinned_is_saved_while_the_worker_goes_on_and_comes_back(store)
        assert len(used.names("")) == 1


def test_units_that_have_lost_their_state_are_reported_and_are_no_parts(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    monkeypatch.setattr(core.program, "capture", lambda *_, **__: {"one": {0: [], 1: [("a", 1)], 2: []}})
    saver = saver_of(core, store)
    saver.begin()
    said = said_by(saver)
    assert [each.parts for each in said if isinstance(each, PartCount)] == [len(parts_of(said))] == [1]
    assert [each.unit for each in said if isinstance(each, PartEmpty)] == [0, 2]


def test_what_the_life_before_had_forgotten_is_not_loaded(store: StoreSetting) -> None:
    """Its part is not written again for that, and a longer ttl by now must not bring it back."""
    flow = lt.Flow("saved")
    events = flow.read("events", lt.kafka("events", lt.json(Event))).key_by("key")
    events.deduplicate("once", within=lt.hours(1)).write("out", lt.kafka("out", lt.json(Event)))
    plan = compile_flow(flow, parallelism=1, slack_ms=1)
    step = saved_steps(plan)["once"]
    head = PartHead(plan.name, "once", "deduplicate", 0, 50, plan.slack_ms, "000001-0001")
    data = encode_part(head, step.table([("ann", 10), ("bob", 120)]))
    files = open_store(store)
    files.put(head.name, data)
    files.close()
    part = Part("once", "deduplicate", 0, 50, "000001-0001", 2, len(data), sha256(data))
    made = deployment(plan=plan, store=store, restored=(part,), recovered=True, start=200, forgot={"once": 100})
    assert load_state(made, birth()) == {"once": {0: [("bob", 120)]}}


@pytest.mark.parametrize("units", [[0], [0, 1, 2], [1, 2]], ids=["of all units", "of each unit", "of some"])
def test_every_worker_loads_one_part_of_a_broadcast(store: StoreSetting, units: list[int]) -> None:
    """Snapshots of earlier formats have one of each unit; the lowest there is counts."""
    flow = lt.Flow("saved")
    counts = flow.read("events", lt.kafka("events", lt.json(Event))).broadcast("count", lambda count, _: count + 1, 0)
    keyed = flow.read("more", lt.kafka("more", lt.json(Event))).key_by("key")
    keyed.scan("seen", seen, 0, broadcast=counts).write("out", lt.kafka("out", lt.json(Event)))
    plan = compile_flow(flow, parallelism=2, units=4, lanes=2, slack_ms=1)
    files, parts = open_store(store), []
    for unit in units:
        head = PartHead(plan.name, "count", "broadcast", unit, 50, plan.slack_ms, "000001-0001")
        data = encode_part(head, saved_steps(plan)["count"].table([(None, 7 + unit - units[0])]))
        files.put(head.name, data)
        parts.append(Part("count", "broadcast", unit, 50, "000001-0001", 1, len(data), sha256(data)))
    files.close()
    made = deployment(plan=plan, store=store, restored=tuple(parts), recovered=True, start=200)
    for place in range(2):
        worker = dataclasses.replace(birth(), name=f"1/{place}")
        assert load_state(made, worker) == {"count": {0: [(None, 7)]}}


def test_each_worker_loads_its_own_hash_units_of_a_part_with_several(store: StoreSetting) -> None:
    plan = compile_flow(counting(), parallelism=2, units=4, lanes=2, slack_ms=1)
    step, files, parts = saved_steps(plan)["seen"], open_store(store), []
    heads = [PartHead(plan.name, "seen", "scan", unit, 50, plan.slack_ms, "000001-0001") for unit in range(3)]
    heads.append(PartHead(plan.name, "seen", "scan", 0, 60, plan.slack_ms, "000001-0002", 50, (0, 1, 3)))
    for head in heads:
        table = (
            step.deltas({0: ([("a 0", 7)], []), 1: ([("new", 1)], ["b 1"]), 3: ([("first", 9)], [])})
            if head.units
            else step.table([(f"a {head.unit}", 1), (f"b {head.unit}", 2)])
        )
        data = encode_part(head, table)
        files.put(head.name, data)
        units = tuple(unit for unit in head.units if unit != 0)
        sizes = table.num_rows, len(data), sha256(data)
        parts.append(Part("seen", "scan", head.unit, head.tick, head.snapshot, *sizes, head.since, units))
    files.close()
    made = deployment(plan=plan, store=store, restored=tuple(parts), recovered=True, start=60)
    found: dict[int, Any] = {}
    for place in range(2):
        loaded = load_state(made, dataclasses.replace(birth(), name=f"1/{place}"))["seen"]
        assert {int(unit) for unit in loaded} == {
            unit for unit, worker in enumerate(plan.worker_of_unit().tolist()) if worker == place
        }
        found |= {unit: dict(entries) for unit, entries in loaded.items()}
    assert found == {
        0: {"a 0": 1, "b 0": 2},
        1: {"a 1": 1, "new": 1},
        2: {"a 2": 1, "b 2": 2},
        3: {"first": 9},
    }, "of unit 0 the part counts no more"


def counting() -> lt.Flow:
    flow = lt.Flow("saved")
    keyed = flow.read("more", lt.kafka("more", lt.json(Event))).key_by("key")
    keyed.scan("seen", counted, 0).write("out", lt.kafka("out", lt.json(Event)))
    return flow


def counted(count: int, event: Event) -> tuple[int, Event]:
    return count + 1, event


def seen(count: int, event: Event, all_: int) -> tuple[int, Event]:
    return count + all_, event


def test_a_hash_unit_that_has_not_changed_is_not_written_again(store: StoreSetting) -> None:
    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    saver = saver_of(core, store)
    saver.begin()
    assert len(parts_of(said_by(saver))) == 1
    saver.committed(WORKER, 7)
    core.notice(asked(2, 9, 9))
    news = [(WORKER, Pinned(number=2, since=7)), (WORKER, ShareSaved(2))]
    assert saver.begin() == news, "nobody is forked for nothing"
    core.frame(*fed_frames([(11, 2)]))
    core.notice(asked(3, 12, 12))
    saver.begin()
    assert [part.tick for part in parts_of(said_by(saver))] == [12]


def test_only_the_keys_that_have_changed_are_written_and_come_back(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since the last commit, whatever was given up meanwhile; a life that goes on from there knows what it has."""
    monkeypatch.setattr(part_chains, "LEAST_BYTES", 0)
    monkeypatch.setattr(part_chains, "BYTES_SHARE", 0)
    keys, snapshots = [f"key {number}" for number in range(400)], Snapshots(worker(1, "optimistic"), store)
    snapshots.feed([(5, key) for key in keys])
    first = snapshots.take(1, 7)
    assert {part.since for part in first} == {None}
    assert sum(part.rows for part in first) == 400
    snapshots.commit(7)
    snapshots.feed([(8, "key 1"), (9, "key 2"), (12, "key 3")])
    given_up = snapshots.take(2, 10)
    assert {part.since for part in given_up} == {7}
    assert sum(part.rows for part in given_up) == 2 + 1, "what has changed above T may be written, too, as of T"
    snapshots.feed([(14, "key 1"), (15, "new")])
    second = snapshots.take(3, 16)
    assert {part.since for part in second} == {7}
    assert sum(part.rows for part in second) == 4
    snapshots.commit(16)
    snapshots.hold(16)
    snapshots.feed([(18, "key 5")])
    (third,) = snapshots.take(4, 20)
    assert (third.since, third.rows) == (16, 1)
    snapshots.commit(20)
    snapshots.hold(20)
    again = Snapshots(worker(1, "optimistic"), store, began=snapshots.chains, tick=20)
    again.feed([(21, "key 9")])
    (fourth,) = again.take(1, 25)
    assert (fourth.since, fourth.rows) == (20, 1)
    again.commit(25)
    again.hold(25)


def test_a_unit_is_written_whole_once_in_nine_snapshots(store: StoreSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no snapshot writes all of them, and a life reads eight deltas at most that are parts of their own."""
    monkeypatch.setattr(part_chains, "SMALL_KEYS", 0)
    monkeypatch.setattr(part_chains, "LEAST_BYTES", 0)
    monkeypatch.setattr(part_chains, "BYTES_SHARE", 0)
    keys, snapshots = [f"key {number}" for number in range(400)], Snapshots(worker(1, "optimistic"), store)
    snapshots.feed([(5, key) for key in keys])
    snapshots.take(1, 7)
    snapshots.commit(7)
    whole = []
    for number in range(2, 24):
        tick = 10 * number
        snapshots.feed([(tick - 2, key) for key in keys[:60]])
        parts = snapshots.take(number, tick)
        whole.append(sum(part.since is None for part in parts))
        snapshots.commit(tick)
        assert max(len(chain) for chain in snapshots.chains.values()) <= 1 + part_chains.MOST_DELTAS
    assert max(whole) <= 2
    assert sum(whole) >= 2 * 8
    snapshots.hold(tick)


def test_small_deltas_of_a_step_are_one_part_and_units_take_turns(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot that writes nothing else goes through no keys; lives begin with parts of which some units count."""
    monkeypatch.setattr(part_chains, "LEAST_BYTES", 0)
    monkeypatch.setattr(part_chains, "BYTES_SHARE", 0)
    monkeypatch.setattr(part_chains, "CHANGED_SHARE", 1)
    monkeypatch.setattr(part_chains, "MOST_CHANGES", 15)
    keys, snapshots = [f"key {number}" for number in range(400)], Snapshots(worker(1, "optimistic"), store)
    units = len({unit for _, unit in snapshots.fill(keys)})
    cycle, whole = part_chains.MOST_CHANGES + 1, []
    for number in range(2, 2 * cycle + 2):
        tick = 10 * number
        snapshots.feed([(tick - 2, key) for key in keys[number : number + 60]])
        parts = snapshots.take(number, tick)
        deltas = [part for part in parts if part.since is not None]
        assert len(deltas) == 1
        assert not {part.unit for part in parts if part.since is None} & {*deltas[0].counts_for}
        whole.append(len(parts) - 1)
        snapshots.commit(tick)
        assert max(len(chain) for chain in snapshots.chains.values()) <= cycle
        if number % 5 == 0:
            snapshots.hold(tick)
    assert sum(whole) > units
    assert sum(count > 0 for count in whole) <= 2 * part_chains.TURNS, "most go through no keys"
    snapshots.hold(tick)
    again = Snapshots(worker(1, "optimistic"), store, began=snapshots.chains, tick=tick)
    again.feed([(tick + 1, key) for key in keys[:9]])
    again.take(1, tick + 5)
    again.commit(tick + 5)
    again.hold(tick + 5)


def test_a_part_takes_no_more_deltas_once_it_has_many_keys(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_chains, "LEAST_BYTES", 0)
    monkeypatch.setattr(saver_module, "MOST_SHARED_KEYS", 10)
    keys, snapshots = [f"key {number}" for number in range(400)], Snapshots(worker(1, "optimistic"), store)
    snapshots.fill(keys)
    snapshots.feed([(8, key) for key in keys[:40]])
    parts = snapshots.take(2, 10)
    assert sum(part.rows for part in parts) == 40
    assert 2 <= len(parts) < len(snapshots.chains)
    snapshots.commit(10)
    snapshots.hold(10)


def test_a_large_delta_has_a_part_of_its_own(store: StoreSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_chains, "LEAST_BYTES", 0)
    monkeypatch.setattr(part_chains, "SMALL_KEYS", 3)
    keys, snapshots = [f"key {number}" for number in range(400)], Snapshots(worker(1, "optimistic"), store)
    placed = snapshots.fill(keys)
    many = placed[0][1]
    one = next(key for key, unit in placed if unit != many)
    other = next(key for key, unit in placed if unit not in (many, dict(placed)[one]))
    snapshots.feed([(8, key) for key in [*[key for key, unit in placed if unit == many][:4], one, other]])
    parts = {part.counts_for: part.rows for part in snapshots.take(2, 10)}
    assert parts == {(many,): 4, tuple(sorted((dict(placed)[one], dict(placed)[other]))): 2}
    snapshots.commit(10)
    snapshots.hold(10)


class Snapshots:
    """One worker's, as a service would put them together."""

    def __init__(
        self, core: WorkerCore, store: StoreSetting, began: dict[tuple[str, int], tuple[Part, ...]] | None = None,
        tick: int | None = None,
    ) -> None:  # fmt: skip
        self.chains = dict(began or {})
        self._core, self._store, self._number, self._offset = core, store, 0, 0
        parts = parts_in(self.chains)
        if tick is not None:
            core.restore(load_state(self._begun(parts, tick), birth()), tick)
        self._saver = Saver(PLAN, store, incarnation=1 if began is None else 2, base=tick, parts=parts)
        self._saver.add(WORKER, core)
        self._reader = reader()

    def feed(self, events: list[tuple[int, str]]) -> None:
        """Records of a tick and a key."""
        messages = []
        for tick, key in events:
            record = msgspec.json.encode(Event(key, 1))
            messages.append(Message(Position(0, self._offset), tick, None, record))
            self._offset += 1
        for frame in self._reader.rows(source_rows(messages), 0).frames:
            self._core.frame(frame)

    def fill(self, keys: list[str]) -> list[tuple[str, int]]:
        """A record of each of these keys, saved and committed; return them with their hash units."""
        self.feed([(5, key) for key in keys])
        self.take(1, 7)
        self.commit(7)
        return [(key, unit) for unit, states in self.expected["one"].items() for key, _ in states]

    def take(self, number: int, tick: int) -> tuple[Part, ...]:
        """Take a snapshot, and let min time go on."""
        self._number += 1
        plain = notice(self._number, tick, tick)
        self._core.notice(
            Notice(1, plain.number, plain.number - 1, plain.min_times, plain.global_min, (), Request(number, tick))
        )
        self.expected = self._core.program.capture(tick)
        assert self._saver.begin()
        said = said_by(self._saver)
        assert [each for each in said if isinstance(each, ShareSaved)] == [ShareSaved(number)]
        self._parts = parts_of(said)
        return self._parts

    def commit(self, tick: int) -> None:
        """The snapshot that was taken last is committed."""
        for part in self._parts:
            for unit in part.counts_for:
                before = () if part.since is None else self.chains.get((part.vertex, unit), ())
                self.chains[part.vertex, unit] = (*before, part)
        self._saver.committed(WORKER, tick)

    def hold(self, tick: int) -> None:
        """What comes back is what was there."""
        parts = parts_in(self.chains)
        loaded = load_state(self._begun(parts, tick), birth())
        for name, units in self.expected.items():
            for unit, keys in units.items():
                assert sorted(loaded[name].get(unit, [])) == sorted(keys)

    def _begun(self, parts: tuple[Part, ...], tick: int) -> Any:
        return deployment(plan=PLAN, store=self._store, restored=parts, recovered=True, start=tick)


def fed_frames(events: list[tuple[int, int]]) -> list[Any]:
    return read(reader(), events).frames


def test_what_is_not_durable_yet_is_reported_when_it_is(store: StoreSetting) -> None:
    """R15."""
    core = worker(2, "optimistic")
    level_0, level_1 = reader(), worker(1, "optimistic")
    for frame in read(level_0, [(5, 1), (8, 2)]).frames:
        for later in level_1.frame(frame).frames:
            core.frame(later)
    effects = core.notice(asked(1, 7, 7))
    ((sink, bundle),) = effects.bundles
    saver = saver_of(core, store)
    saver.begin()
    said = said_by(saver)
    assert not any(isinstance(each, ShareDurable) for each in said)
    core.durable(sink, bundle.lane)
    ((_, accepted),) = saver.hear()
    assert isinstance(accepted, ShareDurable)
    (last,) = accepted.lasts
    assert (last.level, last.sink, last.lane) == (0, "out", 0)
    assert last.last is not None
    assert last.last.startswith("[5, 0, 0")


def test_a_front_says_where_it_is_read_again(store: StoreSetting) -> None:
    core = reader()
    read(core, [(5, 1), (7, 2), (9, 4)])
    core.notice(asked(1, 7, 7))
    saver = saver_of(core, store)
    assert saver.begin() == [(WORKER, Pinned(number=1, front=(0, 1, 5))), (WORKER, ShareSaved(1))]


def test_a_process_that_dies_or_fails_is_reported(store: StoreSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    monkeypatch.setattr(saver_module, "encode_part", lambda *_: os.abort())  # No mask or handler keeps it alive.
    saver = saver_of(core, store)
    saver.begin()
    assert failure(said_by(saver)) == "the process that writes its parts was killed by SIGABRT"
    monkeypatch.undo()
    core.frame(*fed_frames([(8, 1)]))
    core.notice(asked(2, 9, 9))
    unwritable = saver_of(core, StoreSetting("/proc/nowhere"))
    unwritable.begin()
    failed = failure(said_by(unwritable))
    assert "/proc/nowhere" in failed
    assert "what to do" in failed


def test_a_mistake_of_that_process_is_reported_although_nobody_reads_its_stderr(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    monkeypatch.setattr(saver_module, "encode_part", lambda *_: 1 / 0)
    saver = saver_of(core, store)
    saver.begin()
    assert "ZeroDivisionError" in failure(said_by(saver))


def failure(said: list[ShareNews]) -> str:
    (failed,) = [each.cause for each in said if isinstance(each, ShareFailed)]
    return str(failed)


def test_a_snapshot_that_is_given_up_has_its_process_ended(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    monkeypatch.setattr(saver_module, "encode_part", lambda *_: time.sleep(10 * HANGS_S))
    saver = saver_of(core, store)
    saver.begin()
    (writing,) = saver._writing.values()
    saver.cancel(1)
    assert saver.descriptors() == []
    assert said_by(saver) == []
    with pytest.raises(ProcessLookupError):
        os.kill(writing.pid, 0)


def with_keys(count: int) -> WorkerCore:
    level_0, level_1 = reader(), worker(1, "optimistic")
    messages = [
        Message(Position(0, number), 5, None, msgspec.json.encode(Event(f"key {number}", number)))
        for number in range(count)
    ]
    for frame in level_0.rows(source_rows(messages), 0).frames:
        level_1.frame(frame)
    return level_1


@pytest.fixture
def orphans() -> Iterator[Callable[[], set[str]]]:
    """The children of this process, with all that its children leave behind."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)

    def found() -> set[str]:
        return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}

    before = found()
    yield lambda: found() - before
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0)


def test_what_is_not_written_in_idle_time_is_written_all_the_same(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch, orphans: Callable[[], set[str]]
) -> None:
    core = with_keys(40)
    core.notice(asked(1, 7, 7))
    encode = encode_part
    names: list[str] = []

    def encode_slowly(head: PartHead, table: pa.Table) -> memoryview:
        """As in a process that the machine leaves no time after its third part."""
        names.append(head.name)
        if os.sched_getscheduler(0) == os.SCHED_IDLE and len(names) > 3:
            time.sleep(10 * HANGS_S)
        return encode(head, table)

    monkeypatch.setattr(saver_module, "encode_part", encode_slowly)
    monkeypatch.setattr(saver_module, "PATIENCE_S", 2.0)
    saver = saver_of(core, store)
    began = time.monotonic()
    saver.begin()
    said = said_by(saver)
    assert time.monotonic() - began >= 2, "it was left idle time"
    assert [each.cause for each in said if isinstance(each, ShareFailed)] == []
    parts = parts_of(said)
    (promised,) = (each.parts for each in said if isinstance(each, PartCount))
    assert len({part.unit for part in parts}) == len(parts) == promised > 4
    assert [each for each in said if isinstance(each, ShareSaved)] == [ShareSaved(1)]
    assert orphans() == set(), "the idle process has been waited for"


def test_the_process_holds_none_of_the_workers_connections(
    store: StoreSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a wait for the end of a worker that has died would last as long as the snapshot."""
    ours, theirs = socket.socketpair()
    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    monkeypatch.setattr(saver_module, "encode_part", lambda *_: time.sleep(10 * HANGS_S))
    saver = saver_of(core, store)
    saver.begin()
    select.select(saver.descriptors(), [], [], HANGS_S)  # It has begun to write, so it has let go of everything.
    ours.close()
    theirs.settimeout(HANGS_S)
    assert theirs.recv(1) == b""
    saver.close()
    theirs.close()


def test_a_part_that_is_not_what_the_manifest_says_ends_the_life(store: StoreSetting) -> None:
    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    saver = saver_of(core, store)
    saver.begin()
    (part,) = parts_of(said_by(saver))
    file = Path(store.url) / part.name("test", 1)
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    made = deployment(plan=PLAN, store=store, restored=(part,), recovered=True, start=7)
    with pytest.raises(LifeEnded, match=r"(?s)does not match its manifest.*one.*commit before"):
        load_state(made, birth())


def test_a_worker_that_cannot_fork_goes_on(store: StoreSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise OSError(12, "Cannot allocate memory")

    core = fed([(5, 1)])
    core.notice(asked(1, 7, 7))
    monkeypatch.setattr(os, "fork", fork)
    said = [each for _, each in saver_of(core, store).begin()]
    assert "Cannot allocate memory" in failure(said)
    assert core.pinned is None
