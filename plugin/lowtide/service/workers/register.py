"""The register of a life's workers (R10): their forks, their places, and the losses that end the life.

A worker's name is ``level/partition``, at level 0 ``0/topic-partition``. It is forked once: in the life's first epoch,
or, at level 0, when its source partition shows its first record. From then on it is found again, wherever it runs; a
missing one ends the life, because an empty one in its place would give wrong answers.
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
    """Its number in the order of forking; the frames it sends have it."""
    executor: str
    """The executor whose fork server made it."""
    host: int
    """Its host process there, by the number of its first worker, which is also its number at the tracker."""
    address: str = ""
    """Where tasks of other executors attach, once it has reported."""
    near: str = ""
    """Where those of its own do: they are on its machine."""
    pid: int = 0


@dataclass
class Register:
    """All workers of one incarnation, and the first cause of its end. Pure: the caller does the I/O."""

    incarnation: int
    first_epoch: int | None = None
    workers: dict[str, Worker] = field(default_factory=dict)
    seats: dict[int, str] = field(default_factory=dict)
    """The last worker of level 0 by task index, among `seated` tasks."""
    seated: int = 0
    cause: Cause | None = None
    """The cause of the life's end; None while it goes on. The first cause stays."""
    finished: bool = False
    """True if the life was ended on purpose: then workers may go."""

    @property
    def runs(self) -> bool:
        """True if the life has begun, and has neither ended for a cause nor been finished."""
        return self.incarnation >= 0 and not self.cause and not self.finished

    @property
    def last_word(self) -> Cause | None:
        """The cause of the end of a life whose service closes; None if the driver announced it as on purpose."""
        if self.cause or self.finished:
            return self.cause
        return Cause("loss", "its driver program has gone", way_out="see the end of the job's log, then run it again")

    def end(self, cause: Cause) -> None:
        """End the life; later causes are consequences and are not kept."""
        self.cause = self.cause or cause

    def find(
        self, name: str, level: int, epoch: int, incarnation: int, executor: str, processes: int = 1
    ) -> Found | Fork | Refused:
        """Return the worker ``name`` for the task of ``epoch``, or the order for its executor to make it.

        Args:
            name: The worker's name.
            level: Its level.
            epoch: The task's epoch.
            incarnation: The task's incarnation.
            executor: The task's executor.
            processes: The number of hosts that executor may have.
        """
        if incarnation != self.incarnation:
            return Refused(f"this is incarnation {self.incarnation} of the job; the task is of {incarnation}")
        if self.cause or self.finished:
            return Refused(str(self.cause or "the job was stopped"))
        if self.first_epoch is None:
            self.first_epoch = epoch
        worker = self.workers.get(name)
        if worker is not None and worker.address:
            return Found(worker.near if executor == worker.executor else worker.address)
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
        """Return the host for a new worker: the one with fewest of its level, among those with fewest workers."""
        hosted: dict[int, list[int]] = {}
        for worker in self.workers.values():
            if worker.executor == executor:
                hosted.setdefault(worker.host, []).append(int(worker.name.partition("/")[0]))
        if len(hosted) < processes:
            hosted[number] = []
        return min(hosted, key=lambda host: (hosted[host].count(level), len(hosted[host]), host))

    def hosts(self) -> set[int]:
        """Return all hosts of the life, by their numbers at the tracker."""
        return {worker.host for worker in self.workers.values()}

    def seat(self, index: int, count: int, name: str) -> None:
        """Note the worker of level 0 that a task attaches to: task `index` of `count`."""
        if count != self.seated:
            self.seats.clear()
            self.seated = count
        self.seats[index] = name

    def seat_of(self, index: int, count: int) -> str:
        """Return the worker for a task of level 0 before its first row; empty if unknown.

        Spark keeps the order of the partitions as long as their number stays; the rows decide.
        """
        return self.seats.get(index, "") if count == self.seated else ""

    def reported(self, name: str, number: int, address: str, near: str, pid: int) -> Worker | Refused:
        """Take a forked worker's addresses."""
        worker = self.workers.get(name)
        if worker is None or worker.number != number or worker.address:
            return Refused(f"worker {name} (number {number}) was not ordered")
        if self.cause or self.finished:
            return Refused(str(self.cause or "the job was stopped"))
        worker.address, worker.near, worker.pid = address, near, pid
        return worker

    def lost(self, names: Iterable[str], how: str = "", pid: int = 0) -> None:
        """End the life, as workers died, lost their connection to the service, or lost their executor.

        Args:
            names: All that went together; workers that this life did not fork are ignored.
            how: The end of their process, as its fork server saw it; empty if unknown.
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
