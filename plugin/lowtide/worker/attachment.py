"""Decides which task a worker takes (R10): one at a time, of its own life, after a clean end of the one before."""

from dataclasses import dataclass


@dataclass(slots=True)
class Attachment:
    """The tasks of one worker. Pure.

    Attributes:
        incarnation: The life the worker belongs to.
        every_epoch: Whether a task comes in every epoch; at level 0 a partition without records has none.
        epoch: The epoch of the task that is attached or was last; None before the first.
        attached: Whether a task is attached now.
        broken: Whether a task ended without its end being told; then nothing is taken any more.
    """

    incarnation: int
    every_epoch: bool
    epoch: int | None = None
    attached: bool = False
    broken: bool = False

    def attach(self, incarnation: int, epoch: int) -> str:
        """Takes the task, or returns why it is refused; empty when taken."""
        if incarnation != self.incarnation:
            return f"it belongs to incarnation {self.incarnation}, the task to {incarnation}"
        if self.attached:
            return f"the task of epoch {self.epoch} is still attached"
        if self.broken:
            return f"the task of epoch {self.epoch} broke off; what it had in hand is lost"
        if self.epoch is not None:
            if epoch <= self.epoch:
                return f"epoch {self.epoch} has already ended here"
            if self.every_epoch and epoch != self.epoch + 1:
                return f"its last epoch was {self.epoch}; the epochs between are missing"
        self.epoch, self.attached = epoch, True
        return ""

    def ended(self, epoch: int) -> None:
        """The task has told that its input is over, and all output was handed to it."""
        if not self.attached or epoch != self.epoch:
            raise ValueError(f"an end of epoch {epoch} while at epoch {self.epoch}, attached: {self.attached}")
        self.attached = False

    def broke(self) -> None:
        """The task's connection closed before its end was told."""
        self.attached = False
        self.broken = True
