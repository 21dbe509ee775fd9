"""The model of commit and recovery in short: small sizes whole, some rules broken, and a trace that can be read."""

import pytest
from tests.model.explorer import Explorer
from tests.model.mutations import MUTATIONS
from tests.model.sizes import SMALL
from tests.model.world import Size

QUICK = {"late-is-failed", "two-in-flight", "asked-for-later", "not-durable", "answer-not-read-back", "running-swept"}


def nobody(_depth: int, _states: int) -> None:
    """Gets nothing."""


@pytest.mark.parametrize("size", SMALL, ids=lambda size: size.name)
def test_no_order_of_steps_breaks_a_law(size: Size) -> None:
    outcome = Explorer(size).run(nobody)
    assert (outcome.violation, outcome.trace) == (None, [])
    assert outcome.whole
    assert outcome.reached["end"]


@pytest.mark.parametrize("name", sorted(QUICK))
def test_a_broken_rule_is_found_with_the_steps_that_lead_there(name: str) -> None:
    [(mutation, size)] = [pair for pair in MUTATIONS if pair[0].name == name]
    outcome = Explorer(size, mutation).run(nobody)
    assert outcome.violation is not None
    assert outcome.trace


def test_each_rule_of_commit_and_recovery_has_a_mutation() -> None:
    rules = {rule for mutation, _ in MUTATIONS for rule in mutation.rule.split(", ")}
    assert {"R13", "R14", "R15", "R16", "R17"} <= rules


def test_what_is_explored_is_the_same_again() -> None:
    first, again = (Explorer(SMALL[0]).run(nobody) for _ in range(2))
    assert (first.states, first.steps, first.reached) == (again.states, again.steps, again.reached)
