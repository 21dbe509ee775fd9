"""Takes snapshots of the running job every few seconds over its control API, whatever becomes of them."""

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


class Photographer:
    """A thread, for as long as the block lasts.

    Attributes:
        asked: How many snapshots were asked for.
        became: What became of them: committed, failed, or what it was last; "not known" where the life has ended.
        why: Why the last one failed.
    """

    def __init__(self, client: Callable[[], ControlClient | None]) -> None:
        """Say whom to ask: the present life's control API, None while there is none."""
        self.asked = 0
        self.became: Counter[str] = Counter()
        self.why = ""
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="photographer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(REST_S if self.asked % 5 == 4 else EVERY_S):
            client = self._client()
            if client is not None:
                self._take(client)

    def _take(self, client: ControlClient) -> None:
        view = None
        try:
            view = client.take_snapshot()
            self.asked += 1
            deadline = time.monotonic() + TAKEN_WITHIN_S
            while view.phase in ("taking", "sealed") and time.monotonic() < deadline and not self._over.wait(POLL_S):
                view = viewed(client, view.id) or view
        except LowtideError:
            # The life has ended, or its service stands still.
            self.became["not known"] += view is not None
            return
        self.became[view.phase] += 1
        self.why = str(view.why or self.why)


def viewed(client: ControlClient, id_: str) -> SnapshotView | None:
    return next((each for each in client.snapshots() if each.id == id_), None)
