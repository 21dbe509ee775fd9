"""Messages between the service and a carrier's process: lines of JSON over its standard input and output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lowtide.assignment.messages import Message, Raw, reader
from lowtide.assignment.setting import StagedSetting
from lowtide.sinks.staged.contract import Progress
from lowtide.sinks.staged.log import Backlog
from lowtide_snapshots.cause import Cause


class CarrierStart(Message, frozen=True, kw_only=True):
    """The first line to the process.

    Attributes:
        parent: Process id of the service, with which it ends.
        setting: The sink.
        kafka: librdkafka's settings, secrets included.
    """

    parent: int
    setting: StagedSetting
    kafka: dict[str, Any]


class Drain(Message, frozen=True):
    """An order to make visible all that the log has now and that can be; answered by `Drained`."""


class Found(Message, frozen=True):
    """The progress of carriers before, and what they have left of the log; sent before the store is opened."""

    lanes: Mapping[int, Progress]
    backlog: Backlog


class Carried(Message, frozen=True):
    """The progress of the lanes, what is left of the log, and `Carrier.counts`; sent when it has changed."""

    lanes: Mapping[int, Progress]
    backlog: Backlog
    counts: Mapping[str, int] = {}


class Drained(Message, frozen=True):
    """The news that the log is drained."""


class CarrierFailed(Message, frozen=True):
    """The reason why the process ends."""

    cause: Cause


FromCarrier = Found | Carried | Drained | CarrierFailed

read_carrier_start: Callable[[Raw], CarrierStart] = reader(CarrierStart, "a carrier")
read_by_carrier: Callable[[Raw], Drain] = reader(Drain, "a carrier")
read_from_carrier: Callable[[Raw], FromCarrier] = reader(FromCarrier, "the service")
