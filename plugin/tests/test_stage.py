"""A worker's stage on messages as the JVM sends them: frames, limits, dead letters; no socket, no Kafka."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from lowtide import Flow, kafka, raw
from lowtide import json as as_json
from lowtide.compiler import compile_flow
from lowtide.errors import FrameTooLarge, LifeEnded, LowtideError
from lowtide.frames import FrameKind, Header
from lowtide.worker import stage as stage_module
from lowtide.worker.deployment import Deployment
from lowtide.worker.stage import LevelStage

NOW = 1_000_000_000


@dataclass(frozen=True)
class Order:
    user: str
    number: int


def checked(order: Order) -> Order:
    if order.number < 0:
        raise ValueError("negative")
    return Order(order.user * 1000, order.number) if order.number == 13 else order


class Taken:
    """Stands where the producer stands: keeps what it is given."""

    def __init__(self, *_: object) -> None:
        self.messages: list[Any] = []

    def send(self, messages: Iterator[Any]) -> None:
        self.messages += messages


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "KafkaDelivery", Taken)


def deployment(*, letters: bool = False, **limits: Any) -> Deployment:
    flow = Flow("stage", dead_letters=kafka("letters", raw()) if letters else None)
    stream = flow.read("orders", kafka("orders", as_json(Order))).map(checked).key_by("user")
    stream.write("out", kafka("out", as_json(Order), key="user"))
    plan = compile_flow(flow, parallelism=2)
    fronts = {"orders-0": 0, "orders-1": 1}
    made = Deployment(plan, fronts, {"out": 2, "letters": 1}, {}, 200_000, 1 << 20, 8192, 1000, 1 << 20)
    return replace(made, **limits)


def packed(records: list[dict[str, Any] | bytes], partition: int = 1, first: int = 100) -> bytes:
    values = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
    n, topic = len(values), b"orders"
    message = struct.pack("<qqiiiH", NOW, NOW, partition, n, 0, len(topic)) + topic
    message += struct.pack(f"<{n}q", *range(first, first + n)) + struct.pack(f"<{n}q", *[5] * n)
    return message + struct.pack(f"<{n}i", *[-1] * n) + struct.pack(f"<{n}i", *map(len, values)) + b"".join(values)


def orders(count: int, size: int = 3) -> list[dict[str, Any] | bytes]:
    return [{"user": f"{n % 7}".rjust(size, "x"), "number": n} for n in range(14, 14 + count)]


def sent(stage: LevelStage) -> list[Any]:
    """What the stage gave its producer."""
    return stage._delivery.messages  # type: ignore[union-attr,no-any-return]


def level_0(made: Deployment) -> LevelStage:
    return made.stage(0, "0/orders-1", 0)


def test_frames_cross_from_level_0_to_level_1_and_are_delivered_once() -> None:
    made = deployment()
    source, targets = level_0(made), [made.stage(1, f"1/{n}", 1 + n) for n in (0, 1)]
    for target, frame in source.rows(packed(orders(50)), NOW):
        list(targets[target].frames([frame], NOW))
    delivered = [message for target in targets for message in sent(target)]
    assert sorted(json.loads(message[3])["number"] for message in delivered) == list(range(14, 64))
    assert {message[0] for message in delivered} == {"out"}
    for number, worker in enumerate(targets):
        assert {message[1] for message in sent(worker)} == {number}


def test_frames_that_came_together_keep_their_order() -> None:
    made = replace(deployment(), max_frame_rows=4)
    source, target = level_0(made), made.stage(1, "1/0", 1)
    frames = [frame for to, frame in source.rows(packed(orders(60)), NOW) if to == 0]
    assert len(frames) > 2
    list(target.frames(frames, NOW))
    numbers = [json.loads(message[3])["number"] for message in sent(target)]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(("limits", "most"), [({"max_frame_rows": 4}, 4), ({"frame_bytes": 2000}, 50)])
def test_frames_keep_within_rows_and_bytes(limits: dict[str, Any], most: int) -> None:
    frames = [frame for _, frame in level_0(replace(deployment(), **limits)).rows(packed(orders(100)), NOW)]
    headers = [Header.unpack(frame) for frame in frames]
    assert sum(header.rows for header in headers) == 100
    assert max(header.rows for header in headers) <= most


def test_a_record_larger_than_a_frames_target_has_a_frame_of_its_own() -> None:
    made = deployment(frame_bytes=2000)
    [(_, frame)] = level_0(made).rows(packed(orders(1, size=10_000)), NOW)
    assert Header.unpack(frame).rows == 1


def test_a_message_over_the_limit_stops_the_job_and_is_named() -> None:
    with pytest.raises(FrameTooLarge, match="larger than a frame may be, 1000 bytes") as caught:
        level_0(deployment(max_frame_bytes=1000)).rows(packed([*orders(2), *orders(1, size=2000)]), NOW)
    assert "orders-1, offset 102" in str(caught.value)


def test_a_record_that_a_step_makes_too_large_stops_the_job_and_is_named() -> None:
    made = deployment(max_frame_bytes=10_000, frame_bytes=5_000)
    with pytest.raises(FrameTooLarge, match="larger than a frame may be, 10000 bytes") as caught:
        list(level_0(made).rows(packed([{"user": "x" * 20, "number": 13}]), NOW))
    assert "orders-1, offset 100" in str(caught.value)


def test_records_over_the_limit_go_to_the_dead_letters_if_the_flow_names_them() -> None:
    made = deployment(letters=True, max_frame_bytes=10_000, frame_bytes=5_000)
    source = level_0(made)
    records = [*orders(1), {"user": "y" * 20_000, "number": 1}, {"user": "x" * 20, "number": 13}, *orders(1)]
    frames = list(source.rows(packed(records), NOW))
    assert sum(Header.unpack(frame).rows for _, frame in frames) == 2
    letters = sent(source)
    offsets = [dict(letter[5])["lowtide.offset"] for letter in letters]
    assert offsets == [b"101", b"102"]
    assert all(b"larger than a frame may be" in dict(letter[5])["lowtide.error"] for letter in letters)
    assert source.gauges()["dead_letters"] == 2


def test_a_failed_record_is_named_by_its_partition() -> None:
    with pytest.raises(LowtideError, match="raised ValueError: negative") as caught:
        list(level_0(deployment()).rows(packed([*orders(3), {"user": "ann", "number": -1}]), NOW))
    assert "record at orders-1, offset 103" in str(caught.value)


def test_records_of_another_partition_are_refused() -> None:
    """R10: level-0 state goes by the topic-partition in the rows."""
    with pytest.raises(LifeEnded, match="0/orders-1 was given records of orders-0"):
        level_0(deployment()).rows(packed(orders(1), partition=0), NOW)


def test_a_partition_that_the_job_does_not_know_is_refused() -> None:
    with pytest.raises(LifeEnded, match="orders-2 was added after the job had started"):
        deployment().stage(0, "0/orders-2", 0)


def test_an_epochs_end_marks_every_target() -> None:
    source = level_0(deployment())
    marks = [Header.unpack(frame) for _, frame in source.end(3, NOW)]
    assert [mark.kind for mark in marks] == [FrameKind.MARK] * 2
    assert [mark.rows for mark in marks] == [3, 3]
