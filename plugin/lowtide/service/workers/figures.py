"""The combined figures of all workers of a life."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lowtide.service.workers.register import Register
from lowtide.status.gauges import StepStands, WorkerGauges, WorkerState
from lowtide.status.recent import totals_of

Gauges = Mapping[str, WorkerGauges]
"""The last gauges of each worker."""
NONE: Mapping[str, StepStands] = MappingProxyType({})


def totals(register: Register, gauges: Gauges, executors: int) -> dict[str, int]:
    """Return the job's gauges: records read from sources, delivered to sinks and dead letters, and repairs."""
    counted = totals_of(workers(register, gauges))
    return {
        "workers": len(register.workers),
        "executors": executors,
        "records_in": counted.records_in,
        "records_out": counted.delivered,
        "dead_letters": counted.dead_letters,
        "repairs": counted.repairs,
    }


def workers(register: Register, gauges: Gauges, stands: Mapping[str, StepStands] = NONE) -> list[WorkerState]:
    """Return all workers of a register, each with its gauges, and the step that it is in without returning."""
    return [
        WorkerState(
            worker=worker.name,
            number=worker.number,
            level=int(worker.name.partition("/")[0]),
            executor=worker.executor,
            pid=worker.pid,
            address=worker.address,
            attached=worker.name in gauges and gauges[worker.name].attached,
            gauges=gauges.get(worker.name),
            stands=stands.get(worker.name),
        )
        for worker in register.workers.values()
    ]
