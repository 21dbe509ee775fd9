"""Requests to Azure, whose answers come whole within a limit, and whose failures repeat no secret."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import requests
from azure.core.exceptions import AzureError, ServiceResponseError, ServiceResponseTimeoutError
from azure.core.pipeline.transport import RequestsTransport

from lowtide_snapshots.stores.azure_answers import NotTrusted

CHUNK_BYTES = 1 << 16
CONNECTIONS = 32

# Azure's clients report each request at the level INFO, at which Lowtide's processes log.
LOGGER = logging.getLogger(__name__)
LOGGER.setLevel(logging.WARNING)

_QUERY = re.compile(r"\?[^\s'\")]*")


class Transport(RequestsTransport):  # type: ignore[misc]
    """Sends requests one try each.

    A query may hold a SAS token, and what goes wrong in `requests` repeats the URL: so failures lose it here, and what
    caused them.

    Args:
        one_s: how long to wait for a connection and for what comes next, and half of the time for a whole answer.
    """

    def __init__(self, one_s: float) -> None:
        super().__init__(connection_timeout=one_s, read_timeout=one_s, connection_data_block_size=CHUNK_BYTES)
        self._whole_s = 2 * one_s

    def send(self, request: Any, **options: Any) -> Any:
        """Send a request, and read the answer whole.

        Raises:
            AzureError: there is none, or it is cut, or comes in drops.
        """
        streamed = options.pop("stream", False)
        try:
            answer = super().send(request, stream=True, **options)
            self._read(answer.internal_response)
        except AzureError as error:
            untrusted = isinstance(error.inner_exception, requests.exceptions.SSLError)
            kind = NotTrusted if untrusted else type(error)
            said = _QUERY.sub("", str(error))
        except requests.RequestException as error:
            kind, said = ServiceResponseError, _QUERY.sub("", str(error))
        else:
            if not streamed and hasattr(answer, "read"):
                answer.read()
            return answer
        raise kind(said)

    def _init_session(self, session: requests.Session) -> None:
        super()._init_session(session)
        for adapter in session.adapters.values():
            adapter.init_poolmanager(CONNECTIONS, CONNECTIONS)  # type: ignore[attr-defined]

    def _read(self, answer: Any) -> None:
        deadline = time.monotonic() + self._whole_s
        chunks = []
        for chunk in answer.iter_content(CHUNK_BYTES):
            chunks.append(chunk)
            if time.monotonic() > deadline:
                answer.close()
                raise ServiceResponseTimeoutError("an answer arrives too slowly")
        # Where `requests` keeps a body that it has read itself.
        answer._content = b"".join(chunks)
