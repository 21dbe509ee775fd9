"""TLS on the connection to ZooKeeper: only the conf's authority is believed, and the server's name is checked."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """The files for it, all in PEM.

    Attributes:
        ca_file: the authority that has signed the servers' certificates.
        certificate_file: our own certificate, where the servers ask for one.
        key_file: its key, without a password.
    """

    ca_file: str
    certificate_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files (errors: OSError, of which `ssl.SSLError` is one)."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # ZooKeeper on an older Java has no other.
        context.load_verify_locations(self.ca_file)
        if self.certificate_file is not None:
            context.load_cert_chain(self.certificate_file, self.key_file)
        return context


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler with our TLS: kazoo's own believes all authorities of the system, and checks no name.

    Attributes:
        why: the reason that the last try to connect failed for TLS; empty if it did not.
    """

    def __init__(self, tls: ZooKeeperTls) -> None:
        super().__init__()
        self.why = ""
        self._tls = tls

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, hostname: str | None = None, **_settings: Any
    ) -> ssl.SSLSocket:
        """Connect, and agree on TLS; the files are read each time, as they may be renewed."""
        connection = socket.create_connection(address, timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            secured = self._tls.context().wrap_socket(connection, server_hostname=hostname or address[0])
        except BaseException as error:
            connection.close()
            self.why = str(error) if isinstance(error, OSError) else ""
            raise
        self.why = ""
        return secured

    def select(self, read: list[Any], *more: Any) -> Any:
        """Wait as `select` does, but not for what TLS has received already, which no kernel announces."""
        ready = [each for each in read if isinstance(each, ssl.SSLSocket) and each.pending()]
        return (ready, [], []) if ready else super().select(read, *more)
