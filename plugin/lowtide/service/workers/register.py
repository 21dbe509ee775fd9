"""The register of a life's workers (R10): who may be forked, where, who is found again, and whose loss ends it.

A worker's name is ``level/partition``, at level 0 ``0/topic-partition``. It is forked once: in the life's first epoch,
or, at level 0, when its source partition shows its first record. From then on it is found, wherever it lives; one that
is missing ends the life, because an empty one in its place would give wrong answers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from lowtide.assignment.messages import Fork, Found, Refused
from lowtide_snapshots.cause import Cause


@dataclass(slots=True)
class Worker:
    """One worker of this life."""

    name: str
    number: int
    """Given in the order of forking; stands in the frames it sends."""
    executor: str
    """The executor whose fork server made it."""
    host: int
    """Its host process there, by the number of the first worker in it; the tracker knows the host by that number."""
    address: str = ""
    """``host:port`` once it has reported."""
    pid: int = 0


@dataclass
class Register:
    """All workers of one incarnation, and the first cause of its end. Pure: the caller does the I/O."""

    incarnation: int
    first_epoch: int | None = None
    workers: dict[str, Worker] = field(default_factory=dict)
    seats: dict[int, str] = field(default_factory=dict)
    """Which worker of level 0 the task of which index had last, among `seated` tasks."""
    seated: int = 0
    cause: Cause | None = None
    """Why the life ended; None while it goes on. The first cause stays."""
    finished: bool = False
    """Whether the life was ended on purpose: then workers may go."""

    @property
    def runs(self) -> bool:
        """Whether the life has begun, and has neither ended for a cause nor been finished."""
        return self.incarnation >= 0 and not self.cause and not self.finished

    @property
    def last_word(self) -> Cause | None:
        """Why a life whose service closes is over: None if that was on purpose, for which the driver has to say so."""
        if self.cause or self.finished:
            return self.cause
        return Cause("loss", "its driver program has gone", way_out="see the end of the job's log, then run it again")

    def end(self, cause: Cause) -> None:
        """Ends the life; what is said later is a consequence and is not kept."""
        self.cause = self.cause or cause

    def find(
        self, name: str, level: int, epoch: int, incarnation: int, executor: str, processes: int = 1
    ) -> Found | Fork | Refused:
        """Where the task of ``epoch`` finds the worker ``name``, or that its executor makes it.

        Args:
            name: The worker's.
            level: Its level.
            epoch: The task's.
            incarnation: The task's.
            executor: Where the task runs.
            processes: How many hosts that executor may have.
        """
        if incarnation != self.incarnation:
            return Refused(f"this is incarnation {self.incarnation} of the job; the task is of {incarnation}")
        if self.cause or self.finished:
            return Refused(str(self.cause or "the job was stopped"))
        if self.first_epoch is None:
            self.first_epoch = epoch
        worker = self.workers.get(name)
        if worker is not None and worker.address:
            return Found(worker.address)
        if worker is None and (level == 0 or epoch == self.first_epoch):
            number = len(self.workers)
            worker = Worker(name, number, executor, self._host_for(level, number, executor, processes))
            self.workers[name] = worker
            return Fork(number, worker.host)
        self.end(
            Cause(
                "loss",
                f"worker {name} is missing in epoch {epoch}: it was "
                + ("never forked" if worker is None else f"forked on executor {worker.executor} and never reported")
                + ". Its state is lost with it, so the life ends; start the job again",
            )
        )
        return Refused(str(self.cause))

    def _host_for(self, level: int, number: int, executor: str, processes: int) -> int:
        """The host of a new worker: one with fewest of its level, of those one with fewest workers."""
        hosted: dict[int, list[int]] = {}
        for worker in self.workers.values():
            if worker.executor == executor:
                hosted.setdefault(worker.host, []).append(int(worker.name.partition("/")[0]))
        if len(hosted) < processes:
            hosted[number] = []
        return min(hosted, key=lambda host: (hosted[host].count(level), len(hosted[host]), host))

    def hosts(self) -> set[int]:
        """All hosts of the life, by the numbers that the tracker knows them by."""
        return {worker.host for worker in self.workers.values()}

    def seat(self, index: int, count: int, name: str) -> None:
        """Note which worker of level 0 a task attaches to: task `index` of `count`."""
        if count != self.seated:
            self.seats.clear()
            self.seated = count
        self.seats[index] = name

    def seat_of(self, index: int, count: int) -> str:
        """Which worker a task of level 0 is for, before it has seen a row; empty if that is not known.

        Spark keeps the order of the partitions as long as there are as many; the rows say the last word.
        """
        return self.seats.get(index, "") if count == self.seated else ""

    def reported(self, name: str, number: int, address: str, pid: int) -> Worker | Refused:
        """A forked worker says where it listens."""
        worker = self.workers.get(name)
        if worker is None or worker.number != number or worker.address:
            return Refused(f"worker {name} (number {number}) is not one that was to be forked")
        if self.cause or self.finished:
            return Refused(str(self.cause or "the job was stopped"))
        worker.address, worker.pid = address, pid
        return worker

    def lost(self, names: Iterable[str], how: str = "", pid: int = 0) -> None:
        """Workers died, or their connection to the service closed, or their executor has gone.

        Args:
            names: All that went together; workers that this life did not fork are ignored.
            how: How their process ended, as its fork server saw it; empty if that is not known.
            pid: The process, for one that died before it reported.
        """
        lost = [self.workers[name] for name in names if name in self.workers]
        if not lost or self.finished:
            return
        died = [
            f"worker {worker.name} (pid {worker.pid or pid} on executor {worker.executor}) died"
            f"{'' if worker.address else ' before it was ready'}{how and ': ' + how}"
            for worker in lost
        ]
        whose = "Its state is lost with it" if len(lost) == 1 else "Their state is lost with them"
        self.end(Cause("loss", f"{'; '.join(died)}. {whose}, so the life ends; start the job again"))
