"""R10: a task attaches with (incarnation, epoch) and is taken only if it is the successor of a clean end."""

import pytest

from lowtide.worker.attachment import Attachment

LIFE = 7


def after_epoch(epoch: int, *, every_epoch: bool = True) -> Attachment:
    attachment = Attachment(LIFE, every_epoch)
    assert attachment.attach(LIFE, epoch) == ""
    attachment.ended(epoch)
    return attachment


def test_the_successor_of_a_clean_end_is_taken() -> None:
    assert after_epoch(0).attach(LIFE, 1) == ""


def test_a_task_of_another_life_is_refused() -> None:
    assert "incarnation 7" in after_epoch(0).attach(LIFE - 1, 1)


def test_one_task_at_a_time() -> None:
    attachment = after_epoch(0)
    attachment.attach(LIFE, 1)
    assert "still attached" in attachment.attach(LIFE, 2)


def test_after_a_task_that_broke_off_nothing_is_taken() -> None:
    attachment = Attachment(LIFE, every_epoch=True)
    attachment.attach(LIFE, 0)
    attachment.broke()
    assert "broke off" in attachment.attach(LIFE, 1)


@pytest.mark.parametrize("epoch", [0, 3, 4])
def test_an_epoch_that_has_ended_does_not_come_again(epoch: int) -> None:
    assert "already ended" in after_epoch(4).attach(LIFE, epoch)


def test_an_epoch_may_not_be_left_out_at_a_later_level() -> None:
    assert "missing" in after_epoch(0).attach(LIFE, 2)


def test_a_source_partition_without_records_leaves_epochs_out() -> None:
    assert after_epoch(0, every_epoch=False).attach(LIFE, 5) == ""


def test_an_end_that_does_not_belong_to_the_attached_task_is_our_mistake() -> None:
    attachment = after_epoch(0)
    with pytest.raises(ValueError, match="end of epoch 1"):
        attachment.ended(1)
