"""The doors at which a job's processes listen for each other, and what their addresses say.

- `unix:/path`: a Unix socket, for processes of the same machine and user; never given to a process that may be on
  another machine.
- `tls:host:port`: TCP under TLS.
- `host:port`: TCP in the clear.

At each, both ends prove that they know the job's secret.
"""

from __future__ import annotations

import socket
from enum import StrEnum

from lowtide.process.credentials import address_of, secured
from lowtide.process.sockets_folder import SocketsFolder
from lowtide_tracker.strangers import BACKLOG
from lowtide_tracker.unix import is_unix


class DoorKind(StrEnum):
    """All processes of a start listen at doors of one kind; hosts have a Unix socket besides."""

    UNIX = "unix"
    """All processes are on one machine."""
    TLS = "tls"
    TCP = "tcp"

    @classmethod
    def of(cls, address: str) -> DoorKind:
        """Return what an address is of."""
        return cls.UNIX if is_unix(address) else cls.TLS if secured(address) else cls.TCP


class Doors:
    """Opens a process's doors, all of one kind.

    Args:
        kind: The kind.
        host: The host at which to listen for other machines; a name or an address.
        called: What other machines call this one, if not as it is called here.

    Attributes:
        kind: The kind.
        tls: Whether connections are under TLS.

    Raises:
        SocketsRefused: a folder for Unix sockets cannot be made.
    """

    def __init__(self, kind: DoorKind, host: str, called: str = "") -> None:
        self.kind = kind
        self.tls = kind == DoorKind.TLS
        self._host = host
        self._called = called
        self._folder = SocketsFolder() if kind == DoorKind.UNIX else None

    def open(self, name: str) -> tuple[socket.socket, str]:
        """Listen; return the socket and its address.

        Args:
            name: What listens, in a few letters.

        Raises:
            OSError: the host is not this machine's.
            SocketsRefused: the system does not allow a Unix socket.
        """
        if self._folder is not None:
            return self._folder.listen(name)
        listener = socket.create_server((self._host, 0), backlog=BACKLOG)
        host, port = listener.getsockname()[:2]
        return listener, address_of(f"{self._called or host}:{port}", tls=self.tls)

    def close(self) -> None:
        """Remove what the doors have left on the disk; the sockets belong to those who asked for them."""
        if self._folder is not None:
            self._folder.close()
