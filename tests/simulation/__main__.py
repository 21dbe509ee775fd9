"""`make sim`: many seeds, every mutation; the last line is JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeVar

import click

from .mutation import Mutation
from .mutations import MUTATIONS
from .runner import WORLDS, catch, run_seed, run_seeds, world_of
from .verdict import Outcome

T = TypeVar("T")
Say = Callable[[str], Any]

SEEDS, STEPS = 1000, 500
MAX_SHOWN = 10
"""Failures that are told one by one; the others are counted."""

BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}


@click.command(context_settings={"max_content_width": 100})
@click.option("--seeds", default=SEEDS, show_default=True, help="How many seeds.")
@click.option("--steps", default=STEPS, show_default=True, help="Steps of each seed, before it is drained.")
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=int, help="Replay this one, and print what happens at every step.")
@click.option("--world", type=click.Choice(list(WORLDS)), help="Only this world; else they take turns.")
@click.option("--mutation", type=click.Choice(sorted(BY_NAME)), help="Break only this rule.")
@click.option("--mutations/--no-mutations", "mutate", default=True, help="Whether rules are broken on purpose too.")
@click.option("--json-only", is_flag=True, help="Print nothing but the last line.")
def main(
    seeds: int,
    steps: int,
    first: int,
    seed: int | None,
    world: str | None,
    mutation: str | None,
    mutate: bool,
    json_only: bool,
) -> None:
    """Simulate the core: seeded worlds against a model and the oracle, then every rule broken on purpose.

    Exits with 1 if a seed fails or a broken rule is not caught. The last line is JSON.
    """
    say = _silent if json_only else click.echo
    if seed is not None:
        _replay(seed, steps, world, BY_NAME.get(mutation or ""))
        return
    failures, taken = 0, 0
    if mutation is None:
        failures, taken = _run(range(first, first + seeds), steps, world, say)
    chosen = MUTATIONS if mutation is None else [BY_NAME[mutation]]
    survived = _mutate(chosen, steps, say) if mutate else 0
    figures = {
        "seeds": 0 if mutation else seeds,
        "steps": taken,
        "failures": failures,
        "mutations": len(chosen) if mutate else 0,
        "mutations_survived": survived,
    }
    click.echo(json.dumps(figures))
    sys.exit(1 if failures or survived else 0)


def _run(seeds: range, steps: int, world: str | None, say: Say) -> tuple[int, int]:
    """Run the seeds; how many failed, and how many steps were taken."""
    failed: list[Outcome] = []
    spent: dict[str, list[float]] = {name: [0, 0, 0.0] for name in WORLDS}
    before = time.process_time()
    for outcome in _shown(run_seeds(seeds, steps, world), len(seeds), "seeds", say):
        now = time.process_time()
        figures = spent[outcome.world]
        figures[0], figures[1], figures[2] = figures[0] + 1, figures[1] + outcome.steps, figures[2] + now - before
        before = now
        if outcome.kind is not None:
            failed.append(outcome)
            if len(failed) <= MAX_SHOWN:
                say(f"seed {outcome.seed} failed at step {outcome.steps} in the {outcome.world} world: {outcome.text}")
                say(f"  replay it: {replay(outcome.seed, steps, world)}")
    for name, (number, taken, seconds) in spent.items():
        if number:
            rate = seconds / max(taken, 1) * 1e6
            say(f"{name} world: {number:.0f} seeds, {taken:,.0f} steps, {seconds:.1f} s of CPU, {rate:.0f} us a step")
    if len(failed) > MAX_SHOWN:
        say(f"and {len(failed) - MAX_SHOWN} more seeds failed")
    return len(failed), int(sum(figures[1] for figures in spent.values()))


def _mutate(mutations: list[Mutation], steps: int, say: Say) -> int:
    """Break every rule; how many of them nothing caught."""
    survived = 0
    before = time.process_time()
    caught = ((mutation, *catch(mutation, steps)) for mutation in mutations)
    for mutation, seeds, outcome in _shown(caught, len(mutations), "mutations", say):
        rule = f"{mutation.name:22} {mutation.rule:11} {mutation.what}"
        if outcome is None:
            survived += 1
            say(f"{rule}: SURVIVED {seeds} seeds")
        else:
            text = outcome.text.splitlines()[0]
            say(f"{rule}: caught by {outcome.kind} after {seeds} {'seed' if seeds == 1 else 'seeds'}")
            say(f"{'':22} {text[:160]}")
    say(f"mutations: {len(mutations)}, {time.process_time() - before:.1f} s of CPU")
    return survived


def _replay(seed: int, steps: int, world: str | None, mutation: Mutation | None) -> None:
    """Run one seed and print every step, then the verdict."""
    only = mutation.world if mutation else world_of(seed, world)
    options = mutation.options if mutation else {}
    click.echo("step  who          what  [min time segment: announced <= what is in flight allows]")
    with mutation.applied() if mutation else nullcontext():
        outcome = run_seed(seed, steps, only, trace=click.echo, options=options)
    verdict = "nothing is wrong" if outcome.kind is None else f"{outcome.text} (at step {outcome.steps})"
    click.echo(f"seed {seed} in the {only} world, {outcome.steps} steps: {verdict}")
    figures = {"seeds": 1, "steps": outcome.steps, "failures": int(outcome.kind is not None)}
    click.echo(json.dumps(figures | {"mutations": int(mutation is not None), "mutations_survived": 0}))
    sys.exit(1 if outcome.kind else 0)


def replay(seed: int, steps: int, world: str | None) -> str:
    """The command that shows what happened."""
    more = f" --steps {steps}" if steps != STEPS else ""
    return f"make sim ARGS='--seed {seed}{more}{f' --world {world}' if world else ''}'"


def _shown(items: Iterator[T], length: int, label: str, say: Say) -> Iterator[T]:
    """The items, with a bar if somebody is looking."""
    if say is _silent or not sys.stderr.isatty():
        yield from items
        return
    with click.progressbar(items, length=length, label=label, file=sys.stderr) as bar:
        yield from bar


def _silent(_text: str) -> None:
    """Say nothing."""


if __name__ == "__main__":
    main()
