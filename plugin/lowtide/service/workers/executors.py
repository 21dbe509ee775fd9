"""The executors known to the service: their fork servers, and whether they have the driver's Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lowtide.assignment.messages import ForkServerHello, Kill
from lowtide.service.workers.peer import Peer
from lowtide_snapshots.cause import Cause


class Executors:
    """The connected fork servers.

    Args:
        python: The driver's Python and packages, which executors must have.
    """

    def __init__(self, python: Mapping[str, str]) -> None:
        self._python = dict(python)
        self._peers: dict[str, Peer] = {}
        self._others: dict[str, Cause] = {}
        self._cores: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def names(self) -> list[str]:
        """The connected executors, by Spark's number for them."""
        return sorted(self._peers)

    @property
    def refused(self) -> list[Cause]:
        """Reasons why the connected executors cannot run a life; empty if they can."""
        return list(self._others.values())

    def came(self, peer: Peer, hello: ForkServerHello) -> Cause | None:
        """Take a fork server; return why no life can run on its executor, None if one can."""
        executor, theirs = hello.executor, hello.python
        self._peers[executor] = peer
        self._cores[executor] = hello.cores
        wrong = [f"{k} {theirs.get(k)} (driver: {v})" for k, v in self._python.items() if theirs.get(k) != v]
        if not wrong:
            return None
        self._others[executor] = Cause(
            "interpreter",
            f"executor {executor} on {hello.host} has a different Python from the driver's, {hello.executable}: "
            + ", ".join(wrong),
            way_out="give every executor the driver's environment, and set PYSPARK_PYTHON to its interpreter",
        )
        return self._others[executor]

    def cores(self, executor: str) -> int:
        """Return the number of cores that an executor's processes may use; 1 if it is not connected."""
        return self._cores.get(executor, 1)

    def went(self, executor: str, peer: Peer) -> None:
        """Note that a fork server's line has ended; another one may already have taken its place."""
        if self._peers.get(executor) is peer:
            del self._peers[executor], self._cores[executor]
        self._others.pop(executor, None)

    async def kill(self, incarnation: int, workers: Iterable[tuple[str, str]]) -> None:
        """Have the fork servers kill workers of a life, given as (name, executor)."""
        names: dict[str, list[str]] = {}
        for name, executor in workers:
            names.setdefault(executor, []).append(name)
        for executor, listed in names.items():
            if executor in self._peers:
                await self._peers[executor].answer(Kill(incarnation, listed))
