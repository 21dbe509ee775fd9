"""Elasticsearch and OpenSearch, by the bulk API, with versions of their own keeping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import msgspec

from lowtide.sinks.puts.contract import Put, PutClient, Refused, Unavailable

if TYPE_CHECKING:
    from lowtide.conf import Conf
    from lowtide.sinks.staged.contract import Carriage

ASKED = "?filter_path=errors,items.*._id,items.*.status,items.*.error"
CONFLICT, ABSENT, BUSY = 409, 404, 429


@dataclass(frozen=True, slots=True)
class Elasticsearch:
    """A cluster; `lt.elasticsearch` makes one.

    Attributes:
        connection: Which of the conf's.
    """

    connection: str = "default"
    compares: ClassVar[bool] = True

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return where it is and how to log in (errors: ConfError)."""
        from lowtide.sinks.puts.access import web_settings

        return web_settings(conf.elasticsearch, "elasticsearch", self.connection, "ApiKey")

    def client(self, name: str, carriage: Carriage) -> PutClient:
        """Return a line's client."""
        return ElasticsearchClient(name, carriage)

    def __str__(self) -> str:
        return "elasticsearch" if self.connection == "default" else f"elasticsearch of {self.connection}"


class ElasticsearchClient:
    """Sends a batch as one bulk request, each put with its version (`external_gte`).

    Attributes:
        older: Puts that the index has refused as older.
    """

    def __init__(self, index: str, carriage: Carriage) -> None:
        from lowtide.sinks.puts.web import Web

        self._path, self._web = f"/{quote(index, safe='')}/_bulk{ASKED}", Web(carriage.settings)
        self.older = 0
        self._line = msgspec.json.Encoder().encode

    def put(self, puts: Sequence[Put]) -> None:
        """Return once the index has each put, or has a newer one (errors: as `PutClient.put`)."""
        from lowtide.sinks.puts.web import shown

        lines = []
        for put in puts:
            about = {"_id": put.key, "version": put.version, "version_type": "external_gte"}
            if put.value is None:
                lines.append(self._line({"delete": about}))
            else:
                lines += self._line({"index": about}), put.value
        body = b"\n".join([*lines, b""])
        status, text = self._web.ask("POST", self._path, body, {"Content-Type": "application/x-ndjson"})
        if status != 200:
            raise Refused(puts[0].key, f"{self._web.url} answers the whole batch with {shown(status, text)}")
        try:
            found = msgspec.json.decode(text)
            items = [item for each in found["items"] for item in each.values()] if found["errors"] else []
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise Unavailable(f"{self._web.url} answers {shown(status, text)}") from error
        self._judge(puts, items)

    def close(self) -> None:
        """Close the connection."""
        self._web.close()

    def _judge(self, puts: Sequence[Put], items: Sequence[Mapping[str, Any]]) -> None:
        for put, item in zip(puts, items, strict=False):
            status = item["status"]
            self.older += status == CONFLICT
            done = status < 300 or status == CONFLICT or (put.value is None and status == ABSENT)
            if done:
                continue
            error = item.get("error") or {}
            cause = error.get("caused_by") or {}
            answer = f"{status} {error.get('type')}: {error.get('reason')} {cause.get('reason', '')}".strip()
            if status == BUSY or status >= 500:
                raise Unavailable(f"{self._web.url} answers {answer}")
            raise Refused(put.key, f"{self._web.url} answers {answer}")


def elasticsearch(connection: str = "default") -> Elasticsearch:
    """Name an Elasticsearch or OpenSearch cluster for `lt.puts`, whose name is the index, and each key an `_id`.

    The index keeps the version and refuses an older one. It forgets that of a deleted document after
    `index.gc_deletes` (60 s by default): raise it to what a request may take on its way.

    Args:
        connection: A table `[elasticsearch.NAME]` of the conf, which has the url and the login.

    Example:
        >>> orders.write("found", lt.puts("orders", Order, key="user", put=lt.elasticsearch()))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'found': [Order(user='ada', amount=5)]}
    """
    return Elasticsearch(connection)
