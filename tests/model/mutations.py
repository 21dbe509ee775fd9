"""Rules of commit and recovery broken on purpose: the simulation's, where they fit, and those of claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from tests.simulation.commit_mutations import COMMIT, instead
from tests.simulation.mutation import Mutation, Patch
from tests.simulation.recovery_mutations import RECOVERY
from tests.simulation.worker_mutations import WORKER

from lowtide.driver import homes as homes_module
from lowtide.service.snapshots import commits as commits_module
from lowtide.service.snapshots import taking as taking_module
from lowtide.sinks.contract import Packet
from lowtide.sinks.kafka.transactions import Transactions
from lowtide_snapshots.commits.log import CommitLog
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.zookeeper.nodes import Delete, Operation
from lowtide_tracker import Notice, Request
from lowtide_tracker.announced import Announced

from .lives import LANE, _claim, _read_lasts
from .sizes import (
    ANSWERS,
    BASES,
    BESIDE,
    CLAIMS,
    DELIVERIES,
    LISTS,
    RESTORES,
    REWINDS,
    SNAPSHOTS,
    STATES,
    SWEEPER,
    SWEEPS,
)
from .world import Size

Broken = tuple[Mutation, Size]
"""A mutation, and the size at which it shows soonest."""


def read_before_claim() -> list[Patch]:
    """A life reads what was delivered, and then claims the sinks."""

    def read_lasts(kafka: Any, topic: str, *_: Any) -> Any:
        found = _read_lasts(kafka, topic)
        _claim(kafka, [LANE], 0.0)
        return found

    return [(homes_module, "claim", lambda *_: None), (homes_module, "read_lasts", read_lasts)]


def delivered_apart() -> list[Patch]:
    """Records and their `last` become durable one after the other."""
    real = Transactions.deliver

    def deliver(self: Transactions, packets: Any) -> None:
        real(self, [Packet(each.sink, each.lane, each.messages) for each in packets])
        real(self, [Packet(each.sink, each.lane, (), each.mark) for each in packets])

    return [(Transactions, "deliver", deliver)]


def lasts_first() -> list[Patch]:
    """The same, the other way round."""
    real = Transactions.deliver

    def deliver(self: Transactions, packets: Any) -> None:
        real(self, [Packet(each.sink, each.lane, (), each.mark) for each in packets])
        real(self, [Packet(each.sink, each.lane, each.messages) for each in packets])

    return [(Transactions, "deliver", deliver)]


def delivered_again_when_late() -> list[Patch]:
    """A commit whose answer is late counts as failed, and the same packets go into another transaction."""
    real = Transactions._call

    def call(self: Transactions, do: Callable[[float], None], what: str) -> None:
        if what != "commit a transaction":
            real(self, do, what)
            return
        try:
            do(0.5)
        except KafkaException as caught:
            if caught.args[0].retriable():
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "late", txn_requires_abort=True)) from caught
            raise

    return [(Transactions, "_call", call)]


def asked_for_later() -> list[Patch]:
    """The T of a snapshot is above the min time of the notice that asks for it."""
    real = Announced.request

    def request(self: Announced, number: int) -> Notice:
        notice = real(self, number)
        assert notice.request is not None
        return Notice(
            notice.era, notice.number, notice.after, notice.min_times, notice.global_min, notice.floors,
            Request(number, notice.request.tick + 4),
        )  # fmt: skip

    return [(Announced, "request", request)]


def not_durable() -> list[Patch]:
    """A snapshot is whole though what lies below its T is not durable."""
    share = vars(taking_module)["_Share"]
    return [(share, "lacks", lambda self: "" if self.done else "has not saved its parts")]


def rewound_in_part() -> list[Patch]:
    """A rewind makes an older commit the last, and leaves those above it."""
    real = CommitLog.rewind

    def rewind(self: CommitLog, incarnation: int, commit: Any) -> None:
        write = self._nodes.write

        def without(plan: Callable[[], list[Operation]]) -> None:
            write(lambda: [each for each in plan() if not isinstance(each, Delete)])

        vars(self._nodes)["write"] = without
        try:
            real(self, incarnation, commit)
        finally:
            del vars(self._nodes)["write"]

    return [(CommitLog, "rewind", rewind)]


def model(name: str, rule: str, what: str, patches: Callable[[], list[Patch]]) -> Mutation:
    return Mutation(name, rule, what, "model", patches)


def simulated(name: str) -> Mutation:
    """One of the simulation's; what it replaces in `retention` is replaced where the service has it, too."""
    found = next(each for each in (*COMMIT, *RECOVERY, *WORKER) if each.name == name)

    def patches() -> list[Patch]:
        made = found.patches()
        return [*made, *((commits_module, what, by) for owner, what, by in made if what in vars(commits_module))]

    return replace(found, patches=patches)


MUTATIONS: list[Broken] = [
    (model("not-claimed", "R13", "a life reads what was delivered, and claims nothing before",
           instead(homes_module, "claim", lambda *_: None)), DELIVERIES),
    (model("read-before-claim", "R13", "a life reads what was delivered, and claims afterwards",
           read_before_claim), DELIVERIES),
    (model("claimed-unseen", "R13, W10", "after a claim nobody looks whether the life is the newest",
           instead(JobStore, "check", lambda *_: None)), CLAIMS),
    (model("delivered-apart", "R13", "records are durable before their last is", delivered_apart), DELIVERIES),
    (model("lasts-first", "R13", "a last is durable before its records are", lasts_first), DELIVERIES),
    (model("late-is-failed", "R13", "a transaction whose answer is late is made again",
           delivered_again_when_late), DELIVERIES),
    (simulated("two-in-flight"), STATES),
    (simulated("floors-unread"), DELIVERIES),
    (simulated("pruned-in-silence"), STATES),
    (simulated("front-pruned"), STATES),
    (model("asked-for-later", "R14", "T is above the min time of the notice that asks for it",
           asked_for_later), STATES),
    (model("not-durable", "R15", "a commit does not wait for what is below its T", not_durable), SNAPSHOTS),
    (simulated("zombie-commits"), SNAPSHOTS),
    (simulated("answer-not-read-back"), ANSWERS),
    (model("rewound-in-part", "R16", "a rewind leaves the commits above", rewound_in_part), REWINDS),
    (simulated("running-swept"), SWEEPER),
    (simulated("reservation-unseen"), BESIDE),
    (simulated("last-moved-back"), BESIDE),
    (simulated("swept-first"), SWEEPS),
    (simulated("base-parts-swept"), BASES),
    (simulated("kept-read-early"), LISTS),
    (simulated("restored-dropped"), RESTORES),
    (simulated("drop-unchecked"), RESTORES),
    (simulated("restored-anyway"), RESTORES),
]  # fmt: skip
