"""What a request has pinned is written by a process that is forked for it, while the worker goes on (C3).

The fork is what makes a snapshot cost no pause: it sees the state as it was when the request was heard, however long it
takes to write it, and the kernel copies what the worker changes meanwhile. It gives way to everything else that runs,
and dies with the worker.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lowtide.errors import LowtideError
from lowtide.operators.order import FIRST_TICK
from lowtide.operators.saving import SavedStep, saved_steps
from lowtide.plan import Plan
from lowtide.worker.core import WorkerCore
from lowtide.worker.outputs import lane_name
from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.names import snapshot_id
from lowtide_snapshots.parts import PartHead, encode_part, sha256
from lowtide_snapshots.stores import StoreSetting, open_store
from lowtide_tracker import Request

__all__ = ["Saver"]

PUTS_AT_ONCE = 8
"""How many parts are on their way to the store at once."""
REAP_S = 0.1
"""How long the end of a process is waited for."""
NICE = 10
"""How much the writing process gives way to the others."""
PR_SET_PDEATHSIG = 1
READ_BYTES = 1 << 16

Said = dict[str, Any]


@dataclass(slots=True)
class _Writing:
    """A process that writes: what it has said so far, and the start of a line that has not come whole."""

    number: int
    pid: int
    readable: int
    said: list[Said] = field(default_factory=list)
    rest: bytes = b""


class Saver:
    """Saves one worker's share of snapshots.

    Args:
        plan: The plan.
        level: The worker's.
        store: Where parts go.
        incarnation: The life's number.
        base: The T of the snapshot that the life began from; hash units that have not changed since have their parts.
        keeps_lasts: Whether what lanes have delivered is kept, so that a later life can go by it.
    """

    def __init__(
        self,
        plan: Plan,
        level: int,
        store: StoreSetting,
        incarnation: int,
        base: int | None = None,
        *,
        keeps_lasts: bool = True,
    ) -> None:
        self._plan = plan
        self._store = store
        self._incarnation = incarnation
        self._keeps_lasts = keeps_lasts
        self._base = FIRST_TICK if base is None else base
        self._steps = saved_steps(plan, level)
        self._writing: dict[int, _Writing] = {}
        """By descriptor."""
        self._ended: list[int] = []
        """Processes that were told to end and have not been waited for."""
        self._awaited: dict[int, int] = {}
        """By number of the snapshots whose T is not yet durable in the worker's lanes, their T."""

    def begin(self, core: WorkerCore) -> list[Said]:
        """Save what the core has pinned, and let it prune on; return what the service is to be told at once."""
        request = core.pinned
        assert request is not None, "nobody asked for it"
        self._awaited[request.number] = request.tick
        said: Said = {"number": request.number, "tick": request.tick}
        if self._base != FIRST_TICK:
            said["since"] = self._base
        if core.front is not None:
            said["front"] = [core.front.number, *core.front.start_at(request.tick)]
        if core.program.changed(self._base):
            began_s = time.perf_counter()
            try:
                self._fork(core, request)
            except OSError as error:
                said["failed"] = f"no process could be forked to write its parts: {error.strerror}"
            said["pause_ms"] = round((time.perf_counter() - began_s) * 1000, 2)
        else:
            said["done"] = True
        core.unpin()
        return [said]

    def descriptors(self) -> list[int]:
        """What becomes readable when `hear` has something to say."""
        return list(self._writing)

    def hear(self, core: WorkerCore) -> list[Said]:
        """Return what the service is to be told: parts that are written, and that the lanes have come to a T (R15)."""
        said: list[Said] = []
        if self._ended:
            self._reap()
        for writing in list(self._writing.values()):
            said += self._read(writing)
        if self._awaited:
            delivered = core.delivered_time
            for number in [number for number, tick in self._awaited.items() if tick <= delivered]:
                del self._awaited[number]
                said.append({"number": number, "accepted": True, "lasts": self._lasts(core)})
        return said

    def committed(self, tick: int) -> None:
        """A snapshot has been committed: what has not changed since its T need not be written again (W9)."""
        self._base = max(self._base, tick)

    def cancel(self, number: int) -> None:
        """A snapshot has been given up: its process, if it still writes, is ended."""
        self._awaited.pop(number, None)
        for writing in list(self._writing.values()):
            if writing.number == number:
                self._end(writing)

    def close(self) -> None:
        """End what still writes."""
        for writing in list(self._writing.values()):
            self._end(writing)

    def _lasts(self, core: WorkerCore) -> list[Any]:
        """By lane the order key up to which records are durable."""
        found: list[Any] = []
        if not self._keeps_lasts:
            return found
        for sink, barrier in core.barriers.items():
            for lane, key in barrier.kept().items():
                name = lane_name(self._plan.vertices[sink] if sink >= 0 else None, core.level, lane)
                last = [key.tick, key.front, key.sequence, list(key.child), key.trace]
                found.append([name.level, name.sink, name.lane, json.dumps(last)])
        return found

    # -- the worker's side -----------------------------------------------------------------------------------------

    def _fork(self, core: WorkerCore, request: Request) -> None:
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
                _detach(writable)
                self._save(core, request, writable)
                status = 0
            except BaseException as error:  # noqa: BLE001 - nothing of it may go on in a copy of the worker
                _say(writable, {"failed": _why(error)})
            finally:
                os._exit(status)
        os.close(writable)
        os.set_blocking(readable, False)
        self._writing[readable] = _Writing(request.number, pid, readable)

    def _read(self, writing: _Writing) -> Iterator[Said]:
        while True:
            try:
                data = os.read(writing.readable, READ_BYTES)
            except BlockingIOError:
                return
            *lines, writing.rest = (writing.rest + data).split(b"\n")
            for line in lines:
                said = json.loads(line) | {"number": writing.number}
                writing.said.append(said)
                yield said
            if not data:
                break
        last = writing.said[-1] if writing.said else {}
        how = self._end(writing)
        if not ("done" in last or "failed" in last):
            yield {"number": writing.number, "failed": f"the process that wrote its parts {how}"}

    def _end(self, writing: _Writing) -> str:
        """See the end of a process, which has closed its pipe or is to be ended; return how it ended, if that is known.

        One that waits for a disk which hangs cannot be ended now: it is asked after later.
        """
        del self._writing[writing.readable]
        os.close(writing.readable)
        os.kill(writing.pid, signal.SIGKILL)  # It is ours until it has been waited for, so the number is its own.
        self._ended.append(writing.pid)
        deadline = time.monotonic() + REAP_S
        while (how := self._reap().get(writing.pid)) is None and time.monotonic() < deadline:
            time.sleep(REAP_S / 20)
        return "cannot be ended" if how is None else how

    def _reap(self) -> dict[int, str]:
        """How each of the ended processes has ended that could be waited for now."""
        found = {}
        for pid in list(self._ended):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._ended.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                found[pid] = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return found

    # -- the process that writes -----------------------------------------------------------------------------------

    def _save(self, core: WorkerCore, request: Request, out: int) -> None:
        state = core.snapshot(self._base).state
        work = [(self._steps[vertex], unit, keys) for vertex, units in state.items() for unit, keys in units.items()]
        _say(out, {"parts": len(work)})
        store = open_store(self._store)
        with ThreadPoolExecutor(PUTS_AT_ONCE) as pool:
            puts: deque[Future[Said]] = deque()
            while work:
                step, unit, keys = work.pop()
                if not keys:
                    _say(out, {"empty": [step.vertex, unit]})
                    continue
                puts.append(pool.submit(self._put, store, *self._part(step, unit, keys, request)))
                if len(puts) >= 2 * PUTS_AT_ONCE:
                    _say(out, puts.popleft().result())
            for put in puts:
                _say(out, put.result())
        _say(out, {"done": True})

    def _part(self, step: SavedStep, unit: int, keys: list[Any], request: Request) -> tuple[PartHead, int, memoryview]:
        table = step.table(keys)
        made_by = snapshot_id(self._incarnation, request.number)
        head = PartHead(self._plan.name, step.vertex, step.kind, unit, request.tick, self._plan.slack_ms, made_by)
        return head, table.num_rows, encode_part(head, table)

    @staticmethod
    def _put(store: Any, head: PartHead, rows: int, data: memoryview) -> Said:
        store.put(head.name, data)
        part = [head.vertex, head.kind, head.unit, head.tick, head.snapshot, rows, len(data), sha256(data)]
        return {"part": part}


def _detach(out: int) -> None:
    """Make a forked copy of the worker a process of its own: it hears nothing, holds no connection, and gives way."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.disable()  # A collection would copy all pages that the two still share.
    os.closerange(3, out)
    os.closerange(out + 1, os.sysconf("SC_OPEN_MAX"))
    os.nice(NICE)


def _say(out: int, said: Said) -> None:
    data = memoryview(json.dumps(said).encode() + b"\n")
    while data:
        data = data[os.write(out, data) :]


def _why(error: BaseException) -> str:
    if isinstance(error, LowtideError | SnapshotsError):
        return str(error)
    traceback.print_exception(error, file=sys.stderr)
    return f"{type(error).__name__}: {error}"
