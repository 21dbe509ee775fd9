"""A standby's rehearsal: the query of a life without workers, so that Spark has done everything once before it counts.

It reads the job's sources from their ends and lets go what it reads. It delivers nothing, and writes nothing but
Spark's checkpoint, in a folder that goes with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lowtide.conf import Conf
from lowtide.driver.checkpoints import CheckpointFolder
from lowtide.driver.query import start_query
from lowtide.flow.plan.plan import Plan

LOG = logging.getLogger(__name__)

REHEARSAL = 0
"""The incarnation of a query without workers; see `Rehearsal.java`."""
LATEST = -1
"""A partition's end, in Spark's `startingOffsets`."""
EPOCH_S = 5.0
"""The longest epoch of a rehearsal, which lasts for one."""
LIMIT_S = 60.0
POLL_S = 0.1


def rehearse(
    session: Any, plan: Plan, conf: Conf, fronts: list[str], go_on: Callable[[], bool], *, limit_s: float = LIMIT_S
) -> bool:
    """Run the query of a life for one epoch, without workers; return whether it came so far.

    A rehearsal that fails is no reason not to stand by: the start that it was for says what is wrong.

    Args:
        session: The SparkSession.
        plan: What will run.
        conf: Where and how.
        fronts: All partitions of the sources, by name.
        go_on: Asked often; False breaks it off.
        limit_s: The longest it may take.
    """
    checkpoint = CheckpointFolder(Path(conf.spark.checkpoint_folder), plan.name)
    short = replace(conf, epoch=replace(conf.epoch, duration_s=min(conf.epoch.duration_s, EPOCH_S)))
    query: Any = None
    deadline = time.monotonic() + limit_s
    try:
        starts = dict.fromkeys(fronts, LATEST)
        query = start_query(session, plan, short, starts, incarnation=REHEARSAL, checkpoint=checkpoint.path)
        while query.isActive() and query.lastProgress() is None and time.monotonic() < deadline and go_on():
            time.sleep(POLL_S)
        return bool(query.isActive() and query.lastProgress() is not None)
    except Exception as error:  # noqa: BLE001 - py4j raises all sorts
        LOG.warning("the rehearsal has failed: %s", error)
        return False
    finally:
        _stop(query)
        checkpoint.close()


def _stop(query: Any) -> None:
    try:
        if query is not None:
            query.stop()
    except Exception as error:  # noqa: BLE001 - py4j raises all sorts
        LOG.warning("the rehearsal's query could not be stopped: %s", error)
