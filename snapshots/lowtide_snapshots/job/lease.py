"""A job's lease and its incarnation: one driver leads at a time, and each life fences all before it.

The lease keeps two drivers from fencing each other in turn; it is not more than that, since a session can end while its
holder still believes in it. What makes answers right is the incarnation, whose version every write of a life checks.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from lowtide_snapshots.errors import LeaseTaken, ZooKeeperUnavailable
from lowtide_snapshots.job.incarnations import check_of, fenced, number_in
from lowtide_snapshots.job.layout import Layout
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.job.submissions import taking
from lowtide_snapshots.zookeeper.connection import Connection
from lowtide_snapshots.zookeeper.node_values import to_bytes, value_of
from lowtide_snapshots.zookeeper.nodes import Check, Create, Delete, Node, Operation, Set

LOOK_EVERY_S = 0.1
# A driver keeps its lease from its main loop, which must not stand still for longer.
KEEP_LIMIT_S = 1.0


class JobLease:
    """A job's lease, as one process sees it; `session_timeout_s` is the requested one."""

    def __init__(self, zk: Connection, job: str, paths: JobPaths, session_timeout_s: float) -> None:
        self._zk = zk
        self._job = job
        self._paths = paths
        self._keep_every_s = session_timeout_s / 3
        self._token = uuid.uuid4().hex
        self._holder: str | None = None
        self._layout: Layout | None = None
        self._ours = 0  # the incarnation that was the job's when we took the lease, then the one we raised
        self._held_by = 0  # the session that holds it, and when that was last seen
        self._seen_s = 0.0

    def take(self, holder: str, wait_s: float, waiting: Callable[[str], None], layout: Layout | None = None) -> None:
        """Take the lease; see `JobStore.take_lease`."""
        self._holder, self._layout = holder, layout
        deadline = time.monotonic() + wait_s
        announced = ""
        while (other := self._try(None)) is not None:
            if time.monotonic() >= deadline:
                raise LeaseTaken(
                    f"job {self._job!r} is run by {other or holder}; waited {wait_s:g} s for it to end",
                    where=self._paths.lease,
                    way_out="stop that one, or wait: if it died, its lease is free once its ZooKeeper session "
                    "times out",
                    holder=other or holder,
                )
            if other != announced:
                waiting(f"job {self._job!r} is run by {other}; waiting up to {wait_s:g} s for it to end")
                announced = other
            time.sleep(LOOK_EVERY_S)

    def keep(self) -> None:
        """Keep the lease; see `JobStore.keep_lease`."""
        assert self._holder is not None, "the lease was never taken"
        fresh = time.monotonic() - self._seen_s < self._keep_every_s
        if not self._zk.connected or (fresh and self._zk.session == self._held_by):
            return
        try:
            with self._zk.within(KEEP_LIMIT_S):
                self._try(self._ours)
        except ZooKeeperUnavailable:
            return

    def holder(self) -> str | None:
        """The current holder of the lease; None if it is free."""
        leader = self.leader()
        return None if leader is None else leader[0]

    def leader(self) -> tuple[str, Layout] | None:
        """The current holder of the lease, and what it runs; None if the lease is free."""
        node = self._zk.get(self._paths.lease)
        if node is None:
            return None
        value = value_of(node.data, self._paths.lease)
        return str(value.get("holder", "")), Layout.of(value)

    @property
    def token(self) -> str:
        """Tells this process's lease from any other's."""
        return self._token

    def free(self, token: str) -> bool:
        """Free the lease of a process that is dead; see `JobStore.free_lease`."""
        held = False

        def plan() -> list[Operation]:
            nonlocal held
            lease, number = self._zk.get_all([self._paths.lease, self._paths.incarnation])
            if lease is None or value_of(lease.data, self._paths.lease).get("token") != token:
                return []
            held = True
            checks = [Check(self._paths.incarnation, number.version)] if number else []
            return [*checks, Delete(self._paths.lease, lease.version)]

        self._zk.write(plan)
        return held

    def _try(self, expected: int | None) -> str | None:
        """Take the lease if it is free.

        Args:
            expected: the incarnation that must be the job's still, or it is `Fenced`; None in the beginning.

        Returns:
            None if we hold it; else the holder, which is empty for a session of ours that is just ending.
        """
        other: str | None = None
        session, found = 0, 0

        def plan() -> list[Operation]:
            nonlocal other, session, found
            other, session = None, self._zk.session
            node, incarnation = self._zk.get_all([self._paths.lease, self._paths.incarnation])
            found = self._number(incarnation)
            if node is not None:
                value = value_of(node.data, self._paths.lease)
                if value.get("token") != self._token:
                    other = str(value.get("holder") or "somebody unknown")
                elif node.owner != session:
                    other = ""
            if expected is not None and (found != expected or other):
                raise fenced(self._job, self._paths, expected, found, other or "")
            if node is not None:
                return []
            runs = {} if self._layout is None else self._layout.fields()
            data = to_bytes({**runs, "holder": self._holder, "token": self._token})
            checks = [Check(self._paths.incarnation, incarnation.version)] if incarnation else []
            return [*checks, Create(self._paths.lease, data, ephemeral=True)]

        self._zk.write(plan)
        if other is None:
            self._ours, self._held_by, self._seen_s = found, session, time.monotonic()
        return other

    def raise_incarnation(self, submission: str | None) -> int:
        """Begin a new life; see `JobStore.raise_incarnation`."""
        token = uuid.uuid4().hex
        number = 0

        def plan() -> list[Operation]:
            nonlocal number
            lease, incarnation = self._zk.get_all([self._paths.lease, self._paths.incarnation])
            number = self._number(incarnation)
            if incarnation and value_of(incarnation.data, self._paths.incarnation).get("token") == token:
                return []
            self._must_hold(lease)
            number += 1
            data = to_bytes({"incarnation": number, "holder": self._holder, "token": token})
            path = self._paths.incarnation
            raised = Set(path, data, incarnation.version) if incarnation else Create(path, data)
            return [Check(self._paths.lease, 0), raised, *self._submitted(submission, number)]

        self._zk.write(plan)
        self._ours = number
        return number

    def _submitted(self, key: str | None, number: int) -> list[Operation]:
        if key is None:
            return []
        return taking(self._zk, self._paths, self._job, key=key, token=self._token, incarnation=number)

    def incarnation(self) -> int:
        """The number of the job's current or last life, synced; 0 if it has had none."""
        return self._number(self._zk.get(self._paths.incarnation))

    def checked(self, incarnation: int) -> Check:
        """Return the check that begins each transaction of this life, after a sync; `Fenced` if the life is over."""
        return check_of(self._zk.get(self._paths.incarnation), self._paths, self._job, incarnation)

    def _number(self, node: Node | None) -> int:
        return number_in(node, self._paths)

    def _must_hold(self, node: Node | None) -> None:
        value = value_of(node.data, self._paths.lease) if node else {}
        if node is None or value.get("token") != self._token or node.owner != self._zk.session:
            other = str(value.get("holder", ""))
            raise LeaseTaken(
                f"this process does not hold the lease of job {self._job!r}; {other or 'nobody'} does",
                where=self._paths.lease,
                way_out="start the job again: it takes the lease first",
                holder=other,
            )
