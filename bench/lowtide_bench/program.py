"""A job in a program of its own, as `lowtide run` runs it, to be killed: `python -m lowtide_bench.program`."""

from __future__ import annotations

import pickle
import sys
from functools import partial
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.runner import Runner
from lowtide.process.mark import new_life
from lowtide.process.pandas_later import leave_pandas_for_later
from lowtide_bench.called import called
from lowtide_bench.child import Parent
from lowtide_bench.flows import FLOWS
from lowtide_bench.outlets.stores import OUTLETS


def main() -> int:
    """Run the task's flow until it is stopped; the job's folder shows its state."""
    task = Parent().task
    leave_pandas_for_later()
    # A file of the run's own folder, written by its own parent.
    conf = pickle.loads(Path(task["conf"]).read_bytes())  # noqa: S301
    make = OUTLETS.get(task["flow"]) or FLOWS[task["flow"]].make
    if task.get("port"):
        make = partial(called, port=task["port"])
    flow = make(task["job"], task["from"], task["to"])
    folder = JobFolder(Path(task.get("folder") or conf.job.folder), flow.name)
    try:
        folder.lock()
        runner = Runner(flow, conf, folder, new_life(), None, standby=bool(task.get("standby")))
        return runner.run().exit_code or 0
    except LowtideError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
