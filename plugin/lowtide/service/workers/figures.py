"""The combined figures of all workers of a life."""

from __future__ import annotations

from collections.abc import Mapping

from lowtide.service.workers.register import Register
from lowtide.status.gauges import WorkerGauges, WorkerState
from lowtide.status.recent import totals_of

Gauges = Mapping[str, WorkerGauges]
"""The last gauges of each worker."""


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


def workers(register: Register, gauges: Gauges) -> list[WorkerState]:
    """Return all workers of a register, each with its gauges."""
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
        )
        for worker in register.workers.values()
    ]
