"""Redis, by a script that compares the version beside the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lowtide.errors import ConfError, ServiceUnavailable
from lowtide.sinks.puts.contract import Put, PutClient, Refused, Unavailable

if TYPE_CHECKING:
    from lowtide.conf import Conf
    from lowtide.sinks.staged.contract import Carriage

REQUEST_S = 10.0
FORGET_MS = 24 * 3_600_000
"""Retention of a deleted key's version."""
COMPARING = """
local older = 0
for i, key in ipairs(KEYS) do
    local version, value = ARGV[2 * i], ARGV[2 * i + 1]
    local was = redis.pcall('HGET', key, 'version')
    if type(was) == 'table' then
        return {i, was.err, older}
    elseif not was or was <= version then
        if value == '' then
            redis.call('DEL', key)
            redis.call('HSET', key, 'version', version)
            redis.call('PEXPIRE', key, ARGV[1])
        else
            redis.call('HSET', key, 'value', value, 'version', version)
            if was then
                redis.call('PERSIST', key)
            end
        end
    else
        older = older + 1
    end
end
return {0, '', older}
"""
"""Puts several keys. Versions have 19 digits, as Lua would lose the last ones of a number; an empty value deletes. A
key that is not a hash ends it; those before have been put, and may be again."""
SCRIPT = COMPARING.encode()


@dataclass(frozen=True, slots=True)
class Redis:
    """A server; `lt.redis` makes one.

    Attributes:
        connection: Which of the conf's.
    """

    connection: str = "default"
    compares: ClassVar[bool] = True

    def settings(self, conf: Conf) -> Mapping[str, Any]:
        """Return the client's arguments, the password included (errors: ConfError)."""
        from lowtide.sinks.puts.access import redis_settings

        redis_of()
        return {"redis": redis_settings(conf, self.connection), "table": f"redis.{self.connection}"}

    def client(self, name: str, carriage: Carriage) -> PutClient:
        """Return a line's client."""
        return RedisClient(name, carriage)

    def meets(self, name: str, other: str) -> bool:
        """Return whether a key under one name could be one under the other, which begins with it."""
        return prefix_of(other).startswith(prefix_of(name))

    def __str__(self) -> str:
        return "redis" if self.connection == "default" else f"redis of {self.connection}"


class RedisClient:
    """Puts a batch by one call of the script.

    Attributes:
        older: Puts that the server has refused as older.
    """

    def __init__(self, name: str, carriage: Carriage) -> None:
        self._redis, self._prefix = redis_of(), prefix_of(name)
        self.older = 0
        self._url, self._table = carriage.settings["redis"]["url"], carriage.settings["table"]
        # Its own retries would lie below ours, and know less.
        self._client: Any = self._redis.Redis.from_url(
            **carriage.settings["redis"],
            socket_timeout=REQUEST_S,
            socket_connect_timeout=REQUEST_S,
            retry=self._redis.retry.Retry(self._redis.backoff.NoBackoff(), 0),
        )

    def put(self, puts: Sequence[Put]) -> None:
        """Return once Redis has each put, or has a newer one (errors: as `PutClient.put`)."""
        prefix = self._prefix
        given = [b"EVAL", SCRIPT, b"%d" % len(puts), *[f"{prefix}{put.key}".encode() for put in puts]]
        given.append(b"%d" % FORGET_MS)
        for put in puts:
            given += b"%019d" % put.version, put.value or b""
        try:
            place, answer, older = self._client.execute_command(*given)
        except (self._redis.AuthenticationError, self._redis.exceptions.NoPermissionError) as error:
            raise self._denied(error) from error
        except self._redis.RedisError as error:
            # Not about one record: no answer, no room, a server that loads or has become a replica.
            self._client.connection_pool.disconnect()
            raise Unavailable(f"{self._url}: {error}") from error
        self.older += older
        if place:
            key = puts[place - 1].key
            raise Refused(key, f"{self._url}, key {prefix}{key}: {answer.decode(errors='replace')}")

    def close(self) -> None:
        """Close the connection."""
        with suppress(self._redis.RedisError):
            self._client.close()

    def _denied(self, error: Exception) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"Redis refuses the login: {error}",
            where=self._url,
            way_out=f"correct [{self._table}] of the conf, or give its user the rights of docs/puts.md",
        )


def prefix_of(name: str) -> str:
    """Return what the keys of a sink begin with; its name and a record's key may have a colon, too."""
    return f"{name}:"


def redis_of() -> Any:
    """Return the client's package (errors: ConfError if it is not installed)."""
    try:
        import redis
        import redis.backoff
        import redis.retry
    except ImportError as error:
        raise ConfError(
            f"the flow puts records into Redis, and its client cannot be imported: {error}",
            way_out="pip install 'lowtide[redis]', on the driver's machine",
        ) from error
    return redis


def redis(connection: str = "default") -> Redis:
    """Name a Redis server for `lt.puts`.

    Each record is a hash `NAME:KEY`, NAME being the sink's, with the fields `value`, the record as JSON, and `version`.
    A deleted one has no `value`; its version is kept for a day.

    Args:
        connection: A table `[redis.NAME]` of the conf, which has the url and the login.

    Example:
        >>> orders.write("cached", lt.puts("orders", Order, key="user", put=lt.redis()))
        >>> flow.run_locally(orders=[Order("ada", 5)])
        {'cached': [Order(user='ada', amount=5)]}
    """
    return Redis(connection)
