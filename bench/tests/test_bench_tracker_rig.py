"""The processes that a measurement of the tracker needs, and workers that flush to them."""

import time

import pytest
from hanging import HANGS_S

from lowtide_bench.tracker_rig import SimulatedWorker, TrackerRig


@pytest.mark.parametrize("shards", [1, 3])
def test_simulated_workers_move_min_time_of_any_number_of_shards(shards: int) -> None:
    fronts = dict.fromkeys(range(10), 0)
    with TrackerRig(shards=shards, fronts=fronts) as rig:
        assert len(rig.pids) == (1 if shards == 1 else shards + 1)
        workers = [rig.worker(number) for number in range(10)]
        far = SimulatedWorker(rig.place, 10)
        for tick in range(1, 20):
            for number, worker in enumerate(workers):
                value = worker.local.new_value()
                worker.local.fold(1, [tick], value)
                far.local.fold(1, [tick], value)
                worker.local.heartbeat(number, tick + 1)
                worker.turn()
        until = time.monotonic() + HANGS_S
        while workers[0].local.global_min < 20:
            assert time.monotonic() < until, rig.report
            for worker in (far, *workers):
                worker.turn()
        far.close()
        assert all(cpu_s > 0 for cpu_s in rig.cpu_s())
        assert rig.faults == []
