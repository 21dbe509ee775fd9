"""Takes snapshots of the running job every few seconds over its control API, some by name, whatever becomes of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Self

from lowtide.errors import LowtideError
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import SnapshotView

EVERY_S = 3.0
REST_S = 12.0
"""Every fifth time: long enough for the job to take one by itself, and to drop old ones."""
TAKEN_WITHIN_S = 40.0
"""Longer than the job itself gives one, so that it says what became of it."""
POLL_S = 0.1
NAMED = 3
"""One in so many is a savepoint, which is kept under its name."""


class Photographer:
    """A thread, for as long as the block lasts.

    Attributes:
        asked: How many snapshots were asked for.
        became: What became of them: committed, failed, or what it was last; "not known" where the life has ended.
        why: Why the last one failed.
        savepoints: The names of those that the job has said are committed.
        under_way: Set while one is.
    """

    def __init__(self, client: Callable[[], ControlClient | None], *, every_s: float = EVERY_S) -> None:
        """Say whom to ask: the present life's control API, None while there is none."""
        self.asked = 0
        self.became: Counter[str] = Counter()
        self.why = ""
        self.savepoints: list[str] = []
        self.under_way = threading.Event()
        self._client = client
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="photographer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(REST_S if self.asked % 5 == 4 and self._every_s == EVERY_S else self._every_s):
            client = self._client()
            if client is not None:
                self._take(client)

    def _take(self, client: ControlClient) -> None:
        view, name = None, f"savepoint {self.asked}" if self.asked % NAMED == 0 else None
        try:
            view = client.take_snapshot(name)
            self.asked += 1
            self.under_way.set()
            deadline = time.monotonic() + TAKEN_WITHIN_S
            while view.phase in ("taking", "sealed") and time.monotonic() < deadline and not self._over.wait(POLL_S):
                view = viewed(client, view.id) or view
        except LowtideError:
            # The life has ended, or its service stands still.
            self.became["not known"] += view is not None
            return
        finally:
            self.under_way.clear()
        if name is not None and view.phase == "committed":
            self.savepoints.append(name)
        self.became[view.phase] += 1
        self.why = str(view.why or self.why)


def viewed(client: ControlClient, id_: str) -> SnapshotView | None:
    return next((each for each in client.snapshots() if each.id == id_), None)
