"""The simulation in short: some seeds of each world, every broken rule caught, replays that are replays."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.simulation.__main__ import main
from tests.simulation.mutation import Mutation
from tests.simulation.mutations import MUTATIONS
from tests.simulation.runner import WORLDS, catch, run_seed

STEPS = 500
FIRST = {
    "answer-below": 24,
    "archive-unread": 105,
    "asked-as-they-come": 10,
    "asked-before-floors": 34,
    "base-not-held": 106,
    "base-too-old": 37,
    "call-without-outlet": 40,
    "caps-forgotten": 12,
    "clock-stopped": 13,
    "closed-again": 16,
    "closed-left-out": 7,
    "commits-forgotten": 114,
    "copies-left-out": 6,
    "covered-by-none": 11,
    "cut-acks": 7,
    "cut-lost": 7,
    "cycle-old-life": 25,
    "due-behind": 2,
    "due-half-told": 7,
    "ended-forgotten": 78,
    "ended-left-out": 78,
    "equal-values": 47,
    "fault-held-for-good": 110,
    "floors-not-stored": 12,
    "front-pruned": 9,
    "holder-stopped": 2,
    "holds-forgotten": 12,
    "joint-past-faults": 4,
    "label-forgets": 2,
    "lane-goes-on-alone": 3,
    "lane-is-partition": 22,
    "last-by-tick": 2,
    "last-tick-only": 2,
    "left-first": 2,
    "left-unsaid": 24,
    "listens-upstream": 18,
    "mark-before-rows": 7,
    "mark-relied-on-by-nobody": 48,
    "mark-without-floors": 19,
    "never-reported": 38,
    "no-hold-at-sinks": 46,
    "open-below-floors": 26,
    "opened-anywhere": 41,
    "overtaken-is-lost": 12,
    "own-floors-not-told": 25,
    "paired-above": 32,
    "pairs-forgotten": 6,
    "released-unsorted": 2,
    "reports-mixed": 20,
    "reserved-read-early": 102,
    "restored-anyway": 17,
    "ring-short": 63,
    "row-of-now": 2,
    "shard-joined-early": 165,
    "shard-open": 18,
    "shard-papers": 18,
    "sinks-of-their-own": 43,
    "sinks-unheld": 30,
    "start-too-late": 2,
    "starts-forgotten": 321,
    "strand-from-nothing": 25,
    "timer-early": 83,
    "times-mixed": 7,
    "told-forgotten": 217,
    "torn-list": 14,
    "upstream-forgotten": 4,
}
"""Seeds that have caught what takes many: the search begins there, and takes as many as `make sim` does from 0 on."""


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("world", WORLDS)
def test_a_world_keeps_its_model_and_equals_the_oracle(world: str, seed: int) -> None:
    outcome = run_seed(seed, STEPS, world)
    assert (outcome.kind, outcome.text) == (None, "")
    assert outcome.steps == STEPS


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "flow",
    [
        "tabled",
        "timers",
        "windows_of_windows",
        "windows_of_records",
        "sessions",
        "joined",
        "joined_pairs",
        "forgetting",
        "visits",
    ],
)
def test_state_on_disk_changes_nothing(flow: str, seed: int) -> None:
    outcome = run_seed(seed, STEPS, "flow", options={"flow": flow, "shelved": 1.0})
    assert (outcome.kind, outcome.text) == (None, "")


def test_traces_change_nothing() -> None:
    """Step by step the same happens, so the same is delivered."""
    spans = 0
    for seed in range(12):
        seen: dict[float, list[str]] = {0.0: [], 1.0: []}
        outcomes = [run_seed(seed, STEPS, "flow", seen[traced].append, options={"traced": traced}) for traced in seen]
        assert [(outcome.kind, outcome.text) for outcome in outcomes] == [(None, "")] * 2
        assert seen[0.0] == seen[1.0]
        assert "spans" not in outcomes[0].counts
        spans += outcomes[1].counts["spans"]
    assert spans > 1_000


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_is_caught(mutation: Mutation) -> None:
    seeds, outcome = catch(mutation, STEPS, FIRST.get(mutation.name, 0))
    assert outcome is not None, f"{mutation.what}: survived {seeds} seeds"
    whole = run_seed(outcome.seed, STEPS, mutation.world, options=mutation.options)
    assert whole.kind is None, f"it fails all the same where the rule holds: {whole.text}"


def test_broken_rules_are_mended_again() -> None:
    for mutation in MUTATIONS:
        before = [vars(owner)[name] for owner, name, _ in mutation.patches()]
        with mutation.applied():
            pass
        assert [vars(owner)[name] for owner, name, _ in mutation.patches()] == before


def test_as_many_rules_are_broken_as_the_documentation_says() -> None:
    text = (Path(__file__).parents[1] / "docs/exactly-once.md").read_text()
    assert f"in {len(MUTATIONS)} ways" in text


def test_every_rule_has_a_mutation() -> None:
    rules = {rule for mutation in MUTATIONS for rule in mutation.rule.split(", ")}
    assert {
        "R1",
        "R2",
        "R3",
        "R4",
        "R5",
        "R6",
        "R6b",
        "R7",
        "R8",
        "R9",
        "R10",
        "R12",
        "R13",
        "R14",
        "R15",
        "R16",
        "R17",
        "R18",
        "R19",
        "R20",
        "R21",
        "R22",
        "R23",
        "R24",
    } <= rules


@pytest.mark.parametrize("world", WORLDS)
def test_a_replay_is_the_same_again(world: str) -> None:
    least = 4 if world == "lives" else 40  # Lives tell of starts, snapshots and deaths alone.
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run_seed(7, STEPS, world, trace.append)
    assert traces[0] == traces[1]
    assert len(traces[0]) > least


def test_looking_changes_nothing() -> None:
    seen = run_seed(5, STEPS, "flow", lambda _: None)
    assert seen.counts == run_seed(5, STEPS, "flow").counts


def test_the_last_line_is_json() -> None:
    result = CliRunner().invoke(main, ["--seeds", "4", "--no-mutations"])
    assert result.exit_code == 0
    assert json.loads(result.output.splitlines()[-1]) == {
        "seeds": 4,
        "steps": 4 * STEPS,
        "failures": 0,
        "mutations": 0,
        "mutations_survived": 0,
    }


def test_a_broken_rule_is_replayed_with_every_step_and_the_models_word() -> None:
    result = CliRunner().invoke(main, ["--seed", "0", "--mutation", "one-too-far"])
    assert result.exit_code == 1
    *steps, verdict, figures = result.output.splitlines()
    assert "safety: segment" in verdict
    assert "min time" in steps[-1]
    assert json.loads(figures)["failures"] == 1
