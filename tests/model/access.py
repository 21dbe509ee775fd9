"""ZooKeeper, the store and Kafka's client as the real code sees them: each read and write asks the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from lowtide_snapshots.commits.log import CommitLog
from lowtide_snapshots.job.lease import JobLease
from lowtide_snapshots.job.paths import JobPaths
from lowtide_snapshots.job.store import JobStore
from lowtide_snapshots.stores import Entry
from lowtide_snapshots.stores.errors import NotThere
from lowtide_snapshots.zookeeper.nodes import Node, Operation

from .scripts import Ask, Raised, Scripts

JOB = "model"
PATHS = JobPaths("model", JOB)
AGAIN = 10
"""A session that has ended is followed by one whose number is larger by so many."""
BACKGROUND_S = 0.1
"""A claim that may not take as long is only begun."""


class AskedNodes:
    """A connection with ZooKeeper: `zookeeper.Connection`, without a server.

    Args:
        ask: How the world is asked.
        session: Its number, from 1.
    """

    connected = True

    def __init__(self, ask: Ask, session: int) -> None:
        self._ask = ask
        self.session = session

    def get(self, path: str) -> Node | None:
        return self.get_all([path])[0]

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Several nodes, which are read one after the other; all again if the session ends in between."""
        found: list[Node | None] = []
        while len(found) < len(paths):
            answer = self._ask("read node", self.session, paths[len(found)])
            if isinstance(answer, Raised):
                self.session += AGAIN
                found.clear()
            else:
                found.append(answer)
        return found

    def children(self, path: str) -> list[str] | None:
        answer = self._ask("list", self.session, path)
        if isinstance(answer, Raised):
            self.session += AGAIN
            return self.children(path)
        return list(answer) or None

    def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        return [self.children(path) for path in paths]

    def ensure(self, path: str, *, shared: bool) -> None:
        """The place is there."""

    def within(self, limit_s: float | None = None) -> Any:
        return nullcontext()

    def watch(self, path: str, on_change: Callable[[bytes | None], None]) -> None:
        raise AssertionError("nobody watches here")

    def write(self, plan: Callable[[], Sequence[Operation]]) -> None:
        """As the real one: the plan is asked again after a condition that did not hold, and after a lost answer."""
        while operations := plan():
            answer = self._ask("write", self.session, tuple(operations))
            if answer == "done":
                return
            if isinstance(answer, Raised):
                self.session += AGAIN


class AskedStore:
    """A store of snapshots."""

    where = "the model's store"

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def put(self, name: str, data: bytes | bytearray | memoryview) -> None:
        self._ask("put", name, bytes(data))

    def get(self, name: str) -> bytes:
        found = self._ask("get", name)
        if found is None:
            raise NotThere("it is not there", where=name)
        return bytes(found)

    def names(self, prefix: str) -> list[Entry]:
        from datetime import UTC, datetime

        long_ago = datetime(2026, 1, 1, tzinfo=UTC)
        return [Entry(name, size, long_ago) for name, size in self._ask("names", prefix)]

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._ask("delete", name)

    def sweep(self, prefix: str) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...


def job_store(ask: Ask, session: int) -> JobStore:
    """The job's place in ZooKeeper, the real one but for its connection."""
    store = JobStore.__new__(JobStore)
    nodes: Any = AskedNodes(ask, session)
    store.job, store._paths, store._zk = JOB, PATHS, nodes
    store._lease = JobLease(nodes, JOB, PATHS, session_timeout_s=6.0)
    return store


def commit_log(ask: Ask, session: int) -> CommitLog:
    """The job's commits, as the service sees them."""
    return CommitLog(AskedNodes(ask, session), PATHS, JOB, now=_now)


def _now() -> Any:
    from datetime import UTC, datetime

    return datetime(2026, 1, 31, tzinfo=UTC)


class AskedProducer:
    """Kafka's client. What is produced is in no reader's sight before the commit, so only that is asked for."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask = ask
        self._name = name
        self._claimer = Scripts.script
        self._begun = 0
        self._produced: list[tuple[Any, ...]] = []

    def init_transactions(self, timeout_s: float) -> None:
        if timeout_s < BACKGROUND_S:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "it has begun", retriable=True))
        self._ask("claim", self._name, self._claimer)

    def begin_transaction(self) -> None:
        self._begun += 1
        self._produced.clear()

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *_: Any) -> None:
        self._produced.append((topic, key, value))

    def commit_transaction(self, _timeout_s: float) -> None:
        answer = self._ask("deliver", self._name, self._claimer, self._begun, tuple(self._produced))
        if isinstance(answer, Raised):
            raise KafkaException(_error(answer.kind))

    def abort_transaction(self, _timeout_s: float) -> None:
        self._produced.clear()

    def poll(self, _timeout_s: float) -> int:
        return 0


def _error(kind: str) -> KafkaError:
    if kind == "fenced":
        return KafkaError(KafkaError._FENCED, "another one has claimed it", fatal=True)
    if kind == "aborted":
        return KafkaError(KafkaError.REQUEST_TIMED_OUT, "a record was not taken", txn_requires_abort=True)
    assert kind == "no answer"
    return KafkaError(KafkaError._TIMED_OUT, "there is no answer", retriable=True)


class AskedSender:
    """`connectors.sender.Sender` over such a client; takes the place of the real one in `transactions`."""

    brokers = "the model's Kafka"
    failed = None
    reason = ""

    def __init__(self, settings: Mapping[str, Any], _limit_ms: int, _max_record_bytes: int) -> None:
        self.producer = AskedProducer(Scripts.current, settings["transactional.id"])

    def produce(self, messages: Iterable[tuple[Any, ...]], _patience: Callable[[], None]) -> None:
        for topic, partition, key, value, timestamp, _headers in messages:
            self.producer.produce(topic, value, key, partition, timestamp)

    def refused(self) -> None:
        return None

    def lost_coordinator(self) -> bool:
        """Its connection holds; an answer that is late says so itself."""
        return False
