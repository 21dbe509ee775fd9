"""Decides which task a worker takes (R10): one at a time, of its own life, after a clean end of the one before."""

from dataclasses import dataclass


@dataclass(slots=True)
class Attachment:
    """The tasks of one worker. Pure.

    Attributes:
        incarnation: The life the worker belongs to.
        every_epoch: True if a task comes in every epoch; at level 0 a partition without records has none.
        epoch: The epoch of the attached or last task; None before the first.
        attached: True while a task is attached.
        broken: True once a task has ended without announcing its end; then no other task is taken.
    """

    incarnation: int
    every_epoch: bool
    epoch: int | None = None
    attached: bool = False
    broken: bool = False

    def attach(self, incarnation: int, epoch: int) -> str:
        """Take the task, or return why it is refused; empty if taken."""
        if incarnation != self.incarnation:
            return f"the worker belongs to incarnation {self.incarnation}, the task to {incarnation}"
        if self.attached:
            return f"the task of epoch {self.epoch} is still attached"
        if self.broken:
            return f"the task of epoch {self.epoch} broke off; the records it held are lost"
        if self.epoch is not None:
            if epoch <= self.epoch:
                return f"epoch {self.epoch} has already ended here"
            if self.every_epoch and epoch != self.epoch + 1:
                return f"the worker's last epoch is {self.epoch}; the epochs between are missing"
        self.epoch, self.attached = epoch, True
        return ""

    def ended(self, epoch: int) -> None:
        """Note that the task has announced the end of its input and has all output."""
        if not self.attached or epoch != self.epoch:
            raise ValueError(f"an end of epoch {epoch} while at epoch {self.epoch}, attached: {self.attached}")
        self.attached = False

    def broke(self) -> None:
        """Note that the task's connection closed before the task announced its end."""
        self.attached = False
        self.broken = True
