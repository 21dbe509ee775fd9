"""Random flows that die and go on from their snapshots give what one life without an end gives."""

from __future__ import annotations

import random
from functools import cache

import interpreter
import pytest
from lives import Lives, to_be_covered
from random_flows import Writer
from random_logs import logs, message_of

import lowtide
from lowtide.flow.plan.compiler import compile_flow

SEEDS = range(104)
UNITS = 8


@cache
def lived(seed: int) -> Lives:
    """The lives of one seed, over."""
    flow, again = Writer(lowtide, seed).write(), Writer(interpreter, seed).write()
    dice = random.Random(seed)
    plan = compile_flow(flow, units=UNITS, lanes=dice.choice([1, 2, 4]), parallelism=1, slack_ms=dice.choice([1, 2, 5]))
    log = {name: list(map(message_of, came)) for name, came in logs(dice, again).items()}
    lives = Lives(plan, log, dice)
    try:
        lives.run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return lives


@pytest.mark.parametrize("batch", range(8))
def test_random_flows_over_several_lives_deliver_what_one_life_does(batch: int) -> None:
    assert max(lived(seed).number for seed in SEEDS[batch::8]) > 2


@pytest.mark.parametrize("kind", sorted(to_be_covered()))
def test_what_a_life_got_back_makes_the_same_snapshot_again_whatever_kind_of_state_it_is(kind: str) -> None:
    assert any(kind in lived(seed).covered for seed in SEEDS), "no random flow comes back with such a state"
