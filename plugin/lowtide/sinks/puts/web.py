"""A connection to one HTTP server, kept open between requests."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from lowtide.errors import ServiceUnavailable
from lowtide.sinks.puts.contract import Unavailable

REQUEST_S = 10.0
"""Limit on the server's silence."""
SHOWN = 300
"""Characters of an answer in an error."""
AGAIN = (408, 425, 429)
"""Answers after which the same request may be repeated, besides all of 5xx."""

Answer = tuple[int, bytes]


class Web:
    """One server; requests follow each other.

    Args:
        settings: What `web_settings` returned.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.url, self._table = settings["url"], settings["table"]
        parts = urlsplit(self.url)
        assert parts.hostname is not None, "the conf takes an url with a host only"
        self._path = parts.path
        self._headers = {} if settings["login"] is None else {"Authorization": settings["login"]}
        self._http: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=settings["ca_file"])
            if settings["certificate_file"] is not None:
                context.load_cert_chain(settings["certificate_file"], settings["key_file"])
            self._http = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=REQUEST_S, context=context)
        else:
            self._http = http.client.HTTPConnection(parts.hostname, parts.port, timeout=REQUEST_S)

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Return the status and the body of the answer; no redirect is followed.

        Raises:
            Unavailable, OSError: there is no answer, or the server asks to come again.
            ServiceUnavailable: it refuses the login.
        """
        try:
            self._http.request(method, self._path + path, body, {**self._headers, **headers})
            answer = self._http.getresponse()
            status, text = answer.status, answer.read()
        except http.client.HTTPException as error:
            self._http.close()
            raise Unavailable(f"{type(error).__name__}: {error}") from error
        except BaseException:
            # Whatever comes on this connection now belongs to the request that failed.
            self._http.close()
            raise
        if status in AGAIN or status >= 500:
            raise Unavailable(f"{self.url} answers {shown(status, text)}")
        if status in (401, 403):
            raise ServiceUnavailable(
                f"the store refuses the login: {shown(status, text)}",
                where=self.url,
                way_out=f"correct [{self._table}] of the conf, or give its user the right to write",
            )
        return status, text

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def shown(status: int, text: bytes) -> str:
    """Return an answer for an error."""
    return f"{status} {text[:SHOWN].decode(errors='replace')}".strip()
