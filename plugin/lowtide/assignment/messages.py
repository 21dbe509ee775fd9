"""Messages between the processes of a life: the JVM, the service, fork servers, hosts of workers, and their savers.

Each is JSON with its kind as `type`. On a socket `process/wire.py` frames it; over standard input and output it is a
line. The JVM's half is `plugin/jvm/src/io/lowtide/Messages.java`. One `read_...` stands for each direction; what it
cannot read raises `Malformed`, which names the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lowtide.errors import LifeEnded
from lowtide.process.credentials import Credentials
from lowtide.process.doors import DoorKind
from lowtide.status.gauges import StepStands, WorkerGauges, WorkerState
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.format.entries import LaneLast, Part

FINISH_LIMIT_S = 5.0
"""Limit on workers' delivery of what they hold; a little more than their own limit."""


class Malformed(LifeEnded):
    """Give all machines of the job the same version of Lowtide: one process cannot read what another one sends."""


class Message(msgspec.Struct, frozen=True, tag=str.lower):
    """Base of all messages."""


# -- questions to the service ------------------------------------------------------------------------------------------


class Find(Message, frozen=True, kw_only=True):
    """A task asks where its worker is; `index` of `count` is the task's place among those of its level."""

    worker: str
    level: int
    epoch: int
    incarnation: int
    index: int
    count: int
    executor: str


class Seat(Message, frozen=True, kw_only=True):
    """A task of level 0 asks which worker it is probably for, before it has seen a row."""

    incarnation: int
    index: int
    count: int


class End(Message, frozen=True):
    """A task has failed, and so the life is over."""

    incarnation: int
    cause: Cause


class Current(Message, frozen=True):
    """A sink asks whether its life is the job's newest (W10)."""

    incarnation: int
    worker: str


class Stopping(Message, frozen=True):
    """The query is about to be stopped; `cause` is None for a stop on purpose."""

    incarnation: int
    cause: Cause | None


class Finish(Message, frozen=True):
    """The life ends on purpose, once its workers have delivered what they hold; after `limit_s` they are killed."""

    incarnation: int
    limit_s: float = FINISH_LIMIT_S


class Leads(Message, frozen=True, kw_only=True):
    """The driver program is about to take the job's lease: when its process has ended, that is freed.

    Attributes:
        job: The job's name.
        pid: The program's process, on the service's machine.
        lease: What tells its lease from any other's.
        zookeeper: A `ZooKeeperAccess`, as plain values.
    """

    job: str
    pid: int
    lease: str
    zookeeper: dict[str, Any]


class Status(Message, frozen=True):
    """The driver asks how the job is; answered by `JobState`."""


class ForkServerHello(Message, frozen=True, kw_only=True):
    """A fork server is there; a version that does not give its `cores` is refused for its packages."""

    executor: str
    host: str
    executable: str
    python: dict[str, str]
    cores: int = 1


class WorkerHello(Message, frozen=True, kw_only=True):
    """A host has been ordered to make a worker, and asks for its `Welcome`; the first of a host also for the `plan`.

    Tasks of its own executor find it at `near`, others at `address`.
    """

    worker: str
    number: int
    incarnation: int
    address: str
    near: str
    pid: int
    plan: bool = False


# -- reports to the service --------------------------------------------------------------------------------------------


class HostDied(Message, frozen=True, kw_only=True):
    """A host of a fork server has ended, with all its workers; `how` says with which status or signal."""

    incarnation: int
    workers: list[str]
    pid: int
    how: str


class Failed(Message, frozen=True):
    """A host has failed, or a fork server cannot make a worker."""

    cause: Cause


class Gauges(Message, frozen=True):
    """The counts of a host's workers, by name; sent each second."""

    gauges: dict[str, WorkerGauges]


class Stands(Message, frozen=True):
    """A worker is in a step that does not return; sent each second until it does, when gauges come again."""

    worker: str
    stands: StepStands


class Reached(Message, frozen=True):
    """A front expects the offset `next_offset`, stands at `tick`, and waits for min time to pass it."""

    next_offset: int
    tick: int


class Looked(Message, frozen=True, kw_only=True):
    """The answer to a `Look` or a `LookAround`.

    Attributes:
        id: The question's.
        cause: Why it cannot be answered; empty if it can.
        tick: The min time that the answer is as of; None if this worker has no such step.
        rows: By the place of its key in the question the rows of a key's state, as JSON; of a `LookAround` by a count
            of the keys that were found. Keys without state here are left out.
        more: Whether a `LookAround` has left some out.
    """

    id: int
    cause: str = ""
    tick: int | None = None
    rows: dict[int, str] = {}
    more: bool = False


class LabelsEnded(Message, frozen=True):
    """The answer to a `LookForLabels`: by label the tick of its last end, of those that have ended here."""

    id: int
    ended: dict[str, int]


class Delivered(Message, frozen=True):
    """Below this tick a worker's lanes are durable; reported at once for listeners, else with its gauges."""

    tick: int


