"""The settings of a life that the driver gives to the service; workers get the deployment."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from lowtide.assignment.welcome import FrontStart
from lowtide.conf.zookeeper_access import ZooKeeperAccess
from lowtide.process.identity import called
from lowtide.status.moment import JobShape
from lowtide_snapshots.format.manifest import VertexShape
from lowtide_snapshots.stores import StoreSetting

_HEAD = struct.Struct("<QI")


class ControlSetting(msgspec.Struct, frozen=True, kw_only=True):
    """The control API's address, its token, and the PEM files of its certificate, if it has one."""

    host: str
    port: int
    token: str
    tls_cert: str | None = None
    tls_key: str | None = None


class GraphSetting(msgspec.Struct, frozen=True, kw_only=True):
    """The job's place in a graph of several jobs.

    Attributes:
        address: Where the graph's tracker is, `host:port`.
        secret: What all jobs of the graph know.
        reads: The topics that the job reads.
        writes: Those that it writes.
        after: Jobs that have to be known before anything of the graph is believed.
        id: What the job is called for good, over its lives.
        generation: Of its output.
    """

    address: str
    secret: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    after: tuple[str, ...] = ()
    id: str = ""
    generation: int = 0


class SnapshotSetting(msgspec.Struct, frozen=True, kw_only=True):
    """The driver program's settings of snapshots.

    Attributes:
        store: Their store.
        record: The job's record, as JSON.
        flow: The shapes of all steps with state.
        base: The manifest of the commit that the life began from, as JSON; empty if there is none.
        steps: `spark.placing.text_of` the plan.
        generation: Of the output.
        taking_limit_s: The time that one may take.
        max_commit_age_s: The age of the last commit at which the job commits by itself; 0 for never.
        keep: The number of commits that it then keeps.
        max_age_s: Their greatest age.
    """

    store: StoreSetting
    record: str
    flow: tuple[VertexShape, ...]
    base: str
    steps: str
    generation: int
    taking_limit_s: float
    max_commit_age_s: float
    keep: int
    max_age_s: float | None


class StagedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A staged sink, as the process that carries its records on needs it.

    Attributes:
        sink: Its name in the flow.
        topic: Its staged log.
        group: The consumer group whose offsets say from where on the log is needed.
        lanes: Number of lanes, the log's partitions.
        last_mark: The last tick below which its carrier says that all is visible, by the lanes' last marks; after it
            comes the end of time.
        pickled: The sink and its `Carriage`, secrets included.
    """

    sink: str
    topic: str
    group: str
    lanes: int
    last_mark: int
    pickled: bytes


class LifeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One life.

    Attributes:
        levels: How many levels there are.
        graph: Every segment with what feeds it.
        feeds: By topic the segments that its fronts feed; of one that is not named, all that nothing else feeds.
        dues: Each segment that is sent into when time comes, with the places of the workers that tell what is due.
        parallelism: How many workers each level from 1 on has.
        processes: How many host processes an executor has; 0 for half its cores.
        dead_letters: Whether level 0 delivers too.
        shape: What the job's view says of the plan.
        driver_pid: The driver program, which ends the job on SIGTERM.
        start: The tick at which min time begins.
        relied_on: The largest tick that anything relies on.
        published: The largest published delivered time.
        published_again: The largest published one of this output generation.
        generation: Of the output.
        capacity_ticks: How far acks may be ahead of min time.
        shards: The processes that share the tracker's work, besides the one that merges their reports; 1 for one alone.
        allowed_skew_ms: The lag of an idle front behind the broker's clock.
        stall_limit_ms: How long min time may stand still in a segment without work.
        load_limit_s: How long a worker may take to load its state before it takes its first task; 0 for none to load.
        silent_limit_s: How long a worker that has sent gauges may send none.
        fronts: All registered fronts.
        topic_ids: What the broker calls the source topics for good.
        ends: By topic what the flow says of where it ends, of those that do.
        kafka: librdkafka's settings for the way in.
        zookeeper: The way into ZooKeeper.
        control: Of the control API.
        snapshots: Of snapshots; None where none are taken.
        jobs: Its place among other jobs; None outside a graph.
        staged: The staged sinks.
        answers: By topic in which the answers of a call are kept the number of its partitions.
        max_staged_bytes: The staged bytes of a sink that its carrier has not read, beyond which no source is read.
    """

    levels: int
    graph: dict[int, list[int]]
    feeds: dict[str, list[int]] = {}
    dues: dict[int, list[int]] = {}
    parallelism: int
    processes: int
    dead_letters: bool
    shape: JobShape
    driver_pid: int
    start: int
    relied_on: int
    published: int | None
    published_again: int | None = None
    generation: int = 0
    capacity_ticks: int
    shards: int = 1
    allowed_skew_ms: int
    stall_limit_ms: int
    load_limit_s: float = 0.0
    silent_limit_s: float = 600.0
    fronts: list[FrontStart]
    topic_ids: dict[str, str]
    ends: dict[str, str] = {}
    kafka: dict[str, Any]
    zookeeper: ZooKeeperAccess
    control: ControlSetting
    snapshots: SnapshotSetting | None = None
    jobs: GraphSetting | None = None
    lasts_topic: str = ""
    staged: tuple[StagedSetting, ...] = ()
    answers: dict[str, int] = {}
    max_staged_bytes: int = 1 << 62

    @property
    def job(self) -> str:
        """The job's name."""
        return self.shape.job

    @property
    def incarnation(self) -> int:
        """The life's number."""
        return self.shape.incarnation

    @property
    def driver(self) -> str:
        """The driver program, as it calls itself; on its machine only."""
        return called(self.driver_pid)

    @property
    def keeps_lasts(self) -> bool:
        """True if sinks keep `last` and floors: without them, no delivered time may be published (R18)."""
        return self.shape.delivery == "exactly_once"


def pack(setting: LifeSetting, deployment: bytes) -> bytes:
    """Put both into one message: `u64 incarnation | u32 length | JSON | deployment`."""
    text = msgspec.json.encode(setting)
    return _HEAD.pack(setting.incarnation, len(text)) + text + deployment


def unpack(message: bytes) -> tuple[LifeSetting, bytes]:
    """Return what `pack` was given."""
    _, length = _HEAD.unpack_from(message)
    start = _HEAD.size
    return msgspec.json.decode(message[start : start + length], type=LifeSetting), message[start + length :]
