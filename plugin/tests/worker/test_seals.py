"""Frames between hosts are sealed: nothing is read, changed, repeated or made on the way without the job's end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stage_rig import Kept, Rig, Served, deployment, orders, packed, stage_of

from lowtide.errors import LifeEnded
from lowtide.worker.seals import Seals

SECRET = bytes(range(32))
LIFE = "shop", "id-1", 7


def seals(
    secret: bytes = SECRET, life: tuple[str, str, int] = LIFE, level: int = 1, place: int = 0, name: str = "1/0"
) -> Seals:
    return Seals(secret, life, level, place, name)


def sender(secret: bytes = SECRET, life: tuple[str, str, int] = LIFE) -> Seals:
    return seals(secret, life, level=0, name="0/orders-0")


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide.worker.stage_parts.ExactlyOnce", Kept)


@pytest.fixture
def tracker() -> Iterator[Served]:
    with Served() as served:
        yield served
        assert served.faults == []


# -- a frame -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 200, 1 << 20])
def test_its_target_opens_what_was_sealed(size: int) -> None:
    frame = bytes(size)
    sealed = sender().seal(0, 5, 17, frame)
    assert len(sealed) == size + 30
    assert seals().open(sealed) == frame


def test_any_changed_byte_is_found() -> None:
    sealed = sender().seal(0, 5, 17, b"a frame of some records")
    target = seals()
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(LifeEnded, match="worker 1/0"):
            target.open(bytes(changed))
    for end in range(len(sealed)):
        with pytest.raises(LifeEnded, match="worker 1/0"):
            target.open(sealed[:end])


def test_a_frame_that_cannot_be_opened_names_its_edge() -> None:
    sealed = bytearray(sender().seal(0, 5, 17, b"a frame"))
    sealed[-1] ^= 1
    with pytest.raises(LifeEnded) as ended:
        seals().open(bytes(sealed))
    assert "frame 17 of worker number 5 to worker 1/0" in str(ended.value)
    assert "reaches the executors' ports" in ended.value.way_out


@pytest.mark.parametrize(
    "other",
    [
        seals(place=1, name="1/1"),
        seals(level=2, name="2/0"),
        seals(SECRET[::-1]),
        seals(life=("shop", "id-1", 8)),
        seals(life=("shop", "id-2", 7)),
        seals(life=("shops", "id-1", 7)),
        # Names that end elsewhere in what keys are made from.
        seals(life=("shopid", "-1", 7)),
    ],
    ids=["place", "level", "secret", "incarnation", "job id", "job", "border"],
)
def test_nobody_else_opens_it(other: Seals) -> None:
    with pytest.raises(LifeEnded, match="cannot be opened"):
        other.open(sender().seal(0, 5, 17, b"a frame"))


def test_a_frame_in_the_clear_is_refused() -> None:
    for data in (b"", b"\x9c\x04\x00", bytes(100)):
        with pytest.raises(LifeEnded, match="a frame in the clear reached worker 1/0"):
            seals().open(data)


# -- workers -----------------------------------------------------------------------------------------------------------


def delivered_over_hosts(tracker: str, *, sealed: bool) -> Rig:
    """Have each worker in a host of its own deliver, over two epochs."""
    rig = Rig.of(deployment(sealed=sealed), tracker)
    for epoch in range(2):
        for partition in range(2):
            rig.read(packed(orders(20, size=40), partition, first=20 * epoch, tick=5 + epoch), partition)
        for name, stage in rig.stages.items():
            if name.startswith("0/"):
                rig.route([(name, stage.end(epoch, 1))])
        for name, stage in rig.stages.items():
            if name.startswith("1/"):
                stage.end(epoch, 1)
    rig.grant(20)
    rig.until(lambda: len(rig.delivered) == 80)
    return rig


def test_what_goes_between_hosts_says_nothing_and_is_delivered(tracker: Served) -> None:
    sealed = delivered_over_hosts(tracker.address, sealed=True)
    with Served() as other:
        clear = delivered_over_hosts(other.address, sealed=False)
        assert len(sealed.frames) == len(clear.frames) > 8
    by_user = [sorted(rig.delivered, key=lambda each: (each["user"], each["number"])) for rig in (sealed, clear)]
    assert by_user[0] == by_user[1]
    marker = b"xxxxx"
    assert any(marker in frame for frame in clear.frames)
    assert not any(marker in frame for frame in sealed.frames)


def test_no_two_frames_to_a_target_have_one_nonce(tracker: Served) -> None:
    """Marks are numbered with the others (R10)."""
    made = deployment(sealed=True)
    seen: set[tuple[int, bytes]] = set()
    for number in range(2):
        source = stage_of(made, f"0/orders-{number}", number, tracker.address)
        for turn in range(5):
            message = packed(orders(20, first=20 * turn), number, first=20 * turn, tick=5 + turn)
            for target, frame in [*source.rows(message, 1), *source.end(turn, 1)]:
                assert (target, frame[:14]) not in seen
                seen.add((target, frame[:14]))
    assert len(seen) > 20


def test_a_frame_that_comes_again_or_out_of_turn_ends_the_life(tracker: Served) -> None:
    made = deployment(sealed=True, parallelism=1)
    source = stage_of(made, "0/orders-1", 0, tracker.address)
    frames = [source.rows(packed(orders(3), first=3 * turn, tick=5 + turn), 1)[0][1] for turn in range(2)]
    late = stage_of(made, "1/0", 1, tracker.address)
    with pytest.raises(LifeEnded, match="was lost on the way from worker number 0 to worker 1/0"):
        late.frames(frames[1:], 1)
    again = stage_of(made, "1/0", 2, tracker.address)
    again.frames(frames, 1)
    with pytest.raises(LifeEnded, match="came twice or too late"):
        again.frames(frames[:1], 1)


def test_a_frame_for_another_worker_ends_the_life(tracker: Served) -> None:
    made = deployment(sealed=True)
    source = stage_of(made, "0/orders-1", 0, tracker.address)
    other = {0: stage_of(made, "1/1", 1, tracker.address), 1: stage_of(made, "1/0", 2, tracker.address)}
    for target, frame in source.rows(packed(orders(9)), 1):
        with pytest.raises(LifeEnded, match="cannot be opened"):
            other[target].frames([frame], 1)


def test_a_worker_takes_no_frame_in_the_clear(tracker: Served) -> None:
    source = stage_of(deployment(parallelism=1), "0/orders-1", 0, tracker.address)
    target = stage_of(deployment(sealed=True, parallelism=1), "1/0", 1, tracker.address)
    ((_, frame),) = source.rows(packed(orders(3)), 1)
    with pytest.raises(LifeEnded, match="a frame in the clear reached worker 1/0"):
        target.frames([frame], 1)
