"""What is done to a job, when and to whom: drawn from a seed, before anything runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KILLS: dict[str, tuple[str, ...]] = {
    "kill-worker": ("worker",),
    "kill-forkserver": ("forkserver",),
    "kill-executor": ("executor",),
    "kill-spark": ("spark",),
    "kill-driver": ("driver",),
    "kill-tracker": ("tracker",),
    "kill-service": ("service",),
    "kill-caller": ("caller",),
    "kill-at-request": ("worker", "service", "driver", "tracker"),
    "kill-at-part": ("saver", "worker", "service", "driver"),
    "kill-at-seal": ("service", "driver", "worker"),
    "kill-at-commit": ("service", "driver"),
    "kill-after-commit": ("service", "driver", "worker", "forkserver"),
    "kill-at-verify": ("driver", "service", "spark"),
    "kill-at-load": ("worker", "driver", "forkserver", "service"),
    "kill-under-s3": ("worker", "driver"),
    "kill-at-takeover": ("driver",),
}
"""The faults that kill one of the job's processes, each with whom."""
OTHERS: dict[str, tuple[str, ...]] = {
    "pause-worker": ("worker",),
    "pause-forkserver": ("forkserver",),
    "pause-executor": ("executor",),
    "pause-spark": ("spark",),
    "pause-driver": ("driver",),
    "pause-tracker": ("tracker",),
    "pause-service": ("service",),
    "zombie": ("program", "driver and service"),
    "hung-function": ("",),
    "raised-function": ("",),
    "sweep-in-rewind": ("",),
    "savepoint-beside": ("",),
    "hand-over": ("",),
    "older-timestamps": ("",),
    "changed-ttl": ("",),
    "executor-without-broker": ("",),
    "broker-clock": ("",),
    "zookeeper": ("",),
    "zookeeper-at-commit": ("",),
    "kafka": ("",),
    "late-end": ("",),
    "s3-500": ("",),
    "s3-503": ("",),
    "s3-slow": ("",),
    "s3-cut": ("",),
    "s3-applied": ("",),
    "s3-restart": ("",),
    "call-service": ("",),
}
"""All others, with whom they are done to; nobody of the job's own is killed."""
ENDING = frozenset({"worker", "forkserver", "executor", "spark", "driver", "service"})
"""Whose death ends a life; the others are replaced within it."""
CAUSED = frozenset({"kill-at-verify", "kill-at-load", "kill-at-takeover"})
"""What is done to a recovery, which a first kill brings about, of a worker or the driver: each is two kills."""
LEFT = frozenset({"zombie", "hung-function", "raised-function", "sweep-in-rewind", "changed-ttl", "hand-over"})
"""What ends a life without a kill."""
TIMELESS = frozenset({"broker-clock"})
"""What may stop the time by which output comes for as long as it lasts, and a minute more: no measure of a recovery."""
VARIANTS: dict[str, tuple[str, ...]] = {
    "kill-at-seal": ("before", "after"),
    "kill-under-s3": ("500", "503", "slow", "cut"),
    "zookeeper": ("killed", "stopped", "standing still"),
    "kafka": ("killed", "stopped"),
    "broker-clock": ("forward", "back", "forward over a start", "back over a start"),
    "sweep-in-rewind": ("killed", "stopped"),
    "changed-ttl": ("killed", "stopped"),
    "call-service": ("killed", "standing still"),
}
CALLING = frozenset({"kill-caller", "call-service"})
"""What only a flow with a call has."""
WAITED = frozenset({"kill-at-takeover", "hand-over"})
"""What only a job with standbys has."""
ALONE = frozenset({"zombie", "sweep-in-rewind", "changed-ttl"})
"""What begins the next program itself, from elsewhere or with another flow: a standby would be there first."""
LASTS_S: dict[str, tuple[float, float]] = {
    "pause-tracker": (2.0, 13.0),
    "kafka": (1.0, 8.0),
    "zookeeper": (1.0, 10.0),
    "zookeeper-at-commit": (0.5, 3.0),
    "kill-at-commit": (0.1, 0.8),
    "kill-at-request": (0.0, 0.05),
}
"""Time that a fault lasts, from and to; for the others as next."""
ELSE_LASTS_S = (1.0, 9.0)
AFTER_S = (0.2, 3.0)
MOST_PARTS = 20
"""A kill between parts comes before one of so many."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: One of `KILLS` or `OTHERS`.
        victim: To whom it is done, by role; empty where it is not a process of the job's.
        variant: How, where there are several ways.
        which: From 0 to below 1: which of several processes of that role.
        nth: Of steps that there are several of, before which.
        after_s: How long the job has run undisturbed before.
        lasts_s: How long it lasts.
    """

    kind: str
    victim: str = ""
    variant: str = ""
    which: float = 0.0
    nth: int = 1
    after_s: float = 0.0
    lasts_s: float = 1.0

    @property
    def kills(self) -> int:
        """Number of the job's processes that it kills."""
        return 0 if self.kind not in KILLS else 2 if self.kind in CAUSED else 1

    @property
    def ends_life(self) -> bool:
        """True if another life has to follow; where it is not sure, False."""
        return self.kind in CAUSED | LEFT or (self.kind in KILLS and self.victim in ENDING)

    def __str__(self) -> str:
        said = [self.kind]
        if self.victim and not self.kind.endswith(self.victim):
            said.append(f"({self.victim})")
        if self.variant:
            said.append(self.variant)
        if self.kind in ("kill-at-part", *CAUSED):
            said.append(f"no. {self.nth}")
        if not self.kills or self.kind == "kill-under-s3":
            said.append(f"for {self.lasts_s:.1f} s")
        return " ".join(said)


