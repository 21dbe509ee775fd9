"""What came at once is dealt with in groups, in the order it came."""

from lowtide.core.frames import Outbox
from lowtide.process.wire import Kind
from lowtide.worker.backlog import GROUP_MESSAGES, Backlog


def frames(count: int, rows: int = 1) -> list[tuple[int, bytes]]:
    """Frames of a size that tells of so many records."""
    return [(Kind.FRAME, bytes(rows << 7))] * count


def taken(backlog: Backlog) -> list[tuple[int, int]]:
    """The kinds and sizes of all groups."""
    groups = []
    while backlog:
        kind, messages = backlog.group()
        groups.append((kind, len(messages)))
    return groups


def test_frames_are_taken_together_up_to_a_number_of_records() -> None:
    backlog = Backlog(100)
    backlog.add(frames(7, rows=40))
    assert [size for _, size in taken(backlog)] == [2, 2, 2, 1]


def test_a_frame_above_the_number_of_records_is_taken_alone() -> None:
    backlog = Backlog(100)
    backlog.add(frames(2, rows=1000))
    assert [size for _, size in taken(backlog)] == [1, 1]


def test_small_frames_are_taken_together_up_to_a_number_of_frames() -> None:
    backlog = Backlog(1 << 20)
    backlog.add(frames(GROUP_MESSAGES + 1))
    assert [size for _, size in taken(backlog)] == [GROUP_MESSAGES, 1]


def test_a_mark_counts_as_one_record_whatever_its_epoch() -> None:
    backlog = Backlog(100)
    mark = Outbox(1, 1).marks(5000, 0)[0][1]
    backlog.add([*frames(1), (Kind.FRAME, mark), *frames(1)])
    assert taken(backlog) == [(Kind.FRAME, 3)]


def test_an_end_keeps_its_place() -> None:
    backlog = Backlog(100)
    backlog.add([*frames(2), (Kind.END, b"")])
    backlog.add(frames(1))
    assert taken(backlog) == [(Kind.FRAME, 2), (Kind.END, 1), (Kind.FRAME, 1)]


def test_every_message_of_records_is_taken_alone() -> None:
    backlog = Backlog(100)
    backlog.add([(Kind.ROWS, b""), (Kind.ROWS, b"")])
    assert taken(backlog) == [(Kind.ROWS, 1), (Kind.ROWS, 1)]
