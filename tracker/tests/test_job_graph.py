"""The graph of jobs: its laws one by one, and by simulation of jobs, lives and trackers against the truth."""

from __future__ import annotations

import random

import msgspec
import pytest

from lowtide_tracker.job_graph import (
    JobCycle,
    JobGraph,
    JobGraphError,
    JobKnown,
    JobRuns,
    JobSaid,
    OldLife,
    TopicTaken,
)


def said(job: str, reads: str = "", writes: str = "", life: int = 1, delivered_ms: int | None = None) -> JobSaid:
    return JobSaid(
        job=job,
        life=life,
        reads=frozenset(reads.split()),
        writes=frozenset(writes.split()),
        delivered_ms=delivered_ms,
    )


def test_a_job_hears_of_all_jobs_before_it_near_and_far() -> None:
    graph = JobGraph()
    graph.say(said("c", "sums other", "last"))
    graph.say(said("a", "", "orders", delivered_ms=40))
    graph.say(said("b", "orders", "sums", delivered_ms=30))
    assert [known.job for known in graph.before("c")] == ["a", "b"]
    assert [known.job for known in graph.before("b")] == ["a"]
    assert graph.before("a") == graph.before("nobody") == ()
    assert graph.delivered_ms is None, "nothing is sure of c"
    graph.say(said("c", "sums other", "last", delivered_ms=20))
    assert graph.delivered_ms == 20


def test_a_cycle_of_jobs_is_refused_and_nothing_of_it_is_taken() -> None:
    graph = JobGraph()
    graph.say(said("a", "last", "orders"))
    graph.say(said("b", "orders", "sums"))
    with pytest.raises(JobCycle, match=r'"c" would wait for itself for ever: .*reads "last"'):
        graph.say(said("c", "sums", "last"))
    assert [known.job for known in graph.jobs] == ["a", "b"]
    with pytest.raises(JobCycle, match="loop"):
        graph.say(said("self", "t", "t"))


def test_hearsay_of_a_job_that_was_forgotten_elsewhere_neither_ends_nor_hides_the_one_in_its_place() -> None:
    """A job that was cut off while another tracker forgot "old" speaks of it to the next tracker."""
    graph = JobGraph()
    old = JobKnown(job="old", life=3, writes=frozenset({"orders"}), delivered_ms=90, runs=False)
    graph.say(said("new", "", "orders", delivered_ms=7))
    cut_off = msgspec.structs.replace(said("b", "orders", "sums"), heard=(old,), held_topic="orders")
    graph.say(cut_off)
    graph.say(said("new", "", "orders", delivered_ms=8))
    assert [(known.job, known.delivered_ms) for known in graph.before("b")] == [("new", 8)]
    assert graph.chain("b")[0].startswith("job b waits for job new")
    graph.check()


def test_hearsay_of_a_cycle_of_dead_jobs_is_not_taken() -> None:
    graph = JobGraph()
    x = JobKnown(job="x", life=1, reads=frozenset({"t"}), writes=frozenset({"u"}), held_topic="t", runs=False)
    y = JobKnown(job="y", life=1, reads=frozenset({"u"}), writes=frozenset({"t"}), held_topic="u", runs=False)
    graph.say(msgspec.structs.replace(said("c", "u"), heard=(x, y), held_topic="u"))
    assert [known.job for known in graph.jobs] == ["x", "c"]
    assert graph.chain("c")[-1].startswith("job x is not running")
    graph.check()


def test_a_topic_has_one_writing_job() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders"))
    with pytest.raises(TopicTaken, match="lowtide tracker forget a"):
        graph.say(said("b", "", "orders"))
    graph.say(said("a", "", "others", life=2))
    graph.say(said("b", "", "orders"))


def test_an_older_life_is_not_heeded() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders", life=3, delivered_ms=40))
    with pytest.raises(OldLife, match="life 2 speaks, and life 3"):
        graph.say(said("a", "", "orders", life=2, delivered_ms=90))
    graph.gone("a", 2)
    assert graph.jobs[0].runs, "an older life's end says nothing of this one"
    graph.say(said("a", "", "orders", life=4, delivered_ms=10))
    assert graph.jobs[0].delivered_ms == 40, "law 1"


