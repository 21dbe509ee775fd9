"""A job's place in ZooKeeper: its record, its lease, its incarnation, and what its lives tell each other.

The nodes are defined in `snapshots/README.md`. Every write of a life is one transaction that checks the version of the
incarnation's node, so that a life that is over can write nothing, however late it wakes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from lowtide_snapshots.errors import RecordRefused
from lowtide_snapshots.job import front_entries, lives, standbys
from lowtide_snapshots.job.borrowed import Borrowed
from lowtide_snapshots.job.layout import Layout
from lowtide_snapshots.job.lease import JobLease
from lowtide_snapshots.job.node_access import check_access
from lowtide_snapshots.job.paths import JobPaths, name_of
from lowtide_snapshots.job.record import JobRecord
from lowtide_snapshots.job.standbys import Standby
from lowtide_snapshots.job.submissions import begun_by
from lowtide_snapshots.zookeeper.connection import Connection
from lowtide_snapshots.zookeeper.node_values import must_be_same, tick_in, to_bytes, value_of, whole
from lowtide_snapshots.zookeeper.nodes import Create, Operation, Set
from lowtide_snapshots.zookeeper.tls import ZooKeeperTls

SESSION_TIMEOUT_S = 6.0
IDS_AT_ONCE = 1_000


class JobStore:
    """One job's place, to be used from one thread.

    Every method ends in: done, or an error that says what to do. `ZooKeeperUnavailable` is raised by all of them; a
    write that raises `WriteUnknown` may have been done, and calling it again finds out and never does it twice.
    """

    def __init__(
        self,
        hosts: str,
        job: str,
        *,
        root: str = "lowtide",
        session_timeout_s: float = SESSION_TIMEOUT_S,
        limit_s: float = 10.0,
        auth: str | None = None,
        connection: Connection | None = None,
        tls: ZooKeeperTls | None = None,
    ) -> None:
        """Say where the place is; nothing is connected yet.

        Args:
            hosts: ZooKeeper's "host:port", with commas between several.
            job: the job's name; any text.
            root: the parent node of all jobs.
            session_timeout_s: after which a holder that is gone loses the lease; the server sets bounds to it.
            limit_s: how long a call waits for ZooKeeper.
            auth: "user:password"; the job's nodes are then closed to everybody else.
            tls: the files for TLS; None for a connection in the clear.
            connection: an open session that others use too, in the same thread; by default one of its own.
        """
        self.job = job
        self._paths = JobPaths(root, job)
        self._shares = connection is not None
        self._zk = connection or Connection(
            hosts, session_timeout_s=session_timeout_s, limit_s=limit_s, auth=auth, tls=tls
        )
        self._lease = JobLease(self._zk, job, self._paths, session_timeout_s)
        self._standby = uuid.uuid4().hex

    def open(self) -> Self:
        """Connect.

        Raises:
            ZooKeeperUnavailable: ZooKeeper did not answer within the limit.
        """
        if not self._shares:
            self._zk.open()
        return self

    def close(self) -> None:
        """End the session; the lease, if it is held, is free at once."""
        if not self._shares:
            self._zk.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_raised: object) -> None:
        self.close()

    @property
    def nodes(self) -> tuple[Connection, JobPaths]:
        """The connection and the paths, for the commit log."""
        return self._zk, self._paths

    # The record.

    def freeze(self, record: JobRecord) -> JobRecord:
        """Freeze the record if the job has none, else hold this one against it.

        Returns:
            The record that is frozen.

        Raises:
            RecordDiffers: another one is.
            NodesOpen: others may change what the job keeps there.
        """
        if record.job != self.job:
            raise RecordRefused(
                f"this is the record of job {record.job!r}", where=f"job {self.job!r}", way_out="give the same name"
            )
        self._make_nodes()

        def plan() -> list[Operation]:
            frozen = self.record()
            if frozen is None:
                return [Create(self._paths.record, record.to_json().encode())]
            frozen.check(record)
            return []

        self._zk.write(plan)
        return record

    def add_sources(self, incarnation: int, record: JobRecord) -> None:
        """Put a record that has more sources in the place of the one that is frozen.

        Raises:
            Fenced: the life is over.
            RecordDiffers: it differs otherwise.
        """
        frozen = self.record()
        if frozen is None or frozen == record:
            return
        frozen.check(record)
        data = record.to_json().encode()
        self._put(incarnation, self._paths.record, data, data.__ne__)

    def set_lanes(self, incarnation: int, lanes: int) -> None:
        """Give the job's record another number of lanes; it keeps those that there were.

        Raises:
            Fenced: the life is over.
        """
        frozen = self.record()
        assert frozen is not None, "the job has a record"
        grown = frozen if frozen.lanes == lanes else replace(frozen, lanes=lanes, grown=frozen.lane_counts)
        data = grown.to_json().encode()
        self._put(incarnation, self._paths.record, data, data.__ne__)

    def record(self) -> JobRecord | None:
        """The record that is frozen; None if the job was never started."""
        node = self._zk.get(self._paths.record)
        return JobRecord.from_json(node.data) if node else None

    def identity(self, incarnation: int) -> str:
        """The job's permanent id, made by the first life that asks.

        Another job has another, also one of the same name: under another root, or made after this place was deleted.

        Raises:
            Fenced: the life is over.
        """
        made = to_bytes({"id": uuid.uuid4().hex})
        self._put(incarnation, self._paths.id, made, lambda _: False)
        node = self._zk.get(self._paths.id)
        assert node is not None, "it was made"
        return str(value_of(node.data, self._paths.id).get("id", ""))

    # The lease and the incarnation.

    def take_lease(
        self, holder: str, wait_s: float, waiting: Callable[[str], None], layout: Layout | None = None
    ) -> None:
        """Take the lease, which is held for as long as this session lives.

        Args:
            holder: a name for this process, for others to read: host and pid.
            wait_s: how long to wait for another holder to go; one that died goes when its session's time is out.
            waiting: called once for each holder that it waits for.
            layout: what it will run, for standbys and observers to read.

        Raises:
            LeaseTaken: another process still held it at the end.
            NodesOpen: others may change what the job keeps there.
        """
        self._make_nodes()
        self._lease.take(holder, wait_s, waiting, layout)

    def keep_lease(self) -> None:
        """See that the lease is still held, and take it again after a session that expired; call it often.

        Costs a round trip three times in a session's time-out. While ZooKeeper is away it raises nothing.

        Raises:
            Fenced: another process holds the lease, or has raised the incarnation.
        """
        self._lease.keep()

    def holder(self) -> str | None:
        """The current holder of the lease; None if it is free."""
        return self._lease.holder()

    def leader(self) -> tuple[str, Layout] | None:
        """The current holder of the lease, and what it runs; None if the lease is free."""
        return self._lease.leader()

    @property
    def lease_token(self) -> str:
        """Tells the lease of this process from any other's, for who is to free it when the process is dead."""
        return self._lease.token

    def free_lease(self, token: str) -> bool:
        """Free the lease of a process that is known to be dead, before its session's time is out.

        Args:
            token: the process's `lease_token`; the lease of any other is left alone.

        Returns:
            Whether the process still held it.
        """
        return self._lease.free(token)

    def watch_lease(self, on_change: Callable[[bytes | None], None]) -> None:
        """Tell of the lease's node now and after each change, None while it is free; on a thread of the connection's.

        The callee must neither hold that thread nor raise.
        """
        self._zk.watch(self._paths.lease, on_change)

    def standbys(self) -> list[Standby]:
        """The programs that wait for the lease, the longest first."""
        return standbys.read(self._zk, self._paths)

    def show_standby(self, standby: Standby | None) -> None:
        """Show this process among those that wait for the lease, for as long as its session lives; None ends that."""
        if standby is not None and self._zk.children(self._paths.standbys) is None:
            self._make_nodes()
        self._zk.write(lambda: standbys.showing(self._zk, self._paths, self._standby, standby))

    def alive(self) -> bool:
        """Return whether the lease is held now."""
        return self.holder() is not None

    def raise_incarnation(self, submission: str | None = None) -> int:
        """Begin a new life: from now on every older one is fenced.

        Args:
            submission: the key of the submission that this process is, if it may be repeated.

        Returns:
            Its number, from 1.

        Raises:
            LeaseTaken: the lease is not held.
            SubmissionTaken: another process has begun a life with this key.
        """
        return self._lease.raise_incarnation(submission)

    def submission(self, key: str) -> int | None:
        """The incarnation that a submission began; None if it has begun none."""
        return begun_by(self._zk, self._paths, key)

    def incarnation(self) -> int:
        """The number of the job's current or last life, synced; 0 if it has had none."""
        return self._lease.incarnation()

    def check(self, incarnation: int) -> None:
        """See that this incarnation is the job's current one, synced.

        Raises:
            Fenced: it is not.
        """
        self._lease.checked(incarnation)

    # What a life writes.

    def fronts(self) -> list[dict[str, Any]]:
        """The entries of the front register, by number."""
        return front_entries.read(self._zk, self._paths)

    def add_fronts(self, incarnation: int, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add entries to the front register, all or none; those that are there already may be among them.

        Args:
            incarnation: the life that adds them.
            entries: each with its "number".

        Raises:
            Fenced: the life is over.
            EntryDiffers: an entry of that number is there and says something else.
        """
        asked = front_entries.by_path(self._paths, entries)
        self._write(incarnation, lambda: front_entries.adding(self._zk, asked))

    def sink_ids(self) -> set[str]:
        """All transactional ids that any life may have used."""
        return {name_of(name) for name in self._zk.children(self._paths.sink_ids) or []}

    def add_sink_ids(self, incarnation: int, ids: Iterable[str]) -> None:
        """Add transactional ids to those that a life to come has to claim.

        Raises:
            Fenced: the life is over.
        """
        asked = sorted(set(ids))
        for start in range(0, max(len(asked), 1), IDS_AT_ONCE):
            some = asked[start : start + IDS_AT_ONCE]

            def plan(some: Sequence[str] = some) -> list[Operation]:
                missing = set(some) - self.sink_ids()
                return [Create(self._paths.sink_id(name)) for name in sorted(missing)]

            self._write(incarnation, plan)

    def lasts(self) -> tuple[str | None, int]:
        """Return the id of the topic that keeps `last` per lane, and the output generation.

        The id is None if nothing is recorded, and empty if the job delivers to other stores only.
        """
        node = self._zk.get(self._paths.lasts)
        if node is None:
            return None, 0
        value = value_of(node.data, self._paths.lasts)
        return str(value.get("topic_id", "")), int(value.get("generation", 0))

    def set_lasts(self, incarnation: int, topic_id: str, generation: int = 0) -> None:
        """Write down, once for each output generation, the id of the topic that keeps `last` per lane.

        Raises:
            Fenced: the life is over.
            EntryDiffers: it is another one: the topic was deleted and made again.
        """
        path, data = self._paths.lasts, to_bytes({"topic_id": topic_id, "generation": generation})

        def newer(found: bytes) -> bool:
            known = value_of(found, path)
            if int(known.get("generation", 0)) < generation or not known.get("topic_id"):
                return found != data
            must_be_same(path, found, data)
            return False

        self._put(incarnation, path, data, newer)

    def stores(self) -> dict[str, str]:
        """Return the identity of each store that the job has delivered to, Kafka's left out."""
        return {str(name): str(id_) for name, id_ in (self._value(self._paths.stores) or {}).items()}

    def set_stores(self, incarnation: int, ids: Mapping[str, str]) -> None:
        """Record the identity of each store, before anything is delivered to it (errors: Fenced)."""
        self._replace(incarnation, self._paths.stores, ids)

    def steps(self) -> dict[str, Any] | None:
        """Return the record of the flow that delivered so far; None if nothing was delivered."""
        return self._value(self._paths.steps)

    def set_steps(self, incarnation: int, steps: Mapping[str, Any]) -> None:
        """Say which flow delivers from now on, before it does.

        Raises:
            Fenced: the life is over.
        """
        self._replace(incarnation, self._paths.steps, steps)

    def records(self) -> dict[str, Any] | None:
        """The types of the records that the last life's sources and sinks had; None if it did not say."""
        return self._value(self._paths.records)

    def set_records(self, incarnation: int, records: Mapping[str, Any]) -> None:
        """Say what types the records of sources and sinks have from now on, for people.

        Raises:
            Fenced: the life is over.
        """
        self._replace(incarnation, self._paths.records, records)

    def places(self) -> dict[str, dict[str, str]]:
        """Return by sink where readers find its files; empty if no sink writes files."""
        node = self._zk.get(self._paths.places)
        return dict(value_of(node.data, self._paths.places)) if node else {}

    def set_places(self, incarnation: int, places: Mapping[str, Mapping[str, str]]) -> None:
        """Record where readers find a sink's files, before it writes any.

        Args:
            incarnation: the life.
            places: by sink, see `places` in `snapshots/README.md`.

        Raises:
            Fenced: the life is over.
        """
        data = to_bytes(places, self._paths.places)
        self._put(incarnation, self._paths.places, data, data.__ne__)

    def partitions(self) -> dict[str, int]:
        """Return by topic how many of its partitions the job writes; empty if no life has said so."""
        node = self._zk.get(self._paths.partitions)
        return dict(value_of(node.data, self._paths.partitions)) if node else {}

    def set_partitions(self, incarnation: int, partitions: Mapping[str, int]) -> None:
        """Record how many partitions of each topic the job writes, before it writes any.

        Args:
            incarnation: the life.
            partitions: by topic.

        Raises:
            Fenced: the life is over.
        """
        data = to_bytes(partitions, self._paths.partitions)
        self._put(incarnation, self._paths.partitions, data, data.__ne__)

    def told(self) -> dict[str, list[str]]:
        """Return by function of the flow the commits that it has heard of; empty if none has."""
        node = self._zk.get(self._paths.told)
        return dict(value_of(node.data, self._paths.told)) if node else {}

    def set_told(self, incarnation: int, told: Mapping[str, Sequence[str]]) -> None:
        """Record the commits that functions of the flow have heard of.

        Args:
            incarnation: the life.
            told: by function, see `told` in `snapshots/README.md`.

        Raises:
            Fenced: the life is over.
        """
        self._replace(incarnation, self._paths.told, told)

    def published(self) -> int | None:
        """Return the largest published delivered time; None if there is none."""
        node = self._zk.get(self._paths.published)
        return tick_in(node.data, self._paths.published) if node else None

    def published_in(self, generation: int) -> int | None:
        """Return the largest published delivered time of one output generation; None if there is none."""
        path = self._paths.published
        node = self._zk.get(path)
        return _published_in(value_of(node.data, path), generation, path) if node else None

    def publish(self, incarnation: int, tick: int, generation: int = 0) -> None:
        """Record a delivered time before it is published; a smaller one than before changes nothing.

        Args:
            incarnation: the life that publishes it.
            tick: the delivered time.
            generation: of the output. No later one publishes less than an earlier one.

        Raises:
            Fenced: the life is over; publish nothing.
        """
        path = self._paths.published

        def plan() -> list[Operation]:
            node = self._zk.get(path)
            if node is None:
                return [Create(path, _published_bytes(tick, tick, generation))]
            before = _published_in(value_of(node.data, path), generation, path)
            if before is not None and before >= tick:
                return []
            return [Set(path, _published_bytes(max(tick, tick_in(node.data, path)), tick, generation), node.version)]

        self._write(incarnation, plan)

    def borrowed(self) -> Borrowed | None:
        """With whose floors the job has begun; None if with its own."""
        node = self._zk.get(self._paths.borrowed)
        return Borrowed.from_bytes(node.data, self._paths.borrowed) if node else None

    def set_borrowed(self, incarnation: int, borrowed: Borrowed) -> None:
        """Write down with whose floors the job begins, before its first front.

        Raises:
            Fenced: the life is over.
        """
        data = borrowed.to_bytes(self._paths.borrowed)
        self._put(incarnation, self._paths.borrowed, data, data.__ne__)

    def life(self) -> dict[str, Any] | None:
        """Return the note of the current or last life about itself; None if there was none."""
        return self._value(self._paths.life)

    def lives(self) -> list[dict[str, Any]]:
        """Return the last note of each of the last lives, oldest first; a killed one is still "running"."""
        return lives.read(self._zk, self._paths)

    def set_life(self, incarnation: int, life: Mapping[str, Any], limit_s: float | None = None) -> None:
        """Write this life's note: control address with its proof, start, phase, cause of death.

        Args:
            incarnation: the life.
            life: what it says.
            limit_s: how long ZooKeeper is waited for; by default as in every other call.

        Raises:
            Fenced: the life is over.
        """
        path, data = self._paths.life, to_bytes(life, self._paths.life)

        def plan() -> list[Operation]:
            noted = lives.noting(self._zk, self._paths, incarnation, life)
            return [*self._putting(path, data, data.__ne__), *noted]

        with self._zk.within(limit_s):
            self._write(incarnation, plan)

    def _value(self, path: str) -> dict[str, Any] | None:
        """Return a node's object; None if it is not there."""
        node = self._zk.get(path)
        return None if node is None else value_of(node.data, path)

    def _replace(self, incarnation: int, path: str, value: Mapping[str, Any]) -> None:
        """Write one node, whatever it has (errors: Fenced)."""
        data = to_bytes(value, path)
        self._put(incarnation, path, data, data.__ne__)

    def _put(self, incarnation: int, path: str, data: bytes, replaces: Callable[[bytes], bool | None]) -> None:
        """Write one node, if it is not there or `replaces` says so of its content."""
        self._write(incarnation, lambda: self._putting(path, data, replaces))

    def _putting(self, path: str, data: bytes, replaces: Callable[[bytes], bool | None]) -> list[Operation]:
        node = self._zk.get(path)
        if node is None:
            return [Create(path, data)]
        return [Set(path, data, node.version)] if replaces(node.data) else []

    def _write(self, incarnation: int, plan: Callable[[], Sequence[Operation]]) -> None:
        """One transaction of a life: the plan's operations, and the check of the incarnation's version."""
        self._zk.write(lambda: [self._lease.checked(incarnation), *plan()])

    def _make_nodes(self) -> None:
        for path, shared in self._paths.folders:
            self._zk.ensure(path, shared=shared)
        check_access(self._zk, self.job, self._paths)


def _published_bytes(tick: int, in_generation: int, generation: int) -> bytes:
    """The content of the node of delivered time; in generation 0 one number is both."""
    more = {"generation": generation, "in_generation": in_generation} if generation else {}
    return to_bytes({"tick": tick, **more})


def _published_in(value: Mapping[str, Any], generation: int, path: str) -> int | None:
    if int(value.get("generation", 0)) != generation:
        return None
    return whole(value, "in_generation" if generation else "tick", path)
