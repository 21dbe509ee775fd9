"""The graph of jobs: its laws one by one, and by simulation of jobs, lives and trackers against the truth."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import msgspec
import pytest

from lowtide_tracker import job_graph
from lowtide_tracker.job_graph import (
    JobCycle,
    JobGraph,
    JobGraphError,
    JobKnown,
    JobRuns,
    JobSaid,
    NameTaken,
    OldLife,
    TopicTaken,
    latest,
)


def said(
    job: str,
    reads: str = "",
    writes: str = "",
    life: int = 1,
    delivered_ms: int | None = None,
    *,
    id_: str = "",
    generation: int = 0,
) -> JobSaid:
    return JobSaid(
        id=id_,
        generation=generation,
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
    with pytest.raises(OldLife, match="life 2 reported after life 3"):
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
        "job a is not running; everything before 40 ms is delivered",
    ]
    heard = graph.before("b")
    graph.forget("a")
    assert graph.before("b") == ()
    graph.say(JobSaid(job="b", life=1, reads=frozenset({"orders"}), heard=heard))
    assert graph.before("b") == (), "what others still say of it does not bring it back"
    with pytest.raises(JobGraphError, match="it has: b"):
        graph.forget("a")
    graph.say(said("a", "", "orders", life=2))
    assert len(graph.before("b")) == 1, "it may come back itself"
    graph.gone("a", 2)
    graph.forget("a")
    graph.say(said("a", "", "orders", life=1, delivered_ms=5))
    graph.say(JobSaid(job="b", life=1, reads=frozenset({"orders"}), heard=heard))
    graph.say(said("a", "", "orders", life=1, delivered_ms=6))
    assert graph.before("b")[0].delivered_ms == 6, "nor when it has come back, and its lives begin with 1"


def test_a_generation_that_delivers_again_begins_with_nothing_delivered() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders", delivered_ms=100))
    graph.say(said("b", "orders"))
    heard = graph.before("b")
    graph.gone("a", 1)
    graph.say(said("a", "", "orders", life=2, generation=1))
    assert [(known.generation, known.delivered_ms) for known in graph.before("b")] == [(1, None)]
    assert latest(graph.before("b")[0], heard[0]).delivered_ms is None
    graph.say(said("a", "", "orders", life=2, generation=1, delivered_ms=50))
    graph.say(msgspec.structs.replace(said("b", "orders"), heard=heard))
    assert graph.before("b")[0].delivered_ms == 50, "what b has heard is of the generation before"
    again = JobGraph()
    again.say(msgspec.structs.replace(said("b", "orders"), heard=heard))
    again.say(msgspec.structs.replace(said("c", "orders"), heard=graph.before("b")))
    assert [(known.generation, known.delivered_ms) for known in again.before("c")] == [(1, 50)]
    assert latest(heard[0], graph.before("b")[0]).delivered_ms == 50, "a new tracker has heard of the older one alone"


def test_a_job_that_was_made_again_is_not_ended_by_what_others_say_of_the_old_one() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders", life=5, delivered_ms=1000, id_="old"))
    graph.say(said("b", "orders"))
    cut_off = msgspec.structs.replace(said("b", "orders"), heard=graph.before("b"))
    graph.gone("a", 5)
    graph.forget("a")
    made = said("a", "", "orders", life=1, delivered_ms=10, id_="new")
    for tracker in (graph, JobGraph()):
        tracker.say(made)
        tracker.say(cut_off)
        tracker.say(made)
        assert [(known.id, known.life, known.delivered_ms) for known in tracker.before("b")] == [("new", 1, 10)]
    first = JobGraph()
    first.say(cut_off)
    first.say(made)
    assert [(known.id, known.delivered_ms) for known in first.before("b")] == [("new", 10)]


def test_two_jobs_of_one_name_are_refused_until_one_is_forgotten() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders", life=3, id_="here"))
    with pytest.raises(NameTaken, match=r'already has a job "a", life 3, which runs: its ZooKeeper'):
        graph.say(said("a", "", "orders", life=7, id_="there"))
    graph.gone("a", 3)
    with pytest.raises(NameTaken, match=r"which is not running.*lowtide tracker forget a"):
        graph.say(said("a", "", "orders", life=7, id_="there"))
    graph.say(said("a", "", "orders", life=4, id_="here"))
    graph.gone("a", 4)
    graph.forget("a")
    graph.say(said("a", "", "orders", life=1, id_="there"))


def test_a_version_that_says_no_id_is_the_job_of_that_name() -> None:
    graph = JobGraph()
    graph.say(said("a", "", "orders", life=3, delivered_ms=40))
    graph.say(said("a", "", "orders", life=4, id_="here"))
    with pytest.raises(OldLife):
        graph.say(said("a", "", "orders", life=3))
    assert [(known.id, known.delivered_ms) for known in graph.jobs] == [("here", 40)]


def test_the_chain_ends_with_what_is_to_be_looked_at() -> None:
    graph = JobGraph()
    graph.say(JobSaid(job="a", life=1, writes=frozenset({"orders"}), holder="front 0 (clicks-0)", held_topic="clicks"))
    graph.say(JobSaid(job="b", life=1, reads=frozenset({"orders"}), holder="front 3 (orders-1)", held_topic="orders"))
    assert graph.chain("b") == [
        "job b waits for job a: front 3 (orders-1)",
        "job a is held by front 0 (clicks-0)",
    ]


def test_what_a_job_was_sent_of_a_dead_one_outlives_the_tracker() -> None:
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
        self.made = dict.fromkeys(range(self.count), 1)
        self.generation = dict.fromkeys(range(self.count), 0)
        self.rewound = False
        self.true = dict.fromkeys(range(self.count), 0)
        self.heard: dict[int, tuple[JobKnown, ...]] = dict.fromkeys(range(self.count), ())
        self.connected: set[int] = set()
        self.highest: dict[tuple[str, str, int], int] = {}

    def work(self, job: int) -> None:
        limits = {int(known.job): known.delivered_ms or 0 for known in self.heard[job]}
        if set(limits) == self.before[job]:  # It waits until it has heard of all: `[tracker] after`.
            self.true[job] = max(self.true[job], min([self.true[job] + self.dice.randint(0, 9), *limits.values()]))

    def say(self, job: int) -> None:
        self.graph.say(
            JobSaid(
                job=str(job),
                id=str(self.made[job]),
                generation=self.generation[job],
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
            before = {known.job: known for known in self.heard[job]}
            reported = self.graph.before(str(job))
            self.heard[job] = tuple(job_graph.latest(known, before.get(known.job, known)) for known in reported)

    def die(self, job: int) -> None:
        if job in self.connected:
            self.graph.gone(str(job), self.life[job])
        self.life[job] += 1
        self.heard[job] = ()
        self.connected.discard(job)

    def cut_off(self, job: int) -> None:
        """Its connection ends; what it has heard stays with it."""
        if job in self.connected:
            self.graph.gone(str(job), self.life[job])
            self.connected.discard(job)

    def deliver_again(self, job: int) -> None:
        self.die(job)
        self.generation[job] += 1
        self.true[job] = 0
        self.rewound = True

    def make_again(self, job: int) -> None:
        """Retired and forgotten, then made again under its name: its lives begin with 1."""
        self.die(job)
        if any(known.job == str(job) for known in self.graph.jobs):
            self.graph.forget(str(job))
        self.made[job] += 1
        self.life[job], self.generation[job], self.true[job] = 1, 0, 0
        self.rewound = True

    def lose_the_tracker(self, _job: int) -> None:
        self.graph, self.connected, self.highest = JobGraph(), set(), {}

    def check(self) -> None:
        self.graph.check()
        if not self.rewound:
            for job, ancestors in self.before.items():
                assert all(self.true[job] <= self.true[other] for other in ancestors), f"job {job}"
        for known in self.graph.jobs:
            assert known.delivered_ms is not None
            name = known.job, known.id, known.generation
            assert self.highest.get(name, 0) <= known.delivered_ms
            self.highest[name] = known.delivered_ms
        for known in (*self.graph.jobs, *(each for heard in self.heard.values() for each in heard)):
            job = int(known.job)
            if (known.id, known.generation) == (str(self.made[job]), self.generation[job]):
                assert (known.delivered_ms or 0) <= self.true[job], f"more is known of job {job} than is delivered"
        for job in self.connected:
            (known,) = (each for each in self.graph.jobs if each.job == str(job))
            assert (known.id, known.generation) == (str(self.made[job]), self.generation[job])


def run(seed: int, *, again: float) -> int:
    """Return how much was delivered; `again` is how often jobs are cut off, deliver again, or are made again."""
    jobs = Jobs(random.Random(seed))
    steps = [jobs.work, jobs.say, jobs.hear, jobs.die, jobs.lose_the_tracker]
    steps += [jobs.cut_off, jobs.deliver_again, jobs.make_again]
    for _ in range(400):
        step = jobs.dice.choices(steps, [6, 6, 6, 0.5, 0.2, again, again, again])[0]
        step(jobs.dice.randrange(jobs.count))
        jobs.check()
    return max(jobs.true.values())


@pytest.mark.parametrize("seed", range(60))
def test_delivered_time_of_a_job_implies_all_jobs_before_it(seed: int) -> None:
    """Laws 1, 2 and 4 over random graphs, lives, trackers and delays."""
    assert run(seed, again=0) > 0, "something was done"


@pytest.mark.parametrize("seed", range(30))
def test_no_more_is_known_of_a_job_than_its_generation_has_delivered(seed: int) -> None:
    """Laws 1 and 5 where jobs deliver again, and are retired and made again, while others are cut off."""
    assert run(seed, again=0.4) >= 0


def _larger(said: JobKnown, before: JobKnown) -> JobKnown:
    times = [each.delivered_ms for each in (before, said) if each.delivered_ms is not None]
    return msgspec.structs.replace(said, delivered_ms=max(times, default=None))


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (job_graph, "latest", _larger),
        (JobKnown, "is_same", lambda self, other: self.job == other.job),
    ],
    ids=["a delivered time outlives its generation", "a job is its name"],
)
def test_a_graph_without_one_of_these_laws_is_noticed(
    owner: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, JobGraphError)):
        deque((run(seed, again=0.4) for seed in range(40)), 0)
