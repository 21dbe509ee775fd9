"""A record that is too large: a dead letter, or the end of the job with its name, the same at every parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from programs import source_rows
from stage_rig import NOW, Kept, Rig, Served, deployment, kept, opened, orders, packed, stage_of

from lowtide import Flow, json, kafka, raw
from lowtide.core.fronts.front import Front, FrontLimits, KnownFloors, Window
from lowtide.core.operators.faults.limits import LETTER_BYTES, Limits
from lowtide.core.operators.order.order import Position
from lowtide.core.worker import WorkerCore
from lowtide.errors import FrameTooLarge
from lowtide.flow.plan.compiler import compile_flow
from lowtide.flow.plan.segments import segments_of
from lowtide.local.run import Message
from lowtide_tracker import LocalTracker, Notice

LARGE = {"user": "y" * 20_000, "number": 1}
GROWS = {"user": "x" * 20, "number": 13}
SMALL = Limits(5_000, 10_000, 8192)


@pytest.fixture(autouse=True)
def _no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)


@pytest.fixture
def tracker() -> Iterator[Served]:
    with Served() as served:
        yield served


@pytest.mark.parametrize(("limits", "most"), [(Limits(1 << 20, 1 << 20, 4), 4), (Limits(2000, 1 << 20, 8192), 50)])
def test_frames_keep_within_rows_and_bytes(limits: Limits, most: int, tracker: Served) -> None:
    stage = stage_of(deployment(limits=limits), "0/orders-1", 0, tracker.address)
    heads = [opened(frame) for _, frame in stage.rows(packed(orders(100)), NOW)]
    assert sum(len(head.rows) for head in heads) == 100
    assert max(len(head.rows) for head in heads) <= most


def test_a_record_larger_than_a_frames_target_has_a_frame_of_its_own(tracker: Served) -> None:
    stage = stage_of(deployment(limits=Limits(2000, 1 << 20, 8192)), "0/orders-1", 0, tracker.address)
    records = [*orders(1), *orders(1, size=10_000), *orders(1)]
    heads = [opened(frame) for _, frame in stage.rows(packed(records), NOW)]
    assert sum(len(head.rows) for head in heads) == 3
    stage = stage_of(deployment(limits=Limits(2000, 1 << 20, 8192)), "0/orders-1", 1, tracker.address)
    ((_, frame),) = stage.rows(packed(orders(1, size=10_000)), NOW)
    assert len(opened(frame).rows) == 1


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("large", [LARGE, GROWS], ids=["in the log", "made by a step"])
def test_a_record_over_the_limit_ends_the_job_and_is_named(large: dict[str, Any], parallelism: int) -> None:
    with Served() as tracker:
        rig = Rig.of(deployment(limits=SMALL, parallelism=parallelism), tracker.address)
        rig.read(packed([*orders(2), large, *orders(2)]))
        assert sum(len(opened(frame).rows) for frame in rig.frames) == 4, "it stops nothing before its time"
        rig.grant(20)
        with pytest.raises(FrameTooLarge, match="the limit of a frame is 10000") as caught:
            rig.until(lambda: False)
    assert "orders-1, offset 2" in str(caught.value)


def letters_of(parallelism: int, cuts: int) -> tuple[list[tuple[Any, ...]], int]:
    """Dead letters of a fixed log, read in pieces of so many records, and how many records were delivered."""
    log: list[dict[str, Any] | bytes] = [*orders(3), LARGE, GROWS, *orders(3)]
    log += [{"user": "n", "number": -1}, LARGE, b"{}"]
    with Served() as tracker:
        rig = Rig.of(deployment(letters=True, limits=SMALL, parallelism=parallelism), tracker.address)
        for first in range(0, len(log), cuts):
            rig.read(packed(log[first : first + cuts], first=first))
        rig.grant(20)
        source = kept(rig.stages["0/orders-1"])
        rig.until(lambda: len(source.messages) >= 5 and len(rig.delivered) >= 6)
        return [(m[2], m[3], m[4], m[5]) for m in source.messages], len(rig.delivered)


def test_what_is_too_large_goes_to_the_dead_letters_the_same_however_it_is_cut() -> None:
    letters, delivered = letters_of(1, 100)
    headers = [dict(letter[3]) for letter in letters]
    assert [each["lowtide.offset"] for each in headers] == [b"3", b"4", b"8", b"9", b"10"]
    assert [b"the limit of a frame" in each["lowtide.error"] for each in headers] == [True, True, False, True, False]
    assert max(len(letter[1]) for letter in letters) <= LETTER_BYTES
    assert delivered == 6
    for parallelism, cuts in ((1, 1), (2, 3), (3, 100), (3, 1)):
        assert letters_of(parallelism, cuts) == (letters, delivered)


def test_a_letter_of_a_very_large_message_holds_its_beginning() -> None:
    with Served() as tracker:
        rig = Rig.of(deployment(letters=True, limits=SMALL), tracker.address)
        rig.read(packed([{"user": "z" * (2 * LETTER_BYTES), "number": 1}]))
        rig.grant(20)
        source = kept(rig.stages["0/orders-1"])
        rig.until(lambda: source.messages)
        assert len(source.messages[0][3] or b"") == LETTER_BYTES


@dataclass(frozen=True)
class Event:
    key: str
    text: str


def grown(state: int, event: Event) -> tuple[int, Event]:
    return state + 1, Event(event.key, event.text * 1000 if event.text == "grow" else event.text)


def larger(event: Event) -> Event:
    return grown(0, event)[1]


def longer(state: int, event: Event) -> int:
    return max(state, len(event.text))


def beside(state: int, event: Event, longest: int) -> tuple[int, Event]:
    return state + longest, event


def behind_an_exchange(parallelism: int, grouping: str, *, letters: bool) -> list[Any]:
    """Dead letters of level 1, of records that grow there, on their way to level 2."""
    flow = Flow("test", dead_letters=kafka("dead", raw()) if letters else None)
    events = flow.read("events", kafka("events", json(Event)))
    stream = events.key_by("key", name="first").scan("one", grown, 0).key_by("text", name="second")
    stream.write("out", kafka("out", json(Event)))
    plan = compile_flow(flow, parallelism=parallelism, units=8, lanes=parallelism, slack_ms=1)
    limits = Limits(1 << 20, 2_000, 100)
    front = Front(0, FrontLimits(1, Window(1000, 1 << 20), 1000), KnownFloors(0))
    reader = WorkerCore(plan, 0, 0, tracker=LocalTracker(99, 1, start=0), front=front, limits=limits)
    cores = [
        WorkerCore(plan, 1, place, tracker=LocalTracker(place, 1, start=0), limits=limits, grouping=grouping)
        for place in range(parallelism)
    ]
    texts = ["a", "grow", "b", "grow", "grow"]
    messages = [
        Message(Position(0, n), 5, None, f'{{"key":"{n % 3}","text":"{text}"}}'.encode())
        for n, text in enumerate(texts)
    ]
    for frame in reader.rows(source_rows(messages), 0).frames:
        cores[frame.target].frame(frame)
    notice = Notice(1, 1, 0, dict.fromkeys(segments_of(plan).inbound, 6), 6, ())
    bundles = [bundle for core in cores for _, bundle in core.notice(notice).bundles]
    return sorted((letter.position.sequence, letter.error) for bundle in bundles for letter in bundle.rows)


@pytest.mark.parametrize("grouping", ["ordered", "optimistic"])
def test_behind_an_exchange_it_is_the_same_at_every_parallelism(grouping: str) -> None:
    found = behind_an_exchange(1, grouping, letters=True)
    assert [offset for offset, _ in found] == [1, 3, 4]
    assert all("the limit of a frame is 2000" in error for _, error in found)
    for parallelism in (2, 3):
        assert behind_an_exchange(parallelism, grouping, letters=True) == found
        with pytest.raises(FrameTooLarge, match='"second": a record takes'):
            behind_an_exchange(parallelism, grouping, letters=False)


def test_a_message_that_two_sources_read_is_buried_by_both() -> None:
    """R4: order keys are unique, those of what is too large too."""
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    for name in ("one", "two"):
        events = flow.read(name, kafka("events", json(Event))).key_by("key", name=f"{name}-by-key")
        events.write(f"{name}-out", kafka(name, json(Event)))
    plan = compile_flow(flow, parallelism=1, units=8, lanes=1, slack_ms=1)
    front = Front(0, FrontLimits(1, Window(1000, 1 << 20), 1000), KnownFloors(0))
    core = WorkerCore(plan, 0, 0, tracker=LocalTracker(0, 1, start=0), front=front, limits=Limits(1 << 20, 2_000, 100))
    core.rows(source_rows([Message(Position(0, 0), 5, None, b'{"key":"a","text":"' + b"x" * 3000 + b'"}')]), 0)
    ((_, bundle),) = core.notice(Notice(1, 1, 0, dict.fromkeys(segments_of(plan).inbound, 6), 6, ())).bundles
    assert sorted(letter.vertex for letter in bundle.rows) == ["one", "two"]


def test_what_is_too_large_for_a_broadcast_is_buried_once() -> None:
    """It fails before it is copied for every hash unit."""
    flow = Flow("test", dead_letters=kafka("dead", raw()))
    events = flow.read("events", kafka("events", json(Event)))
    longest = flow.read("texts", kafka("texts", json(Event))).map(larger).broadcast("longest", longer, 0)
    events.key_by("key").scan("one", beside, 0, broadcast=longest).write("out", kafka("out", json(Event)))
    plan = compile_flow(flow, parallelism=2, units=8, lanes=2, slack_ms=1)
    front = Front(0, FrontLimits(1, Window(1000, 1 << 20), 1000), KnownFloors(0))
    core = WorkerCore(plan, 0, 0, tracker=LocalTracker(0, 1, start=0), front=front, limits=Limits(1 << 20, 2_000, 100))
    core.read_by(vertex.id for vertex in plan.sources() if vertex.name == "texts")
    texts = ["a", "grow", "b"]
    messages = [Message(Position(0, n), 5, None, b'{"key":"a","text":"%s"}' % t.encode()) for n, t in enumerate(texts)]
    frames = core.rows(source_rows(messages), 0).frames
    assert sum(len(frame.batch) for frame in frames) == 2 * 8
    assert {row.text for frame in frames for row in frame.batch.rows} == {"a", "b"}
    ((_, bundle),) = core.notice(Notice(1, 1, 0, dict.fromkeys(segments_of(plan).inbound, 6), 6, ())).bundles
    assert [(letter.vertex, letter.position.sequence) for letter in bundle.rows] == [("longest", 1)]
