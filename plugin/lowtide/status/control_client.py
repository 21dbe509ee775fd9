"""A client of a running job's control API.

client = ControlClient(state.control_address(), folder.token())
print(client.status().lag_ms)
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from lowtide.errors import LowtideError, ServiceUnavailable
from lowtide.status.job_view import JobView, SnapshotView
from lowtide_snapshots.errors import AddressUnproven
from lowtide_snapshots.job.control_address import ControlAddress, ask

__all__ = ["ControlClient", "ControlRefused", "ControlUnreachable", "TokenRefused"]

T = TypeVar("T")
LIMIT_S = 5.0
"""How long the control API may take to answer."""


class ControlUnreachable(ServiceUnavailable):
    """Look whether the job still runs, then ask again: its control API gave no answer that could be used."""


class ControlRefused(LowtideError):
    """Ask for something else: the job answers, and says why it does not do this."""

    exit_code = 3


class TokenRefused(LowtideError):
    """Give the token of the job's present life."""

    exit_code = 4


class ControlClient:
    """A job's control API; each question is a connection of its own.

    Args:
        at: Where it is.
        token: The job's; sent to nobody but the life that has published that address.
        limit_s: How long one step of an answer may take.

    Raises:
        ControlUnreachable: by every method: there was no answer.
        TokenRefused: by every method: the token is not this job's, or the address is not shown to be.
        ControlRefused: by every method: it does not do that, and says why.
    """

    def __init__(self, at: ControlAddress, token: str, limit_s: float = LIMIT_S) -> None:
        self._at = at
        self._token = token
        self._limit_s = limit_s

    def status(self) -> JobView:
        """Return the job's status."""
        return self._decoded(self._ask("GET", "/status"), JobView)

    def metrics(self) -> str:
        """Return the job's metrics in Prometheus' text format."""
        return self._ask("GET", "/metrics").decode()

    def stop(self) -> None:
        """Ask the job to end: what its sinks were given is delivered first. Returns when that has begun."""
        self._ask("POST", "/stop")

    def snapshots(self) -> list[SnapshotView]:
        """Return the snapshots of the job's present life, oldest first."""
        return self._decoded(self._ask("GET", "/snapshots"), list[SnapshotView])

    def take_snapshot(self, name: str | None = None, *, commit: bool = True) -> SnapshotView:
        """Ask for a snapshot; `snapshots` tells what becomes of it.

        Args:
            name: What to call it.
            commit: Whether it is committed as soon as it is sealed.
        """
        body = msgspec.json.encode({"name": name, "commit": commit})
        return self._decoded(self._ask("POST", "/snapshots", body), SnapshotView)

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
            raise self._unreachable(f"this version of Lowtide does not know its answer: {error}") from error

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            status, answer = ask(self._at, self._token, method, path, body, limit_s=self._limit_s)
        except AddressUnproven as error:
            raise TokenRefused(error.what, where=error.where, way_out=error.way_out) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        if status == HTTPStatus.UNAUTHORIZED:
            raise TokenRefused(
                "the job does not take this token",
                where=self._at.address,
                way_out="the file `token` in the job's folder has that of its present life",
            )
        refused = _refusal(answer) if status < HTTPStatus.INTERNAL_SERVER_ERROR else None
        if status >= HTTPStatus.BAD_REQUEST and refused is not None:
            raise ControlRefused(refused.error, where=self._at.address, way_out=refused.what_to_do)
        if status >= HTTPStatus.BAD_REQUEST:
            raise self._unreachable(f"it answered {status}: {answer[:500].decode(errors='replace')}")
        return answer

    def _unreachable(self, why: str) -> ControlUnreachable:
        return ControlUnreachable(
            f"the job's control API does not answer: {why}",
            where=self._at.address,
            way_out="`lowtide status` says whether the job still runs; then ask again",
        )


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    what_to_do: str


def _refusal(answer: bytes) -> _Refusal | None:
    try:
        return msgspec.json.decode(answer, type=_Refusal)
    except msgspec.MsgspecError:
        return None
