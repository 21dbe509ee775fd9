"""The graph of several jobs: their topics, the progress of each, and the jobs that hold others; no I/O.

    graph = JobGraph()
    graph.say(JobSaid(job="a", life=1, writes=frozenset({"orders"}), delivered_ms=40))
    graph.say(JobSaid(job="b", life=1, reads=frozenset({"orders"}), writes=frozenset({"sums"}), delivered_ms=30))
    graph.before("b")       # (JobKnown(job="a", ..., delivered_ms=40),)
    graph.delivered_ms      # 30

Reports are absolute, so that a tracker that replaces a dead one knows everything as soon as the jobs have reported
again: about themselves, and about the jobs before them, which may be dead. Times are in ms since 1970, because the
length of a tick differs between jobs. Laws:

1. A job's known delivered time never falls within an output generation, over its lives; jobs that receive it keep it
   over trackers. A new generation, which delivers again, begins with nothing delivered.
2. Reports of an older life are refused.
3. A topic has one writing job, and no job comes after itself; hearsay that would break this is left out.
4. A job's reported delivered time is never larger than those of the jobs before it, as it knows them. `check` of a
   simulation compares it with the truth.
5. A job is its id, not its name: one that was retired and made again has another id, and hearsay about the old one
   changes nothing of it. Two that run under one name are refused. Older versions send no id, and it is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from lowtide_tracker.errors import TrackerError


class JobGraphError(TrackerError):
    """A job cannot be part of the graph as it is; it ends, and says why."""


class JobCycle(JobGraphError):
    """Jobs wait for each other for ever: have one of them read another topic."""


class TopicTaken(JobGraphError):
    """Two jobs write one topic: give one of them another, or forget the one that is retired."""


class OldLife(JobGraphError):
    """A newer life of the job has spoken: this one is a leftover and ends."""


class NameTaken(JobGraphError):
    """Another job has this name: give one of them another, or forget the one that is retired."""


class JobRuns(JobGraphError):
    """A job that runs cannot be forgotten: stop it first."""


class JobKnown(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job, as the graph knows it.

    Attributes:
        job: Its name.
        id: Its id for good, whatever its name; empty from an older version.
        life: The number of its newest life.
        generation: Of its output, from 0; one more with each redelivery.
        writes: The topics that it writes.
        reads: The topics that it reads.
        delivered_ms: Everything that it writes in this generation before that time is durable, and stays (R18); None
            while nothing is.
        min_time_ms: Its global min time.
        holder: The holder of that, in words.
        held_topic: The topic of the front that holds it; empty if it is not a front.
        runs: True while it is connected.
    """

    job: str
    life: int
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    delivered_ms: int | None = None
    min_time_ms: int | None = None
    holder: str = ""
    held_topic: str = ""
    runs: bool = True
    id: str = ""
    generation: int = 0

    def is_same(self, other: JobKnown) -> bool:
        """True if both name the same job, not two of one name."""
        return self.job == other.job and (self.id == other.id or not self.id or not other.id)


