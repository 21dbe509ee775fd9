"""The oracle: compares a job's deliveries with a local run of the same log, lane by lane, byte by byte.

A partition may hold several lanes. Each has its order there; how they follow one another differs from run to run, so a
partition is first taken apart into its lanes.

    log = read_sources(conf.kafka, plan, {"documents-0": 0, "documents-1": 1})
    verdict = compare(plan, log, floors, read_output(conf.kafka, "index"))
    assert verdict.right, verdict

Everything is held in memory; a million messages take some tens of seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from lowtide.connectors.topic_records import read_topic
from lowtide.connectors.topics import Topics
from lowtide.core.operators.order.order import Position
from lowtide.errors import FlowError
from lowtide.flow.plan.plan import Plan
from lowtide.flow.schema.headers import pack_headers
from lowtide.local.run import Delivered, Message, run_log
from lowtide.process.interpreter import without_collections
from lowtide_tracker.floors import Floor

if TYPE_CHECKING:
    from lowtide.conf import KafkaConf

READ_LIMIT_S = 120.0
DIFFERENCES = 5
MOST_WAYS = 1_000
"""Ways to give equal messages of one partition to its lanes that are looked at side by side."""
SHOWN_BYTES = 100


class Output(NamedTuple):
    """One delivered message: key and value as bytes, its timestamp in ms, its headers in order."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, str | bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a comparison. The three counts are 0 if, and only if, every lane has the expected sequence.

    Attributes:
        expected: The number of messages expected.
        delivered: The number of messages delivered.
        lost: The number of messages expected but not delivered, or not often enough, in their lane.
        duplicated: The number of messages delivered but not expected in their lane, or not so often.
        out_of_order: The number of places where the lanes differ once lost and duplicated messages are left out on
            either side; of equal messages the first ones stay.
        differences: The first few, in words.
    """

    expected: int
    delivered: int
    lost: int
    duplicated: int
    out_of_order: int
    differences: tuple[str, ...]

    @property
    def right(self) -> bool:
        """True if every lane has what was expected, byte for byte."""
        return not (self.lost or self.duplicated or self.out_of_order)

    def __str__(self) -> str:
        counts = f"{self.delivered:,} delivered of {self.expected:,}: {self.lost:,} lost, "
        counts += f"{self.duplicated:,} duplicated, {self.out_of_order:,} out of order"
        return "\n  ".join((counts, *self.differences))


def compare(
    plan: Plan,
    log: Mapping[str, Iterable[Message]],
    floors: Iterable[Floor],
    delivered: Mapping[int, Sequence[Output]],
    sink: str | None = None,
    until: int | None = None,
    partitions: int | None = None,
) -> Verdict:
    """Compare what was delivered with a local run on the same log.

    Args:
        plan: The job's plan.
        log: Every message of each source, by the source's name; see `read_sources`.
        floors: The label decisions that the job has stored.
        delivered: The messages of each partition of the sink's topic.
        sink: The sink; needed only if there are several.
        until: The last tick that the job's time has reached; by default its end, at which all windows have closed.
        partitions: The number of partitions that the job writes; by default one for each lane.

    Raises:
        FlowError: the plan has several sinks, or none of that name.
        MessageRefused, UserError: as in a job, if the flow names no dead letters.
    """
    if partitions is None or partitions >= plan.lanes:
        return compare_lanes(expected_lanes(plan, log, floors, sink, until), delivered)
    return compare_shared(expected_shares(plan, log, floors, partitions, sink, until), delivered)


def expected_lanes(
    plan: Plan,
    log: Mapping[str, Iterable[Message]],
    floors: Iterable[Floor],
    sink: str | None = None,
    until: int | None = None,
) -> dict[int, list[Output]]:
    """Return what a sink must receive, per lane and in order; errors as `compare`."""
    return lanes_of(plan, _written(plan, log, floors, sink, until))


def expected_shares(
    plan: Plan,
    log: Mapping[str, Iterable[Message]],
    floors: Iterable[Floor],
    partitions: int,
    sink: str | None = None,
    until: int | None = None,
) -> dict[int, dict[int, list[Output]]]:
    """Return what a sink must receive, by partition and lane, in order; arguments and errors as of `compare`."""
    return shares_of(plan, _written(plan, log, floors, sink, until), partitions)


def lanes_of(plan: Plan, written: Iterable[Delivered]) -> dict[int, list[Output]]:
    """Return the messages to a sink by lane."""
    lanes: dict[int, list[Output]] = {lane: [] for lane in range(plan.lanes)}
    for message in written:
        lanes[message.lane].append(_output(message))
    return lanes


def shares_of(plan: Plan, written: Iterable[Delivered], partitions: int) -> dict[int, dict[int, list[Output]]]:
    """Return the messages to a sink by partition and lane."""
    partition_of_unit = plan.partition_of_unit(partitions).tolist()
    shares: dict[int, dict[int, list[Output]]] = {partition: {} for partition in range(partitions)}
    for message in written:
        shares[partition_of_unit[message.unit]].setdefault(message.lane, []).append(_output(message))
    return shares


def compare_shared(
    expected: Mapping[int, Mapping[int, Sequence[Output]]], delivered: Mapping[int, Sequence[Output]]
) -> Verdict:
    """Compare lane by lane in each partition; what is lost or duplicated is counted by partition."""
    due: dict[str, Sequence[Output]] = {}
    came: dict[str, Sequence[Output]] = {}
    lost = duplicated = 0
    for partition in sorted({*expected, *delivered}):
        lanes = expected.get(partition, {})
        due |= {f"{lane} in partition {partition}": outputs for lane, outputs in lanes.items()}
        whole = delivered.get(partition, ())
        apart = taken_apart(lanes, whole)
        came |= {f"{lane} in partition {partition}": outputs for lane, outputs in apart.items()}
        all_due, all_came = Counter(chain.from_iterable(lanes.values())), Counter(whole)
        lost += (all_due - all_came).total()
        duplicated += (all_came - all_due).total()
    verdict = compare_lanes(due, came)
    if verdict.right:
        return verdict
    out_of_order = max(verdict.out_of_order, 0 if lost or duplicated else 1)
    return replace(verdict, lost=lost, duplicated=duplicated, out_of_order=out_of_order)


def taken_apart(due: Mapping[int, Sequence[Output]], came: Sequence[Output]) -> dict[int, list[Output]]:
    """Give each message of a partition to the lane that it is of; O(messages x lanes).

    Equal messages of several lanes fit into each of them, so the ways to go on are kept, up to `MOST_WAYS`. If none is
    left, something is lost, doubled or out of order: from there on a message goes to a lane that is due one like it, at
    whatever place.

    Args:
        due: What is due in each lane.
        came: What came.

    Returns:
        By lane what came. It is what is due in all lanes if the messages can be so.
    """
    lanes = list(due)
    owners = {output: number for number, lane in enumerate(lanes) for output in due[lane]}
    # By how far each lane has come the choices that led there, the last one first.
    ways: dict[tuple[int, ...], Any] = {(0,) * len(lanes): None}
    for output in came:
        further: dict[tuple[int, ...], Any] = {}
        for at, way in ways.items():
            for number, lane in enumerate(lanes):
                if at[number] < len(due[lane]) and due[lane][at[number]] == output:
                    further[*at[:number], at[number] + 1, *at[number + 1 :]] = number, way
        if not further:
            at, way = next(iter(ways.items()))
            further = {at: (owners.get(output, 0), way)}
        ways = dict(islice(further.items(), MOST_WAYS))
    at = tuple(len(due[lane]) for lane in lanes)
    way, chosen = ways.get(at, next(iter(ways.values()))), list[int]()
    while way is not None:
        number, way = way
        chosen.append(number)
    apart: dict[int, list[Output]] = {lane: [] for lane in lanes or [0]}
    for number, output in zip(reversed(chosen), came, strict=True):
        apart[lanes[number] if lanes else 0].append(output)
    return apart


def _written(
    plan: Plan,
    log: Mapping[str, Iterable[Message]],
    floors: Iterable[Floor],
    sink: str | None,
    until: int | None,
) -> Sequence[Delivered]:
    names = [vertex.name for vertex, _ in plan.kafka_sinks()]
    if sink not in names and (sink is not None or len(names) != 1):
        asked = "no sink is given" if sink is None else f'the flow has no sink "{sink}"'
        raise FlowError(f"{asked}; it writes to {', '.join(names)}", way_out="name one of them")
    with without_collections():
        written, _ = run_log(plan, log, floors, until)
    return written[sink or names[0]]


def _output(message: Delivered) -> Output:
    return Output(message.key, message.value, message.timestamp, message.headers)


def compare_lanes(expected: Mapping[Any, Sequence[Output]], delivered: Mapping[Any, Sequence[Output]]) -> Verdict:
    """Compare lane by lane; O(messages). A lane that is missing on one side counts as empty there."""
    lost = duplicated = out_of_order = 0
    differences: list[str] = []
    for lane in sorted({*expected, *delivered}):
        due, came = list(expected.get(lane, ())), list(delivered.get(lane, ()))
        # Comparing two lists of tuples runs in C, and they are nearly always equal.
        if due == came:
            continue
        missing, surplus = Counter(due), Counter(came)
        missing.subtract(came)
        surplus.subtract(due)
        missing, surplus = +missing, +surplus
        lost += missing.total()
        duplicated += surplus.total()
        left, right = _without(due, missing), _without(came, surplus)
        out_of_order += sum(one != other for one, other in zip(left, right, strict=True))
        differences += _differences(lane, due, came, missing, surplus)
    count = sum(map(len, expected.values())), sum(map(len, delivered.values()))
    return Verdict(*count, lost, duplicated, out_of_order, tuple(differences[:DIFFERENCES]))


def _without(outputs: Sequence[Output], surplus: Counter[Output]) -> list[Output]:
    """Return the messages without those in `surplus`, leaving out the last ones of each."""
    left = Counter(outputs)
    left.subtract(surplus)
    kept = []
    for output in outputs:
        if left[output] > 0:
            left[output] -= 1
            kept.append(output)
    return kept


def _differences(
    lane: object, due: Sequence[Output], came: Sequence[Output], missing: Counter[Output], surplus: Counter[Output]
) -> Iterator[str]:
    """Yield the first difference of a lane, the first message lost and the first one too many."""
    at = next(
        (index for index, (one, other) in enumerate(zip(due, came, strict=False)) if one != other),
        min(len(due), len(came)),
    )
    yield f"lane {lane}, message {at}: expected {_said(due, at)}, found {_said(came, at)}"
    for what, found in (("lost", missing), ("not expected, or too often", surplus)):
        if found:
            output, times = next(iter(found.items()))
            yield f"lane {lane}: {found.total():,} {what}, first {_shown(output)}{f', {times} times' * (times > 1)}"


def _said(outputs: Sequence[Output], at: int) -> str:
    return _shown(outputs[at]) if at < len(outputs) else "the end"


def _shown(output: Output) -> str:
    value = repr(output.value)
    if len(value) > SHOWN_BYTES:
        value = f"{value[:SHOWN_BYTES]}..."
    headers = f", headers {output.headers}" if output.headers else ""
    return f"key {output.key!r}, value {value}, timestamp {output.timestamp}{headers}"


def read_sources(kafka: KafkaConf, plan: Plan, fronts: Mapping[str, int]) -> dict[str, list[Message]]:
    """Read all that each source of a plan can read now; `fronts` and errors as for `read_log`."""
    topics = {vertex.name: vertex.step.source.topic for vertex in plan.sources()}
    # Each topic once: its sources have the same messages.
    read = {topic: read_log(kafka, topic, fronts) for topic in dict.fromkeys(topics.values())}
    return {name: [message for part in read[topic].values() for message in part] for name, topic in topics.items()}


def read_newest(kafka: KafkaConf, plan: Plan, count: int) -> dict[str, list[Message]]:
    """Read the newest messages of each partition that a plan reads, by source; fronts are numbered as they come."""
    topics = {vertex.name: vertex.step.source.topic for vertex in plan.sources()}
    numbers, read = iter(range(1 << 31)), dict[str, list[Message]]()
    for topic in dict.fromkeys(topics.values()):
        newest = _read(kafka, topic, count)
        fronts = {partition: next(numbers) for partition in newest}
        read[topic] = [
            Message(
                Position(fronts[partition], each.offset()),
                each.timestamp()[1],
                each.key(),
                each.value(),
                b"",
                topic,
                partition,
            )
            for partition, messages in newest.items()
            for each in messages
        ]
    return {name: read[topic] for name, topic in topics.items()}


def read_log(kafka: KafkaConf, topic: str, fronts: Mapping[str, int]) -> dict[int, list[Message]]:
    """Read all that a topic shows to a read_committed reader at the time of the call, per partition in order.

    Args:
        kafka: The broker.
        topic: The topic.
        fronts: The front's number of each partition, as `{"documents-0": 0}`.

    Raises:
        FlowError: a partition has no front.
        TopicUnknown: the topic does not exist.
        ServiceUnavailable: Kafka did not give all of it in time.
    """
    log: dict[int, list[Message]] = {}
    for partition, messages in _read(kafka, topic).items():
        if messages and f"{topic}-{partition}" not in fronts:
            raise FlowError(f"{topic}-{partition} has messages but no front; fronts are {', '.join(sorted(fronts))}")
        front = fronts.get(f"{topic}-{partition}", -1)
        log[partition] = [
            Message(
                Position(front, message.offset()),
                message.timestamp()[1],
                message.key(),
                message.value(),
                pack_headers(message.headers() or ()),
                topic,
                partition,
            )
            for message in messages
        ]
    return log


def read_output(kafka: KafkaConf, topic: str) -> dict[int, list[Output]]:
    """Read all deliveries to a topic, as a read_committed reader sees them; errors as `read_log`."""
    return {
        partition: [
            Output(message.key(), message.value(), message.timestamp()[1], tuple(message.headers() or ()))
            for message in messages
        ]
        for partition, messages in _read(kafka, topic).items()
    }


def _read(kafka: KafkaConf, topic: str, newest: int | None = None) -> dict[int, list[Any]]:
    """Read all messages of a topic, or the newest, per partition, without those of open transactions."""
    found: dict[int, list[Any]] = {number: [] for number in range(Topics(kafka).describe(topic).partitions)}
    for message in read_topic(kafka, topic, newest=newest, limit_s=READ_LIMIT_S):
        found[message.partition()].append(message)
    return found
