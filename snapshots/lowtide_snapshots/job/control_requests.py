"""Requests to a running job's control API, and what its answers mean; its users have types of their own."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Sequence
from http import HTTPStatus
from typing import ClassVar

from lowtide_snapshots.errors import AddressUnproven, ControlRefused, ControlUnreachable, TokenRefused
from lowtide_snapshots.job.control_address import ControlAddress, ask, listen
from lowtide_snapshots.job.news import SILENCE_S, News, NewsReader, events_path

LIMIT_S = 5.0
"""Limit on each step of an answer."""
QUOTED_BYTES = 500
MAX_REFUSAL_BYTES = 8 << 10


class ControlRequests:
    """A job's control API; each request opens a new connection.

    Args:
        at: Its address, as the life has published it in ZooKeeper.
        token: The job's; sent only to the life that published the address.
        limit_s: Limit on each step of an answer.

    Attributes:
        way_there: What to do when it does not answer.
        way_in: Where its token is.

    Raises:
        ControlUnreachable: by every method: there was no answer.
        TokenRefused: by every method: the token is not this job's, or the address is not shown to be.
        ControlRefused: by every method: it does not do that, and says why.
    """

    way_there: ClassVar[str] = "`lowtide status` shows whether the job still runs; then try again"
    way_in: ClassVar[str] = "the file `token` in the job's folder has the token of its current life"

    def __init__(self, at: ControlAddress, token: str, limit_s: float = LIMIT_S) -> None:
        self._at = at
        self._token = token
        self._limit_s = limit_s

    @property
    def address(self) -> ControlAddress:
        """The address of the control API."""
        return self._at

    @property
    def token(self) -> str:
        """The token for its requests."""
        return self._token

    def stop(self) -> None:
        """Ask the job to end: what its sinks were given is delivered first. Returns when that has begun."""
        self._ask("POST", "/stop")

    def hand_over(self) -> None:
        """Ask the job to end for a standby to continue it; refused if none waits. Returns when that has begun."""
        self._ask("POST", "/stop", json.dumps({"hand_over": True}).encode())

    def _take(self, name: str | None, *, commit: bool, key: str | None = None) -> bytes:
        """Ask for a snapshot; a second request with one key gets the snapshot of the first."""
        asked = {"name": name, "commit": commit} | ({} if key is None else {"key": key})
        return self._ask("POST", "/snapshots", json.dumps(asked).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of an answer."""
        try:
            status, answer = ask(self._at, self._token, method, path, body, limit_s=self._limit_s)
        except AddressUnproven as error:
            raise self._unproven(error) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        return self._accepted(status, answer)

    def listen(
        self, about: Sequence[str], *, at_ms: int | None = None, last_id: str = "", until_s: float | None = None
    ) -> Generator[News, None, None]:
        """Subscribe: yield the news of one life, until it has ended, the connection is lost or all subjects are done.

        Args:
            about: Subjects, as `lowtide_snapshots.job.news` has them.
            at_ms: Tell of each once, when it has come to this time.
            last_id: The id of the last news that the subscriber has had of them; empty for none.
            until_s: When to end, by `time.monotonic`; None for never.

        Raises:
            ControlUnreachable: the connection is lost, too.
        """
        reader, refused = NewsReader(), b""
        status = 0
        path = events_path(about, at_ms)
        try:
            for status, line in listen(
                self._at, self._token, path, last_id=last_id, silence_s=SILENCE_S, until_s=until_s
            ):
                if status != HTTPStatus.OK:
                    refused += line[: MAX_REFUSAL_BYTES - len(refused)]
                    continue
                news = reader.read(line)
                if news is not None:
                    yield news
        except AddressUnproven as error:
            raise self._unproven(error) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        if status not in (0, HTTPStatus.OK):
            self._accepted(status, refused)

    def _accepted(self, status: int, answer: bytes) -> bytes:
        """Return an answer that is none of refusal."""
        at = self._at.address
        if status == HTTPStatus.UNAUTHORIZED:
            raise TokenRefused("the job does not accept this token", where=at, way_out=self.way_in)
        if status < HTTPStatus.BAD_REQUEST:
            return answer
        refusal = _refusal(answer) if status < HTTPStatus.INTERNAL_SERVER_ERROR else None
        if refusal is None:
            raise self._unreachable(f"it answered {status}: {answer[:QUOTED_BYTES].decode(errors='replace')}")
        raise ControlRefused(refusal[0], where=at, way_out=refusal[1])

    def _unreachable(self, why: str) -> ControlUnreachable:
        what = f"the job's control API does not answer: {why}"
        return ControlUnreachable(what, where=self._at.address, way_out=self.way_there)

    @staticmethod
    def _unproven(error: AddressUnproven) -> TokenRefused:
        return TokenRefused(error.what, where=error.where, way_out=error.way_out)


def _refusal(answer: bytes) -> tuple[str, str] | None:
    """Return the job's refusal and its way out, if the answer has them."""
    try:
        match json.loads(answer):
            case {"error": str(what), "what_to_do": str(way_out)}:
                return what, way_out
    except ValueError:
        pass
    return None
