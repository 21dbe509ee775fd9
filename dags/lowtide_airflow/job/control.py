"""Client of a running job's control API; each request opens a new connection."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

from lowtide_snapshots.job.control_requests import ControlRequests


class Control(ControlRequests):
    """A job's control API, with its answers as plain values."""

    way_there = "make it reachable from this machine: set the job's [control].host and port, then try again"
    way_in = "set [control].token_file for the job, and its content as the password of the Airflow connection"

    def status(self) -> dict[str, Any]:
        """Return the running job's full status, `GET /status`; times are ms since 1970."""
        answer: dict[str, Any] = self._value(self._ask("GET", "/status"))
        return answer

    def history(self) -> Any:
        """Return the current life's figures over time, `GET /history`."""
        return self._value(self._ask("GET", "/history"))

    def snapshots(self) -> list[dict[str, Any]]:
        """Return the snapshots of this life, oldest first; each has at least `id`, `name`, `phase` and `why`."""
        answer: list[dict[str, Any]] = self._value(self._ask("GET", "/snapshots"))
        return answer

    def ended_ms(self, step: str, label: str) -> int | None:
        """Return when the substream of a label has ended, in ms since 1970; None if it has not, `GET /done/STEP`."""
        answer = self._value(self._ask("GET", f"/done/{quote(step, safe='')}?{urlencode({'label': label})}"))
        ended: int | None = answer["ended_ms"]
        return ended

    def take_snapshot(self, *, name: str | None = None, key: str | None = None, commit: bool = True) -> dict[str, Any]:
        """Request a snapshot; `snapshots` shows its progress.

        Args:
            name: the snapshot's name; one with a name is never pruned.
            key: the request's; a second request with one key gets the snapshot of the first.
            commit: whether the job commits it as soon as it is sealed.
        """
        answer: dict[str, Any] = self._value(self._take(name, commit=commit, key=key))
        return answer

    def _value(self, answer: bytes) -> Any:
        try:
            return json.loads(answer)
        except ValueError as error:
            quoted = answer[:100].decode(errors="replace")
            raise self._unreachable(f"its answer is not JSON: {quoted!r}") from error
