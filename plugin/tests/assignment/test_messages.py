"""Messages between the processes of a life: each comes back as it was sent, and what is none names its field."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hanging import HANGS_S

from lowtide.assignment import messages
from lowtide.assignment.messages import (
    Answer,
    Attach,
    Begun,
    BrokerNow,
    Cancel,
    Committed,
    Current,
    Delivered,
    Done,
    End,
    Ended,
    Failed,
    Find,
    Finish,
    Finished,
    Forget,
    Fork,
    Forked,
    ForkServerHello,
    ForkServerReady,
    ForkServerStart,
    Found,
    FromHost,
    Gauges,
    Grant,
    HostDied,
    JobGauges,
    JobState,
    Kill,
    LabelsEnded,
    Leads,
    Listened,
    Look,
    LookAround,
    Looked,
    LookForLabels,
    MakeWorker,
    Malformed,
    Message,
    NewFronts,
    News,
    PartCount,
    PartEmpty,
    PartWritten,
    Pinned,
    Reached,
    Refused,
    Rest,
    Seat,
    Seated,
    ServiceReady,
    ServiceStart,
    ShareDurable,
    ShareFailed,
    ShareSaved,
    Stands,
    StartRelay,
    Status,
    StillRuns,
    Stop,
    Stopping,
    ToService,
    ToWorker,
    WorkerHello,
    WorkerNews,
    WorkerOrder,
    encode,
    read_answer,
    read_attach,
    read_by_fork_server,
    read_by_host,
    read_by_service,
    read_death,
    read_fork_server_start,
    read_from_child,
    read_from_host,
    read_order,
    read_service_start,
    reader,
)
from lowtide.jars.java import find_java
from lowtide.jars.shim import shim_jar
from lowtide.jars.third_party import pyspark_folder
from lowtide.process.doors import DoorKind
from lowtide.service.tracker import messages as tracking
from lowtide.status.gauges import FrontGauges, LineGauges, StepStands, WorkerGauges, WorkerState
from lowtide.status.tracker_report import ShardReport, ShardState, TrackerReport
from lowtide_snapshots.cause import Cause
from lowtide_snapshots.format.manifest import LaneLast, Part
from lowtide_tracker import Holder, Traffic

BIG = 1 << 40
TEXT = 'it "failed"\nhere: é'
CAUSE = Cause("flow", TEXT, "flow.py:3, record at in-0", "correct it", "Traceback\n  …\n")
PART = Part("count", "scan", 4, BIG, "000001-0001", 3, 100, "0" * 64)
FRONT = FrontGauges(front=3, heartbeat=BIG, next_offset=7, parked=2, pulling=False)
GAUGES = WorkerGauges(
    records_in=5, busy=False, delivered_time=-1, hops={"pack": {50: 3}}, latency={60: 2}, front=FRONT, queued=0,
    line=LineGauges(traffic=Traffic(1, BIG, 3, 4, flushes=2, acks=9, notices=1), acks={1: 5, 2: 4}),
)  # fmt: skip
START = ServiceStart(secret="ab", host="driver", bind="127.0.0.1", doors=DoorKind.TLS)
FORK_SERVER = ForkServerStart(service="127.0.0.1:1", secret="ab", executor="7", host="there", store="file:///store")
FIND = Find(worker="2/3", level=2, epoch=9, incarnation=BIG, index=3, count=4, executor="7")
ORDER = MakeWorker(worker="2/3", level=2, number=11, incarnation=BIG, host=5)
ATTACH = Attach(worker="2/3", incarnation=BIG, epoch=9)

NEWS: list[WorkerNews] = [
    Reached(7, BIG),
    Looked(id=1, tick=9, rows={7: '[{"a": 1}]'}, more=True),
    Looked(id=1, cause=TEXT),
    LabelsEnded(2, {"é": 9}),
    Delivered(9),
    Pinned(number=1, since=40, front=(0, 7, 12), pause_ms=0.5),
    Pinned(number=1, front=(0, 7, None)),
    PartCount(1, 2),
    PartWritten(1, PART),
    PartEmpty(1, "count", 5),
    ShareSaved(1),
    ShareFailed(1, CAUSE),
    ShareDurable(1, [LaneLast(0, "out", 1, "[39]"), LaneLast(0, "out", 2, None)]),
]
ORDERS: list[WorkerOrder] = [
    BrokerNow(BIG),
    Grant(1, 7, BIG, BIG),
    NewFronts({2: "orders-2"}),
    Look(1, "count", [{"word": "é"}]),
    LookAround(1, "count", None, 7),
    LookForLabels(2, "indexed", ["é", "a:b"]),
    Listened(3.0),
    Rest(0.5),
    Forget([(0, 5), (1, 7)]),
    Committed(40),
    Cancel(1),
]
TO_SERVICE = [
    FIND,
    Seat(incarnation=BIG, index=3, count=4),
    End(BIG, CAUSE),
    Current(7, "1/0"),
    Stopping(7, None),
    Stopping(7, CAUSE),
    Finish(7),
    Leads(job="é", pid=4, lease="ab", zookeeper={"hosts": "h:1"}),
    Status(),
    ForkServerHello(executor="1", host="h", executable="/python", python={"numpy": "2"}, cores=4),
    WorkerHello(worker="1/0", number=0, incarnation=7, address="h:1", near="unix:/d/1", pid=4, plan=True),
]
STANDS = Stands("1/0", StepStands(step="index", function="index_of (flow.py:7)", for_s=4.0))
FROM_HOST = [TO_SERVICE[-1], Failed(CAUSE), Gauges({"1/0": GAUGES}), STANDS, News([("1/0", each) for each in NEWS])]
WORKER = WorkerState(worker="1/0", level=1, number=0, executor="1", pid=4, address="h:1", attached=True, gauges=GAUGES)
ANSWERS = [
    Done(),
    Refused(TEXT),
    Begun(7, "h:1", "PEM"),
    StillRuns(7),
    Found("h:1", 5),
    Fork(11, 5, 6),
    Seated("0/in-0"),
    Finished(["1/0"]),
    JobState(
        incarnation=7,
        cause=None,
        totals={"records_in": 5},
        workers=[WORKER, WorkerState(worker="1/1", level=1)],
        executors=["0"],
    ),
    JobState(incarnation=7, cause=CAUSE, totals={}, workers=[], executors=[]),
]
TO_HOST = [*(ToWorker("1/0", each) for each in ORDERS), Stop(), Refused(TEXT)]
TO_JVM = [ServiceReady("h:1"), JobGauges({"records_in": BIG}), Ended(BIG, CAUSE), ForkServerReady(4), Forked("h:1")]
SETTING = tracking.TrackerSetting(7, {1: [], 2: [1]}, {0: BIG}, 5, 64)
REPORT = TrackerReport(
    1, 4, {1: 5, 2: BIG}, 5, "front 3", Holder(5, 1, 3, at_front=True), (1, 2), 5, 4, Traffic(flushes=9)
)
FROM_TRACKER = [
    tracking.Ready(4),
    tracking.Requested(1, BIG),
    tracking.Requested(1, Refused(TEXT)),
    tracking.Report(REPORT),
    tracking.Report(replace(REPORT, held_by=(1, 2), shards=(ShardState(1, 2, None, Traffic(acks=BIG), TEXT),))),
    tracking.ShardSaid(
        ShardReport(1, 2, 4, (3,), {1: Holder(5, 1, None, owner=3, reported=False)}, 2, Traffic(acks=BIG), joined=True)
    ),
    tracking.Fault(CAUSE),
]
TRACKER_START = tracking.TrackerStart(secret="ab", listener=3, setting=SETTING, era=2, workers=[1])
SHARD_START = tracking.TrackerStart(
    secret="ab", listener=3, setting=SETTING, era=2, workers=None, shards=3, shard=2, merge="h:1"
)

Read = Callable[[bytes], Any]
SENT: list[tuple[Read, Message]] = [
    *((read_by_service, each) for each in TO_SERVICE),
    *((read_from_host, each) for each in FROM_HOST),
    *((read_answer, each) for each in ANSWERS),
    *((read_by_host, each) for each in TO_HOST),
    (read_death, HostDied(incarnation=7, workers=["1/0"], pid=4, how="killed")),
    (read_by_fork_server, Kill(7, ["1/0"])),
    (read_service_start, START),
    (read_fork_server_start, FORK_SERVER),
    (read_order, ORDER),
    (read_from_child, StartRelay("unix:/tmp/tracker", 2.5)),
    (read_attach, ATTACH),
    *((reader(type(each), "the JVM"), each) for each in TO_JVM),
    (tracking.read_tracker_start, TRACKER_START),
    (tracking.read_tracker_start, SHARD_START),
    (tracking.read_by_tracker, tracking.Request(1)),
    (tracking.read_by_tracker, tracking.ForgetFloors(1, BIG)),
    *((tracking.read_from_tracker, each) for each in FROM_TRACKER),
]


@pytest.mark.parametrize(("read", "message"), SENT, ids=[type(message).__name__ for _, message in SENT])
def test_every_message_comes_back_as_it_was_sent(read: Read, message: Message) -> None:
    assert read(encode(message)) == message


def kinds(union: Any) -> set[type]:
    return set(get_args(union)) or {union}


def test_no_message_is_left_out() -> None:
    sent = {type(message) for _, message in SENT} | set(map(type, NEWS)) | set(map(type, ORDERS))
    defined = {each for each in vars(messages).values() if isinstance(each, type) and issubclass(each, Message)}
    defined |= {each for each in vars(tracking).values() if isinstance(each, type) and issubclass(each, Message)}
    assert defined - {Message} - sent == set()
    for union in (ToService, FromHost, Answer, WorkerNews, WorkerOrder, tracking.ToTracker, tracking.FromTracker):
        assert kinds(union) <= sent


@pytest.mark.parametrize(
    ("read", "data", "named"),
    [
        (read_by_service, b'{"type": "find", "worker": "1/0"}', "`level`"),
        (read_by_service, b'{"type": "guess"}', "Invalid value 'guess' - at `$.type`"),
        (read_by_service, b'{"ask": "find"}', "`type`"),
        (read_by_service, b'{"type": "end", "incarnation": "7", "cause": {}}', "`$.incarnation`"),
        (read_by_service, b'{"type": "end", "incarnation": 7, "cause": "it broke"}', "`$.cause`"),
        (read_by_service, b'{"type": "end", "incarnation": 7, "cause": {"kind": "flow"}}', "`what` - at `$.cause`"),
        (read_from_host, b'{"type": "failed", "cause": {"kind": "flood", "what": ""}}', "`$.cause.kind`"),
        (read_by_service, b"[]", "Expected `object`, got `array`"),
        (read_by_service, b'{"type": "status"', "truncated"),
        (read_by_service, b"\xff\xfe", "malformed"),
        (
            read_from_host,
            b'{"type": "news", "news": [["1/0", {"type": "reached", "next_offset": 1, "tick": null}]]}',
            "`$.news[0][1].tick`",
        ),
        (read_answer, b'{"type": "found"}', "`at`"),
        (read_attach, b'{"type": "attach", "worker": "1/0", "incarnation": 7}', "`epoch`"),
        (tracking.read_from_tracker, b'{"type": "report", "report": {}}', "`era` - at `$.report`"),
    ],
)
def test_what_cannot_be_read_names_the_field_and_the_way_out(read: Read, data: bytes, named: str) -> None:
    with pytest.raises(Malformed) as refused:
        read(data)
    assert named in refused.value.what
    assert "same version of Lowtide" in refused.value.way_out


def test_a_field_that_a_later_version_adds_is_no_error() -> None:
    assert read_answer(b'{"type": "seated", "worker": "0/in-0", "since": 4}') == Seated("0/in-0")


def test_messages_can_be_imported_before_numpy_and_arrow_are_kept_from_starting_threads() -> None:
    """The fork server imports them before it has set what its libraries read from the environment."""
    code = "import sys, lowtide.worker.forkserver as _; print({'numpy', 'pyarrow'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=HANGS_S)
    assert found.stdout.strip() == "set()"


# -- the JVM's half ----------------------------------------------------------------------------------------------------

READ_BY_JVM: list[tuple[Message, str]] = [
    (ServiceReady("h:1"), "h:1"),
    (Forked("h:2"), "h:2"),
    (Failed(CAUSE), f"refused: {CAUSE}"),
    (Seated("0/in-0"), "0/in-0"),
    (Seated(""), ""),
    (Done(), "done"),
    (JobGauges({"records_in": BIG}), str(BIG)),
    (Ended(BIG, CAUSE), f"{BIG} {CAUSE}"),
    (Found("h:3", 5), "Whereabouts[at=h:3, number=0, host=0, loadMs=5]"),
    (Fork(11, 5, 6), "Whereabouts[at=null, number=11, host=5, loadMs=6]"),
    (Refused(TEXT), "refused: " + TEXT),
    (Stop(), 'refused: a message of type "stop" is no answer to what was asked'),
]
WRITTEN_BY_JVM: list[tuple[Read, Message]] = [
    (read_service_start, START),
    (read_fork_server_start, FORK_SERVER),
    (read_by_service, FIND),
    (read_by_service, TO_SERVICE[1]),
    (read_by_service, TO_SERVICE[2]),
    (read_order, ORDER),
    (read_attach, ATTACH),
]


@pytest.mark.slow
def test_the_jvm_writes_what_python_reads_and_reads_what_python_writes(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "support" / "jvm" / "MessagesFromStdin.java"
    path = os.pathsep.join([str(shim_jar()), f"{pyspark_folder() / 'jars'}/*"])
    java = find_java().executable
    compiler = java.resolve().with_name("javac")
    subprocess.run([compiler, "-cp", path, "-d", tmp_path, source], check=True, timeout=HANGS_S)
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dstdout.encoding=UTF-8", "-cp"]
    command = [str(java), *options, os.pathsep.join([str(tmp_path), path]), "io.lowtide.MessagesFromStdin"]
    broken = json.dumps({"type": "found"})
    given = b"".join(encode(message) + b"\n" for message, _ in READ_BY_JVM) + broken.encode() + b"\n"
    answer = subprocess.run(command, input=given, capture_output=True, check=True, timeout=HANGS_S).stdout
    lines = answer.splitlines()
    written, read = lines[: len(WRITTEN_BY_JVM)], [each.decode() for each in lines[len(WRITTEN_BY_JVM) :]]
    assert [read_it(each) for (read_it, _), each in zip(WRITTEN_BY_JVM, written, strict=True)] == [
        message for _, message in WRITTEN_BY_JVM
    ]
    assert read[:-1] == [said.replace("\n", "\\n") for _, said in READ_BY_JVM]
    assert read[-1] == "refused: a message of type found has no field at"
