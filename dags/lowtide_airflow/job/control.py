"""Client of a running job's control API; each request opens a connection of its own."""

from __future__ import annotations

import http.client
import json
from http import HTTPStatus
from typing import Any

from lowtide_airflow.errors import ControlRefused, ControlUnreachable, TokenRefused
from lowtide_snapshots.errors import AddressUnproven
from lowtide_snapshots.job.control_address import ControlAddress, ask

__all__ = ["Control"]


class Control:
    """A job's control API. Every method raises `ControlUnreachable`, `TokenRefused` or `ControlRefused`.

    Args:
        at: its address, as the life has published it in ZooKeeper.
        token: the job's; sent only to the life that published the address.
        limit_s: how long each step of an answer may take.
    """

    def __init__(self, at: ControlAddress, token: str, limit_s: float = 5.0) -> None:
        self._at = at
        self._token = token
        self._limit_s = limit_s

    def status(self) -> dict[str, Any]:
        """Return the running job's full status, `GET /status`; times are ms since 1970."""
        answer: dict[str, Any] = self._ask("GET", "/status")
        return answer

    def history(self) -> Any:
        """Return the current life's figures over time, `GET /history`."""
        return self._ask("GET", "/history")

    def snapshots(self) -> list[dict[str, Any]]:
        """Return the snapshots of this life, oldest first; each has at least `id`, `name`, `phase` and `why`."""
        answer: list[dict[str, Any]] = self._ask("GET", "/snapshots")
        return answer

    def take_snapshot(self, *, name: str | None = None, key: str | None = None, commit: bool = True) -> dict[str, Any]:
        """Request a snapshot; `snapshots` shows its progress.

        Args:
            name: the snapshot's name; one with a name is never pruned.
            key: the request's; a second request with one key gets the snapshot of the first.
            commit: whether the job commits it as soon as it is sealed.
        """
        asked = {"name": name, "commit": commit} | ({} if key is None else {"key": key})
        answer: dict[str, Any] = self._ask("POST", "/snapshots", json.dumps(asked).encode())
        return answer

    def stop(self) -> None:
        """Ask the job to stop; returns when that has begun."""
        self._ask("POST", "/stop")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            status, answer = ask(self._at, self._token, method, path, body, limit_s=self._limit_s)
        except AddressUnproven as error:
            raise TokenRefused(error.what, where=error.where, way_out=error.way_out) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        if status == HTTPStatus.UNAUTHORIZED:
            raise TokenRefused(
                "the job does not accept this token",
                where=f"its control API at {self._at.address}",
                way_out="give the job a [control].token_file, and the Airflow connection its content as password",
            )
        try:
            value = json.loads(answer)
        except ValueError:
            value = None
        if status >= HTTPStatus.BAD_REQUEST:
            raise self._refusal(status, value, answer)
        if value is None:
            raise self._unreachable(f"its answer is not JSON: {answer[:100].decode(errors='replace')!r}")
        return value

    def _refusal(self, status: int, value: Any, answer: bytes) -> ControlRefused | ControlUnreachable:
        known = isinstance(value, dict) and "error" in value and "what_to_do" in value
        if known and status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return ControlRefused(str(value["error"]), where=self._at.address, way_out=str(value["what_to_do"]))
        return self._unreachable(f"it answered {status}: {answer[:500].decode(errors='replace')}")

    def _unreachable(self, why: str) -> ControlUnreachable:
        return ControlUnreachable(
            f"the job's control API does not answer: {why}",
            where=self._at.address,
            way_out="this machine must reach it: set the job's [control].host and port, then try again",
        )
