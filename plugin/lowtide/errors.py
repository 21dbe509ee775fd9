"""All errors of Lowtide but those of its snapshots: one class per thing the caller can do about it.

Each error says what happened, where, and what to do; the CLI prints it as `error: …` and ends with `exit_code`:

    2   the command line or the configuration has to be corrected
    3   the flow has to be corrected
    4   the surroundings have to be mended: a service, a port, a jar, a JDK, an interpreter
    5   the job ended, by its input, by the user's code or by a loss; its input is still there
    6   a snapshot was not taken or not committed, or is damaged; a job that runs goes on
    1   anything else, which is a fault of Lowtide
"""

from __future__ import annotations

from lowtide_snapshots.errors import (
    AlreadyRunning,
    FlowError,
    LowtideError,
    ServiceUnavailable,
    SnapshotDamaged,
    SnapshotFailed,
)

__all__ = [
    "AlreadyRunning",
    "ConfError",
    "FlowError",
    "FrameTooLarge",
    "InterpreterMismatch",
    "JarDamaged",
    "JarMissing",
    "JavaMissing",
    "LifeEnded",
    "LowtideError",
    "NotRunning",
    "PortTaken",
    "RecordRefused",
    "ServiceUnavailable",
    "SessionTaken",
    "SnapshotDamaged",
    "SnapshotFailed",
    "StateTooLarge",
    "TooFewSlots",
    "TopicUnknown",
    "UserCodeFailed",
]


class ConfError(LowtideError):
    """Correct the configuration: an unknown key, a wrong type, a value out of range, a secret that is not there."""

    exit_code = 2


class TopicUnknown(ServiceUnavailable):
    """Create the topic, or correct its name."""


class PortTaken(LowtideError):
    """Choose another port, or stop the program that listens on this one."""

    exit_code = 4


class JarMissing(LowtideError):
    """Fetch or build the jar that is missing or older than its source."""

    exit_code = 4


class JarDamaged(JarMissing):
    """Delete the jar whose content is not the expected one, and fetch it again."""


class JavaMissing(LowtideError):
    """Install a JDK that is new enough, or name it."""

    exit_code = 4


class InterpreterMismatch(LowtideError):
    """Let driver, executors and workers run the same Python with the same packages."""

    kind = "interpreter"
    exit_code = 4


class TooFewSlots(LowtideError):
    """Give Spark more slots, or the flow less parallelism: Real-Time Mode runs all levels at once."""

    exit_code = 4


class SessionTaken(LowtideError):
    """Stop the running SparkSession, or start it with Lowtide's plugin."""

    exit_code = 4


class NotRunning(LowtideError):
    """Start the job first, or correct its name."""

    exit_code = 4


class RecordRefused(LowtideError):
    """Correct the record or the schema, or give the flow a dead-letter sink: the record cannot be read."""

    kind = "flow"
    exit_code = 5


class FrameTooLarge(RecordRefused):
    """Raise the named limit, or make the record smaller."""


class UserCodeFailed(LowtideError):
    """Correct the user's function: it raised, or returned what its type does not allow."""

    kind = "flow"
    exit_code = 5


class StateTooLarge(LowtideError):
    """Let the step keep less, spread it over more workers, or raise its limit; then start the job again."""

    kind = "flow"
    exit_code = 5


class LifeEnded(LowtideError):
    """Recover the job: a worker, a frame or a connection of this life was lost, and going on would be wrong."""

    kind = "loss"
    exit_code = 5


class TimeWentBack(LifeEnded):
    """Recover the job by replay: a record came below a tick that had been released, so an ack was lost or duplicated.

    Attributes:
        tick: The record's.
        released: Everything below it had been released.
    """

    def __init__(self, place: str, tick: int, released: int) -> None:
        super().__init__(
            f"a record of tick {tick} came to {place}, where everything below tick {released} had been released",
            way_out="start the job again: it replays from its log, and nothing wrong has been delivered; "
            "report it if it happens without a failure of the network or of a process",
        )
        self.tick = tick
        self.released = released
