"""`make model`: every state of every size, every mutation; the last line is JSON."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter

import click
from tests.simulation.mutation import Mutation

from .explorer import Explorer, Outcome
from .mutations import MUTATIONS
from .sizes import ALL
from .world import Size

MOST = 600_000
"""States after which a mutation has survived."""
MUST_BE_REACHED = (
    "a lease ends before its holder knows",
    "a life delivers though the next one has begun",
    "a claim ends another life's deliveries",
    "a floor is durable",
    "deliver: fenced",
    "deliver: its answer is late",
    "deliver: it was committed",
    "deliver: it is aborted",
    "write: its answer is lost",
    "write: refused",
    "commit",
    "a life begins from a commit",
    "a life that is over ends with Fenced",
    "a commit has parts of an older one",
    "delete",
    "a sweep deletes while a life reads a commit",
    "everything is delivered again",
    "end",
)
"""Without each of these the model has shown nothing."""


@click.command(context_settings={"max_content_width": 100})
@click.option("--size", type=click.Choice([size.name for size in ALL]), help="Explore only this one.")
@click.option("--mutation", type=click.Choice([each.name for each, _ in MUTATIONS]), help="Break only this rule.")
@click.option("--mutations/--no-mutations", "mutate", default=True, help="Whether rules are broken on purpose too.")
def main(size: str | None, mutation: str | None, mutate: bool) -> None:
    """Explore all that a small job can come to, then with every rule broken on purpose.

    Exits with 1 if a law is broken, a broken rule is not found, or something was never reached. The last line is JSON.
    """
    states, violations, survived = 0, 0, 0
    reached: Counter[str] = Counter()
    sizes = [each for each in ALL if size in (None, each.name)] if mutation is None else []
    for each in sizes:
        outcome = explore(each)
        states += outcome.states
        violations += outcome.violation is not None
        reached += outcome.reached
    never = [what for what in MUST_BE_REACHED if not reached[what]] if size is mutation is None else []
    for what in never:
        click.echo(f"NEVER REACHED: {what}")
    for what, count in sorted(reached.items()):
        click.echo(f"  {count:>9,}  {what}")
    broken = [pair for pair in MUTATIONS if mutation in (None, pair[0].name)] if mutate else []
    for one, at in broken:
        outcome = explore(at, one, shown=mutation is not None)
        survived += outcome.violation is None
    figures = {
        "states": states,
        "violations": violations,
        "mutations": len(broken),
        "mutations_survived": survived,
        "never_reached": len(never),
    }
    click.echo(json.dumps(figures))
    sys.exit(1 if violations or survived or never else 0)


def explore(size: Size, mutation: Mutation | None = None, *, shown: bool = True) -> Outcome:
    """Explore one size, and say what was found."""
    began = time.process_time()

    def progress(depth: int, states: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{size.name}: {depth} steps deep, {states:,} states", nl=False, err=True)

    outcome = Explorer(size, mutation).run(progress, MOST if mutation else None)
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)
    took = f"{outcome.states:,} states, {outcome.steps:,} steps, {time.process_time() - began:.1f} s of CPU"
    if mutation is None:
        click.echo(f"{size.name}: {took}")
    else:
        verdict = "SURVIVED" if outcome.violation is None else "found"
        click.echo(f"{mutation.name:22} {mutation.rule:9} {mutation.what}: {verdict} in {size.name}, {took}")
    if outcome.violation is not None:
        click.echo(f"{'':4}{outcome.violation[:200]}")
        if shown:
            for who, what, note in outcome.trace:
                click.echo(f"{'':8}{who}: {what}{f' ({note})' if note else ''}")
    return outcome


if __name__ == "__main__":
    main()