class Pinned(Message, frozen=True, kw_only=True):
    """A worker has received a snapshot, and has pinned its share.

    Attributes:
        number: The snapshot's.
        since: The T of the commit whose parts hold what has not changed since; None for none.
        front: At level 0 the front, its first offset to be read again, and the label before that.
        pause_ms: For how long the fork of the process that writes has held up the worker.
    """

    number: int
    since: int | None = None
    front: tuple[int, int, int | None] | None = None
    pause_ms: float = 0.0


class PartCount(Message, frozen=True):
    """A worker's share of a snapshot has so many parts; units that have lost their state have none."""

    number: int
    parts: int


class PartWritten(Message, frozen=True):
    """A part of a worker's share is in the store."""

    number: int
    part: Part


class PartEmpty(Message, frozen=True):
    """A hash unit of a worker's share has no state left."""

    number: int
    vertex: str
    unit: int


class ShareSaved(Message, frozen=True):
    """All parts of a worker's share are written."""

    number: int


class ShareFailed(Message, frozen=True):
    """A worker's share cannot be written."""

    number: int
    cause: Cause


class ShareDurable(Message, frozen=True):
    """All that a worker had before T is durable in its sinks (R15); `lasts` is what its lanes had delivered last."""

    number: int
    lasts: list[LaneLast]


Written = PartCount | PartWritten | PartEmpty | ShareSaved | ShareFailed
"""Reports of the process that writes a host's shares, to the host."""
ShareNews = Pinned | Written | ShareDurable
"""A worker's reports of its share of a snapshot."""
WorkerNews = Reached | Looked | LabelsEnded | Delivered | ShareNews
"""A worker's reports, besides its gauges."""


class News(Message, frozen=True):
    """The reports of a host's workers, each with its name."""

    news: list[tuple[str, WorkerNews]]


Question = Find | Seat | End | Current | Stopping | Finish | Leads | Status
ToService = Question | ForkServerHello | WorkerHello
"""The first message of a connection. After a hello come the reports of a fork server or a host."""
FromHost = WorkerHello | Failed | Gauges | Stands | News


# -- answers of the service --------------------------------------------------------------------------------------------


class Done(Message, frozen=True):
    """It is done, or it is so."""


class Refused(Message, frozen=True):
    """It is not done, or it is not so."""

    cause: str


class Begun(Message, frozen=True):
    """A life has begun; its control API listens at `control`, `host:port`, and shows `certificate`, in PEM."""

    incarnation: int
    control: str
    certificate: str


class StillRuns(Message, frozen=True):
    """No life can begin: this one has not ended."""

    incarnation: int


class Found(Message, frozen=True):
    """The task is to attach at this address; the worker may take `load_ms` to load its state first."""

    at: str
    load_ms: int = 0


class Fork(Message, frozen=True):
    """The task's executor is to make the worker.

    Attributes:
        number: The worker's.
        host: Its host, by the number of the first worker in it: a new one if it is its own number.
        load_ms: How long it may take to load its state.
    """

    number: int
    host: int
    load_ms: int = 0


class Seated(Message, frozen=True):
    """The worker that a task is probably for; empty if that is not known."""

    worker: str


class Finished(Message, frozen=True):
    """The life has been finished; these workers took too long and were killed."""

    killed: list[str]


class JobState(Message, frozen=True, kw_only=True):
    """The state of a job: its life, the cause of its end (None while it runs), sums, each worker, executors.

    `finished`: all its sources have ended, and everything is delivered and committed. `stop_asked`: somebody has asked
    the life's control API to stop the job.
    """

    incarnation: int
    cause: Cause | None
    totals: dict[str, int]
    workers: list[WorkerState]
    executors: list[str]
    finished: bool = False
    stop_asked: bool = False

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it; gauges that are not known are left out."""
        workers, cause = [worker.plain() for worker in self.workers], msgspec.to_builtins(self.cause)
        return {"incarnation": self.incarnation, "cause": cause, "totals": self.totals, "workers": workers}


Answer = Done | Refused | Begun | StillRuns | Found | Fork | Seated | Finished | JobState


# -- orders of the service ---------------------------------------------------------------------------------------------


class BrokerNow(Message, frozen=True):
    """The broker's time."""

    now_ms: int


class Grant(Message, frozen=True):
    """A front that has been read up to `offset` may say that it labels nothing below `tick`."""

    front: int
    offset: int
    tick: int
    now_ms: int


class NewFronts(Message, frozen=True):
    """Source partitions that have been registered, `topic-partition` by number."""

    fronts: dict[int, str]


class Look(Message, frozen=True):
    """A question for the state of keys, each of which is text by column; of a broadcast for that of `{}`."""

    id: int
    step: str
    keys: list[dict[str, str]]


class LookAround(Message, frozen=True):
    """A question for the first keys with state, so many at most: of one hash unit, or of any if it is None."""

    id: int
    step: str
    unit: int | None
    limit: int


class LookForLabels(Message, frozen=True):
    """A subscriber waits for the ends of labels, which are text, of a `when_done`."""

    id: int
    step: str
    labels: list[str]


