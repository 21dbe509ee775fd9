"""An HTTP server that takes puts: one request for each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lowtide.sinks.puts.contract import Put, PutClient, Refused

if TYPE_CHECKING:
    from lowtide.conf import Conf
    from lowtide.sinks.staged.contract import Carriage

OLDER = (409, 412)
GONE = (404, 410)


@dataclass(frozen=True, slots=True)
class Http:
    """A server; `lt.http` makes one.

    Attributes:
        connection: Which of the conf's.
        compares: True if it refuses older versions.
    """

    connection: str = "default"
    compares: bool = False

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return where it is and how to log in (errors: ConfError)."""
        from lowtide.sinks.puts.access import web_settings

        return web_settings(conf.http, "http", self.connection, "Bearer")

    def client(self, name: str, carriage: Carriage) -> PutClient:
        """Return a line's client."""
        return HttpClient(name, carriage)

    def meets(self, name: str, other: str) -> bool:
        """Return whether the names are one path, if more or fewer slashes are none to the server."""
        return name.strip("/") == other.strip("/")

    def __str__(self) -> str:
        return "http" if self.connection == "default" else f"http of {self.connection}"


class HttpClient:
    """Sends `PUT URL/NAME/KEY`, or DELETE, with the version; one request after the other.

    Attributes:
        older: Puts that the server has refused as older.
    """

    def __init__(self, name: str, carriage: Carriage) -> None:
        from lowtide.sinks.puts.web import Web

        self._name, self._job_id, self._web = name, carriage.job_id, Web(carriage.settings)
        self.older = 0

    def put(self, puts: Sequence[Put]) -> None:
        """Return once the server has answered each put (errors: as `PutClient.put`)."""
        from lowtide.sinks.puts.web import shown

        for put in puts:
            path, headers = f"/{quote(self._name)}/{quote(put.key, safe='')}", self._headers(put)
            if put.value is None:
                status, text = self._web.ask("DELETE", path, None, headers)
            else:
                headers["Content-Type"] = "application/json"
                status, text = self._web.ask("PUT", path, put.value, headers)
            self.older += status in OLDER
            done = 200 <= status < 300 or status in OLDER or (put.value is None and status in GONE)
            if not done:
                raise Refused(put.key, f"{self._web.url}{path} answers {shown(status, text)}")

    def close(self) -> None:
        """Close the connection."""
        self._web.close()

    def _headers(self, put: Put) -> dict[str, str]:
        """Return the same headers each time that a put comes, and others for any other put."""
        named = f"{self._job_id}/{self._name}/{put.key}/{put.version}"
        once = hashlib.blake2b(named.encode(), digest_size=16).hexdigest()
        return {"Idempotency-Key": once, "Lowtide-Version": str(put.version)}


def http(connection: str = "default", *, compares: bool = False) -> Http:
    """Name an HTTP server for `lt.puts`.

    Each record is `PUT URL/NAME/KEY` with JSON, one that deletes `DELETE`; NAME is the sink's. The header
    `Lowtide-Version` is a number that grows with each record of a key, `Idempotency-Key` a text that only the same
    record has again. The server answers 2xx once it has the record for good, 409 or 412 if it has a newer version.

    Args:
        connection: A table `[http.NAME]` of the conf, which has the url and the login.
        compares: True if the server compares the version and refuses an older one.

    Example:
        >>> sink = lt.puts("orders", Order, key="user", put=lt.http(compares=True))
        >>> orders.write("docs", sink)
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'docs': [Order(user='ada', amount=5)]}
    """
    return Http(connection, compares)
