"""Asks a running job's control API; each question is a connection of its own."""

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
        at: where it is, as the job's place in ZooKeeper tells it.
        token: what it asks for; sent to nobody but the life that has published that address.
        limit_s: how long one step of an answer may take.
    """

    def __init__(self, at: ControlAddress, token: str, limit_s: float = 5.0) -> None:
        self._at = at
        self._token = token
        self._limit_s = limit_s

    def status(self) -> dict[str, Any]:
        """Everything that is known of the running job, as `GET /status` tells it; times are ms since 1970."""
        answer: dict[str, Any] = self._ask("GET", "/status")
        return answer

    def history(self) -> Any:
        """What the life has looked like, as `GET /history` tells it."""
        return self._ask("GET", "/history")

    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots of this life, oldest first; each has at least `id`, `name`, `phase` and `why`."""
        answer: list[dict[str, Any]] = self._ask("GET", "/snapshots")
        return answer

    def take_snapshot(self, *, name: str | None = None, key: str | None = None, commit: bool = True) -> dict[str, Any]:
        """Ask for a snapshot; `snapshots` tells what becomes of it.

        Args:
            name: what to call it; one with a name is never pruned.
            key: of this request; a life that knows it answers with the snapshot that it has begun for it.
            commit: whether the job commits it as soon as it is sealed.
        """
        asked = {"name": name, "commit": commit} | ({} if key is None else {"key": key})
        answer: dict[str, Any] = self._ask("POST", "/snapshots", json.dumps(asked).encode())
        return answer

    def stop(self) -> None:
        """Ask the job to end; returns when that has begun."""
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
                "the job does not take this token",
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
            raise self._unreachable(f"what it answered is no JSON: {answer[:100].decode(errors='replace')!r}")
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
            way_out="this machine must reach it: set [control].host and port of the job; then ask again",
        )
