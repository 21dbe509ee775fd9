"""Faults of a run, with their times and hosts: drawn from a seed, before anything runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LINKS: dict[str, tuple[str, str]] = {
    "link-driver-worker": ("driver", "worker"),
    "link-worker-worker": ("worker", "worker"),
    "link-worker-store": ("worker", "store"),
    "link-worker-broker": ("worker", "kafka"),
    "link-driver-broker": ("driver", "kafka"),
    "link-driver-zookeeper": ("driver", "zookeeper"),
    "link-driver-store": ("driver", "store"),
}
"""Links to cut, by the roles at their ends."""
BETWEEN: dict[str, tuple[str, str]] = {
    "forged-frame": ("worker", "worker"),
    "repeated-frame": ("worker", "worker"),
    "changed-record": ("driver", "worker"),
}
"""Links with somebody between their ends who changes what passes, by the roles at these."""
HOSTS: dict[str, str] = {
    "broker-killed": "kafka",
    "broker-frozen": "kafka",
    "zookeeper-leader-killed": "zookeeper",
    "zookeeper-leader-frozen": "zookeeper",
    "store-frozen": "store",
    "worker-frozen": "worker",
    "driver-frozen": "driver",
    "worker-lost": "worker",
    "stranger-at-worker": "worker",
    "stranger-at-driver": "driver",
    "replayed-at-worker": "worker",
    "replayed-at-driver": "driver",
}
"""Faults of one host, by its role."""
HARMLESS = frozenset(kind for kind in HOSTS if kind.startswith(("stranger-", "replayed-")))
"""What no life may end of."""
ENDING = frozenset({"worker-lost", "forged-frame", "repeated-frame"})
"""What a life has to end of."""
KINDS = (*LINKS, *BETWEEN, *HOSTS)
WAYS = ("out", "in", "both", "flapping")
"""A cut link lets nothing through from the first host, to it, in either direction, or nothing at times."""
LASTS_S: dict[str, tuple[float, float]] = {
    "worker-frozen": (30.0, 30.0),
    "driver-frozen": (30.0, 30.0),
    "broker-killed": (0.0, 4.0),
    "zookeeper-leader-killed": (0.0, 4.0),
    "worker-lost": (0.0, 0.0),
    **dict.fromkeys([*BETWEEN, *HARMLESS], (0.0, 0.0)),
}
"""Duration of a fault, from and to; the others as next."""
ELSE_LASTS_S = (2.0, 20.0)
AFTER_S = (3.0, 10.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: One of `KINDS`.
        host: The host of the fault; for a link, the host at one end. A leader is found when the fault is done.
        other: The host at the link's other end; empty without a link.
        way: One of `WAYS`; empty where no link is cut.
        after_s: Undisturbed time of the job before it.
        lasts_s: Its duration.
    """

    kind: str
    host: str
    other: str = ""
    way: str = ""
    after_s: float = 0.0
    lasts_s: float = 0.0

    def __str__(self) -> str:
        place = ", ".join(filter(None, [" and ".join(filter(None, [self.host, self.other])), self.way]))
        return f"{self.kind} ({place})" + f" for {self.lasts_s:.0f} s" * (self.lasts_s > 0)


def schedule(seed: int, count: int, hosts: Mapping[str, Sequence[str]], only: Sequence[str] = ()) -> list[Fault]:
    """Draw a run's faults; the same arguments draw the same ones, and all kinds come once before one comes twice.

    Args:
        seed: Seed of the draw.
        count: Number of faults.
        hosts: The hosts' names by role.
        only: The only kinds to draw.
    """
    chance = random.Random(seed)
    kinds = [kind for kind in KINDS if not only or kind in only]
    return [_drawn(chance, kind, hosts) for kind, _ in zip(_deck(chance, kinds), range(count), strict=False)]


def _deck(chance: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    """Yield all of them in random order, and again, endlessly."""
    while True:
        yield from chance.sample(kinds, len(kinds))


def _drawn(chance: random.Random, kind: str, hosts: Mapping[str, Sequence[str]]) -> Fault:
    after_s = round(chance.uniform(*AFTER_S), 1)
    lasts_s = round(chance.uniform(*LASTS_S.get(kind, ELSE_LASTS_S)), 1)
    if kind in HOSTS:
        return Fault(kind, chance.choice(hosts[HOSTS[kind]]), after_s=after_s, lasts_s=lasts_s)
    near, far = LINKS.get(kind) or BETWEEN[kind]
    host = chance.choice(hosts[near])
    other = chance.choice([name for name in hosts[far] if name != host])
    way = chance.choice(WAYS) if kind in LINKS else ""
    return Fault(kind, host, other, way, after_s=after_s, lasts_s=lasts_s)
