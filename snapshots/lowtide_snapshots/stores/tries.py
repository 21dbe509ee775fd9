"""Trying a server again, with growing pauses, for as long as a limit allows."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from lowtide_snapshots.errors import SnapshotsError
from lowtide_snapshots.stores.errors import StoreUnavailable

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
MOST_PAUSE_S = 5.0


class Tries:
    """Asks until there is an answer, or the limit has passed.

    Args:
        limit_s: for one request, tries and pauses together.
        where: the store, for people.
        failures: the errors of the library that sends requests.
        meaning: the error of this package for one of them; `StoreUnavailable` for what is worth another try.

    Attributes:
        one_s: how long one try may wait for the server; none begins when less than that is left.
    """

    def __init__(
        self,
        limit_s: float,
        where: str,
        failures: tuple[type[Exception], ...],
        meaning: Callable[[Exception, str], SnapshotsError],
    ) -> None:
        self.one_s = limit_s / 3
        self._limit_s = limit_s
        self._where = where
        self._failures = failures
        self._meaning = meaning

    def __call__(self, name: str, ask: Callable[[], T]) -> T:
        """Ask, and ask again what may be answered otherwise later.

        Args:
            name: of the object, for people.
            ask: raises one of the failures, or `StoreUnavailable` for what is worth another try.

        Raises:
            SnapshotsError: what the last try's failure means.
        """
        where = f"{self._where}, {name}"
        last = time.monotonic() + self._limit_s - self.one_s
        most_s = FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except StoreUnavailable as error:
                failure = error
            except self._failures as error:
                meant = self._meaning(error, where)
                if not isinstance(meant, StoreUnavailable):
                    raise meant from error
                meant.__cause__ = error
                failure = meant
            # Jitter, so that many clients refused at once do not come back at once.
            pause_s = random.uniform(most_s / 2, most_s)  # noqa: S311
            if time.monotonic() + pause_s > last:
                raise failure
            time.sleep(pause_s)
            most_s = min(most_s * 2, MOST_PAUSE_S)
