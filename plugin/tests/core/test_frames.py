"""R10: frames are numbered per (sender, target); a gap or a swap ends the life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lowtide.core.effects import Frame
from lowtide.core.frames import FrameKind, Head, Inbox, Outbox, open_frame, rows_in
from lowtide.core.operators.order.batch import Batch
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LifeEnded
from lowtide.flow.schema.fields import encode_rows


@dataclass(frozen=True)
class Event:
    key: str
    number: int


RECORDS: dict[int, type] = {3: Event, 127: Event, 128: Event, 70_000: Event}


def frame(ticks: list[int], *, vertex: int = 3, value: int = 11, flags: list[bool] | None = None) -> Frame:
    """A frame of a record per tick."""
    ats = [OrderKey(tick, 1, place, (2,), 9).packed() for place, tick in enumerate(ticks)]
    batch = Batch(ats, list(range(len(ats))), [Event(f"é{tick}", tick) for tick in ticks], flags)
    return Frame(vertex, 0, value, batch.ticks, batch, encode_rows(batch.rows))


def packed(vertex: int = 3, **others: Any) -> bytes:
    return Outbox(5, 1).records(0, frame([5, 7], vertex=vertex, **others), 1_000)


def heads(outbox: Outbox, target: int, count: int) -> list[Head]:
    return [open_frame(outbox.records(target, frame([5, 7]), 1_000), RECORDS) for _ in range(count)]


def mark(outbox: Outbox, target: int, epoch: int) -> Head:
    found: Head = open_frame(outbox.marks(epoch, 0)[target][1], RECORDS)
    return found


def test_a_frame_has_the_documented_bytes() -> None:
    one = Batch([OrderKey(5, 1, 0).packed()], [7], [Event("a", 5)])
    made = Outbox(5, 1).records(0, Frame(3, 0, 255, [5], one, encode_rows(one.rows)), 1_000)
    assert msgspec.msgpack.decode(made) == [
        4, 0, 3, 5, 0, 1_000, 255, [5], [OrderKey(5, 1, 0).packed()], [7], None, [{"key": "a", "number": 5}],
    ]  # fmt: skip
    assert made[:4] == bytes([0x9C, 4, 0, 3]), "version, kind and a small vertex are one byte each"
    assert len(made) < 100
    ((_, epoch_mark),) = Outbox(5, 1).marks(9, 1_000)
    assert msgspec.msgpack.decode(epoch_mark) == [4, 1, 0, 5, 0, 1_000, 9, [], [], [], None, []]


@pytest.mark.parametrize("vertex", [3, 127, 128, 70_000])
@pytest.mark.parametrize("flags", [None, [False, True, False]])
@pytest.mark.parametrize("value", [1, (1 << 64) - 1])
def test_what_is_sent_is_what_is_received(vertex: int, flags: list[bool] | None, value: int) -> None:
    """R5: the receiver folds what the sender has folded, whatever the value and the ticks are."""
    sent = frame([-(1 << 62), 0, 1 << 62], vertex=vertex, flags=flags, value=value)
    outbox = Outbox(1, 2)
    outbox.records(1, sent, 0)
    head = open_frame(outbox.records(1, sent, 77), RECORDS)
    assert (head.kind, head.vertex, head.sender, head.number, head.sent_ns) == (FrameKind.RECORDS, vertex, 1, 1, 77)
    assert (head.value, head.ticks) == (value, [-(1 << 62), 0, 1 << 62])
    assert (head.ats, head.units, head.flags) == (sent.batch.ats, sent.batch.units, flags)
    assert head.rows == sent.batch.rows
    assert {type(row) for row in head.rows} == {Event}


def test_a_mark_has_no_records_and_no_vertex() -> None:
    epoch_mark = mark(Outbox(4, 3), 2, 7)
    assert (epoch_mark.kind, epoch_mark.sender, epoch_mark.number, epoch_mark.value, epoch_mark.ats) == (
        FrameKind.MARK,
        4,
        0,
        7,
        [],
    )


@pytest.mark.parametrize("count", [1, 2, 10, 100, 3000])
def test_the_size_of_a_frame_tells_about_how_many_records_it_brings(count: int) -> None:
    made = Outbox(1, 1).records(0, frame(list(range(count))), 0)
    assert count / 4 <= rows_in(made) <= max(1, count)


def test_frames_are_counted_per_target() -> None:
    outbox = Outbox(sender=1, targets=2)
    assert [head.number for head in heads(outbox, 0, 3)] == [0, 1, 2]
    assert [head.number for head in heads(outbox, 1, 2)] == [0, 1]


def test_numbers_go_on_over_epochs() -> None:
    outbox, inbox = Outbox(1, 1), Inbox("1/0")
    for epoch in range(3):
        for head in heads(outbox, 0, 2):
            inbox.take(head)
        inbox.take(mark(outbox, 0, epoch))
        inbox.end(epoch)


@pytest.mark.parametrize(("order", "said"), [((0, 2), "was lost"), ((1, 0), "was lost"), ((0, 0), "came twice")])
def test_a_lost_swapped_or_doubled_frame_ends_the_life(order: tuple[int, ...], said: str) -> None:
    made = heads(Outbox(sender=4, targets=1), 0, 3)
    inbox = Inbox("1/0")

    def take_all() -> None:
        for number in order:
            inbox.take(made[number])

    with pytest.raises(LifeEnded, match=said) as caught:
        take_all()
    assert "worker number 4 to worker 1/0" in str(caught.value)


def test_the_last_frames_of_an_epoch_are_missed_at_its_end() -> None:
    outbox, inbox = Outbox(4, 1), Inbox("1/0")
    inbox.take(heads(outbox, 0, 1)[0])
    with pytest.raises(LifeEnded, match=r"epoch 0 ended .* before worker number 4"):
        inbox.end(0)


@pytest.mark.parametrize("epoch_mark", [0, 2])
def test_a_mark_ends_no_epoch_but_its_own(epoch_mark: int) -> None:
    outbox, inbox = Outbox(4, 1), Inbox("1/0")
    inbox.take(mark(outbox, 0, epoch_mark))
    with pytest.raises(LifeEnded, match=f"epoch 1 ended at worker 1/0, but worker number 4 .* epoch {epoch_mark}"):
        inbox.end(1)


def test_senders_are_counted_apart() -> None:
    inbox = Inbox("1/0")
    for sender in (0, 1):
        inbox.take(heads(Outbox(sender, 1), 0, 1)[0])


@pytest.mark.parametrize("data", [b"", b"\x9c", b"XX" + bytes(60), b"LF\x03\0" + bytes(60), b"\x9c\x03" + packed()[2:]])
def test_bytes_that_are_no_frame_of_this_version_end_the_life(data: bytes) -> None:
    with pytest.raises(LifeEnded, match="not a frame of version 4"):
        open_frame(data, RECORDS)


def test_a_frame_of_an_exchange_that_does_not_come_here_ends_the_life() -> None:
    for vertex in (3, 128):
        with pytest.raises(LifeEnded, match="not a frame of version 4"):
            open_frame(packed(vertex), {4: Event})


@pytest.mark.parametrize("vertex", [3, 128])
def test_a_frame_that_was_cut_off_ends_the_life_wherever_that_is(vertex: int) -> None:
    whole = packed(vertex, flags=[True, False])
    for end in range(len(whole)):
        with pytest.raises(LifeEnded, match=f"{end} bytes that begin with"):
            open_frame(whole[:end], RECORDS)


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from([b"", b"\x9c\x04", b"\x9c\x04\x00\x03", packed()[:-20]]))
@example(b"\xa3key\xa1\xff", packed()[:-14])
def test_any_other_bytes_end_the_life(data: bytes, before: bytes) -> None:
    try:
        msgspec.msgpack.decode(before + data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises(LifeEnded):
            open_frame(before + data, RECORDS)


@settings(deadline=None)
@given(st.integers(0, len(packed()) - 1), st.integers(0, 255))
@example(118, 0)  # Half a letter of a text.
def test_a_byte_that_was_changed_on_the_way_ends_the_life_or_leaves_a_frame(place: int, byte: int) -> None:
    whole = packed()
    changed = whole[:place] + bytes([byte]) + whole[place + 1 :]
    try:
        head = open_frame(changed, RECORDS)
    except LifeEnded:
        return
    assert head.kind == FrameKind.MARK or {type(row) for row in head.rows} == {Event}
