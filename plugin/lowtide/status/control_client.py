"""A client of a running job's control API.

client = ControlClient(state.control_address(), folder.token())
print(client.status().lag_ms)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from lowtide.status.job_view import JobView, SnapshotView
from lowtide_snapshots.job.control_requests import ControlRequests

MOST_KEYS = 1000
"""The number of keys in one question: a worker answers it between two groups of frames."""
KEYS_BYTES = 60_000
"""And about the size of its body."""

T = TypeVar("T")


class ControlClient(ControlRequests):
    """A job's control API, with its answers as structs."""

    def status(self) -> JobView:
        """Return the job's status."""
        return self._decoded(self._ask("GET", "/status"), JobView)

    def metrics(self) -> str:
        """Return the job's metrics in Prometheus' text format."""
        return self._ask("GET", "/metrics").decode()

    def snapshots(self) -> list[SnapshotView]:
        """Return the snapshots of the job's present life, oldest first."""
        return self._decoded(self._ask("GET", "/snapshots"), list[SnapshotView])

    def take_snapshot(self, name: str | None = None, *, commit: bool = True) -> SnapshotView:
        """Ask for a snapshot; `snapshots` tells what becomes of it.

        Args:
            name: What to call it.
            commit: Whether it is committed as soon as it is sealed.
        """
        return self._decoded(self._take(name, commit=commit), SnapshotView)

    def state(self, step: str, key: Mapping[str, str]) -> dict[str, Any]:
        """Return the state of one key of a step as of min time: `step`, `key`, `min_time_ms` and `rows`.

        Args:
            step: The step's name.
            key: Text by column.
        """
        answer = self._ask("GET", f"/state/{quote(step, safe='')}?{urlencode(key)}")
        return self._decoded(answer, dict[str, Any])

    def states(self, step: str, keys: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
        """Return the states of keys of a step, each with its `key`, `min_time_ms` and `rows`.

        Args:
            step: The step's name.
            keys: Text by column, for each key; `{}` for a broadcast.
        """
        found: list[dict[str, Any]] = []
        for part in _parts(keys):
            found += self._decoded(self._post_state(step, {"keys": part}), dict[str, Any])["keys"]
        return found

    def states_around(self, step: str, unit: int | None = None, limit: int = 100) -> dict[str, Any]:
        """Return the first keys of a step: `keys`, each with its `rows`, the lowest `min_time_ms`, and maybe `more`.

        Args:
            step: The step's name.
            unit: The hash unit to look at; None for any.
            limit: The number of keys.
        """
        return self._decoded(self._post_state(step, {"unit": unit, "limit": limit}), dict[str, Any])

    def _post_state(self, step: str, body: dict[str, Any]) -> bytes:
        return self._ask("POST", f"/state/{quote(step, safe='')}", msgspec.json.encode(body))

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise self._unreachable(f"this version of Lowtide cannot read its answer: {error}") from error


def _parts(keys: Sequence[Mapping[str, str]]) -> Iterator[list[Mapping[str, str]]]:
    """Cut keys into as many as one question may have."""
    part: list[Mapping[str, str]] = []
    taken = 0
    for key in keys:
        size = len(msgspec.json.encode(key)) + 1
        if part and (len(part) == MOST_KEYS or taken + size > KEYS_BYTES):
            yield part
            part, taken = [], 0
        part.append(key)
        taken += size
    if part:
        yield part
