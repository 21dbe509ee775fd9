"""Settings of measurements of subjects side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Timestamps = Literal["create", "append"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Setting of the measurement.

    Attributes:
        flow: One of `flows.FLOWS`.
        subjects: The `sides.SUBJECTS` to measure.
        timestamps: As in `Ground`.
        snapshot_every_s: Interval of snapshots in the measured window; 0 for none.
        state_keys: Keys in the running count's state before the measurement, also in the skeleton's.
    """

    flow: str
    subjects: tuple[str, ...]
    timestamps: Timestamps
    snapshot_every_s: float = 0
    state_keys: int = 0


@dataclass(frozen=True, kw_only=True)
class AskedOfCalls:
    """Setting of the measurement of calls.

    Attributes:
        rate: Records per second.
        seconds: How long each turn is measured, after `warmup` seconds.
        warmup: Seconds of sending before that.
        rounds: How often a flow with a call has its turn, and one without.
        service: The time that the service takes for an answer, in ms.
        backlog: Records to catch up with; 0 for none.
        kills: Kills of driver, host and caller in turn, with an outage of the service among them; 0 for none.
        every: Seconds from one kill to the next.
        outage: Seconds for which the service is away.
        tries: As in `lowtide_bench.load.Sent`.
    """

    rate: int
    seconds: float
    warmup: float
    rounds: int
    service: float
    backlog: int
    kills: int
    every: float
    outage: float
    tries: int


@dataclass(frozen=True, kw_only=True)
class AskedOfEarlyKeys:
    """Setting of the measurement of early keys.

    Attributes:
        rate: Records per second.
        seconds: How long each turn is measured, after `warmup` seconds.
        warmup: Seconds of sending before that.
        rounds: How often each setting has its turn.
        sleep: The time that the slow key's function sleeps, in ms; 0 for never.
        workers: Workers of the level that counts.
        tries: As in `lowtide_bench.load.Sent`.
    """

    rate: int
    seconds: float
    warmup: float
    rounds: int
    sleep: float
    workers: int
    tries: int
