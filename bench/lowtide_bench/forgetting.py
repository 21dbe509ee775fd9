"""Keys that come once and never again: a worker's memory while millions of them pass.

One worker of level 1, without Spark and Kafka: frames in, min time after them. It may forget a key after `KEPT_MS` of
log time, so after that much of the log its memory has to stay constant, however many keys still come.
"""

from __future__ import annotations

import os
import time
from itertools import count
from typing import Any, Literal

from lowtide import Flow, Window, kafka, millis, raw, tumbling
from lowtide.core.effects import Effects, Frame
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.core.worker import WorkerCore
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.raw_record import Raw
from lowtide.process.interpreter import set_up_collector
from lowtide_bench.ground import described
from lowtide_bench.session import Say
from lowtide_tracker import LocalTracker, Notice

Step = Literal["scan", "deduplicate", "windows"]
STEPS: tuple[Step, ...] = ("scan", "deduplicate", "windows")
KEPT_MS = 1_000
SLACK_MS = 2
KEYS_PER_TICK = 100
TICKS_PER_FRAME = 10
LOOKS = 10
"""Number of looks at memory, evenly over the keys."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def seen(times: int, record: Raw) -> tuple[int, Raw]:
    """Count the records of a key."""
    return times + 1, record


def counted(times: int, _: Raw) -> int:
    """Count the records of a window."""
    return times + 1


def closed(window: Window, times: int) -> Raw:
    """Return a window's result."""
    return Raw(window.key[0], b"%d" % times)


def plan_of(step: Step) -> Plan:
    """Return the plan of a flow of one step that forgets, on one worker."""
    flow = Flow("forgetting")
    keyed = flow.read("source", kafka("source", raw())).key_by("key")
    if step == "scan":
        stream = keyed.scan("step", seen, 0, ttl=millis(KEPT_MS))
    elif step == "deduplicate":
        stream = keyed.deduplicate("step", within=millis(KEPT_MS))
    else:
        stream = keyed.window("step", tumbling(millis(KEPT_MS))).fold(counted, 0, closed)
    stream.write("sink", kafka("sink", raw()))
    return compile_flow(flow, parallelism=1, slack_ms=SLACK_MS)


class Worker:
    """The worker, with a sink that takes everything at once.

    Attributes:
        delivered: Number of records delivered.
    """

    def __init__(self, plan: Plan) -> None:
        self.delivered = 0
        self._core = WorkerCore(plan, 1, 0, tracker=LocalTracker(1, 1))
        (self._exchange,) = [vertex.id for vertex in plan.exchanges()]
        self._units = plan.units
        self._numbers, self._keys = count(1), count()

    def frame(self, tick: int) -> int:
        """Take a frame of new keys, of some ticks from this one on; return the tick after them."""
        ats, units, rows = [], [], []
        end = tick + TICKS_PER_FRAME
        for at in range(tick, end):
            for _ in range(KEYS_PER_TICK):
                number = next(self._keys)
                ats.append(OrderKey(at, 0, number, (), 7).packed())
                units.append(number % self._units)
                rows.append(Raw(b"%012d" % number, b""))
        number = next(self._numbers)
        ticks = list(range(tick, end))
        self._took(self._core.frame(Frame(self._exchange, 0, number, ticks, Batch(ats, units, rows), b"")))
        segments = dict.fromkeys(range(1, 8), end)
        self._took(self._core.notice(Notice(1, number, number - 1, segments, end)))
        flush = self._core.flush()
        assert flush is not None, "what came is acknowledged"
        self._core.tracker.applied(flush.number)
        return end

    def _took(self, effects: Effects) -> None:
        given = effects.bundles
        while given:
            sink, bundle = given.pop()
            self.delivered += len(bundle)
            given += self._core.durable(sink, bundle.lane).bundles


def memory_bytes() -> int:
    """Return the memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def run(keys: int, say: Say) -> dict[str, Any]:
    """Measure each step, and return the object that `lowtide bench forgetting --json` prints.

    Args:
        keys: Number of keys, each of which comes once.
        say: Called with each progress message.
    """
    set_up_collector()
    with described() as surroundings:
        steps = {step: _measured(step, keys, say) for step in STEPS}
    return {"keys": keys, "kept_ms": KEPT_MS, "keys_per_tick": KEYS_PER_TICK, "steps": steps, **surroundings}


def _measured(step: Step, keys: int, say: Say) -> dict[str, Any]:
    worker, tick, came = Worker(plan_of(step)), 1, 0
    looks: list[int] = []
    began = time.monotonic()
    for look in range(LOOKS):
        while came < keys * (look + 1) // LOOKS:
            tick = worker.frame(tick)
            came += KEYS_PER_TICK * TICKS_PER_FRAME
        looks.append(memory_bytes())
        say(f"{step}: {came:,} keys, {looks[-1] / 1e6:.1f} MB")
    return {
        "delivered": worker.delivered,
        "rss_mb": [round(each / 1e6, 1) for each in looks],
        "grown_mb": round((looks[-1] - looks[0]) / 1e6, 1),
        "keys_per_s": round(came / (time.monotonic() - began)),
    }
