"""A client of a running job's control API.

client = ControlClient(state.control_address(), folder.token())
print(client.status().lag_ms)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from lowtide.errors import LowtideError, ServiceUnavailable
from lowtide.status.job_view import JobView, SnapshotView
from lowtide_snapshots.errors import AddressUnproven
from lowtide_snapshots.job.control_requests import ControlRequests

__all__ = ["ControlClient", "ControlRefused", "ControlUnreachable", "TokenRefused"]

T = TypeVar("T")


class ControlUnreachable(ServiceUnavailable):
    """Look whether the job still runs, then ask again: its control API gave no answer that could be used."""


class ControlRefused(LowtideError):
    """Ask for something else: the job answers, and says why it does not do this."""

    exit_code = 3


class TokenRefused(LowtideError):
    """Give the token of the job's present life."""

    exit_code = 4


class ControlClient(ControlRequests):
    """A job's control API, with its answers as structs.

    Raises:
        ControlUnreachable: by every method: there was no answer.
        TokenRefused: by every method: the token is not this job's, or the address is not shown to be.
        ControlRefused: by every method: it does not do that, and says why.
    """

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

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError as error:
            raise self._unreachable(f"this version of Lowtide cannot read its answer: {error}") from error

    def _unreachable(self, why: str) -> ControlUnreachable:
        return ControlUnreachable(
            f"the job's control API does not answer: {why}",
            where=self._at.address,
            way_out="`lowtide status` shows whether the job still runs; then try again",
        )

    def _unproven(self, error: AddressUnproven) -> TokenRefused:
        return TokenRefused(error.what, where=error.where, way_out=error.way_out)

    def _token_refused(self) -> TokenRefused:
        return TokenRefused(
            "the job does not take this token",
            where=self._at.address,
            way_out="the file `token` in the job's folder has the token of its current life",
        )

    def _refused(self, what: str, way_out: str) -> ControlRefused:
        return ControlRefused(what, where=self._at.address, way_out=way_out)