def kinds(*, cluster: bool, calls: bool = False, standbys: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The kinds that kill, and the others; one JVM that is all of Spark has no executor of its own."""
    never = ALONE if standbys else WAITED

    def goes(kind: str) -> bool:
        return (cluster or "executor" not in kind) and (calls or kind not in CALLING) and kind not in never

    return tuple(filter(goes, KILLS)), tuple(filter(goes, OTHERS))


def schedule(
    seed: int,
    kills: int,
    others: int | None = None,
    *,
    cluster: bool = False,
    calls: bool = False,
    standbys: bool = False,
    only: Sequence[str] = (),
) -> list[Fault]:
    """Draw a run's faults; the same arguments draw the same ones.

    All kinds come once before one comes twice.

    Args:
        seed: Of the draw.
        kills: How many of the job's processes are killed.
        others: How many faults kill none of them; None takes each kind once for 20 kills, or as many in proportion.
        cluster: Whether Spark's executors are processes of their own.
        calls: Whether the flow has a call.
        standbys: Whether the job has standbys.
        only: No other kinds than these.
    """
    chance = random.Random(seed)
    there = kinds(cluster=cluster, calls=calls, standbys=standbys)
    killing, other = ([kind for kind in of if not only or kind in only] for of in there)
    if others is None:
        others = max(1, round(len(other) * kills / 20))
    chosen: list[str] = []
    left = kills
    for kind in _deck(chance, killing):
        cost = 2 if kind in CAUSED else 1
        if cost <= left:
            chosen.append(kind)
            left -= cost
        # Where one is left to be killed and only kinds are asked for that kill two, there is one less.
        if left == 0 or (left == 1 and all(each in CAUSED for each in killing)):
            break
    chosen += [kind for _, kind in zip(range(others), _deck(chance, other), strict=False)]
    chance.shuffle(chosen)
    return [_drawn(chance, kind) for kind in chosen]


def _deck(chance: random.Random, of: Sequence[str]) -> Iterator[str]:
    """All of them in any order, and again, without an end."""
    while of:
        yield from chance.sample(of, len(of))


def _drawn(chance: random.Random, kind: str) -> Fault:
    return Fault(
        kind,
        victim=chance.choice((KILLS | OTHERS)[kind]),
        variant=chance.choice(VARIANTS.get(kind, ("",))),
        which=chance.random(),
        nth=chance.randint(1, MOST_PARTS),
        after_s=round(chance.uniform(*AFTER_S), 2),
        lasts_s=round(chance.uniform(*LASTS_S.get(kind, ELSE_LASTS_S)), 2),
    )
