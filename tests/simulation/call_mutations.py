"""Rules of calls broken on purpose: when somebody is asked, what waits for answers, and which of them count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowtide.core.ending_faults import Ending
from lowtide.core.operators.asking import AskNode
from lowtide.core.operators.barrier import Barrier
from lowtide.core.operators.call_node import CallNode
from lowtide.core.operators.node import Feed
from lowtide.core.operators.order.portion import Portion
from lowtide.core.operators.questions import Answer
from lowtide.flow.plan.segments import _Layout
from lowtide_tracker import Floor

from .flow_mutations import OFTEN
from .mutation import Mutation, Patch

FAR = 1 << 62


def through_before_the_answer() -> list[Patch]:
    """A call is through with all that min time has passed, whether answered or not."""
    real = AskNode.go_on

    def go_on(self: AskNode, min_time: int, feed: Feed, portion: Portion) -> int:
        real(self, min_time, feed, portion)
        return min_time

    return [(AskNode, "go_on", go_on)]


def through_before_it_is_durable() -> list[Patch]:
    """A call is through with a tick once all of it is answered."""
    real = AskNode._kept

    def kept(self: AskNode, below: int, min_time: int, log: Barrier, feed: Feed) -> int:
        real(self, below, min_time, log, feed)
        return below

    return [(AskNode, "_kept", kept)]


def heedless_of_the_outlet() -> list[Patch]:
    """A call does not look at what may end the life before it."""
    real = CallNode.rest_on

    def rest_on(self: CallNode, floors: Iterable[Floor], _: int | None = None) -> None:
        real(self, floors)

    return [(CallNode, "rest_on", rest_on)]


def answers_forgotten() -> list[Patch]:
    """A life asks again what an earlier one was answered."""

    def know(_self: AskNode, _answers: Mapping[bytes, Answer], _since: bytes | None) -> None:
        """Know nothing."""

    return [(AskNode, "know", know)]


def asked_at_min_time() -> list[Patch]:
    """Records at min time itself are asked about, though others may come before them."""
    real = AskNode.go_on

    def go_on(self: AskNode, min_time: int, feed: Feed, portion: Portion) -> int:
        return min(min_time, real(self, min_time + 1, feed, portion))

    return [(AskNode, "go_on", go_on)]


def asked_on_any_floors() -> list[Patch]:
    """A call does not wait until the floors that min time rests on are durable."""
    return [(Barrier, "kept_time", property(lambda _self: FAR))]


def answers_not_kept() -> list[Patch]:
    """No answer is kept, as if all were the same again."""

    def keep_in(_self: CallNode, _vertex: int, _log: Barrier) -> None:
        """Keep nothing."""

    return [(CallNode, "keep_in", keep_in)]


def sinks_go_as_far_as_answers() -> list[Patch]:
    """Sinks release what has been answered, though the answers themselves still wait for their turn."""
    return [(Barrier, "sent_time", property(lambda self: self.released))]


def sinks_pass_faults() -> list[Patch]:
    """A joint sink looks at its call alone, and not at what has failed behind it."""
    return [(Ending, "first_tick", property(lambda _self: None))]


def asked_as_they_come() -> list[Patch]:
    """All records are asked about as they come, also those that others may change."""
    return [(_Layout, "_is_certain", lambda _self, _ask: True)]


def calls(name: str, rule: str, what: str, patches: Any, **options: Any) -> Mutation:
    return Mutation(name, rule, what, "calls", patches, options, seeds=60)


CALLS = [
    calls("through-unanswered", "R23", "min time passes what nobody has answered yet", through_before_the_answer),
    calls("through-undurable", "R23", "what an answer brings goes on before it is durable",
          through_before_it_is_durable, faults=OFTEN),
    calls("call-without-outlet", "R6, R23", "a call does not wait for what may end the life", heedless_of_the_outlet,
          flow="call_far_down", letters=False, wrong=1.0, refusals=0.0),
    calls("answered-twice", "R23", "known answers are asked for again", answers_forgotten, faults=OFTEN),
    calls("asked-before-final", "R23", "records at min time are asked about", asked_at_min_time),
    calls("asked-before-floors", "R2, R23", "a call does not wait for floors", asked_on_any_floors),
    calls("output-before-answers", "R23", "a joint sink passes answers that wait",
          sinks_go_as_far_as_answers, faults=OFTEN, random_flows=0.0),
    calls("joint-past-faults", "R6, R23", "a joint sink passes what may be corrected", sinks_pass_faults,
          flow="call_then_steps", letters=False, wrong=1.0, refusals=0.0),
    calls("asked-as-they-come", "R23", "records are asked about before they are certain", asked_as_they_come),
    calls("answers-past-faults", "R6, R23", "answers are kept behind what may end the life", heedless_of_the_outlet,
          flow="call_at_once", letters=False, wrong=1.0, refusals=0.0),
    calls("answer-not-kept", "R23", "answers are not kept", answers_not_kept, faults=OFTEN),
]  # fmt: skip
