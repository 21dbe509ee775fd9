"""What jobs are compared with is itself compared with an interpreter that shares nothing with Lowtide."""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import interpreter
import pytest
from interpreter import Came, Letter, Said
from programs import Programs, by_lane
from random_flows import Writer
from random_logs import logs, message_of

import lowtide
from lowtide import Flow
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.local.run import run_log
from lowtide_tracker import Floor

ROOT = Path(__file__).parents[3]
SEEDS = range(200)
UNITS = 8


def floors_of(dice: random.Random, log: dict[str, list[Came]]) -> list[Said]:
    """Floors of any offsets, and caps that stand at messages."""
    came = [each for found in log.values() for each in found]
    floors = [Said(each.front, each.offset + dice.randrange(-1, 2), dice.randrange(600), False) for each in came]
    caps = [Said(each.front, each.offset, dice.randrange(600), True) for each in came]
    return [each for each in floors + caps if dice.random() < 0.15]


def letters_of(dead: Sequence[Any]) -> Counter[Letter]:
    return Counter(
        unnumbered(
            Letter(each.vertex, each.position.front, each.position.sequence, each.timestamp, each.key, each.value)
        )
        for each in dead
    )


def unnumbered(letter: Letter) -> Letter:
    """A letter that does not say which step's clock it was: the two number steps differently."""
    return letter if letter.front >= 0 else letter._replace(offset=letter.offset % UNITS)


def run_oracle(plan: Plan, log: dict[str, list[Came]], floors: Sequence[Said]) -> tuple[Any, Counter[Letter]]:
    written, dead = run_log(
        plan, {name: list(map(message_of, found)) for name, found in log.items()}, map_floors(floors)
    )
    return by_lane(written), letters_of(dead)


def map_floors(floors: Sequence[Said]) -> list[Floor]:
    return [Floor(*floor) for floor in floors]


def run_workers(
    dice: random.Random, plan: Plan, log: dict[str, list[Came]], grouping: str
) -> tuple[Any, Counter[Letter]]:
    """The steps as workers run them, in an order of arrival that is drawn."""
    programs = Programs(plan, dice.randrange, grouping)
    readers: dict[int, str] = {}
    for name, found in log.items():
        for each in found:
            readers.setdefault(each.front, name)
    left = {front: [each for each in log[name] if each.front == front] for front, name in readers.items()}
    while left:
        front = dice.choice(sorted(left))
        number = dice.randint(1, len(left[front]))
        programs.feed(readers[front], list(map(message_of, left[front][:number])))
        left[front] = left[front][number:]
        if not left[front]:
            del left[front]
        for _ in range(dice.randrange(3)):
            programs.step()
    programs.finish()
    return programs.delivered, letters_of(programs.dead)


@pytest.mark.parametrize("batch", range(8))
def test_random_flows_give_every_lane_what_both_interpreters_and_the_workers_give(batch: int) -> None:
    delivered = 0
    for seed in SEEDS[batch::8]:
        flow, again = Writer(lowtide, seed).write(), Writer(interpreter, seed).write()
        dice = random.Random(seed)
        lanes, slack_ms = dice.choice([1, 2, 4]), dice.choice([1, 2, 5])
        plan = compile_flow(flow, units=UNITS, lanes=lanes, parallelism=dice.randint(1, lanes), slack_ms=slack_ms)
        log = logs(dice, again)
        floors = floors_of(dice, log) if dice.random() < 0.5 else []
        lanes_of, letters = again.run_log(log, floors, slack_ms=slack_ms, units=UNITS, lanes=lanes)
        expected = lanes_of, Counter(map(unnumbered, letters))
        assert run_oracle(plan, log, floors) == expected, f"seed {seed}"
        if not floors:
            assert run_workers(dice, plan, log, dice.choice(["optimistic", "ordered"])) == expected, f"seed {seed}"
        delivered += sum(len(lane) for found in lanes_of.values() for lane in found.values())
    assert delivered > 200


@pytest.fixture(name="stand_in")
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import lowtide` finds the second interpreter."""
    monkeypatch.setitem(sys.modules, "lowtide", interpreter)


@pytest.mark.usefixtures("stand_in")
def test_the_examples_of_the_documentation_hold_for_the_second_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    document = ROOT / "docs" / "flows.md"
    module = ModuleType("documented_flows_again")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for example in re.findall(r"^```python\n(.*?)^```", document.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(example, str(document), "exec"), vars(module))
    assert isinstance(vars(module)["flow"], interpreter.Flow)


DOCUMENTS = [
    b'{"name":"%s","text":"%s"}' % (name, text)
    for text in (b"to be", b"or not", b"to see to it", b"be", b"")
    for name in (b"a", b"b")
]
PAYMENTS = [
    b'{"card":"%s","cents":%d,"shop":"caf\xc3\xa9"}' % (card, cents) for cents in (5, 10**6) for card in (b"1", b"2")
]
EDGES = [b'{"one":"%c","other":"%c"}' % (one, other) for one in b"abcdef" for other in b"adeg"]
ROADS = [
    b'{"one":"%s","other":"%s","metres":%d}' % (one, other, metres)
    for one in (b"depot", b"a", b"b")
    for other in (b"a", b"c", b"d")
    for metres in (100, 350)
]
TICKETS = [
    b'{"id":"%d","topic":"%s","words":%d}' % (number, topic, number * 30)
    for number in range(6)
    for topic in (b"login", b"refund")
]
EXAMPLES = {
    "inverted_index": ("documents", DOCUMENTS),
    "payments": ("payments", [*PAYMENTS, b"{}", b'{"card":"1"']),
    "components": ("edges", EDGES),
    "shortest_paths": ("roads", ROADS),
    "retries": ("tickets", TICKETS),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_flows_give_what_the_second_interpreter_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flow: Flow = loaded(name, lowtide, monkeypatch)
    again: interpreter.Flow = loaded(name, interpreter, monkeypatch)
    plan = compile_flow(flow, parallelism=2, lanes=4)
    source, values = EXAMPLES[name]
    for seed in range(50):
        dice = random.Random(seed)
        log = {
            source: [
                Came(front, offset, 1_000 + dice.randrange(40), None, dice.choice(values))
                for front in range(3)
                for offset in range(dice.randrange(30))
            ]
        }
        lanes, letters = again.run_log(log, lanes=4)
        assert run_oracle(plan, log, []) == (lanes, Counter(letters))
    here, there = flow.run_locally({source: values}), again.run_locally({source: values})
    for sink in plan.sinks():
        assert here[sink.name]
        assert list(map(repr, here[sink.name])) == list(map(repr, there[sink.name]))


def loaded(name: str, package: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The flow of an example, to which this package is `lowtide`."""
    spec = importlib.util.spec_from_file_location(f"{name}_of_{package.__name__}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Annotations are looked up in the module as long as the flow is of use.
    monkeypatch.setitem(sys.modules, spec.name, module)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "lowtide", package)
        spec.loader.exec_module(module)
    assert isinstance(module.flow, package.Flow)
    return module.flow
