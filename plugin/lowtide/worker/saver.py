"""Writes what a snapshot request has pinned, in a forked process, while the workers go on.

The fork makes a snapshot cost no pause: it sees the state as of the request, however long writing takes, and the kernel
copies what changes meanwhile. One process is forked for all workers of a host. It runs when nothing else wants to, as
long as it still ends in time, and dies with the host.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from lowtide.assignment.messages import (
    PartCount,
    PartEmpty,
    PartWritten,
    Pinned,
    Raw,
    ShareDurable,
    ShareFailed,
    ShareNews,
    ShareSaved,
    Written,
    read_written,
    reader,
)
from lowtide.core.operators.order.order import FIRST_TICK
from lowtide.core.operators.state.cold import Entry
from lowtide.core.operators.state.group import Key
from lowtide.core.operators.state.keyed_state import NOTHING
from lowtide.core.operators.state.saved_step import SavedStep, saved_steps
from lowtide.core.worker import WorkerCore
from lowtide.disk.copies import LocalCopies, whose
from lowtide.disk.pins import PinnedStore, ReaderDied
from lowtide.errors import LowtideError
from lowtide.flow.plan.plan import Plan
from lowtide.process.parent import die_with
from lowtide.sinks.contract import lane_name
from lowtide.worker.part_chains import PartChains, is_small
from lowtide.worker.state_loader import described
from lowtide.worker.state_on_disk import StateOnDisk
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.errors import cause_of
from lowtide_snapshots.format.manifest import LaneLast, Part
from lowtide_snapshots.format.names import ObjectName, snapshot_id
from lowtide_snapshots.format.parts import PartHead, encode_part, sha256
from lowtide_snapshots.stores import Store, StoreSetting, open_store
from lowtide_tracker import Request

PUTS_AT_ONCE = 8
"""The number of parts written to the store at once, when in a hurry."""
PATIENCE_S = 5.0
"""The time for which parts are written only while the machine is idle: a busy one would never write them."""
NICE = 10
"""The niceness of the writing process after that."""
READ_BYTES = 1 << 16
MOST_SHARED_KEYS = 20_000
"""A part with deltas of several hash units takes no more of them once it has so many keys: it is written as one."""

_encode = msgspec.json.Encoder().encode
_read_part: Callable[[Raw], tuple[int, Part | None]]
_read_part = reader(tuple[int, Part | None], "a process that writes parts")


@dataclass(slots=True)
class _Share:
    """The share of a snapshot that one worker saves.

    Attributes:
        core: The worker's core.
        steps: The steps of its level that have state.
        base: The T of the last snapshot known to be committed; state unchanged since then has its parts.
        chains: What that one has of its hash units.
        awaited: The T of the snapshots whose T is not yet durable in the worker's lanes, by number.
    """

    core: WorkerCore
    steps: dict[str, SavedStep]
    base: int
    chains: PartChains
    awaited: dict[int, int] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """The request that its core has pinned."""
        assert self.core.pinned is not None, "no snapshot is requested"
        return self.core.pinned

    def asked(self, pause_ms: float) -> Pinned:
        """Await the T of the pinned request; return what can be reported of it at once."""
        request, front = self.request, self.core.front
        self.awaited[request.number] = request.tick
        self.chains.begin(request.number, request.tick)
        return Pinned(
            number=request.number,
            since=None if self.base == FIRST_TICK else self.base,
            front=None if front is None else (front.number, *front.start_at(request.tick)),
            pause_ms=pause_ms,
        )

    def deltas(self, *, shared: bool) -> dict[str, dict[int, set[Key]]]:
        """Return the keys to be written of hash units of which no more has changed, by step; for some, of none.

        Args:
            shared: Whether small deltas share parts.
        """
        if self.base == FIRST_TICK:
            return {}
        number, pays = self.request.number, self.chains.delta_pays
        return {
            name: {
                unit: keys
                for unit, keys in units.items()
                if not keys or pays((name, unit), number, len(keys), shared=shared)
            }
            for name, units in self.core.program.changed_keys(self.base).items()
        }


class _Work(NamedTuple):
    """The content of a part, or what a part with several hash units has of one.

    Attributes:
        worker: The worker that owns it.
        step: The step.
        unit: The hash unit.
        keys: Its keys in memory with their state; of a delta those that have changed, without.
        request: The snapshot request.
        core: The worker's core.
        since: Of a delta the T of the commit that it rests on; None for a whole part.
    """

    worker: str
    step: SavedStep
    unit: int
    keys: Collection[Any]
    request: Request
    core: WorkerCore
    since: int | None = None

    def content(self) -> tuple[list[tuple[Key, Any]], list[Key]]:
        """Return its keys with their state, and of a delta those that have none any more."""
        program, name, unit, tick = self.core.program, self.step.vertex, self.unit, self.request.tick
        if self.since is None:
            return program.whole(name, unit, list(self.keys), tick), []
        found = program.capture_keys(name, unit, self.keys, tick)
        there = [entry for entry in found if entry[1] is not NOTHING]
        return there, [key for key, state in found if state is NOTHING]


class _Copy(NamedTuple):
    """The copy that this machine keeps of a part.

    Attributes:
        copies: Where.
        packing: How the step packs, in words.
        entries: Its entries, as the store takes them.
    """

    copies: LocalCopies
    packing: str
    entries: list[Entry]

    def write(self, part: Part, name: str) -> None:
        """Write it; the part is in the store already, so it does not matter if there is no room."""
        self.copies.write(name, whose(name, part.sha256, self.packing), self.entries)


@dataclass(slots=True)
class _Writing:
    """A process that writes.

    Attributes:
        number: The snapshot's number.
        pid: The process id.
        readable: The pipe from it.
        left: The workers whose share it has not reported as written or failed.
        rest: The start of an incomplete line.
    """

    number: int
    pid: int
    readable: int
    left: list[str]
    rest: bytes = b""


class Saver:
    """Saves the shares that the workers of one host have of snapshots.

    Args:
        plan: The plan.
        store: The store for parts.
        incarnation: The life's number.
        base: The T of the snapshot that the life began from; hash units unchanged since then have their parts.
        parts: Those of that snapshot.
        keeps_lasts: True if the lanes' last deliveries are kept, so that a later life can use them.

    Attributes:
        disk: The host's state on disk, once it has any.
    """

    def __init__(
        self,
        plan: Plan,
        store: StoreSetting,
        incarnation: int,
        base: int | None = None,
        *,
        parts: Sequence[Part] = (),
        keeps_lasts: bool = True,
    ) -> None:
        self._plan = plan
        self._store = store
        self._incarnation = incarnation
        self._keeps_lasts = keeps_lasts
        self._base = FIRST_TICK if base is None else base
        self._parts = parts
        self.disk: StateOnDisk | None = None
        self._shares: dict[str, _Share] = {}
        self._writing: dict[int, _Writing] = {}
        """By descriptor."""
        self._ended: dict[int, _Writing] = {}
        """By number, the processes that were ended and are not reaped yet."""

    def add(self, worker: str, core: WorkerCore) -> None:
        """Save a worker's share from now on: it has the state that it began from, and has changed nothing."""
        steps = saved_steps(self._plan, core.level)
        core.program.note_changes()
        chains = PartChains(part for part in self._parts if part.vertex in steps)
        self._shares[worker] = _Share(core, steps, self._base, chains)

    def begin(self) -> list[tuple[str, ShareNews]]:
        """Save what cores have pinned, and let them prune again; return what to report of each at once.

        Where state is on disk, that is pinned first, and until then (`pinning`) nothing else happens: call it again.
        """
        pinned = {worker: share for worker, share in self._shares.items() if share.core.pinned is not None}
        changed = {worker: share for worker, share in pinned.items() if share.core.program.changed(share.base)}
        stores = self._pinned_stores() if changed or self.pinning else []
        if stores is None:
            return []
        began_s = time.perf_counter()
        failed = stores if isinstance(stores, Cause) else self._forked(changed, stores)
        pause_ms = round((time.perf_counter() - began_s) * 1000, 2)
        news: list[tuple[str, ShareNews]] = []
        for worker, share in pinned.items():
            number = share.request.number
            news.append((worker, share.asked(pause_ms if worker in changed else 0.0)))
            if worker not in changed:
                news.append((worker, ShareSaved(number)))
            elif failed:
                news.append((worker, ShareFailed(number, failed)))
            share.core.program.cut_changes(share.request.tick)
            share.core.unpin()
        return news

    def _pinned_stores(self) -> list[PinnedStore] | Cause | None:
        """Return the state on disk for the processes that write, if there is some; None if it is not pinned yet."""
        if self.disk is None:
            return []
        try:
            if not self.disk.pinning:
                self.disk.pin()
            return self.disk.pinned()
        except ReaderDied as error:
            return Cause("loss", f"could not pin the state on disk: the process that reads it: {error}")

    def _forked(self, changed: Mapping[str, _Share], stores: Sequence[PinnedStore]) -> Cause | None:
        """Fork what writes; return why it could not."""
        try:
            if changed:
                self._fork(changed, stores)
        except OSError as error:
            return Cause("loss", f"could not fork a process to write its parts: {error.strerror}")
        finally:
            for store in stores:
                store.close()
            if self.disk is not None:
                self.disk.release()
        return None

    def descriptors(self) -> list[int]:
        """Return the descriptors that are readable when `hear` has something to report."""
        return list(self._writing)

    @property
    def pinning(self) -> bool:
        """Return whether `begin` waits for the state on disk to be pinned, which is what it will go on with."""
        return self.disk is not None and self.disk.pinning

    @property
    def writes(self) -> bool:
        """Return whether a process that it forked still runs."""
        return bool(self._writing or self._ended)

    @property
    def awaits(self) -> bool:
        """Return whether `hear` may have something to report though no descriptor is readable."""
        return bool(self._ended) or any(share.awaited for share in self._shares.values())

    def hear(self) -> list[tuple[str, ShareNews]]:
        """Return what to report: parts written, and lanes that have reached a T (R15)."""
        news: list[tuple[str, ShareNews]] = []
        for writing in list(self._writing.values()):
            news += self._read(writing)
        if self._writing and self.disk is not None and self.disk.crowded:
            news += self._give_up(self.disk)
        if self._ended:
            news += self._reap()
        for worker, share in self._shares.items():
            if share.awaited:
                delivered = share.core.delivered_time
                for number in [number for number, tick in share.awaited.items() if tick <= delivered]:
                    del share.awaited[number]
                    news.append((worker, ShareDurable(number, self._lasts(share.core))))
        return news

    def committed(self, worker: str, tick: int) -> None:
        """Note that a snapshot is committed: state unchanged since its T need not be written again (W9)."""
        share = self._shares[worker]
        if tick > share.base:
            share.base = tick
            share.chains.committed(tick)
            share.core.program.forget_changes(tick)

    def cancel(self, number: int) -> None:
        """Cancel a snapshot: end its process if it still writes."""
        for share in self._shares.values():
            share.awaited.pop(number, None)
            share.chains.give_up(number)
        for writing in list(self._writing.values()):
            if writing.number == number:
                writing.left.clear()
                self._end(writing)

    def close(self) -> None:
        """End the processes that still write."""
        for writing in list(self._writing.values()):
            self._end(writing)

    def _lasts(self, core: WorkerCore) -> list[LaneLast]:
        """Return by lane the order key up to which records are durable."""
        found: list[LaneLast] = []
        if not self._keeps_lasts:
            return found
        for sink, barrier in core.barriers.items():
            for lane, key in barrier.kept().items():
                name = lane_name(self._plan.vertices[sink] if sink >= 0 else None, core.level, lane)
                last = [key.tick, key.front, key.sequence, list(key.child), key.trace]
                found.append(LaneLast(name.level, name.sink, name.lane, json.dumps(last)))
        return found

    # -- the host's side -------------------------------------------------------------------------------------------

    def _fork(self, shares: Mapping[str, _Share], stores: Sequence[PinnedStore]) -> None:
        number = max(share.request.number for share in shares.values())
        readable, writable = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(readable)
            os.close(writable)
            raise
        if pid == 0:
            status = 1
            try:
                _detach(writable, *[store.fileno() for store in stores])
                self._save(shares, number, writable, stores)
                status = 0
            except BaseException as error:  # noqa: BLE001 - nothing of it may go on in a copy of the host
                _write_pipe(writable, (None, ShareFailed(number, _why(error))))
            finally:
                os._exit(status)
        os.close(writable)
        os.set_blocking(readable, False)
        self._writing[readable] = _Writing(number, pid, readable, list(shares))

    def _read(self, writing: _Writing) -> Iterator[tuple[str, ShareNews]]:
        while True:
            try:
                data = os.read(writing.readable, READ_BYTES)
            except BlockingIOError:
                return
            *lines, writing.rest = (writing.rest + data).split(b"\n")
            for line in lines:
                yield from self._heard(writing, *read_written(line))
            if not data:
                self._end(writing)
                return

    def _give_up(self, disk: StateOnDisk) -> Iterator[tuple[str, ShareNews]]:
        """End what writes: as long as it does, what is freed on disk is not used again, and soon there is no more."""
        cause = Cause(
            "loss",
            "the state on disk had little room left, and a snapshot keeps it from using again what it frees",
            where=disk.where,
            way_out="raise state.disk_max_gb, give keys a shorter ttl, or use more hosts; without room the job ends",
        )
        for writing in list(self._writing.values()):
            disk.given_up += 1
            yield from self._heard(writing, None, ShareFailed(writing.number, cause))
            self._end(writing)

    def _heard(self, writing: _Writing, worker: str | None, news: Written) -> Iterator[tuple[str, ShareNews]]:
        """Yield the news in a line, which is about one worker or all that are left."""
        for each in list(writing.left) if worker is None else [worker]:
            chains = self._shares[each].chains
            if isinstance(news, PartWritten):
                for unit in news.part.counts_for:
                    chains.written(news.number, (news.part.vertex, unit), news.part)
            elif isinstance(news, PartEmpty):
                chains.written(news.number, (news.vertex, news.unit), None)
            if isinstance(news, ShareSaved | ShareFailed):
                writing.left.remove(each)
            yield each, news

    def _end(self, writing: _Writing) -> None:
        """End a process that has closed its pipe or is not needed; it is reaped later, as that may take a while."""
        del self._writing[writing.readable]
        os.close(writing.readable)
        os.kill(writing.pid, signal.SIGKILL)  # It is not reaped yet, so the pid is still its own.
        self._ended[writing.pid] = writing

    def _reap(self) -> Iterator[tuple[str, ShareNews]]:
        """Reap ended processes, and report how those ended that left shares unwritten."""
        for pid, writing in list(self._ended.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._ended[pid]
                code = os.waitstatus_to_exitcode(status)
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
                died = Cause("loss", f"the process that writes its parts {how}")
                yield from self._heard(writing, None, ShareFailed(writing.number, died))

    # -- the process that writes -----------------------------------------------------------------------------------

    def _save(self, shares: Mapping[str, _Share], number: int, out: int, stores: Sequence[PinnedStore]) -> None:
        store = open_store(self._store)
        if stores:
            self._read_from(stores[0])
        self._sweep(shares)
        work = list(self._work(shares, number, out))
        puts: deque[tuple[str, Future[Part]]] = deque()
        with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
            for each in self._left_by_idle(work, store, number, out, stores):
                part, first = self._part(each), each[0]
                if part is None:
                    _write_pipe(out, (first.worker, PartEmpty(number, first.step.vertex, first.unit)))
                    continue
                puts.append((first.worker, pool.submit(self._put, store, *part)))
                if len(puts) >= 2 * PUTS_AT_ONCE:
                    worker, put = puts.popleft()
                    _write_pipe(out, (worker, PartWritten(number, put.result())))
            for worker, put in puts:
                _write_pipe(out, (worker, PartWritten(number, put.result())))
        for worker in shares:
            _write_pipe(out, (worker, ShareSaved(number)))
        with suppress(ChildProcessError):  # There was no room for it.
            os.wait()  # The idle process: a busy machine takes its time to let it die.

    def _work(self, shares: Mapping[str, _Share], number: int, out: int) -> Iterator[Sequence[_Work]]:
        """Yield what each part is to have, worker by worker, reporting how many there are and what is empty."""
        for worker, share in shares.items():
            core, deltas = share.core, share.deltas(shared=self._shares_parts)
            state = core.snapshot(share.base, whole=False, but=deltas).state
            changes = self._parted(
                _Work(worker, share.steps[name], unit, keys, share.request, core, share.base)
                for name, units in deltas.items()
                for unit, keys in units.items()
                if keys
            )
            filled = {
                (vertex, unit): bool(keys) or core.program.has_away(vertex, unit)
                for vertex, units in state.items()
                for unit, keys in units.items()
            }
            # Those that only have keys that are forgotten by now count until they are read.
            _write_pipe(out, (worker, PartCount(number, sum(filled.values()) + len(changes))))
            yield from changes
            for vertex, units in state.items():
                for unit, keys in units.items():
                    if filled[vertex, unit]:
                        yield [_Work(worker, share.steps[vertex], unit, keys, share.request, core)]
                    else:
                        _write_pipe(out, (worker, PartEmpty(number, vertex, unit)))

    @property
    def _shares_parts(self) -> bool:
        """True if small deltas share parts: not where this machine keeps copies, which are by part and hash unit."""
        return self.disk is None or self.disk.copies is None

    def _parted(self, deltas: Iterable[_Work]) -> list[list[_Work]]:
        """Return which deltas of a worker are one part: small ones of a step."""
        parts: list[list[_Work]] = []
        shared: dict[str, list[_Work]] = {}
        for work in sorted(deltas, key=lambda work: work.unit):
            part = shared.get(work.step.vertex)
            if not self._shares_parts or not is_small(len(work.keys)):
                parts.append([work])
            elif part is None or sum([len(each.keys) for each in part]) >= MOST_SHARED_KEYS:
                shared[work.step.vertex] = [work]
                parts.append(shared[work.step.vertex])
            else:
                part.append(work)
        return parts

    def _read_from(self, store: PinnedStore) -> None:
        assert self.disk is not None, "its state was pinned"
        self.disk.shelves.read_from(store)

    def _left_by_idle(
        self, work: Sequence[Sequence[_Work]], store: Store, number: int, out: int, stores: Sequence[PinnedStore]
    ) -> list[Sequence[_Work]]:
        """Write parts in one more process while nothing else wants to run; return what it has not written in time.

        A process that is only nice makes a waking thread wait for the end of its time slice, which takes milliseconds.
        On a machine that is always busy an idle process never ends: it is killed then, as it could not even release a
        lock. Parts on which it fails are left over too: the caller then reports why they cannot be written.
        """
        readable, writable = os.pipe()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # No room for it; this process can do the work itself.
            os.close(readable)
            os.close(writable)
            return list(work)
        if pid == 0:
            try:
                os.close(out)
                die_with(parent)
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
                if stores:
                    self._read_from(stores[1])
                for index, each in enumerate(work):
                    made = self._part(each)
                    _write_pipe(writable, (index, None if made is None else self._put(store, *made)))
            finally:
                os._exit(0)
        os.close(writable)
        left = dict(enumerate(work))
        for index, part in _read_pipe(readable, time.monotonic() + PATIENCE_S):
            done = left.pop(index)[0]
            empty = PartEmpty(number, done.step.vertex, done.unit)
            _write_pipe(out, (done.worker, empty if part is None else PartWritten(number, part)))
        os.close(readable)
        os.kill(pid, signal.SIGKILL)
        return list(left.values())

    def _part(self, works: Sequence[_Work]) -> tuple[PartHead, int, memoryview, _Copy | None] | None:
        """Return what to write as one part; None if it is nothing."""
        work, plan = works[0], self._plan
        step, request = work.step, work.request
        made_by = snapshot_id(self._incarnation, request.number)
        head = PartHead(plan.name, step.vertex, step.kind, work.unit, request.tick, plan.slack_ms, made_by, work.since)
        if len(works) > 1:
            table = step.deltas({each.unit: each.content() for each in works})
            head = replace(head, units=tuple([each.unit for each in works]))
            return head, table.num_rows, encode_part(head, table), None
        entries, gone = work.content()
        if not entries and not gone:
            return None
        table = step.table(entries) if work.since is None else step.delta(entries, gone)
        return head, table.num_rows, encode_part(head, table), self._copy(work, entries, gone)

    def _copy(self, work: _Work, entries: list[tuple[Key, Any]], gone: list[Key]) -> _Copy | None:
        """Return what this machine is to keep of a part; None if nothing."""
        copies = None if self.disk is None else self.disk.copies
        packing = None if copies is None else work.core.program.packing(work.step.vertex)
        if copies is None or packing is None:
            return None
        deleted: list[Entry] = [(packing.place(work.unit, key), None) for key in gone]
        packed = sorted([*packing.packed(work.unit, entries), *deleted])
        return _Copy(copies, described(packing, work.step), packed)

    @staticmethod
    def _put(store: Store, head: PartHead, rows: int, data: memoryview, copy: _Copy | None) -> Part:
        store.put(head.name, data)
        size, digest = len(data), sha256(data)
        part = Part(
            head.vertex, head.kind, head.unit, head.tick, head.snapshot, rows, size, digest, head.since, head.units
        )
        if copy is not None:
            copy.write(part, head.name)
        return part

    def _sweep(self, shares: Mapping[str, _Share]) -> None:
        """Delete this machine's copies of parts of which no life will begin any more, of these workers."""
        copies = None if self.disk is None else self.disk.copies
        if copies is None:
            return
        workers, plan = self._plan.worker_of_unit().tolist(), self._plan
        mine = {(worker.partition("/")[2], step) for worker, share in shares.items() for step in share.steps}
        parts = chain.from_iterable(share.chains.parts() for share in shares.values())
        keep = {part.name(plan.name, plan.slack_ms) for part in parts}

        def own(name: ObjectName) -> bool:
            return name.job == plan.name and name.unit is not None and (str(workers[name.unit]), name.vertex) in mine

        copies.sweep(keep, own)


def _detach(*kept: int) -> None:
    """Detach a forked copy of the host: it receives nothing, holds no connection but some, and gives way to others."""
    die_with(os.getppid())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.disable()  # A collection would copy all pages that both still share.
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    os.nice(NICE)


def _read_pipe(readable: int, deadline_s: float) -> Iterator[tuple[int, Part | None]]:
    """Yield what comes through a pipe until its other end closes or the deadline passes."""
    rest = b""
    while select.select([readable], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
        data = os.read(readable, READ_BYTES)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(_read_part, lines)


def _write_pipe(out: int, entry: tuple[str | None, Written] | tuple[int, Part | None]) -> None:
    data = memoryview(_encode(entry) + b"\n")
    while data:
        data = data[os.write(out, data) :]


def _why(error: BaseException) -> Cause:
    if not isinstance(error, LowtideError):
        with suppress(OSError, ValueError):  # A closed stderr hides the trace, not the cause.
            traceback.print_exception(error, file=sys.stderr)
    return cause_of(error)
