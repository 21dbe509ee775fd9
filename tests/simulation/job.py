"""What outlives the lives of a simulated job: logs, sinks, commits, and what the outside was told."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Literal

from call_flows import CALLING, drawn, may_fail
from call_flows import DRAWN as RANDOM
from programs import by_lane
from state_flows import FLOWS, between, in_order, in_order_at_last, joined_pairs, leaving, visits, windows_of_records

from lowtide import Flow, kafka, raw
from lowtide.core.effects import Frame
from lowtide.core.fronts.end import end_tick
from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.plan import Plan
from lowtide.flow.steps.steps import Ask, Clock
from lowtide.local.run import Message, run_log
from lowtide_tracker import Floor

from .commits import Commit
from .life import Life
from .logs import NEVER_MS, draw_log
from .services import Services
from .sinks import Sinks
from .verdict import Violation

KEPT = 2
"""Commits."""
LAST_TICK = 10**6
STRIKES_ON = 100
"""For so many ticks clocks strike after the last message."""
LOST = 0.5
"""How likely the manifest of a damaged commit is lost with it."""
LAYOUTS = ((8, 4), (4, 4), (6, 2))
"""Hash units and lanes."""

Grouping = Literal["optimistic", "ordered"]
BUILD = {
    build.__name__: build
    for build in (
        *FLOWS,
        *CALLING,
        between,
        in_order,
        in_order_at_last,
        joined_pairs,
        leaving,
        visits,
        windows_of_records,
    )
}
DRAWN = sorted(build.__name__ for build in FLOWS)


FAILING = {
    "joined_pairs",
    "failing",
    "narrow",
    "changed_keys",
    "cycle",
    "cycle_of_windows",
    "calls_in_a_row",
    "call_repeatable",
    "call_as_answers_come_before_windows",
}
"""Flows whose records fail though nothing is wrong with them."""


@cache
def plan_of(
    flow: str,
    layout: tuple[int, int],
    slack_ms: int,
    parallelism: int,
    grouping: Grouping,
    *,
    letters: bool,
    early_keys: bool = False,
    grown: tuple[int, ...] = (),
) -> Plan:
    """The plan of one of the flows; made once."""
    units, lanes = layout
    made = Flow(flow, dead_letters=kafka("dead", raw()) if letters else None)
    (drawn(flow) if flow.startswith(RANDOM) else BUILD[flow])(made)
    plan = compile_flow(
        made,
        units=units,
        lanes=lanes,
        parallelism=parallelism,
        slack_ms=slack_ms,
        grouping=grouping,
        early_keys=early_keys,
    )
    return replace(plan, grown=grown)


class Job:
    """A job and all that is durable of it.

    Args:
        rng: Chance.
        flow: Which flow; drawn if None.
        longest: How many messages a partition can have; drawn if None.
        letters: Whether the flow names dead letters, as it must where records fail by themselves; drawn if None.
        older: Draws which partitions get a backfill, none of which does without it; and rewinds.
        backfills: How likely a partition gets one.
        refusals: How likely a service fails.

    Attributes:
        logs: The partitions in the register, by front.
        later: Those that will appear.
        commits: Those that are kept, the newest last.
        manifests: Commits with the floors of their manifests, which often can be read though a part is damaged; the
            newest last.
        archive: Floors that were durable, and no start from the newest commit needs.
        forgets: Whether they are moved there.
        told: Delivered times that the outside was told, each with how many messages every partition held then, by `id`.
    """

    def __init__(
        self,
        rng: Random,
        flow: str | None,
        longest: int | None,
        *,
        letters: bool | None = None,
        older: Random | None = None,
        backfills: float = 0.3,
        refusals: float = 0.0,
    ) -> None:
        self.rng = rng
        self.services = Services(rng, refusals)
        self.older = older or Random(0)
        self.flow = flow or rng.choice(DRAWN)
        self._layout, self.slack_ms = rng.choice(LAYOUTS), rng.choice([2, 2, 5])
        self._grown: tuple[int, ...] = ()
        drawn_letters = rng.random() < 0.5 if letters is None else letters
        self.letters = drawn_letters or self.flow in FAILING or (self.flow.startswith(RANDOM) and may_fail(self.flow))
        plan = self.plan(1, "optimistic")
        names = [vertex.name for vertex in plan.sources()]
        longest = longest or rng.choice([3, 12, 25, 60])
        drawn = [draw_log(rng, n, names[n % len(names)], longest) for n in range(rng.randint(len(names), 4))]
        for log in drawn:
            if older is not None and older.random() < backfills:
                log.age(older)
        at_once = rng.randint(len(names), len(drawn))
        self.logs = {log.front: log for log in drawn[:at_once]}
        self.later = drawn[at_once:]
        for log in self.logs.values():
            log.opening = 0
        self.sinks = Sinks(plan)
        self.commits: list[Commit] = []
        self.manifests: list[tuple[Commit, Floors]] = []
        self.archive = Floors()
        self.archived: dict[int, int] = {}
        """By front the offset below which floors are in the archive."""
        self.forgets = rng.random() < 0.5
        self.told: list[tuple[int, dict[int, int]]] = []
        self.ended = False
        """Whether all sources have ended."""
        self.left: list[tuple[int, Frame]] = []
        """Frames in the topics of loops, each with the life that sent it; only other lives find them."""

    def plan(self, parallelism: int, grouping: Grouping, *, early_keys: bool = False) -> Plan:
        """The plan for one life, with nothing wrong; never more workers than lanes."""
        workers, given = min(parallelism, self._layout[1]), (self.flow, self._layout, self.slack_ms)
        return plan_of(*given, workers, grouping, letters=self.letters, early_keys=early_keys, grown=self._grown)

    def grow(self, rng: Random) -> int:
        """Have more lanes from the next life on, if hash units allow it; return how many there are."""
        units, lanes = self._layout
        if fitting := range(2 * lanes, units + 1, lanes):
            self._layout, self._grown = (units, rng.choice(fitting)), (*self._grown, lanes)
            self.sinks.grow(self.plan(1, "optimistic"))
        return self._layout[1]

    def recovered(self, damage: float, rewinds: float = 0.0) -> Commit | None:
        """The commit to start from: the newest; or, if a part of it is damaged, the one before; or none.

        With a damaged commit its manifest may be lost. Or an older one was asked for, and the newer ones stay: the life
        after may begin from them.
        """
        while self.commits and self.rng.random() < damage:
            damaged = self.commits.pop()
            if self.rng.random() < LOST:
                self.manifests = [pair for pair in self.manifests if pair[0] is not damaged]
        if len(self.commits) > 1 and self.older.random() < rewinds:
            return self.older.choice(self.commits[:-1])
        return self.commits[-1] if self.commits else None

    @property
    def committed_tick(self) -> int:
        """T of the newest commit."""
        return self.commits[-1].tick if self.commits else NO_TICK

    def archive_for(self, commit: Commit | None) -> Floors:
        """The floors of the archive, where somebody begins below what went there."""
        starts = {} if commit is None else commit.starts
        below = any(starts.get(front, (0, 0))[0] < offset for front, offset in self.archived.items())
        return self.archive if below else Floors()

    def of_manifests(self) -> Floors:
        """The floors of the manifests that there are."""
        return Floors(floor for _, manifest in self.manifests for floor in manifest)

    def keep(self, commit: Commit, life: Life) -> None:
        """Add a commit; the floors below where the newest starts are superfluous but for the archive (R17).

        One that was overtaken stands before the newer one; what snapshots under way need is not superfluous.
        """
        self.commits = sorted([*self.commits, commit], key=lambda each: each.tick)[-KEPT:]
        manifest = Floors(commit.known)
        for front, (offset, _) in commit.starts.items():
            manifest.cut(front, offset)
        known = [*self.manifests, (commit, manifest)]
        kept = [pair for pair in known if any(pair[0] is each for each in self.commits)]
        others = [pair for pair in known if not any(pair[0] is each for each in self.commits)]
        self.manifests = [*others[len(others) - max(0, KEPT - len(kept)) :], *kept]
        life.manifests = self.of_manifests()
        life.committed(commit)
        if not self.forgets:
            return
        starts = life.needed_from(self.commits[-1].starts)
        for front, offset in starts.items():
            self.archive.merge(self.sinks.cut(front, offset))
            self.archived[front] = max(offset, self.archived.get(front, 0))
        life.forget(starts)

    @property
    def told_time(self) -> int:
        """The largest delivered time that was told."""
        return self.told[-1][0] if self.told else NO_TICK

    def tell(self, time: int) -> None:
        """Tell the outside a delivered time, if it has grown."""
        if time > self.told_time:
            self.told.append((time, {id(lane): len(lane.ticks) for lane in self.sinks.lanes.values()}))

    # -- the end ---------------------------------------------------------------------------------------------------

    def check(self, life: Life) -> None:
        """What the sinks hold is what the oracle delivers, with the floors that lanes or archive have, or fronts."""
        plan = self.plan(1, "optimistic")
        until = life.reached - 1 if self.strikes else None
        answers = {each.name: self.sinks.answers(plan.answers_of(each), range(plan.lanes)) for each in plan.those(Ask)}
        kept = self.services.kept(plan, answers)
        expected, dead = run_log(plan, self._log(), list(self._floors(life)), until, kept=kept)
        self.services.check(plan, kept)
        lanes_of = by_lane(expected)
        for vertex in plan.sinks():
            lanes = lanes_of[vertex.name]
            for lane in range(plan.lanes):
                held = self.sinks.of_lane(vertex.id, lane)
                stored = [each.messages[place] for each, places in held for place in places]
                _compare(f"{vertex.name}/{lane}", stored, lanes.get(lane, []))
                self._check_told(vertex.id, lane, [stamp // self.slack_ms for _, _, stamp in lanes.get(lane, [])])
        letters, buried = Counter(map(repr, self.sinks.letters())), Counter(map(repr, dead))
        if letters != buried:
            raise Violation("output", f"dead letters {sorted(letters)} instead of {sorted(buried)}")

    @property
    def strikes(self) -> bool:
        """Whether the flow has a clock, which goes on as far as time does."""
        return any(isinstance(vertex.step, Clock) for vertex in self.plan(1, "optimistic").vertices)

    def last_tick(self, now_ms: int) -> int:
        """A tick behind all labels, to which time may go in the end."""
        if self.ended:
            return end_tick(self.slack_ms)
        if not self.strikes:
            return LAST_TICK
        stamps = (each.timestamp for log in self.logs.values() for each in log.messages)
        return max([now_ms, *(stamp for stamp in stamps if stamp < NEVER_MS)]) // self.slack_ms + STRIKES_ON

    def end(self) -> None:
        """All sources end where they are: nothing comes any more, nor do partitions."""
        self.ended, self.later = True, []
        for log in self.logs.values():
            del log.messages[log.visible :]
            log.age_ms, log.stop = 0, log.end

    def _log(self) -> dict[str, list[Message]]:
        log: dict[str, list[Message]] = {}
        for each in self.logs.values():
            log.setdefault(each.source, []).extend(each.messages)
        return log

    def _floors(self, life: Life) -> Floors:
        floors = Floors([Floor(log.front, 0, log.opening or 0) for log in self.logs.values()])
        live = [core.front._floors for core in life.cores if core.front is not None]
        for some in (self.archive, self.sinks.floors(), *live):
            floors.merge(some)
        return floors

    def _check_told(self, sink: int, lane: int, ticks: list[int]) -> None:
        """R18, in hindsight: of a lane's ticks all below a delivered time were there when it was told."""
        parts = self.sinks.of_lane(sink, lane)
        for time, held in self.told:
            there = sum(bisect_left(places, held.get(id(part), 0)) for part, places in parts)
            promised = bisect_left(ticks, time)
            if there < promised:
                what = f"lane {lane} had {there} of {promised} messages below {time}"
                raise Violation("safety", f"delivered time {time} was told when {what}")


def _compare(lane: str, given: Sequence[object], wanted: Sequence[object]) -> None:
    """Sequences, not sets."""
    if given == wanted:
        return
    place = next((i for i, (one, other) in enumerate(zip(given, wanted, strict=False)) if one != other), None)
    if place is None and len(given) < len(wanted):
        raise Violation("liveness", f"{lane} has {len(given)} of {len(wanted)} messages; next is {wanted[len(given)]}")
    place = len(wanted) if place is None else place
    other = wanted[place] if place < len(wanted) else "nothing"
    raise Violation("output", f"{lane}: message {place} is {given[place]}, not {other}")
