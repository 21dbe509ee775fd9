"""Seeds run one after the other, and what became of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .call_world import CallWorld
from .carrier_world import CarrierWorld
from .commit_world import CommitWorld
from .flow_world import FlowWorld
from .lives_world import LivesWorld
from .mutation import Mutation
from .protocol import ProtocolWorld
from .relay_world import RelayWorld
from .shard_world import ShardWorld
from .verdict import Outcome, Violation
from .world import Trace, World

WORLDS: dict[str, Callable[..., World]] = {
    "protocol": ProtocolWorld,
    "shards": ShardWorld,
    "relays": RelayWorld,
    "flow": FlowWorld,
    "calls": CallWorld,
    "commit": CommitWorld,
    "lives": LivesWorld,
    "carrier": CarrierWorld,
}


def world_of(seed: int, only: str | None = None) -> str:
    """Which world a seed makes: they take turns."""
    return only or list(WORLDS)[seed % len(WORLDS)]


def run_seed(
    seed: int, steps: int, world: str, trace: Trace | None = None, options: Mapping[str, Any] | None = None
) -> Outcome:
    """Run one seed to its end, or to what goes wrong."""
    made: World | None = None
    try:
        made = WORLDS[world](seed, trace, **(options or {}))
        made.run(steps)
    except Violation as violation:
        kind, text = violation.kind, str(violation)
    except Exception as error:  # noqa: BLE001 - whatever the core raises where nothing is wrong
        kind, text = "error", f"{type(error).__name__}: {error}"
        if trace is not None:
            trace("".join(traceback.format_exception(error)))
    else:
        return Outcome(seed, world, made.steps, None, "", dict(made.counts))
    return Outcome(seed, world, made.steps if made else 0, kind, text, dict(made.counts) if made else {})


def run_seeds(seeds: Iterable[int], steps: int, only: str | None = None) -> Iterator[Outcome]:
    """Run many seeds, each in its world."""
    for seed in seeds:
        yield run_seed(seed, steps, world_of(seed, only))


def catch(mutation: Mutation, steps: int, first: int = 0) -> tuple[int, Outcome | None]:
    """Run seeds from the first on with a rule broken until that is caught; the number of seeds, and how it was."""
    with mutation.applied():
        for tried in range(mutation.seeds):
            outcome = run_seed(first + tried, steps, mutation.world, options=mutation.options)
            if outcome.kind is not None:
                return tried + 1, outcome
    return mutation.seeds, None
