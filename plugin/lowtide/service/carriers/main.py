"""`python -m lowtide.service.carriers.main`: the carrier of one staged sink, in a process of its own.

The service starts it and exchanges `service/carriers/messages.py` with it over its standard input and output. It ends
when its standard input closes, with its parent however that ends, and after an error, which it reports.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from lowtide.assignment.messages import line
from lowtide.assignment.setting import StagedSetting
from lowtide.errors import LowtideError
from lowtide.logs import log_to_stderr
from lowtide.process.interpreter import set_up_collector
from lowtide.process.parent import die_with
from lowtide.service.carriers.messages import (
    Carried,
    CarrierFailed,
    CarrierStart,
    Drained,
    Found,
    FromCarrier,
    read_by_carrier,
    read_carrier_start,
)
from lowtide.sinks.staged.ages import births_by_key
from lowtide.sinks.staged.carry import Carrying, Report, ignore
from lowtide.sinks.staged.contract import Carriage, Progress, Staged
from lowtide.sinks.staged.log import Backlog, StagedLog
from lowtide.sinks.staged.partitions import Partitions
from lowtide_snapshots.errors import cause_of

REPORT_EVERY_S = 0.05
NICE = 5
"""A third of a worker's share of a busy core: what is staged is safe, so the job goes first."""
STDIN = 0
READ_BYTES = 1 << 16


def carrying_of(
    setting: StagedSetting, kafka: Mapping[str, Any], report: Report = ignore, found: Report = ignore
) -> Carrying:
    """Return a staged sink's carrier on its log; it opens nothing yet.

    Args:
        setting: The sink.
        kafka: librdkafka's settings, secrets included.
        report: As of `Carrying`.
        found: As of `Carrying`.
    """
    sink: Staged
    carriage: Carriage
    sink, carriage = pickle.loads(setting.pickled)  # noqa: S301 - the driver made it, for its own service
    log = StagedLog(Partitions(kafka, setting.topic, setting.group, setting.lanes))
    return Carrying(log, sink.carrier(carriage), report, found, births_by_key(sink, carriage))


class _Orders:
    """The service's orders, looked at between two turns; no thread, as one that waits for input disturbs an exit."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self._over = False

    def first(self) -> bytes:
        """Wait for the first line; empty if none comes."""
        while not self._lines and not self._over:
            self._read()
        return self._lines.pop(0) if self._lines else b""

    def over(self) -> bool:
        """Return whether the process is to end."""
        while not self._over and select.select([STDIN], [], [], 0)[0]:
            self._read()
        return self._over

    def drain(self) -> bool:
        """Return whether there is an order to drain, once for all that have come."""
        asked = [read_by_carrier(each) for each in self._lines]
        self._lines.clear()
        return bool(asked)

    def _read(self) -> None:
        data = os.read(STDIN, READ_BYTES)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += lines
        self._over = not data


class _Reports:
    """Reports to the service: what has changed, each `REPORT_EVERY_S` at most."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._said: Carried | None = None
        self._next_s = 0.0

    def found(self, lanes: Mapping[int, Progress], backlog: Backlog, _counts: Mapping[str, int]) -> None:
        self.say(Found(lanes, backlog))

    def carried(self, lanes: Mapping[int, Progress], backlog: Backlog, counts: Mapping[str, int]) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._report(Carried(lanes, backlog, counts))
            self._next_s = now_s + REPORT_EVERY_S

    def drained(self, lanes: Mapping[int, Progress], backlog: Backlog, counts: Mapping[str, int]) -> None:
        self._report(Carried(lanes, backlog, counts))
        self.say(Drained())

    def say(self, message: FromCarrier) -> None:
        self._out.write(line(message).decode())
        self._out.flush()

    def _report(self, carried: Carried) -> None:
        if carried != self._said:
            self._said = carried
            self.say(carried)


def _run(start: CarrierStart, orders: _Orders, reports: _Reports) -> None:
    with carrying_of(start.setting, start.kafka, reports.carried, reports.found) as carrying:
        set_up_collector()
        while not orders.over():
            carrying.turn()
            if orders.drain() and carrying.drain(orders.over):
                reports.drained(*carrying.last)


def main() -> None:
    """Read the first line, and carry."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's Ctrl-C reaches all; the service ends its own.
    log_to_stderr("carrier")
    # Whatever the store's client prints must not come between the messages.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders = _Orders()
    first = orders.first()
    if not first:
        return
    start = read_carrier_start(first)
    die_with(start.parent)
    os.nice(NICE)
    reports = _Reports(out)
    try:
        _run(start, orders, reports)
    except LowtideError as error:
        reports.say(CarrierFailed(error.cause()))
        sys.exit(1)
    except Exception as error:
        reports.say(CarrierFailed(cause_of(error)))
        raise


if __name__ == "__main__":
    main()
