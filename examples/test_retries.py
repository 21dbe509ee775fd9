"""The flow here and now, against a loop over each ticket."""

import random

from retries import MOST_CALLS, Settled, Ticket, Tool, first_attempt, flow, is_open, judge, settled, use


def settle(tickets: list[Ticket]) -> list[Settled]:
    """One ticket after the other, each until it is settled or given up."""
    tools: dict[str, Tool] = {}
    found = []
    for ticket in tickets:
        attempt = first_attempt(ticket)
        while is_open(attempt):
            name = attempt.tool
            tools[name], attempt = use(tools.get(name, Tool()), attempt)
            attempt = judge(attempt)
        found.append(settled(attempt))
    return found


def test_a_ticket_goes_from_tool_to_tool_and_in_the_end_to_a_person() -> None:
    tickets = [Ticket("1", "login", 0), Ticket("2", "login", 10), Ticket("3", "refund", 4_000)]
    assert flow.run_locally(tickets=tickets)["settled"] == [
        Settled("1", "model", 3, ("notes", "search", "model")),
        Settled("2", "model", 3, ("notes", "search", "model")),
        Settled("3", "person", 4, ("notes", "search", "model", "model")),
    ]


def test_tickets_are_settled_as_a_loop_over_each_settles_them() -> None:
    by = set()
    for seed in range(40):
        dice = random.Random(seed)
        topics = ["login", "refund", "delivery"][: dice.randint(1, 3)]
        tickets = [
            Ticket(str(number), dice.choice(topics), dice.choice([0, 20, 60, 300]))
            for number in range(dice.randint(1, 80))
        ]
        delivered = flow.run_locally(tickets=tickets)
        assert delivered["settled"] == settle(tickets), seed
        assert delivered["dead-letters"] == []
        assert all(each.calls <= MOST_CALLS for each in delivered["settled"])
        by |= {each.by for each in delivered["settled"]}
    assert by == {"notes", "search", "model", "person"}, "all ways are taken"
