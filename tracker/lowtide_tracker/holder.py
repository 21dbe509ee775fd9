"""The answer to "who holds min time?"."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """The one thing that keeps a min time from moving; for how long, the caller knows."""

    tick: int
    """Where min time stands, or will stand once the next message has come."""
    segment: int
    """Where an ack is open, or the (first) segment that the front feeds."""
    front: int | None
    """The front whose heartbeat it is; None for an open ack, and where no front is open."""
    at_front: bool = False
    """Whether fronts hold it, rather than an open ack: that of a frame or of a hold."""

    def __str__(self) -> str:
        if not self.at_front:
            return f"segment {self.segment} has an open ack at tick {self.tick}"
        if self.front is None:
            return f"no front that feeds segment {self.segment} is open; it stays at tick {self.tick}"
        return f"front {self.front} may still label at tick {self.tick}"