class Listened(Message, frozen=True):
    """A subscriber waits for delivered time: for so many seconds it is reported as soon as it moves."""

    for_s: float


class Rest(Message, frozen=True):
    """A staged sink's store is too far behind: for so many seconds nothing is read from the sources (R24)."""

    for_s: float


class Forget(Message, frozen=True):
    """A commit has made floors superfluous: those below an offset, as `(front, offset)`."""

    starts: list[tuple[int, int]]


class Committed(Message, frozen=True):
    """The snapshot of this T is committed."""

    tick: int


class Cancel(Message, frozen=True):
    """The snapshot of this number is given up."""

    number: int


WorkerOrder = (
    BrokerNow | Grant | NewFronts | Look | LookAround | LookForLabels | Listened | Rest | Forget | Committed | Cancel
)


class ToWorker(Message, frozen=True):
    """Something for one worker of a host."""

    worker: str
    order: WorkerOrder


class Stop(Message, frozen=True):
    """The host is to deliver what it holds, and to end."""


class Kill(Message, frozen=True):
    """A fork server is to kill these workers of a life, if they are still there."""

    incarnation: int
    workers: list[str]


# -- the JVM and its processes -----------------------------------------------------------------------------------------


class ServiceStart(Message, frozen=True, kw_only=True):
    """The first line to the service: the secret in hexadecimal, the name to call it by, and where it listens.

    The job's doors are of the kind of `doors`.
    """

    secret: str
    host: str
    bind: str = ""
    doors: DoorKind = DoorKind.UNIX


class ServiceReady(Message, frozen=True):
    """The service listens at this address; under TLS the JVMs' credentials are there."""

    address: str
    shown: Credentials | None = None


class JobGauges(Message, frozen=True):
    """Sums over all workers, for Spark's metrics."""

    gauges: dict[str, int]


class Ended(Message, frozen=True):
    """A life has ended."""

    incarnation: int
    cause: Cause


class ForkServerStart(Message, frozen=True, kw_only=True):
    """The first line to a fork server: the service's address, the secret in hexadecimal, and the URL of the store."""

    service: str
    secret: str
    executor: str
    host: str
    store: str


class ForkServerReady(Message, frozen=True):
    """The fork server has imported all that its workers need."""

    pid: int


class MakeWorker(Message, frozen=True, kw_only=True):
    """An order to make a worker, in the host of this number: by its fork server, or by the host itself."""

    worker: str
    level: int
    number: int
    incarnation: int
    host: int


class StartRelay(Message, frozen=True):
    """A host asks its fork server for the relay of its life, which connects to this tracker, unless there is one."""

    tracker: str
    flush_ms: float


class Forked(Message, frozen=True):
    """The worker has been made, and its host listens at this address for the executor that asked."""

    at: str


# -- a task and its worker ---------------------------------------------------------------------------------------------


class Attach(Message, frozen=True, kw_only=True):
    """A task asks to be taken by its worker; answered by `Done` or `Refused`."""

    worker: str
    incarnation: int
    epoch: int


# -- reading and writing -----------------------------------------------------------------------------------------------

encode: Callable[[Message], bytes] = msgspec.json.Encoder().encode
"""Write a message."""
Raw = bytes | str


def line(message: Message) -> bytes:
    """Write a message as a line."""
    return encode(message) + b"\n"


def reader(kind: Any, receiver: str) -> Callable[[Raw], Any]:
    """Make a reader for messages of these kinds.

    Args:
        kind: The type, or a union of types.
        receiver: A name for the reader, for errors.

    Returns:
        A function of a message's JSON; it raises `Malformed`.
    """
    decode = msgspec.json.Decoder(kind).decode

    def read(data: Raw) -> Any:
        try:
            return decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Malformed(
                f"{receiver} cannot read a message: {error}",
                way_out="check that all machines of the job have the same version of Lowtide",
            ) from error

    return read


read_by_service: Callable[[Raw], ToService] = reader(ToService, "the service")
read_death: Callable[[Raw], HostDied] = reader(HostDied, "the service")
read_from_host: Callable[[Raw], FromHost] = reader(FromHost, "the service")
read_answer: Callable[[Raw], Answer] = reader(Answer, "a client of the service")
read_by_host: Callable[[Raw], ToWorker | Stop | Refused] = reader(ToWorker | Stop | Refused, "a host")
read_by_fork_server: Callable[[Raw], Kill] = reader(Kill, "a fork server")
read_service_start: Callable[[Raw], ServiceStart] = reader(ServiceStart, "the service")
read_fork_server_start: Callable[[Raw], ForkServerStart] = reader(ForkServerStart, "a fork server")
read_order: Callable[[Raw], MakeWorker] = reader(MakeWorker, "a fork server or a host")
read_from_child: Callable[[Raw], StartRelay] = reader(StartRelay, "a fork server")
read_attach: Callable[[Raw], Attach] = reader(Attach, "a host")
read_written: Callable[[Raw], tuple[str | None, Written]] = reader(tuple[str | None, Written], "a host")