class JobSaid(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a job: its own `JobKnown`, and what it knows of the jobs before it."""

    job: str
    life: int
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    delivered_ms: int | None = None
    min_time_ms: int | None = None
    holder: str = ""
    held_topic: str = ""
    heard: tuple[JobKnown, ...] = ()
    id: str = ""
    generation: int = 0

    def known(self) -> JobKnown:
        """The part about the job itself."""
        return JobKnown(**{name: getattr(self, name) for name in self.__struct_fields__ if name != "heard"})


class JobGraph:
    """All jobs of one graph."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobKnown] = {}
        self._spoken: set[str] = set()
        """Jobs that have reported themselves: a report by others never replaces theirs."""
        self._forgotten: dict[tuple[str, str], int] = {}
        """The number of its last life, by name and id of a forgotten job: others may report it for ever."""

    @property
    def jobs(self) -> tuple[JobKnown, ...]:
        """All jobs, each after those before it; O(jobs + topics)."""
        ordered: dict[str, JobKnown] = {}

        def add(name: str) -> None:
            if name not in ordered:
                for before in self._writers(self._jobs[name].reads):
                    add(before)
                ordered[name] = self._jobs[name]

        for name in sorted(self._jobs):
            add(name)
        return tuple(ordered.values())

    @property
    def delivered_ms(self) -> int | None:
        """The time before which all of the graph is durable; None while nothing is sure."""
        return _least(known.delivered_ms for known in self._jobs.values())

    def say(self, said: JobSaid) -> None:
        """Take what a job says.

        Raises:
            OldLife, NameTaken, JobCycle, TopicTaken: nothing of it is taken.
        """
        jobs, this = dict(self._jobs), said.known()
        before = jobs.get(said.job)
        if before is not None and not before.is_same(this):
            self._refuse_another(before)
            del jobs[said.job]
        elif before is not None and said.life < before.life:
            raise OldLife(f'job "{said.job}": life {said.life} reported after life {before.life}')
        _take(jobs, this, runs=True)
        _check(jobs, said.job)
        for heard in said.heard:
            if heard.job != said.job and not self._is_forgotten(heard):
                with_it = dict(jobs)
                known = jobs.get(heard.job)
                if known is not None and not known.is_same(heard):
                    # Nobody but the job itself knows which of them it is: until it speaks, the smaller time is sure.
                    if heard.job in self._spoken or _delivered(known) <= _delivered(heard):
                        continue
                    del with_it[heard.job]
                _take(with_it, heard, runs=heard.job in jobs and jobs[heard.job].runs)
                # It may be of a job that another tracker has forgotten: it ends nobody, and breaks no law.
                with suppress(JobGraphError):
                    _check(with_it, heard.job)
                    jobs = with_it
        self._jobs = jobs
        self._spoken.add(said.job)

    def _refuse_another(self, known: JobKnown) -> None:
        """See that a job's name is not that of another one (errors: NameTaken)."""
        if known.runs or known.job in self._spoken:
            raise NameTaken(
                f'the graph already has a job "{known.job}", life {known.life}, '
                f"{'which runs' if known.runs else 'which is not running'}: its ZooKeeper or root differs, or its "
                "node was deleted; rename one of the two, or, if that one is retired: lowtide tracker forget "
                f"{known.job}"
            )

    def _is_forgotten(self, heard: JobKnown) -> bool:
        """True if hearsay is about a job that was taken out; without an id any of the name counts."""
        ids = [
            id_ for name, id_ in self._forgotten if name == heard.job and (id_ == heard.id or not id_ or not heard.id)
        ]
        return any(heard.life <= self._forgotten[heard.job, id_] for id_ in ids)

    def gone(self, job: str, life: int) -> None:
        """Note that a job's life has lost its connection: its last report remains valid and holds the jobs after it."""
        known = self._jobs.get(job)
        if known is not None and known.life == life:
            self._jobs[job] = msgspec.structs.replace(known, runs=False)

    def forget(self, job: str) -> None:
        """Remove a retired job: no job waits for it any more.

        Raises:
            JobRuns: it is connected.
            JobGraphError: there is none of that name.
        """
        known = self._jobs.get(job)
        if known is None:
            names = ", ".join(sorted(self._jobs)) or "none"
            raise JobGraphError(f'no job "{job}" in the graph; it has: {names}')
        if known.runs:
            raise JobRuns(f'job "{job}" runs (life {known.life}); stop it first: lowtide stop {job}')
        del self._jobs[job]
        self._spoken.discard(job)
        self._forgotten[job, known.id] = known.life

    def before(self, job: str) -> tuple[JobKnown, ...]:
        """Return all jobs that this one waits for, directly or not, those that wait for none first."""
        if job not in self._jobs:
            return ()
        found: set[str] = set()
        rest = [job]
        while rest:
            more = self._writers(self._jobs[rest.pop()].reads) - found
            found |= more
            rest += more
        return tuple(known for known in self.jobs if known.job in found)

    def chain(self, job: str) -> list[str]:
        """Return the chain of holders of a job, one line each; the last line names what to look at."""
        lines = []
        known = self._jobs[job]
        while True:
            if not known.runs:
                lines.append(
                    f"job {known.job} is not running; everything before {_time(known.delivered_ms)} is delivered"
                )
                return lines
            writers = self._writers({known.held_topic}) if known.held_topic else set()
            if not writers:
                lines.append(f"job {known.job} is held by {known.holder or 'nothing'}")
                return lines
            (writer,) = writers
            lines.append(f"job {known.job} waits for job {writer}: {known.holder}")
            known = self._jobs[writer]

    def check(self) -> None:
        """Law 3, for simulations."""
        for job in self._jobs:
            _check(self._jobs, job)

    def _writers(self, topics: Iterable[str]) -> set[str]:
        wanted = set(topics)
        return {known.job for known in self._jobs.values() if known.writes & wanted}


def _take(jobs: dict[str, JobKnown], said: JobKnown, *, runs: bool) -> None:
    """Put in what is said of a job, unless more is known (laws 1 and 2)."""
    known = jobs.get(said.job)
    if known is not None:
        if said.life < known.life or said.generation < known.generation or (known.runs and not runs):
            return
        said = latest(said, known)
    jobs[said.job] = msgspec.structs.replace(said, runs=runs)


def latest(said: JobKnown, before: JobKnown) -> JobKnown:
    """Merge new knowledge of a job into the old; law 1.

    Its delivered time never falls within a generation, an older generation's word changes nothing but whether it runs,
    and another job of the name begins with nothing.
    """
    if not said.is_same(before) or said.generation > before.generation:
        return said
    if said.generation < before.generation:
        return msgspec.structs.replace(before, runs=said.runs)
    times = [each.delivered_ms for each in (before, said) if each.delivered_ms is not None]
    return msgspec.structs.replace(said, delivered_ms=max(times, default=None), id=said.id or before.id)


def _check(jobs: Mapping[str, JobKnown], job: str) -> None:
    """Check that no other job writes a job's topics, and that it does not wait for itself."""
    this = jobs[job]
    for other in jobs.values():
        if other.job != job and (both := this.writes & other.writes):
            raise TopicTaken(
                f'job "{job}" writes topic "{min(both)}", and so does job "{other.job}": their records have '
                f'no common order there; give one of them another topic, or, if job "{other.job}" is retired: '
                f"lowtide tracker forget {other.job}"
            )
    way: dict[str, tuple[str, str]] = {}
    rest = [job]
    while rest:
        name = rest.pop()
        for before in sorted(jobs):
            both = jobs[before].writes & jobs[name].reads
            if both and before == job:
                steps, here = [f'{name} reads "{min(both)}" of {job}'], name
                while here != job:
                    here, topic = way[here]
                    steps.append(f'{here} reads "{topic}"')
                raise JobCycle(
                    f'job "{job}" would wait for itself for ever: {", ".join(reversed(steps))}; put the cycle into '
                    "one job, as a loop"
                )
            if both and before not in way:
                way[before] = (name, min(both))
                rest.append(before)


def _least(times: Iterable[int | None]) -> int | None:
    known = list(times)
    reported = [each for each in known if each is not None]
    return min(reported) if reported and len(reported) == len(known) else None


def _delivered(known: JobKnown) -> float:
    return float("-inf") if known.delivered_ms is None else known.delivered_ms


def _time(time_ms: int | None) -> str:
    return "nothing" if time_ms is None else f"{time_ms} ms"
