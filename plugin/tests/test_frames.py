"""R10: frames are numbered per (sender, target); a gap or a swap ends the life."""

import pytest

from lowtide.errors import LifeEnded
from lowtide.frames import HEADER_BYTES, FrameKind, Header, Inbox, Outbox, rows_of


def headers(outbox: Outbox, target: int, count: int) -> list[Header]:
    made = [outbox.records(target, 3, 10, sent_ns=1_000, value=11, ticks=[5, 7]) for _ in range(count)]
    return [Header.unpack(frame) for frame in made]


def mark(outbox: Outbox, target: int, epoch: int) -> Header:
    return Header.unpack(outbox.marks(epoch, 0)[target][1])


def test_the_header_has_the_documented_bytes() -> None:
    header = Header(FrameKind.RECORDS, 3, sender=5, rows=10, number=7, sent_ns=1_000, value=255, ticks=2)
    packed = header.pack()
    assert len(packed) == HEADER_BYTES == 48
    assert packed.hex(" ", 2) == (
        "4c46 0300 0300 0000 0500 0000 0a00 0000 0200 0000 0000 0000 0700 0000 0000 0000 "
        "e803 0000 0000 0000 ff00 0000 0000 0000"
    )
    assert Header.unpack(packed + b"records") == header


def test_the_ticks_and_their_value_go_before_the_records() -> None:
    """R5: the receiver folds what the sender has folded, whatever the value and the ticks are."""
    value, ticks = (1 << 64) - 1, [-(1 << 62), 0, 1 << 62]
    frame = Outbox(1, 1).records(0, 3, 10, sent_ns=1, value=value, ticks=ticks) + b"records"
    header = Header.unpack(frame)
    assert (header.value, header.ticks_of(frame)) == (value, ticks)
    assert frame[header.records_at :] == b"records"
    assert rows_of(frame) == 10


def test_frames_are_counted_per_target() -> None:
    outbox = Outbox(sender=1, targets=2)
    assert [h.number for h in headers(outbox, 0, 3)] == [0, 1, 2]
    assert [h.number for h in headers(outbox, 1, 2)] == [0, 1]


def test_numbers_go_on_over_epochs() -> None:
    outbox, inbox = Outbox(1, 1), Inbox("1/0")
    for epoch in range(3):
        for header in headers(outbox, 0, 2):
            inbox.take(header)
        inbox.take(mark(outbox, 0, epoch))
        inbox.end(epoch)


@pytest.mark.parametrize(("order", "said"), [((0, 2), "was lost"), ((1, 0), "was lost"), ((0, 0), "came again")])
def test_a_lost_swapped_or_doubled_frame_ends_the_life(order: tuple[int, ...], said: str) -> None:
    made = headers(Outbox(sender=4, targets=1), 0, 3)
    inbox = Inbox("1/0")

    def take_all() -> None:
        for number in order:
            inbox.take(made[number])

    with pytest.raises(LifeEnded, match=said) as caught:
        take_all()
    assert "worker number 4 to worker 1/0" in str(caught.value)


def test_the_last_frames_of_an_epoch_are_missed_at_its_end() -> None:
    outbox, inbox = Outbox(4, 1), Inbox("1/0")
    inbox.take(headers(outbox, 0, 1)[0])
    with pytest.raises(LifeEnded, match=r"epoch 0 ended .* before worker number 4"):
        inbox.end(0)


@pytest.mark.parametrize("told", [0, 2])
def test_a_mark_ends_no_epoch_but_its_own(told: int) -> None:
    outbox, inbox = Outbox(4, 1), Inbox("1/0")
    inbox.take(mark(outbox, 0, told))
    with pytest.raises(LifeEnded, match=f"epoch 1 ended at worker 1/0, but worker number 4 .* epoch {told}"):
        inbox.end(1)


def test_senders_are_counted_apart() -> None:
    inbox = Inbox("1/0")
    for sender in (0, 1):
        inbox.take(headers(Outbox(sender, 1), 0, 1)[0])


@pytest.mark.parametrize("frame", [b"", b"LF", b"XX" + bytes(60), b"LF\x01" + bytes(60)])
def test_bytes_that_are_no_frame_of_this_version_end_the_life(frame: bytes) -> None:
    with pytest.raises(LifeEnded, match="no frame of version 3"):
        Header.unpack(frame)
