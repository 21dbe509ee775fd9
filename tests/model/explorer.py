"""Every state that a job of some size can reach, each once, breadth first: the first way to a fault is a shortest.

What makes it small, and loses nothing: 1. Equal states are one, whatever the way to them. 2. Nobody is ever killed:
a killed process is one that takes no further step, and all orders in which others go on without it are tried. 3.
Records that are produced are in no reader's sight before their transaction is committed, so only that is a step. 4.
Nothing more is read in a life whose deliveries have ended. 5. Where all that a life can do next touches nothing that
others will touch, the others' steps are tried after it alone (`footprints`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.simulation.mutation import Mutation, swapped

from lowtide.errors import LifeEnded, LowtideError, TimeWentBack
from lowtide_snapshots.errors import CommitRefused, LeaseTaken, NoSuchCommit, SnapshotsError
from lowtide_snapshots.format.names import snapshot_id
from lowtide_snapshots.job.incarnations import number_in

from .access import PATHS
from .footprints import NOTHING, Touched, of_delivery, of_driver, of_question, of_snapshots
from .laws import Laws, ViolationError
from .lives import SERVERS, script_of
from .scripts import Place, Question, Raised, Scripts
from .world import NONE, Life, Size, State, World

Step = tuple[str, str, str]
"""Who, what, and what is said besides."""
Found = Callable[[int, int], object]
Party = tuple[Touched, Touched, Callable[[], Iterator[tuple[Step, State]]]]


@dataclass(slots=True)
class Outcome:
    """The findings.

    Attributes:
        states: How many there are.
        steps: How many steps lead from one to another.
        reached: How often each step, and each interesting thing, was seen.
        violation: What is wrong; None if nothing is.
        trace: The steps that lead there.
        whole: Whether all states were looked at.
    """

    states: int = 0
    steps: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    violation: str | None = None
    trace: list[Step] = field(default_factory=list)
    whole: bool = True


class Explorer:
    """All states of one size, with a rule broken if one is given."""

    def __init__(self, size: Size, mutation: Mutation | None = None) -> None:
        self.size = size
        self._broken = mutation
        self.outcome = Outcome()
        self.laws = Laws(self.outcome.reached)
        self.scripts = Scripts(script_of)
        self.world = World(size, self.scripts, self.laws)
        self.laws.world = self.world

    def run(self, progress: Found, most: int | None = None) -> Outcome:
        """Look at all of them, or at so many."""
        with swapped(SERVERS), self._broken.applied() if self._broken else nullcontext():
            return self._run(progress, most)

    def _run(self, progress: Found, most: int | None) -> Outcome:
        outcome = self.outcome
        first = self._first()
        number: dict[State, int] = {first: 0}
        ways: list[tuple[int, Step]] = [(NONE, ("", "", ""))]
        layer = [first]
        depth = 0
        while layer:
            coming: list[State] = []
            for state in layer:
                at, ended = number[state], True
                try:
                    for step, after in self.steps(state):
                        ended = False
                        outcome.steps += 1
                        if after not in number:
                            number[after] = len(ways)
                            ways.append((at, step))
                            coming.append(after)
                            self.check(after)
                    if ended:
                        self.laws.end(state)
                except ViolationError as violation:
                    outcome.violation = str(violation)
                    outcome.states = len(number)
                    outcome.trace = self._trace(ways, len(ways) - 1 if violation.__cause__ is _AFTER else at)
                    return outcome
                if most is not None and len(number) > most:
                    outcome.whole = False
                    outcome.states = len(number)
                    return outcome
            depth += 1
            progress(depth, len(number))
            layer = coming
        outcome.states = len(number)
        return outcome

    def _first(self) -> State:
        """Where the model begins: what the size says has happened before, in one order."""
        state = self.world.first()
        if self.size.before == "nothing":
            return state
        state = next(after for _, after in self._of_coming(state._replace(lost=0, slips=0), 0))
        while self.size.before == "done" or state.lives[0].inside == NONE:
            coming = next(self._of_life(state, 0, "life 1"), None)
            if coming is None:
                break
            state = coming[1]
        return state._replace(lost=self.size.lost, slips=self.size.slips)

    def _trace(self, ways: list[tuple[int, Step]], at: int) -> list[Step]:
        found = []
        while at > 0:
            at, step = ways[at]
            found.append(step)
        return found[::-1]

    # -- what can happen -------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Steps that lead on from a state; only those of one party where the others' can come later as well."""
        parties = self._parties(state)
        for number, (touched, _, steps) in enumerate(parties):
            others = [future for other, (_, future, _) in enumerate(parties) if other != number]
            if all([touched.beside(each) for each in others]):
                found = list(steps())
                if found:
                    yield from found
                    return
        for _, _, steps in parties:
            yield from steps()

    def _parties(self, state: State) -> list[Party]:
        """Who there is: what its next steps touch, what it may touch from here on, and its next steps."""
        parties: list[Party] = []
        size, places = self.size, self.scripts.places
        if state.sweeper != NONE:
            at = places[state.sweeper]
            parties.append((self._next(at), of_snapshots(at, sweeps=True), partial(self._of_sweeper, state)))
        for place, life in enumerate(state.lives):
            if life.driver == NONE:
                future = of_driver(None, size, place)
                parties.append((future, future, partial(self._of_coming, state, place)))
                continue
            at = places[life.driver]
            future = of_driver(at, size, place)
            # Its session may end as long as there is another one to come.
            waits = at.question is not None and not life.expired and place + 1 < len(state.lives)
            touched = self._next(at) | (future if waits else NOTHING)
            if life.inside != NONE:
                for what in (places[life.delivery], places[life.snapshots]):
                    touched |= self._next(what)
                future = of_delivery(places[life.delivery])
                future |= of_snapshots(places[life.snapshots], sweeps=bool(size.keep))
            parties.append((touched, future, partial(self._of_life, state, place, f"life {place + 1}")))
        return parties

    @staticmethod
    def _next(place: Place) -> Touched:
        return NOTHING if place.question is None else of_question(place.question)

    def _of_sweeper(self, state: State) -> Iterator[tuple[Step, State]]:
        for step, answer, after in self._ask(state, NONE, "sweeper", state.sweeper):
            yield step, after._replace(sweeper=self.scripts.then(state.sweeper, answer))

    def _of_coming(self, state: State, place: int) -> Iterator[tuple[Step, State]]:
        """A life begins, once nobody holds the lease; the one before may have begun long ago, or not yet at all."""
        if place and state.lives[place - 1].driver == NONE:
            return
        lease = self.world.tree(state).get(PATHS.lease)
        if lease is None:
            driver = self.scripts.first("driver", place + 1, len(self.size.log), self.size.starts[place])
            yield (f"life {place + 1}", "begins", ""), self._changed(state, place, driver=driver)
        elif place and lease.owner == place:
            self.outcome.reached["a lease ends before its holder knows"] += 1
            yield (f"life {place}", "its session ends", ""), self.world.expire(state, place - 1)

    def _of_life(self, state: State, place: int, who: str) -> Iterator[tuple[Step, State]]:
        life = state.lives[place]
        for step, answer, after in self._ask(state, place, who, life.driver):
            driver = self.scripts.then(life.driver, answer)
            result = self.scripts.places[driver].result
            changes = {"driver": driver}
            if result is not None:
                count = self.size.snapshots[place]
                changes["inside"] = self.world.insides.begin(result)
                changes["delivery"] = self.scripts.first("delivery", place + 1, result)
                changes["snapshots"] = self.scripts.first(
                    "snapshots", place + 1, result, count, self.size.keep, self.size.beside
                )
            yield step, self._changed(after, place, **changes)
        if life.inside == NONE:
            return
        for what in ("delivery", "snapshots"):
            at: int = getattr(life, what)
            for step, answer, after in self._ask(state, place, f"{who}'s {what}", at):
                yield step, self._changed(after, place, **{what: self.scripts.then(at, answer)})
        if self.scripts.places[life.delivery].question is None:
            return
        for happening in self.world.inside(state, place).open:
            yield (who, _HAPPENS[happening[0]], happening[1:]), self.world.happen(state, place, happening)

    def _ask(self, state: State, life: int, who: str, at: int) -> Iterator[tuple[Step, Any, State]]:
        question = self.scripts.places[at].question
        if question is None:
            return
        for done in self.world.answers(state, life, question):
            self.outcome.reached[question.what + (f": {done.note}" if done.note else "")] += 1
            yield (who, _shown(question), done.note), done.answer, done.state

    @staticmethod
    def _changed(state: State, place: int, **changes: Any) -> State:
        lives = list(state.lives)
        lives[place] = lives[place]._replace(**changes)
        return state._replace(lives=tuple(lives))

    # -- what is wrong ---------------------------------------------------------------------------------------------

    def check(self, state: State) -> None:
        """No script has ended as it must not, and no core has raised anything (errors: ViolationError)."""
        begun = number_in(self.world.tree(state).get(PATHS.incarnation), PATHS)
        for place, life in enumerate(state.lives):
            if life.inside != NONE and (error := self.world.insides.all[life.inside].error) is not None:
                raise ViolationError(f"life {place + 1}: {type(error).__name__}: {error}") from _AFTER
            for at in (life.driver, life.delivery, life.snapshots):
                self._judge(state, at, life, place, begun)
        self._judge(state, state.sweeper, None, NONE, begun)

    def _judge(self, state: State, at: int, life: Life | None, place: int, begun: int) -> None:
        if at == NONE or (error := self.scripts.places[at].error) is None:
            return
        if isinstance(error, LeaseTaken):
            return
        if isinstance(error, CommitRefused):
            self._refused(state, life, place)
            return
        if isinstance(error, NoSuchCommit) and self.size.starts[place].commit is not None:
            return
        if isinstance(error, LifeEnded) and Raised("fenced") in self.scripts.places[at].answers:
            # A claim came after its own, as one of a life that is over may: then both end, and the next begins.
            self.outcome.reached["a claim ends another life's deliveries"] += 1
            return
        number = begun if life is None else self._number(self.scripts.places[life.driver])
        fenced = number is None or number < begun
        if isinstance(error, LowtideError | SnapshotsError) and not isinstance(error, TimeWentBack) and fenced:
            self.outcome.reached[f"a life that is over ends with {type(error).__name__}"] += 1
            return
        raise ViolationError(f"life {place + 1}: {type(error).__name__}: {error}") from _AFTER

    def _refused(self, state: State, life: Life | None, place: int) -> None:
        """R16: what is refused is not committed."""
        assert life is not None, "a sweeper commits nothing"
        inside = self.world.insides.all[life.inside]
        identity = snapshot_id(inside.begun.number, len(inside.requests))
        self.outcome.reached["a commit is refused"] += 1
        if self.size.beside and inside.begun.number == number_in(self.world.tree(state).get(PATHS.incarnation), PATHS):
            raise ViolationError(f"life {place + 1}: a snapshot with a reservation is refused") from _AFTER
        if any(path.endswith(identity) for path in self.world.tree(state) if path.startswith(PATHS.commits)):
            raise ViolationError(f"life {place + 1}: {identity} is committed, and refused") from _AFTER

    def _number(self, driver: Place) -> int | None:
        return None if driver.result is None else int(driver.result.number)


_AFTER = Exception("what is wrong shows after the step")
_HAPPENS = {"r": "reads the next record of front", "g": "is granted a floor for front", "k": "keeps floors"}


def _shown(question: Question) -> str:
    """A question in a few words."""
    given = [each for each in question.given if isinstance(each, str)]
    if question.what == "write":
        given = [
            f"{type(each).__name__.lower()} {each.path.removeprefix(PATHS.job + '/')}" for each in question.given[1]
        ]
    text = " ".join(str(each).removeprefix(PATHS.job + "/") for each in given)
    return f"{question.what} {text}".rstrip()
