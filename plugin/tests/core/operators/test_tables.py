"""Every kind of step is in the tables of each room; a missing kind would show only when a flow has it."""

from step_kinds import KINDS

from lowtide.core.operators.nodes import NODES
from lowtide.flow.steps import steps
from lowtide.flow.steps.steps import Step
from lowtide.flow.types.inference import TYPES
from lowtide.local.interpreter import PAIRED, PAIRS, SCANNED, TAKES

ALWAYS_REWRITTEN = {steps.Running}
"""An `aggregate` becomes an `Aggregated` in a plan."""


def overriding(method: str) -> set[type[Step]]:
    """The kinds that say something else than a step as such."""
    return {kind for kind in KINDS if getattr(kind, method) is not getattr(Step, method)}


def test_every_step_has_a_node() -> None:
    assert NODES.keys() == {kind for kind in KINDS if not kind.exchange} - ALWAYS_REWRITTEN


def test_every_step_has_a_twin_in_local_runs() -> None:
    spoken = {kind for kind in KINDS if not kind.silent} - ALWAYS_REWRITTEN
    assert TAKES.keys() | PAIRS.keys() == spoken - {steps.Read}
    assert not TAKES.keys() & PAIRS.keys()
    assert SCANNED.keys() == {kind for kind in KINDS if issubclass(kind, steps.Scan) and kind.waits}
    assert PAIRED.keys() == {kind for kind in KINDS if kind.sides == 2}


def test_every_step_with_state_says_how_it_is_saved() -> None:
    # Streams that are connected, and heads of loops, keep nothing themselves.
    assert overriding("saved") == {kind for kind in KINDS if kind.stateful} - {steps.Connect, steps.Loop}


def test_every_step_with_a_type_of_its_own_says_it_once() -> None:
    assert not overriding("gives") & TYPES.keys()
