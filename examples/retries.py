"""An agent that tries one tool after the other: reads tickets from "tickets", writes to "settled" how each was settled.

A ticket goes to the worker that has its tool, which knows what the tool has done so far: how many calls it has left
and what it has learnt from other tickets. The agent judges the answer and goes on with another tool, at most MOST_CALLS
times; a ticket that is still open then goes to a person. Each ticket is settled once, whatever dies meanwhile.
"""

from dataclasses import dataclass, replace

import lowtide as lt

TOOLS = ("notes", "search", "model")
"""In the order in which they are tried: the best one is the most expensive."""
CALLS = {"notes": 1_000_000, "search": 500, "model": 50}
"""Limit on the calls of each tool in one run of the flow."""
MOST_CALLS = 4
GOOD = 70


@dataclass(frozen=True)
class Ticket:
    id: str
    topic: str
    words: int


@dataclass(frozen=True)
class Attempt:
    """A ticket on its way: with which tool it is now, what came of that, and what has been tried."""

    id: str
    topic: str
    words: int
    tool: str
    calls: int = 0
    score: int = 0
    tried: tuple[str, ...] = ()
    state: str = "open"


@dataclass(frozen=True)
class Tool:
    calls: int = 0
    learnt: dict[str, int] | None = None


@dataclass(frozen=True)
class Settled:
    id: str
    by: str
    calls: int
    tried: tuple[str, ...]


def first_attempt(ticket: Ticket) -> Attempt:
    return Attempt(ticket.id, ticket.topic, ticket.words, TOOLS[0])


def use(tool: Tool, attempt: Attempt) -> tuple[Tool, Attempt]:
    """Call the tool: it gets better at a topic with each ticket, and refuses what is beyond its budget."""
    done = replace(attempt, calls=attempt.calls + 1, tried=(*attempt.tried, attempt.tool))
    if tool.calls >= CALLS[attempt.tool]:
        return tool, replace(done, score=0)
    learnt = dict(tool.learnt or {})
    learnt[attempt.topic] = learnt.get(attempt.topic, 0) + 1
    skill = 30 * (TOOLS.index(attempt.tool) + 1) + 5 * learnt[attempt.topic]
    return Tool(tool.calls + 1, learnt), replace(done, score=max(0, skill - attempt.words))


def judge(attempt: Attempt) -> Attempt:
    """Decide what to do next: done, another tool, the same one with a shorter question, or a person."""
    if attempt.score >= GOOD:
        return replace(attempt, state="settled")
    if attempt.calls >= MOST_CALLS:
        return replace(attempt, state="given up")
    place = TOOLS.index(attempt.tool)
    if place + 1 < len(TOOLS):
        return replace(attempt, tool=TOOLS[place + 1])
    return replace(attempt, words=attempt.words // 2)


def is_open(attempt: Attempt) -> bool:
    return attempt.state == "open"


def settled(attempt: Attempt) -> Settled:
    return Settled(attempt.id, attempt.tool if attempt.state == "settled" else "person", attempt.calls, attempt.tried)


flow = lt.Flow("retries", dead_letters=lt.kafka("unreadable", lt.raw()))
(
    flow.read("tickets", lt.kafka("tickets", lt.json(Ticket)))
    .map(first_attempt)
    .loop(
        "attempts",
        lambda attempts: attempts.key_by("tool").scan("tools", use, Tool()).map(judge),
        again=is_open,
        limit_turns=MOST_CALLS,
    )
    .map(settled)
    .key_by("id")
    .write("settled", lt.kafka("settled", lt.json(Settled), key="id"))
)

if __name__ == "__main__":
    lt.main(flow)
