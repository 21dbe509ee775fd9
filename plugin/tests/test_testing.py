"""The helper that kills a life at a record, in processes of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import lowtide as lt
from lowtide.flow.plan.check import check_flow
from lowtide.testing import abort_once

WORKER = """
import sys
from lowtide.process.role import becomes_worker
from lowtide.testing import abort_once

def is_abort(text: str) -> bool:
    return text == "ABORT"

passes = abort_once(is_abort, sys.argv[1])
becomes_worker()
print([passes("a"), passes("ABORT"), passes("b")])
"""


@dataclass(frozen=True)
class Order:
    user: str


def is_abort(order: Order) -> bool:
    return order.user == "ABORT"


def test_a_worker_is_killed_once_and_leaves_the_record_out_from_then_on(tmp_path: Path) -> None:
    marker = tmp_path / "aborted"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", WORKER, marker], capture_output=True, text=True, check=False)

    assert run().returncode == -signal.SIGKILL
    assert marker.exists()
    again = run()
    assert (again.returncode, again.stdout.strip()) == (0, "[True, False, True]"), again.stderr


def test_here_and_now_the_record_is_left_out_and_nothing_is_killed(tmp_path: Path) -> None:
    flow = lt.Flow("aborts")
    orders = flow.read("orders", lt.kafka("orders", lt.json(Order)))
    orders.filter(abort_once(is_abort, tmp_path / "aborted"), name="abort").write(
        "out", lt.kafka("out", lt.json(Order))
    )
    assert check_flow(flow) == []
    out = flow.run_locally(orders=[Order("ann"), Order("ABORT"), Order("bob")])
    assert out["out"] == [Order("ann"), Order("bob")]
    assert not (tmp_path / "aborted").exists()
