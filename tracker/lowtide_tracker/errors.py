"""Errors of the tracking protocol, named for what the caller should do; each message gives numbers and the way out."""


class TrackerError(Exception):
    """Base of every error of this package. Unless it says otherwise, the life ends: recover from the last commit."""


class ProtocolError(TrackerError):
    """A peer sent what the protocol does not allow; close its connection."""


class GraphError(TrackerError):
    """Segments and what feeds them do not make a graph; correct the flow's plan."""


class TableFull(TrackerError):
    """An ack lies too far ahead of its segment's min time: a front was not stopped in time, or the table is small."""

    def __init__(self, segment: int, tick: int, min_time: int, capacity_ticks: int) -> None:
        super().__init__(segment, tick, min_time, capacity_ticks)
        self.segment, self.tick, self.min_time, self.capacity_ticks = segment, tick, min_time, capacity_ticks

    def __str__(self) -> str:
        return (
            f"segment {self.segment}: an ack at tick {self.tick} is {self.tick - self.min_time} ticks ahead of "
            f"min time {self.min_time}, and the table holds {self.capacity_ticks}; stop fronts earlier "
            "(max_front_lead_ms)"
        )


class TimeWentBack(TrackerError):
    """An ack lies below its segment's min time: what was announced as over is not. Stop the job, deliver nothing."""

    def __init__(self, segment: int, tick: int, min_time: int) -> None:
        super().__init__(segment, tick, min_time)
        self.segment, self.tick, self.min_time = segment, tick, min_time

    def __str__(self) -> str:
        return (
            f"segment {self.segment}: an ack at tick {self.tick} is below min time {self.min_time}, which is "
            "already announced; an ack was lost, doubled or sent too early: the life ends here, recover from the "
            "last commit"
        )


class FlushGap(TrackerError):
    """A worker's flush is missing: acks are lost. The life ends; recover from the last commit."""

    def __init__(self, worker: int, number: int, expected: int) -> None:
        super().__init__(worker, number, expected)
        self.worker, self.number, self.expected = worker, number, expected

    def __str__(self) -> str:
        return (
            f"worker {self.worker} sent flush {self.number} where flush {self.expected} was expected: "
            "acks are lost, the life ends here, recover from the last commit"
        )


class NoticeGap(TrackerError):
    """A subscriber missed a notice; subscribe again, the answer says everything."""

    def __init__(self, era: int, number: int, after: int, heard: int) -> None:
        super().__init__(era, number, after, heard)
        self.era, self.number, self.after, self.heard = era, number, after, heard

    def __str__(self) -> str:
        return (
            f"notice {self.number} of era {self.era} continues notice {self.after}, but the last one received is "
            f"{self.heard}: subscribe again"
        )


class HeartbeatWentBack(TrackerError):
    """A front took a heartbeat back: its labels cannot be trusted. The life ends; recover from the last commit."""

    def __init__(self, front: int, tick: int, heartbeat: int) -> None:
        super().__init__(front, tick, heartbeat)
        self.front, self.tick, self.heartbeat = front, tick, heartbeat

    def __str__(self) -> str:
        return (
            f"front {self.front} sent heartbeat {self.tick} after {self.heartbeat}: a heartbeat never goes back; "
            "the life ends here, recover from the last commit"
        )


class DuePassed(TrackerError):
    """An owner will send at a tick announced as over: it reported so too late. Stop the job, deliver nothing."""

    def __init__(self, segment: int, owner: int, tick: int, min_time: int) -> None:
        super().__init__(segment, owner, tick, min_time)
        self.segment, self.owner, self.tick, self.min_time = segment, owner, tick, min_time

    def __str__(self) -> str:
        return (
            f"segment {self.segment}: owner {self.owner} has something due at tick {self.tick}, below min time "
            f"{self.min_time}, which is already announced; its due came after the ack of its cause: the life ends "
            "here, recover from the last commit"
        )


class UnknownOwner(TrackerError):
    """A message tells what is due for an owner that is not registered: the peers do not run the same plan."""

    def __init__(self, segment: int, owner: int) -> None:
        super().__init__(segment, owner)
        self.segment, self.owner = segment, owner

    def __str__(self) -> str:
        return (
            f"owner {self.owner} of segment {self.segment} is not registered, so nothing has waited for its dues: "
            "start every process of the job with the same plan"
        )


class UnknownSegment(TrackerError):
    """A message names a segment that the graph does not have: the peers do not run the same plan."""

    def __init__(self, segment: int, known: tuple[int, ...]) -> None:
        super().__init__(segment, known)
        self.segment, self.known = segment, known

    def __str__(self) -> str:
        return (
            f"there is no segment {self.segment}, only {', '.join(map(str, self.known))}: "
            "start every process of the job with the same plan"
        )


class UnknownFront(TrackerError):
    """A message names a front that was not opened: open and register a front before its first label."""

    def __init__(self, front: int) -> None:
        super().__init__(front)
        self.front = front

    def __str__(self) -> str:
        return (
            f"front {self.front} is not open: open it, register the answered tick as its floor, then label its "
            "first record"
        )


class FrontIsClosed(TrackerError):
    """A front that was closed for good goes on: close a front after its owner's last flush was applied."""

    def __init__(self, front: int, heartbeat: int) -> None:
        super().__init__(front, heartbeat)
        self.front, self.heartbeat = front, heartbeat

    def __str__(self) -> str:
        return (
            f"front {self.front} was closed for good at heartbeat {self.heartbeat}: later records need a new "
            "front with another number"
        )


class UnknownWorker(TrackerError):
    """A worker that the register does not name sent something to a tracker that is being rebuilt."""

    def __init__(self, worker: int, expected: tuple[int, ...]) -> None:
        super().__init__(worker, expected)
        self.worker, self.expected = worker, expected

    def __str__(self) -> str:
        return (
            f"the tracker is being rebuilt from workers {', '.join(map(str, self.expected))}; worker "
            f"{self.worker} is not one of them: rebuild from every worker of the driver's register"
        )


class StillRebuilding(TrackerError):
    """Ask again once every worker has reported; nothing has happened."""

    def __init__(self, missing: tuple[int, ...]) -> None:
        super().__init__(missing)
        self.missing = missing

    def __str__(self) -> str:
        return (
            f"the tracker is being rebuilt and waits for workers {', '.join(map(str, self.missing))}: ask again later"
        )


class Refused(TrackerError):
    """The tracker does not take this process into the life; end the process."""


class LifeEnded(TrackerError):
    """The tracker says that the life is over, and why; end the process."""


class ConnectionLost(TrackerError):
    """The connection is gone and nothing is lost: connect again, what was not applied is sent again."""
