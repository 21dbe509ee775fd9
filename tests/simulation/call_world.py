"""Flows that ask outside services: whatever these say in which life, output goes by what was durable first."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

from call_flows import CALLING, DRAWN

from lowtide.core.operators.faults.failure import AtRecord, CallGivenUp
from lowtide.flow.steps.steps import Ask

from .flow_world import FlowWorld
from .world import Step, Trace

MOST_AT_ONCE = 3
RANDOM_FLOWS = 0.5
ENDING, ENDS = 0.4, 0.1
"""How likely sources end in a flow whose answers have an order of their own, and at a step at which they may."""


class CallWorld(FlowWorld):
    """As `FlowWorld`, with services that answer in any order, sooner or later or, as the life is over, never.

    Args:
        seed: The seed.
        trace: Told every step.
        flow: Which flow; drawn if None, a random one or one that is written by hand.
        refusals: How likely a service fails.
        random_flows: How likely the flow is a random one, where none is given.
        ending: How likely sources come to their ends, where calls give answers in the order in which these come.
        rest: See `FlowWorld`.
    """

    name: ClassVar[str] = "calls"

    def __init__(
        self,
        seed: int,
        trace: Trace | None = None,
        *,
        flow: str | None = None,
        refusals: float = 0.05,
        random_flows: float = RANDOM_FLOWS,
        ending: float = ENDING,
        **rest: Any,
    ) -> None:
        flow = flow or self._drawn(seed, random_flows)
        super().__init__(seed, trace, flow=flow, refusals=refusals, **rest)
        completes = any(each.step.order == "answer" for each in self.life.plan.those(Ask))
        self.ends = completes and Random(f"{self.name}/{seed}/ends").random() < ending
        """Whether sources come to their ends sometime: then min time is infinite while questions are open."""

    def _drawn(self, seed: int, random_flows: float) -> str:
        """Draw a flow's name."""
        chance = Random(f"{self.name}/{seed}/random")
        if chance.random() < random_flows:
            return f"{DRAWN}{chance.randrange(1 << 20)}"
        return Random(f"{self.name}/{seed}/flow").choice(CALLING).__name__

    def chances(self) -> list[tuple[int, str, Step]]:
        """The steps there are."""
        return [*super().chances(), (12, "reply", self.reply), *([(2, "end", self.end)] if self.ends else [])]

    def reply(self) -> bool:
        """A service answers one question or some of one call."""
        life, rng = self.life, self.rng
        if not life.asked:
            return False
        worker, question = rng.choice(life.asked)
        alike = [place for place, (who, each) in enumerate(life.asked) if (who, each.ask) == (worker, question.ask)]
        chosen = rng.sample(alike, min(len(alike), rng.randint(1, MOST_AT_ONCE)))
        if self.trace:
            name = life.plan.vertices[question.ask].name
            self.say(f"worker {worker}", f'is answered {len(chosen)} of {len(alike)} questions of "{name}"')
        try:
            life.reply(chosen, calm=False)
        except CallGivenUp as error:
            if self.trace:
                self.say("job", f"ends: {error.what}")
            self.kill()
        except AtRecord as error:
            self.correct(error)
        self.check_delivered()
        return True

    def end(self) -> bool:
        """All sources end where they are; once a front has read all of it, it closes."""
        if not self.job.ended:
            if self.rng.random() >= ENDS:
                return False
            self._end()
            return True
        return False

    def _end(self) -> None:
        """Sources end: their fronts are closed once they have read all there is."""
        self.job.end()
        for log in self.job.logs.values():
            self.life.stop(log)
        if self.trace:
            self.say("job", "has sources that end")

    def drain(self) -> None:
        """See `FlowWorld`; sources that may end do."""
        if self.ends and not self.job.ended:
            for log in self.job.logs.values():
                log.visible = len(log.messages)
            self._end()
        super().drain()

    def answer(self) -> bool:
        """A worker hears that its bundle is durable, and goes on where it has waited for that."""
        try:
            return super().answer()
        except AtRecord as error:
            self.correct(error)
            return True