def test_a_dead_job_holds_those_behind_it_until_it_is_forgotten() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders", delivered_ms=40))
    graph.say(
        JobSaid(
            job="b",
            life=1,
            reads=frozenset({"orders"}),
            holder="front 3 (orders-1)",
            held_topic="orders",
            heard=graph.before("b"),
        )
    )
    with pytest.raises(JobRuns, match="lowtide stop a"):
        graph.forget("a")
    graph.gone("a", 1)
    assert graph.chain("b") == [
        "job b waits for job a: front 3 (orders-1)",
        "job a is not running; all before 40 ms is delivered",
    ]
    heard = graph.before("b")
    graph.forget("a")
    assert graph.before("b") == ()
    graph.say(JobSaid(job="b", life=1, reads=frozenset({"orders"}), heard=heard))
    assert graph.before("b") == (), "what others still say of it does not bring it back"
    with pytest.raises(JobGraphError, match="there are: b"):
        graph.forget("a")
    graph.say(said("a", "", "orders", life=2))
    assert len(graph.before("b")) == 1, "it may come back itself"


def test_the_chain_ends_with_what_is_to_be_looked_at() -> None:
    graph = JobGraph()
    graph.say(JobSaid(job="a", life=1, writes=frozenset({"orders"}), holder="front 0 (clicks-0)", held_topic="clicks"))
    graph.say(JobSaid(job="b", life=1, reads=frozenset({"orders"}), holder="front 3 (orders-1)", held_topic="orders"))
    assert graph.chain("b") == [
        "job b waits for job a: front 3 (orders-1)",
        "job a is held by front 0 (clicks-0)",
    ]


def test_what_a_job_was_told_of_a_dead_one_outlives_the_tracker() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders", delivered_ms=40))
    graph.say(said("b", "orders", "sums"))
    graph.gone("a", 1)
    heard, graph = graph.before("b"), JobGraph()
    graph.say(JobSaid(job="b", life=1, reads=frozenset({"orders"}), heard=heard))
    (known,) = graph.before("b")
    assert known.delivered_ms == 40
    assert not known.runs


class Jobs:
    """Jobs that keep their word: none delivers beyond what it has heard of those before it.

    Attributes:
        true: By job what it has delivered, and stored: a later life goes on from there.
        before: By job those before it, near and far.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.count = dice.randint(2, 7)
        self.reads = {
            job: frozenset(f"t{before}" for before in range(job) if dice.random() < 0.5) for job in range(self.count)
        }
        self.before = {job: {int(topic[1:]) for topic in topics} for job, topics in self.reads.items()}
        for ancestors in self.before.values():
            ancestors |= {far for near in ancestors for far in self.before[near]}
        self.graph = JobGraph()
        self.life = dict.fromkeys(range(self.count), 1)
        self.true = dict.fromkeys(range(self.count), 0)
        self.heard: dict[int, tuple[JobKnown, ...]] = dict.fromkeys(range(self.count), ())
        self.connected: set[int] = set()
        self.highest: dict[str, int] = {}

    def work(self, job: int) -> None:
        limits = {int(known.job): known.delivered_ms or 0 for known in self.heard[job]}
        if set(limits) == self.before[job]:  # It waits until it has heard of all: `[tracker] after`.
            self.true[job] = max(self.true[job], min([self.true[job] + self.dice.randint(0, 9), *limits.values()]))

    def say(self, job: int) -> None:
        self.graph.say(
            JobSaid(
                job=str(job),
                life=self.life[job],
                reads=self.reads[job],
                writes=frozenset({f"t{job}"}),
                delivered_ms=self.true[job],
                heard=self.heard[job],
            )
        )
        self.connected.add(job)

    def hear(self, job: int) -> None:
        if job in self.connected:
            self.heard[job] = self.graph.before(str(job))

    def die(self, job: int) -> None:
        if job in self.connected:
            self.graph.gone(str(job), self.life[job])
        self.life[job] += 1
        self.heard[job] = ()
        self.connected.discard(job)

    def lose_the_tracker(self, _job: int) -> None:
        self.graph, self.connected, self.highest = JobGraph(), set(), {}

    def check(self) -> None:
        self.graph.check()
        for job, ancestors in self.before.items():
            assert all(self.true[job] <= self.true[other] for other in ancestors), f"job {job}"
        for known in self.graph.jobs:
            assert known.delivered_ms is not None
            assert self.highest.get(known.job, 0) <= known.delivered_ms <= self.true[int(known.job)]
            self.highest[known.job] = known.delivered_ms


@pytest.mark.parametrize("seed", range(60))
def test_delivered_time_of_a_job_implies_all_jobs_before_it(seed: int) -> None:
    """Laws 1, 2 and 4 over random graphs, lives, trackers and delays."""
    dice = random.Random(seed)
    jobs = Jobs(dice)
    steps = [jobs.work, jobs.say, jobs.hear, jobs.die, jobs.lose_the_tracker]
    for _ in range(400):
        dice.choices(steps, [6, 6, 6, 0.5, 0.2])[0](dice.randrange(jobs.count))
        jobs.check()
    assert max(jobs.true.values()) > 0, "something was done"
