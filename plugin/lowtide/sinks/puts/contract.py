"""The contract of stores that take puts: each has a key and a version, and the newer one wins, in any order (R22).

A put may come more than once, and late: one that lay in the network while its carrier died can arrive after the next
carrier has put newer values. A store that compares versions keeps the newer one. One that cannot goes back for a
moment, until the newer put comes again, if it does; a flow has to agree to that (`eventual=True`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lowtide.conf import Conf
from lowtide.sinks.staged.contract import Carriage

OFFSET_BITS = 48


class Put(NamedTuple):
    """A record on its way into a store.

    Attributes:
        key: The record's key as text.
        value: The record as JSON; None deletes it.
        version: Larger for each later put of a key, and the same each time that the put comes; below 2 ** 63.
    """

    key: str
    value: bytes | None
    version: int

    @property
    def offset(self) -> int:
        """The record's offset in the staged log."""
        return self.version & ((1 << OFFSET_BITS) - 1)


class Unavailable(Exception):
    """Put again later: the store has done nothing, or nobody knows. An OSError means the same."""


class Refused(Exception):
    """Correct the record: the store will never take it.

    Attributes:
        key: The key of the put.
    """

    def __init__(self, key: str, answer: str) -> None:
        super().__init__(answer)
        self.key = key


class PutClient(Protocol):
    """An open store; each line of the carrier has one of its own, and calls it from one thread.

    One that has `close` too is closed at the end.
    """

    def put(self, puts: Sequence[Put], /) -> None:
        """Return once all puts are done, or the store has refused them as it has newer versions.

        Args:
            puts: Of different keys, so in any order; after a failure all of them come again.

        Raises:
            Unavailable, OSError: the store does not answer, or asks to wait.
            Refused: it will never take one of them.
        """


@runtime_checkable
class PutStore(Protocol):
    """A store as a flow names it: a frozen value that pickles with the plan, and opens nothing; `str()` is its name.

    A store that needs nothing of the conf may be a `PutClient` instead, of which each line takes a copy.
    """

    @property
    def compares(self) -> bool:
        """True if the store refuses a put that is older than what it has; a client that lacks this does not."""

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return what `client` needs of the conf, secrets included (errors: ConfError)."""

    def client(self, name: str, carriage: Carriage) -> PutClient:
        """Return a line's client; it connects when it is first used.

        Args:
            name: What the flow calls the records: an index, a folder, a prefix of keys.
            carriage: The job, with what `settings` returned.
        """


@runtime_checkable
class SharedNames(Protocol):
    """Addition to `PutStore` for a store where records under two names may have one address."""

    def meets(self, name: str, other: str, /) -> bool:
        """Return whether a record under one name may have the address of one under the other; each way is asked."""


def version_of(generation: int, offset: int, births: int = 0) -> int:
    """Return the version of a put: those of a later output generation, which delivers everything again, win.

    So do those of a partition that a later growth of the job has made. A key stays in its partition, where offsets
    ascend, or moves to one that is made later.

    Args:
        generation: Output generation.
        offset: Offset in the staged log, below 2 ** 48.
        births: The number of the growth that made the partition; with the generation below 32,768.
    """
    assert generation + births < 1 << 15, "a version has 63 bits"
    assert offset < 1 << OFFSET_BITS, "a version has 48 bits for the offset"
    return generation + births << OFFSET_BITS | offset
